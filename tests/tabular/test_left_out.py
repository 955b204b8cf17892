"""Entries that the masks of a replicate never keep."""

from dataclasses import replace

import pytest
import torch

from lexppl import explain, load, save
from lexppl.choices.settings import AUTO
from lexppl.evaluation.folds import Folds
from lexppl.explanation.reading.masks import mask_means
from lexppl.models import Grouping
from lexppl.systems.fit_plan import plan_for
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.table_fit import fit_table


@pytest.fixture(scope="module")
def fitted():
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    rows = EncodedRows((x, y), None, Grouping([0, 1, 2]), ("a", "b", "c"), ("no", "yes"))
    rows = replace(rows, folds=Folds.of(y, 2))
    small = {"epochs": 20, "hidden": (8,), "predictor_hidden": (8,), "replicates": 2}
    plan = plan_for(200, 3, penalty=AUTO, in_folds=True, **small)
    left_out = [[False, True, False], [False, False, True]]
    return fit_table(plan, rows, left_out=left_out).result, x


def test_each_replicate_leaves_its_entries_out_and_is_saved_so(fitted, tmp_path):
    result, x = fitted
    save(result, tmp_path / "explainer")
    for of in (result, load(tmp_path / "explainer")):
        kept = mask_means(explain(of, x, draws=5)).mean("row").values
        assert kept[0, 1] == kept[1, 2] == 0.0
        assert (kept[[0, 0, 1, 1], [0, 2, 0, 1]] > 0.0).all()


def test_at_every_penalty(fitted):
    result, x = fitted
    low = mask_means(explain(result, x, penalty=result.penalty_range[0], draws=2)).values
    assert (low[0, ..., 1] == 0.0).all() and (low[0, ..., 0] > 0.5).any()
