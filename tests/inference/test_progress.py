"""The bar of a fit: on a terminal, and nowhere else."""

import io
import sys

import pytest
import torch

from lexppl import fit
from lexppl.systems import lex


class StandardError(io.StringIO):
    """A stream that is a terminal or not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.filterwarnings("ignore::lexppl.inference.CollapseWarning")
@pytest.mark.parametrize(
    ("terminal", "progress", "shown"),
    [(True, True, True), (False, True, False), (True, False, False)],
)
def test_a_bar_is_for_a_terminal(terminal, progress, shown, monkeypatch):
    stream = StandardError(terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    system = lex(3, classes=2, hidden=(4,), predictor_hidden=(4,))
    fit(system, (x, (x[:, 0] > 0).long()), epochs=1, progress=progress)
    assert ("epoch" in stream.getvalue()) == shown
