"""Random weights of the rows at the command line and in the estimators."""

import numpy as np
import pytest
import xarray as xr

from lexppl import load
from lexppl.choices.settings import BOOTSTRAP
from lexppl.cli import main
from lexppl.cli.options.arguments import parse
from lexppl.cli.options.plan_options import plan_of
from lexppl.data import load as load_data
from lexppl.tabular import ExplainerClassifier, ExplainerRegressor
from lexppl.tabular.fit_plan import plan_for
from tests.cli.tables import people, written

DEFAULT = "dirichlet" if BOOTSTRAP else None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], DEFAULT),
        (["--replicates", "2"], DEFAULT),
        (["--replicates", "1"], None),
        (["--bootstrap"], "dirichlet"),
        (["--no-bootstrap"], None),
    ],
)
def test_the_plan_is_what_was_typed(words, expected):
    options = parse(["explain", "wine", "--out", "r", *words])
    assert plan_of(options, 107, load_data("wine")).row_weights == expected
    compared = parse(["compare", "wine", "--methods", "lex", "--replicates", "3"])
    assert plan_of(compared, 107, load_data("wine")).row_weights is None


@pytest.mark.parametrize("word", ["--bootstrap", "--no-bootstrap"])
def test_the_fit_and_what_is_said_of_it(word, tmp_path, capsys):
    table, out = written(people(), tmp_path), tmp_path / "r"
    quick = ["--epochs", "2", "--replicates", "2", "--draws", "4", "--quiet"]
    assert main(["explain", str(table), "--out", str(out), *quick, word]) == 0
    weighted = word == "--bootstrap"
    assert load(out / "explainer").row_weights == ("dirichlet" if weighted else None)
    posterior = xr.open_dataset(out / "posterior.nc", group="posterior")
    assert posterior.attrs["row_weights"] == ("dirichlet" if weighted else "none")
    said = capsys.readouterr().out
    assert ("random weights of its rows" in said) == weighted
    assert ("other rows to fit on" in " ".join(said.split())) == weighted
    report = (out / "report.html").read_text(encoding="utf-8")
    assert ("weighted-likelihood bootstrap" in report) == weighted
    assert ("not of the sample of rows" in report) != weighted


def test_one_replicate_has_no_bootstrap(tmp_path, capsys):
    words = ["explain", "wine", "--out", str(tmp_path / "r"), "--replicates", "1", "--bootstrap"]
    assert main(words) == 2
    assert "--bootstrap needs --replicates 2 or more" in capsys.readouterr().err


@pytest.mark.parametrize("estimator", [ExplainerClassifier, ExplainerRegressor])
def test_the_estimators_take_them(estimator):
    x = np.random.default_rng(0).normal(size=(60, 3))
    y = (x[:, 0] > 0).astype(float)
    options = {"epochs": 1, "replicates": 2, "random_state": 0}
    weighted = estimator(row_weights="dirichlet", **options).fit(x, y)
    plain = estimator(**options).fit(x, y)
    assert weighted.result_.row_weights == "dirichlet" and plain.result_.row_weights is None
    assert not np.allclose(weighted.feature_importances_, plain.feature_importances_)
    with pytest.raises(ValueError, match="row_weights must be 'dirichlet' or None"):
        estimator(row_weights=np.ones(60), **options).fit(x, y)


def test_other_words_are_refused():
    with pytest.raises(ValueError, match="it is 'yes'"):
        plan_for(100, 3, row_weights="yes")
