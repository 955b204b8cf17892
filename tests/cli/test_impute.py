"""`lexppl impute`: its table is that of `lexppl.evaluation.imputation`; imputers by name."""

import json

import pandas as pd
import pytest
import torch

from lexppl.choices.imputers import HOLDING_ROWS, IMPUTERS, LEARNED
from lexppl.cli import main
from lexppl.data.divided_table import divided_set
from lexppl.evaluation import imputation
from lexppl.models.imputers import REFERENCE_ROWS, imputer_of
from tests.cli.tables import explained, page_of, people, written
from tests.refusals import over, refused

QUICK = ["--rates", "0.3,0.7", "--draws", "10", "--quiet"]


@pytest.mark.smoke
def test_the_figures_are_those_of_python(capsys, tmp_path):
    out = tmp_path / "scores.json"
    words = ["--imputers", "gaussian,conditional-gaussian,marginal", "--out", str(out)]
    assert main(["impute", "wine", *words, *QUICK]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    parts = divided_set("wine", valid_share=None, test_share=0.2, seed=0)
    x = parts.train.x
    names = ("gaussian", "conditional-gaussian", "marginal")
    given = {name: imputer_of(name, x, 0) for name in names}
    expected = imputation(given, parts.test.x, rates=[0.3, 0.7], draws=10).table
    told = json.loads(out.read_text())
    assert told["command"][:3] == ["lexppl", "impute", "wine"]
    found = pd.DataFrame(told["scores"]).set_index(["imputer", "rate"])
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    assert found.loc["marginal", "log_likelihood"].isna().all()
    for name, crps in expected["crps"].items():
        line = next(text for text in shown.out.splitlines() if text.startswith(f"  {name[0]}  "))
        assert f"{crps:.3f} ± " in line
    assert shown.out.count("conditional-gaussian") == 2
    assert "without a density: marginal" in shown.out
    assert main(["impute", "wine", "--out", str(out), *QUICK]) == 1  # it is there already


def test_all_but_the_slow_are_scored_where_none_is_named(capsys):
    assert main(["impute", "wine", "--rates", "0.5", "--draws", "2", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in IMPUTERS)
    assert not any(name in shown for name in LEARNED)


def test_tables_with_categories_are_told_to_trust_the_crps(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("lexppl.cli.impute_command.STEPS_OF_VAEAC", 5)
    table = written(people(), tmp_path)
    assert main(["impute", str(table), "--imputers", "vaeac,constant", *QUICK]) == 0
    shown = capsys.readouterr().out
    assert "columns of categories have no density" in shown
    assert shown.count("  vaeac  ") == 2
    assert max(map(len, shown.splitlines())) <= 100


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
    monkeypatch.setattr("lexppl.models.imputers.REFERENCE_ROWS", 50)
    assert REFERENCE_ROWS > 50
    assert len(imputer_of(name, rows(), seed=0).reference) == 50


def test_a_name_that_is_none_is_refused():
    refused("imputer must be one of", imputer_of, "mice", rows(), seed=0)


@pytest.mark.complete(but=1)
@over("gaussian-mixture", "mixture-means", "mixture-data", "kmeans-data")
def test_the_report_says_what_hidden_features_are(name, tmp_path):
    words = ["--epochs", "1", "--replicates", "1", "--draws", "3", "--quiet", "--imputer", name]
    words += ["--penalty", "0.02", "--predictor", "network"]
    report = page_of(explained(tmp_path, *words))
    assert IMPUTERS[name] in report
    assert ("it holds rows of the training data" in report) == (name in HOLDING_ROWS)
