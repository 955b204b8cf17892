"""`lexppl explain --with`: new rows by a saved explainer."""

import sys
import warnings
from functools import partial

import arviz
import numpy as np
import pandas as pd
import pytest
from pyro.infer import NUTS

import lexppl
from lexppl import explain, fit, save
from lexppl.arviz_compatibility import group_of
from lexppl.choices.files import ENCODING, EXPLAINER
from lexppl.choices.settings import GUIDES, INFERENCES, NEED_BAYES, WITH_PRIOR, AskedPosterior
from lexppl.cli import main
from lexppl.data import TableEncoding, read_table
from lexppl.data.divided_table import DividedTable, divided_frame
from lexppl.data.files import read_frame
from lexppl.explanation import mask_means, selection_table
from lexppl.explanation.reading.sentences import html, reading_of
from lexppl.inference import FitResult
from lexppl.report.fit_warnings import _copies
from lexppl.systems import METHODS, lex
from lexppl.tabular import global_posterior
from lexppl.tabular.global_posterior import GUIDES as AUTOGUIDES
from lexppl.tabular.global_posterior import _inference, refuse_unlistable
from tests.cli.tables import numbers, people, written
from tests.refusals import over, refused

ROWS = 12


def saved(source: DividedTable, folder):
    """A small fit of two replicates for a range of penalties, as a command leaves it."""
    data = source.data
    classes = None if data.class_names is None else len(data.class_names)
    entries = lexppl.models.Grouping(data.groups, data.entry_names)
    system = lex(
        data.n_features,
        classes=classes,
        penalty=(0.01, 0.08),
        grouping=entries,
        hidden=(4,),
        predictor_hidden=(4,),
    )
    result = fit(system, data, epochs=3, replicates=2, progress=False)
    save(result, folder / EXPLAINER)
    data.encoding.save(folder / ENCODING)
    return result


@pytest.fixture(scope="module")
def classes(tmp_path_factory) -> tuple[FitResult, TableEncoding, object]:
    folder = tmp_path_factory.mktemp("classes")
    source = divided_frame(people(), "income", folds=2, seed=0)
    written(people(ROWS, seed=3).drop(columns="income"), folder, "new.csv")
    written(people(ROWS, seed=3).drop(columns=["income", "age"]), folder, "lacks.csv")
    return saved(source, folder), source.data.encoding, folder


def run(folder, *words: str) -> int:
    return main(["explain", *words, "--with", str(folder), "--quiet"])


def test_new_rows_are_explained_as_in_python(classes, tmp_path, capsys):
    result, encoding, folder = classes
    new = folder / "new.csv"
    words = [str(new), "--out", str(tmp_path / "o"), "--draws", "20", "--penalty", "0.05"]
    assert run(folder, *words) == 0
    assert f"{ROWS} rows explained by" in capsys.readouterr().out
    x = encoding.encode(pd.read_csv(new))
    posterior = explain(result, x, draws=20, penalty=0.05)
    table = pd.read_csv(tmp_path / "o" / "importance.csv", index_col="feature")
    expected = selection_table(posterior)
    assert list(table.columns) == list(expected.columns)
    pd.testing.assert_frame_equal(table, expected, rtol=1e-3)
    rows = pd.read_csv(tmp_path / "o" / "rows.csv")
    assert list(rows.columns) == ["row", "predicted", "feature", "value", "total", "kept"]
    kept = rows.pivot(index="row", columns="feature", values="kept")
    means = mask_means(posterior)
    np.testing.assert_allclose(kept[means["feature"].values], means.values.mean(0), rtol=1e-3)
    assert (rows.groupby("row")["kept"].diff().dropna() <= 0).all()
    probability = group_of(posterior, "predictions")["y_probability"].values.mean(0)
    last = rows.groupby("row").last()
    assert last["predicted"].tolist() == [["high", "low"][c] for c in probability.argmax(1)]
    np.testing.assert_allclose(np.exp(last["total"]), probability.max(1), rtol=1e-3)
    # Negative control: another penalty keeps others.
    assert not np.allclose(kept, mask_means(explain(result, x, draws=0)).values.mean(0), rtol=1e-3)


