"""Figures show in a script, once in a notebook, and do not pile up."""

import io
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pytest

from lexppl.plots import plot_history, plot_importance
from tests.plots import windows
from tests.plots.test_plots import history_of, random_posterior

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")


@pytest.fixture(params=["agg", "module://tests.plots.windows"], ids=["agg", "windows"])
def backend(request):
    before = plt.get_backend()
    plt.close("all")
    plt.switch_backend(request.param)
    windows.SHOWN.clear()
    yield request.param
    plt.close("all")
    plt.switch_backend(before)


def pixels(save):
    file = io.BytesIO()
    save(file, format="png", dpi=50)
    return plt.imread(io.BytesIO(file.getvalue()))


@pytest.mark.smoke
def test_a_script_shows_and_saves_it_by_pyplot(backend):
    plot_importance(random_posterior())
    figure = plot_history(history_of([[0.5], [0.4]]))
    assert plt.gcf() is figure and len(plt.get_fignums()) == 2
    np.testing.assert_array_equal(pixels(plt.savefig), pixels(figure.savefig))
    assert pixels(plt.savefig).std() > 0.01
    if backend != "agg":
        plt.show()
        assert len(windows.SHOWN) == 2 and windows.SHOWN[-1] is figure
        # As the value of a cell it stands in its window, and is not shown again.
        figure._ipython_display_()
        assert plt.gcf() is figure


@pytest.mark.parametrize("backend", ["agg"], indirect=True)
def test_a_loop_leaves_few_open(backend):
    other = plt.figure()
    with warnings.catch_warnings(action="error"):
        figures = [plot_importance(random_posterior()) for _ in range(14)]
    assert len(plt.get_fignums()) == 11 and plt.fignum_exists(other.number)
    assert plt.gcf() is figures[-1]
    np.testing.assert_array_equal(pixels(figures[0].savefig), pixels(figures[-1].savefig))


CELLS = {
    "value": "plot_importance(posterior)",
    "semicolon": "plot_importance(posterior);",
    "name": "figure = plot_importance(posterior)\nfigure",
    "held": "figure",
    "assigned": "figure = plot_importance(posterior)",
    "displayed": "display(plot_importance(posterior)); print('more')",
    "shown": "plot_importance(posterior)\nplt.show()",
    "two": "plot_importance(posterior)\nplot_importance(posterior)",
}


def test_a_notebook_shows_it_once():
    first = (
        "%matplotlib inline\n"
        "from lexppl.plots import plot_importance\n"
        "import matplotlib.pyplot as plt\n"
        "from tests.plots.test_plots import random_posterior\n"
        "posterior = random_posterior()"
    )
    cells = [
        nbformat.v4.new_code_cell(code) for code in (first, *CELLS.values(), "plt.get_fignums()")
    ]
    book = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
    for name, cell in zip(CELLS, book.cells[1:-1], strict=True):
        images = [o for o in cell.outputs if "image/png" in o.get("data", {})]
        assert len(images) == (2 if name == "two" else 1), name
    assert book.cells[-1].outputs[0]["data"]["text/plain"] == "[]"
