"""`lexppl explain` with a posterior of the weights."""

import sys
from functools import partial

import arviz
import numpy as np
import pandas as pd
import pytest
from pyro.infer import NUTS

import lexppl
from lexppl.arviz_compatibility import group_of
from lexppl.choices.methods import METHODS
from lexppl.choices.settings import GUIDES, INFERENCES, NEED_BAYES, WITH_PRIOR, AskedPosterior
from lexppl.cli import main
from lexppl.tabular import global_posterior
from lexppl.tabular.global_posterior import GUIDES as AUTOGUIDES
from lexppl.tabular.global_posterior import _inference, refuse_unlistable
from tests.refusals import refused


@pytest.fixture
def table(tmp_path, monkeypatch):
    """60 rows of three columns, and fits that are short."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 3))
    label = np.where(x[:, 0] + 0.3 * draw.normal(size=60) > 0, "yes", "no")
    frame = pd.DataFrame(x, columns=["age", "dose", "noise"]).assign(outcome=label)
    frame.to_csv(tmp_path / "table.csv", index=False)
    monkeypatch.setattr(global_posterior, "CHAIN", 6)
    monkeypatch.setattr(global_posterior, "NUTS", partial(NUTS, max_tree_depth=3))
    # Of a posterior each mask is a run of the program.
    monkeypatch.setattr("lexppl.report.results.single_rows.ROW_MASKS", 4)
    monkeypatch.setattr(sys.modules["lexppl.systems.fit_plan"], "MOST_EPOCHS", 2)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "table.csv"


def flat(text):
    """A text without its line breaks."""
    return " ".join(text.split())


def explained(table, *words):
    typed = ["explain", str(table), "--target", "outcome", "--out", "out", "--draws", "6"]
    return main([*typed, "--replicates", "2", "--quiet", *words])


def test_chains_are_chains_in_all_that_is_written(table, capsys):
    assert explained(table, "--inference", "nuts", "--prior", "2") == 0
    told = capsys.readouterr()
    assert "2 chains of 6 draws" in told.out and "weights Normal(0, 2) before" in told.out
    assert "rows that the posterior is given" in told.out and "best epoch" not in told.out
    assert "r̂ compares the chains with each other" in flat(told.out)
    # Six draws are too few, which is said, and stands in the report as well.
    assert "chains of NUTS" in told.err
    page = (table.parent / "out" / "report.html").read_text()
    assert "chains of NUTS" in page and "holds 95 % of its posterior" in page
    assert "a Gibbs posterior" in page and "nats for each feature kept counts beside" in page
    assert "agreement" not in page.split("How to read this")[0]
    ranked = pd.read_csv(table.parent / "out" / "importance.csv", index_col="feature")
    assert "r_hat" in ranked and "agreement" not in ranked
    posterior = arviz.from_netcdf(table.parent / "out" / "posterior.nc")
    drawn = group_of(posterior, "posterior")["mask_mean_over_rows"]
    assert dict(drawn.sizes) == {"chain": 2, "draw": 6, "feature": 3}
    low, high = drawn.quantile([0.025, 0.975], dim=("chain", "draw")).values
    # The table has four digits.
    np.testing.assert_allclose(ranked.loc[drawn["feature"].values, "lower"], low, rtol=1e-3)
    np.testing.assert_allclose(ranked.loc[drawn["feature"].values, "upper"], high, rtol=1e-3)
    assert "diverging" in group_of(posterior, "sample_stats")
    result = lexppl.load(table.parent / "out" / "explainer")
    assert result.sampler.name == "NUTS" and result.rows == (48, 0)


@pytest.mark.complete
def test_modes_from_several_starts_are_called_no_posterior(table, capsys):
    assert explained(table, "--inference", "ensemble") == 0
    told = capsys.readouterr()
    assert "It is no posterior" in flat(told.out)
    page = (table.parent / "out" / "report.html").read_text()
    assert "It is no posterior" in page and "of its posterior" not in page


@pytest.mark.complete
def test_a_guide_that_still_moves_is_told(table, capsys):
    assert explained(table, "--guide", "normal", "--epochs", "2") == 0
    told = capsys.readouterr()
    assert "too short to be judged" in told.err
    assert (
        "The explainer's weights have a posterior" in told.out and "by a guide, 2 fits" in told.out
    )
    ranked = pd.read_csv(table.parent / "out" / "importance.csv")
    assert bool((ranked["lower"] < ranked["upper"]).all()) and "agreement" in ranked
    guides = lexppl.load(table.parent / "out" / "explainer").guides
    assert [type(guide).__name__ for guide in guides] == ["AutoNormal"] * 2


def test_too_many_masks_are_refused_with_their_number_before_any_fit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["explain", "breast_cancer", "--out", "out", "--inference", "nuts"]) == 1
    told = capsys.readouterr().err
    assert "1,073,741,824" in told and "sghmc" in told and len(told.splitlines()) == 1
    assert not (tmp_path / "out").exists()
    few = AskedPosterior("hmc", None, 1.0)
    refuse_unlistable(few, 8, None)
    refuse_unlistable(few, 30, 1)
    refuse_unlistable(AskedPosterior("sghmc", None, 1.0), 30, None)
    refused("435 that keep 2", refuse_unlistable, few, 30, 2)


@pytest.mark.parametrize("name", sorted(NEED_BAYES))
def test_a_missing_extra_is_told_by_its_name(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lexppl.choices.settings.BAYES_LIBRARY", "no_such_library")
    assert main(["explain", "iris", "--out", "out", "--inference", name]) != 0
    told = capsys.readouterr().err
    assert "lexppl[bayes]" in told and "no_such_library" in told


def test_every_name_has_what_it_names():
    assert all(callable(_inference(name, 2, 50).run) for name in INFERENCES)
    assert all(callable(AUTOGUIDES[name]) for name in GUIDES)
    assert set(INFERENCES) >= NEED_BAYES
    assert all("prior" in METHODS[name].parameters for name in WITH_PRIOR)


@pytest.mark.complete
def test_a_posterior_without_a_penalty_is_none_of_gibbs(table):
    assert explained(table, "--inference", "nuts", "--penalty", "0") == 0
    assert "a Gibbs posterior" not in (table.parent / "out" / "report.html").read_text()
