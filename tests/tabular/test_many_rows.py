"""Fits to more rows than are needed: a shorter path, and fewer validation rows."""

import numpy as np
import pytest
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


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("replicates", [1, 3])
def test_the_path_of_many_rows_is_short(replicates, weighted, monkeypatch):
    monkeypatch.setattr(table_fit, "FEW_ROWS", 500)
    monkeypatch.setattr(table_fit, "PATH_ROWS", 200)
    monkeypatch.setattr(table_fit, "PATH_STEPS", 12)
    monkeypatch.setattr(table_fit, "VALID_ROWS", 100)
    given = []
    path_of, fit = table_fit.penalty_path, table_fit.fit

    def paths(system, train, *, valid, **settings):
        given.append(("path", len(train[0]), len(valid[0]), settings["epochs"]))
        return path_of(system, train, valid=valid, **settings)

    def fits(system, train, *, valid, **settings):
        given.append(("fit", len(train[0]), len(valid[0]), settings["epochs"]))
        return fit(system, train, valid=valid, **settings)

    monkeypatch.setattr(table_fit, "penalty_path", paths)
    monkeypatch.setattr(table_fit, "fit", fits)
    plan = plan_for(
        600, 3, penalty=AUTO, replicates=replicates, epochs=5, batch_size=50, hidden=(4,),
        predictor_hidden=(4,),
    )  # fmt: skip
    found = fit_table(plan, encoded(600, 300, weighted))
    # 5 epochs are 60 steps, of which the path has 12: 3 epochs of 200 rows.
    assert given == [("path", 200, 100, 3), ("fit", 600, 100, 5)]
    assert found.path.replicates == 1
    # Masks go on for half as many epochs.
    assert found.result.replicates == replicates and len(found.result.history) == 5 + 2
    given.clear()
    fit_table(plan, encoded(499, 100))
    assert given[0] == ("path", 499, 100, 5)
