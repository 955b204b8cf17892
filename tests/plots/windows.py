"""A backend of matplotlib whose windows are a list."""

from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

SHOWN = []


class FigureManager(FigureManagerBase):
    @classmethod
    def pyplot_show(cls, *, block=None):
        SHOWN.extend(manager.canvas.figure for manager in Gcf.get_all_fig_managers())


class FigureCanvas(FigureCanvasAgg):
    manager_class = FigureManager