@pytest.mark.parametrize("labelled", [True, False])
def test_a_report_and_a_probability_for_each_row(classes, tmp_path, labelled):
    result, encoding, folder = classes
    table = people(ROWS, seed=3)
    new = written(table if labelled else table.drop(columns="income"), tmp_path, "new.csv")
    assert run(folder, str(new), "--out", str(tmp_path / "o"), "--draws", "20") == 0
    found = pd.read_csv(tmp_path / "o" / "predictions.csv", index_col="row")
    posterior = explain(result, encoding.encode(table), draws=20)
    probability = group_of(posterior, "predictions")["y_probability"].values.mean(0)
    np.testing.assert_allclose(found[["p(high)", "p(low)"]], probability, rtol=1e-4)
    assert found["predicted"].tolist() == [["high", "low"][c] for c in probability.argmax(1)]
    means = mask_means(posterior)
    names = [f"kept({name})" for name in means["feature"].values]
    np.testing.assert_allclose(found[names], means.values.mean(0), rtol=1e-4)
    assert list(found.columns) == ["observed"] * labelled + [
        "predicted",
        "p(high)",
        "p(low)",
        *names,
    ]
    if labelled:
        assert found["observed"].tolist() == table["income"].tolist()
    page = (tmp_path / "o" / "report.html").read_text(encoding="utf-8")
    assert f"{ROWS} new rows" in page and ("observed" in page) == labelled
    for question, answer in reading_of(posterior).answers():
        assert question in page and str(html(answer)) in page
    assert "{{" not in page and page.rstrip().endswith("</html>")


def test_a_mean_and_a_deviation_for_each_row(tmp_path):
    """Of draws of the response, in its units."""
    source = divided_frame(numbers(), "price", folds=2, seed=0)
    result = saved(source, tmp_path)
    table = numbers(5, seed=2).drop(columns="price")
    new = written(table, tmp_path, "new.csv")
    assert run(tmp_path, str(new), "--out", str(tmp_path / "o"), "--draws", "30") == 0
    found = pd.read_csv(tmp_path / "o" / "predictions.csv", index_col="row")
    x, target = source.data.encoding.encode(pd.read_csv(new)), source.data.encoding.target
    drawn = group_of(explain(result, x, draws=30), "predictions")["y"].values.reshape(-1, 5)
    drawn = drawn.astype(np.float64) * target.scale + target.mean
    np.testing.assert_allclose(found["mean"], drawn.mean(0), rtol=1e-4)
    np.testing.assert_allclose(found["sd"], drawn.std(0), rtol=1e-4)
    assert "<th>sd</th>" in (tmp_path / "o" / "report.html").read_text(encoding="utf-8")


def test_rows_step_by_step_as_those_of_a_fit(classes, tmp_path):
    _, _, folder = classes
    out = tmp_path / "o"
    new = str(folder / "new.csv")
    assert run(folder / EXPLAINER, new, "--out", str(out), "--row", "4", "--row", "0") == 0
    rows = pd.read_csv(out / "rows.csv")
    columns = ["row", "predicted", "feature", "value", "step", "total", "spread", "kept"]
    assert list(rows.columns) == columns
    assert rows["row"].unique().tolist() == [4, 0]
    one = rows[rows["row"] == 4]
    assert one["feature"].tolist()[:2] == ["(base rate)", "(all hidden)"]
    steps = one["step"].iloc[2:].sum()
    assert one["total"].iloc[-1] == pytest.approx(one["total"].iloc[1] + steps, abs=2e-3)


