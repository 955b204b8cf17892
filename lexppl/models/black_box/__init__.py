"""A black box of any make as one thing: from rows to the probabilities or responses it gives."""

from lexppl.models.black_box.box import BlackBox, Task
from lexppl.models.black_box.outputs import Output, distribution_targets
from lexppl.models.black_box.wrapping import black_box

__all__ = ["BlackBox", "Output", "Task", "black_box", "distribution_targets"]
