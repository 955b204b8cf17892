"""Random weights of the rows at the command line and in the estimators."""

import numpy as np
import pytest
import xarray as xr

from lexppl import load
from lexppl.choices.settings import BOOTSTRAP_ROWS
from lexppl.cli import main
from lexppl.cli.options.arguments import parse
from lexppl.cli.options.plan_options import plan_of
from lexppl.data import load as load_data
from lexppl.tabular import ExplainerClassifier, ExplainerRegressor
from lexppl.tabular.fit_plan import plan_for
from tests.cli.tables import people, written


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], 0),
        (["--test-share", "0.2"], 5),
        (["--replicates", "2", "--valid-share", "0.1"], 2),
        (["--replicates", "1"], 0),
        (["--bootstrap"], 5),
        (["--no-bootstrap"], 0),
    ],
)
def test_the_plan_is_what_was_typed(words, expected):
    options = parse(["explain", "wine", "--out", "r", *words])
    assert plan_of(options, 107, load_data("wine")).bootstrap == expected
    many = plan_of(options, BOOTSTRAP_ROWS + 1, load_data("wine")).bootstrap
    assert many == (expected if "--bootstrap" in words else 0)
    compared = parse(["compare", "wine", "--methods", "lex", "--replicates", "3"])
    assert plan_of(compared, 107, load_data("wine")).bootstrap == 0


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("word", ["--bootstrap", "--no-bootstrap"])
def test_the_fit_and_what_is_said_of_it(word, tmp_path, capsys):
    table, out = written(people(), tmp_path), tmp_path / "r"
    quick = ["--epochs", "2", "--replicates", "2", "--draws", "4", "--penalty", "0.02", "--quiet"]
    # Rows are held out from all, as of rows in folds there is none.
    quick += ["--test-share", "0.2"]
    assert main(["explain", str(table), "--out", str(out), *quick, word]) == 0
    weighted = word == "--bootstrap"
    saved = load(out / "explainer")
    assert saved.row_weights is None and (saved.bootstrap is not None) == weighted
    stats = xr.open_dataset(out / "posterior.nc", group="sample_stats")
    assert ("bootstrap_selection_probability" in stats) == weighted
    said = capsys.readouterr().out
    assert ("fits to randomly weighted rows" in said) == weighted
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
    weighted = estimator(bootstrap=2, **options).fit(x, y)
    plain = estimator(**options).fit(x, y)
    assert weighted.result_.bootstrap.replicates == 2 and plain.result_.bootstrap is None
    for wrong in (1, 2.5, -2):
        with pytest.raises(ValueError, match="bootstrap must be"):
            estimator(bootstrap=wrong, **options).fit(x, y)


def test_a_bootstrap_of_one_fit_is_refused():
    with pytest.raises(ValueError, match="bootstrap must be"):
        plan_for(100, 3, bootstrap=1)
