"""Fits to more rows than are needed: a shorter path, and fewer validation rows."""

import numpy as np
import torch

from lexppl.choices.settings import AUTO
from lexppl.models import Grouping
from lexppl.tabular import table_fit
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.fit_plan import plan_for
from lexppl.tabular.table_fit import fit_table


def encoded(train: int, valid: int, weighted: bool = False) -> EncodedRows:
    """Rows whose first column is their number, the first row alone of its class."""

    def part(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(count, 3, generator=torch.Generator().manual_seed(count))
        x[:, 0] = torch.arange(count) / count
        y = (x[:, 1] > 0).long()
        y[-1] = 2
        return x, y

    parts = part(train), part(valid)
    weights = tuple(1.0 + x[:, 0] for x, _ in parts) if weighted else None
    names = ("a", "b", "c")
    return EncodedRows(*parts, Grouping((0, 1, 2), names), names, ("no", "yes", "rare"), weights)


def test_some_rows_are_drawn_with_their_weights_and_every_label():
    rows = encoded(3000, 900, weighted=True)
    few = rows.at_most(500, 200, seed=1)
    for (x, y), weights, count in (
        (few.train, few.weights[0], 500),
        (few.valid, few.weights[1], 200),
    ):
        assert len(x) == len(y) == len(weights) == count
        assert len(x[:, 0].unique()) == count
        assert torch.equal(weights, 1.0 + x[:, 0])
        assert (y == 2).sum() == 1
        # Uniform numbers: their mean is within five standard errors of a half.
        assert abs(float(x[:, 0].mean()) - 0.5) < 5 * np.sqrt(1 / 12 / count)
    again = rows.at_most(500, 200, seed=1)
    assert torch.equal(again.train[0], few.train[0])
    assert not torch.equal(rows.at_most(500, 200, seed=2).train[0], few.train[0])
    assert rows.at_most(None, 900, seed=1).train[0] is rows.train[0]
    assert encoded(300, 90).at_most(50, 20, seed=0).weights is None


def test_of_many_rows_some_choose_the_penalty(monkeypatch):
    monkeypatch.setattr(table_fit, "PATH_ROWS", 100)
    given, path_of = [], table_fit.penalty_path

    def paths(result, x, y, **settings):
        given.append((len(x), len(y), len(settings["sample_weight"])))
        return path_of(result, x, y, **settings)

    monkeypatch.setattr(table_fit, "penalty_path", paths)
    plan = plan_for(600, 3, penalty=AUTO, epochs=2, hidden=(4,), predictor_hidden=(4,))
    fit_table(plan, encoded(600, 300, weighted=True))
    assert given == [(100, 100, 100)]