@pytest.mark.parametrize("words", [(), ("--row", "0", "--row", "3")])
@pytest.mark.parametrize("shift", [0.0, 1e9])
def test_responses_are_in_their_own_units(tmp_path, shift, words):
    """A large mean takes none of the digits that rows differ in."""
    table = numbers()
    saved(
        divided_frame(table.assign(price=table.price + shift), "price", folds=2, seed=0), tmp_path
    )
    new = written(numbers(5, seed=2).drop(columns="price"), tmp_path, "new.csv")
    assert run(tmp_path, str(new), "--out", str(tmp_path / "o"), *words) == 0
    rows = pd.read_csv(tmp_path / "o" / "rows.csv")
    assert set(rows["predicted"]) == {"mean response"}
    totals = rows["total"].dropna() - shift
    assert totals.between(300.0, 1700.0).all() and totals.nunique() > 1
    alone = written(numbers(5, seed=2).drop(columns="price").head(1), tmp_path, "alone.csv")
    assert run(tmp_path, str(alone), "--out", str(tmp_path / "one")) == 0
    alone_total = pd.read_csv(tmp_path / "one" / "rows.csv")["total"].iloc[-1] - shift
    own = rows[rows["row"] == 0]["total"].iloc[-1] - shift
    assert alone_total == pytest.approx(own, abs=50.0)


def test_codes_of_digits_alone_are_the_words_that_they_were_in_fit(tmp_path, capsys):
    """Zip codes, of which a file may have some that look like numbers alone."""
    codes = pd.Series(["007", "10.0", "TRUE", "2A"] * 15, name="zip")
    table = (
        numbers(60).join(codes).assign(sold=["1.0", "no", "yes"] * 20, flag=["TRUE", "FALSE"] * 30)
    )
    source = divided_frame(read_frame(written(table, tmp_path)), "sold", folds=2, seed=0, rare=5)
    saved(source, tmp_path)
    assert source.data.encoding.words == ("sold", "zip")
    for code in ("007", "10.0", "TRUE"):
        own = table[table.zip == code]
        new = written(own.drop(columns="sold"), tmp_path, "new.csv")
        assert run(tmp_path, str(new), "--out", str(tmp_path / "o"), "--overwrite") == 0
        rows = pd.read_csv(tmp_path / "o" / "rows.csv", dtype=str)
        assert set(rows["value"][rows["feature"] == "zip"]) == {code}
    sold = written(table[table.sold == "1.0"], tmp_path, "sold.csv")
    assert read_table(sold, encoding=source.data.encoding).y.tolist() == [0] * 20


@over(
    (["new.csv", "--out", "o", "--with", "nowhere"], "--with nowhere: there is no explainer"),
    (["new.csv", "--out", "o", "--with", ".", "--k", "3"], "--k is of a fit"),
    (["new.csv", "--out", "o", "--with", ".", "--target=income"], "--target is of a fit"),
    (["new.csv", "--out", "o", "--with", ".", "--penalty", "auto"], "--penalty with --with"),
    (["new.csv", "--out", "o", "--with", ".", "--penalty", "3"], "outside"),
    (["new.csv", "--out", ".", "--with", ".", "--overwrite"], "the explainer is in this"),
    (["new.csv", "--out", "o", "--with", ".", "--row", "12"], "--row must be 0 to 11"),
    (["wine", "--out", "o", "--with", "."], "there is no file 'wine'"),
    (["lacks.csv", "--out", "o", "--with", "."], "it lacks"),
)
def test_what_does_not_serve_is_refused_in_one_line(words, expected, classes, monkeypatch, capsys):
    _, _, folder = classes
    monkeypatch.chdir(folder)
    assert main(["explain", *words]) in (1, 2)
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1
    assert not (folder / "o").exists() and (folder / EXPLAINER).is_dir()


# `lexppl explain` with a posterior of the weights.


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


# A table of many columns is read and looked at without a warning of pandas.


def test_a_wide_file_is_not_fragmented(tmp_path):
    """Pandas holds each column of a file by itself, and warns where one is added to a hundred."""
    values = np.random.default_rng(0).normal(size=(40, 130))
    table = pd.DataFrame(values, columns=[f"c{i}" for i in range(130)])
    file = written(table.assign(y=["a", "b"] * 20), tmp_path)
    with warnings.catch_warnings(action="error", category=pd.errors.PerformanceWarning):
        source = divided_frame(read_frame(file), "y", folds=2, seed=0)
        assert _copies(source) is None
    # Copies are found as before, by values and target.
    doubled = pd.concat([table, table]).assign(y=["a", "b"] * 40)
    source = divided_frame(doubled, "y", folds=2, seed=0)
    assert "40 of 80 rows are copies" in str(_copies(source))
