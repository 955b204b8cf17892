"""The bar of a fit: on a terminal, and nowhere else."""

import io
import re
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


@pytest.mark.filterwarnings("ignore::lexppl.inference.CollapseWarning")
@pytest.mark.parametrize("terminal", [True, False])
def test_lines_are_one_an_epoch_wherever_they_go(terminal, monkeypatch):
    stream = StandardError(terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    system = lex(3, classes=2, hidden=(4,), predictor_hidden=(4,))
    result = fit(system, (x, (x[:, 0] > 0).long()), epochs=3, progress="lines")
    lines = stream.getvalue().splitlines()
    told = [re.fullmatch(r"epoch (\d) of 3: train (\S+), valid (\S+), \S+ s", one) for one in lines]
    assert [int(one[1]) for one in told] == [1, 2, 3]
    losses = [(float(one[2]), float(one[3])) for one in told]
    written = zip(result.history.train[:, 0], result.history.valid[:, 0], strict=True)
    for found, expected in zip(losses, written, strict=True):
        assert found == pytest.approx(expected, abs=1e-4)


def test_what_is_no_progress_is_refused():
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    system = lex(3, classes=2, hidden=(4,), predictor_hidden=(4,))
    with pytest.raises(ValueError, match='progress must be True, False or "lines"'):
        fit(system, (x, (x[:, 0] > 0).long()), epochs=1, progress="line")
