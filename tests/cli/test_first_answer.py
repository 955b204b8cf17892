"""The terminal's first answer: the time to go, and the ranking so far."""

import io
import sys

import numpy as np
import pytest
import torch

from lexppl.cli.first_answer import FirstAnswer, first_answer, ranking_line, time_to_go
from lexppl.data import load
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.systems.fit_plan import plan_for
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.table_fit import fit_table


class Terminal(io.StringIO):
    def isatty(self):
        return True


def on_terminal(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def small_fit(watch=None, method="lex", epochs=20):
    data = load("wine")
    rows = EncodedRows.of(data, range(0, 178, 2), range(1, 178, 2))
    plan = plan_for(89, data.n_entries, method, epochs=epochs, hidden=(4,), predictor_hidden=(4,))
    return fit_table(plan, rows, watch=watch)


@pytest.mark.parametrize("method", ["lex", "invase", "l2x"])
def test_ranking_is_that_of_the_selectors_and_the_fit_is_unchanged(method, monkeypatch):
    terminal, pairs = on_terminal(monkeypatch), []

    class Watched(FirstAnswer):
        def _kept(self, replicates):
            kept = super()._kept(replicates)
            x = self._rows[0]
            with torch.no_grad(), torch.random.fork_rng():
                laws = [one.stages[-1].terms[0].model.selector(x) for one in replicates]
                pairs.append((kept, torch.stack([law.mean.mean(0) for law in laws]).mean(0)))
            return kept

    def watch(rows):
        return [Watched(rows, FeatureGroups.alone([f"x{g}" for g in range(13)]), 0)]

    state = torch.get_rng_state()
    fitted = small_fit(watch, method)
    assert torch.equal(state, torch.get_rng_state())
    alone = small_fit(None, method)
    for one, other in zip(fitted.result.models, alone.result.models, strict=True):
        for ours, theirs in zip(one.parameters(), other.parameters(), strict=True):
            assert torch.equal(ours, theirs)
    assert len(pairs) >= 8
    for kept, expected in pairs:
        np.testing.assert_allclose(kept, expected.numpy(), rtol=1e-4)
    assert terminal.getvalue().count("to go") == 1


@pytest.mark.parametrize("method", ["senn", "suwr"])
def test_masks_that_do_not_select_or_state_no_mean_have_no_ranking(method, monkeypatch):
    terminal = on_terminal(monkeypatch)
    groups = FeatureGroups.alone([f"x{g}" for g in range(13)])
    small_fit(lambda rows: first_answer(rows, groups, 0, quiet=False), method, epochs=3)
    shown = terminal.getvalue()
    assert "to go" in shown and "so far" not in shown


def test_a_pipe_has_no_first_answer(monkeypatch):
    rows, groups = (torch.zeros(3, 2), torch.zeros(3)), FeatureGroups.alone(["a", "b"])
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert first_answer(rows, groups, 0, quiet=False) == ()
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert first_answer(rows, groups, 0, quiet=True) == ()
    assert len(first_answer(rows, groups, 0, quiet=False)) == 1


def test_groups_are_kept_where_a_member_is():
    groups = FeatureGroups(("size", "age", "sex"), ((0, 2), (1,), (3,)))
    line = ranking_line(0.5, np.array([0.5, 0.1, 0.5, 0.2]), groups)
    assert line == "kept most so far (50 % of the fit): size .75, sex .20, age .10"
    assert "nothing stands out" in ranking_line(0.1, np.full(4, 0.8), FeatureGroups.alone("abcd"))
    assert ranking_line(0.1, np.full(3, 0.8), groups) == ""


@pytest.mark.parametrize(("seconds", "words"), [(0.4, "0 s"), (52.0, "50 s"), (600.0, "10.0 min")])
def test_time_is_rounded(seconds, words):
    assert time_to_go(seconds) == f"about {words} to go"


def test_rest_is_timed_from_the_first_epochs(monkeypatch):
    clock, terminal = [0.0], on_terminal(monkeypatch)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    answer = FirstAnswer((torch.zeros(3, 2), torch.zeros(3)), FeatureGroups.alone(["a", "b"]), 0)
    for epoch, now in enumerate((5.0, 6.0, 7.0), start=1):
        clock[0] = now
        answer._time(epoch / 100)
    # One second an epoch: 97 of the fit, and 1.1 of 100 and 4 after it.
    assert "about 3.5 min to go" in terminal.getvalue()
