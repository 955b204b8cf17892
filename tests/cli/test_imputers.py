"""Every imputer that the command line names can be fitted, and says whether it holds rows."""

import pytest
import torch

from lexppl.choices.imputers import HOLDING_ROWS, IMPUTERS
from lexppl.cli import main
from lexppl.models.imputers.by_name import REFERENCE_ROWS, imputer_of
from tests.cli.tables import people, written


def rows(count=60):
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.smoke
@pytest.mark.parametrize("name", IMPUTERS)
def test_each_name_is_an_imputer_of_the_rows(name):
    x = rows()
    imputer = imputer_of(name, x, seed=0)
    assert imputer(x, torch.tensor([1.0, 0.0, 0.0])).sample().shape == x.shape
    assert hasattr(imputer, "reference") == (name in HOLDING_ROWS)
    few = rows(5)  # fewer than the components of a mixture
    assert imputer_of(name, few, seed=0)(few, torch.zeros(3)).sample().isfinite().all()


@pytest.mark.parametrize("name", sorted(HOLDING_ROWS))
def test_no_more_rows_are_held_than_said(name, monkeypatch):
    monkeypatch.setattr("lexppl.models.imputers.by_name.REFERENCE_ROWS", 50)
    assert REFERENCE_ROWS > 50
    assert len(imputer_of(name, rows(), seed=0).reference) == 50


def test_a_name_that_is_none_is_refused():
    with pytest.raises(ValueError, match="imputer must be one of"):
        imputer_of("mice", rows(), seed=0)


@pytest.mark.complete(but=1)
@pytest.mark.parametrize(
    "name", ["gaussian-mixture", "mixture-means", "mixture-data", "kmeans-data"]
)
def test_the_report_says_what_hidden_features_are(name, tmp_path):
    table = written(people(), tmp_path)
    words = ["--epochs", "1", "--replicates", "1", "--draws", "3", "--quiet", "--imputer", name]
    words += ["--penalty", "0.02", "--predictor", "network"]
    assert main(["explain", str(table), "--out", str(tmp_path / "r"), *words]) == 0
    report = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert IMPUTERS[name].replace("'", "&#39;") in report
    assert ("it holds rows of the training data" in report) == (name in HOLDING_ROWS)
