"""What `lexppl explain` says of a fit: a line an epoch, and where nothing shows that it learned."""

import numpy as np
import pandas as pd
import pytest

from lexppl.data.divided_table import divided_frame
from lexppl.evaluation.prediction import BaseRateGain
from lexppl.report.fit_warnings import (
    collapse_messages,
    early_message,
    fidelity_message,
    learned_messages,
    path_message,
    table_warnings,
)
from tests.cli.tables import explained
from tests.refusals import over

LEARNED = BaseRateGain(0.2, 0.02, 100)
QUICK = ["--epochs", "2", "--replicates", "1", "--draws", "4", "--penalty", "0.02"]


SHORT = ["--replicates", "2", "--draws", "5", "--quiet"]


def warned(folder, table, capsys, *words):
    """What a run warns of."""
    explained(folder, *SHORT, "--overwrite", *words, frame=table)
    return capsys.readouterr().err


def columns(rows, seed=0):
    draws = np.random.default_rng(seed)
    return {name: draws.normal(size=rows) for name in ("a", "b", "c")}, draws


@pytest.mark.complete
@pytest.mark.parametrize("rows", [12, 300])
def test_labels_that_nothing_tells_are_not_explained(tmp_path, capsys, rows):
    x, draws = columns(rows)
    x["outcome"] = np.where(draws.permutation(np.arange(rows) % 2), "yes", "no")
    told = warned(tmp_path, pd.DataFrame(x), capsys, "--epochs", "20")
    assert "no better than the base rate" in told
    assert "do not rely on its selection of features" in told


@pytest.mark.complete
@pytest.mark.parametrize(("epochs", "few"), [(2, True), (40, False)])
def test_masks_that_have_not_settled_are_warned_of(tmp_path, capsys, epochs, few):
    x, _ = columns(400)
    x["outcome"] = np.where(x["a"] > 0, "yes", "no")
    warnings = warned(tmp_path, pd.DataFrame(x), capsys, "--epochs", str(epochs))
    assert ("masks have not settled: the fit had 6 steps" in warnings) == few


@pytest.mark.complete
def test_one_mask_for_all_rows_is_no_alarm_where_it_is_right(tmp_path, capsys):
    """A response that two columns of three make, everywhere."""
    x, draws = columns(600)
    x["outcome"] = 2.0 * x["a"] - 1.5 * x["b"] + 0.1 * draws.normal(size=600)
    words = ["--epochs", "80", "--learning-rate", "0.003"]
    told = warned(tmp_path, pd.DataFrame(x), capsys, *words)
    assert "collapse" not in told
    assert "base rate" not in told
    kept = pd.read_csv(tmp_path / "r" / "importance.csv", index_col="feature")
    assert set(kept.index[kept["found"]]) == {"a", "b"}


def test_a_mask_of_nothing_is_right_where_nothing_was_learned():
    found = ["all off", "all off", None]
    (learned,) = collapse_messages(found)
    (idle,) = collapse_messages(found, learned=False)
    assert learned.endswith("give a lower --penalty, or --k")
    assert "as should be where none says anything" in idle
    assert collapse_messages(["all on"], learned=False) == collapse_messages(["all on"])
    assert collapse_messages([None, None]) == []


@over(
    (learned_messages(LEARNED, 350), ""),
    (
        learned_messages(BaseRateGain(0.01, 0.05, 100), None),
        "on held-out rows the explainer p",
    ),
    (early_message([150, 190], 200, True), ""),
    (early_message([10, 190], 200, True), "the best epoch of 1 of 2 replicates came before"),
    (path_message([0.01, 0.02, 0.04], 1), ""),
    (path_message([0.01, 0.02, 0.04], 0), "the penalty chosen, 0.01 nats, is the smallest"),
    (collapse_messages(["all off", None]), "collapse in 1 of 2 replicates (all off): no r"),
)
def test_warnings_are_given_where_they_are_due(found, begin):
    assert len(found) == bool(begin) and "".join(found).startswith(begin)


def copied(frame, rows, **options):
    """What is warned of a frame of which these rows are taken."""
    table = frame.iloc[rows].reset_index(drop=True)
    return table_warnings(divided_frame(table, "y", folds=2, seed=0, **options), None)


def test_copied_rows_are_warned_of():
    x, draws = columns(100)
    frame = pd.DataFrame(x).assign(case=np.arange(100), y=np.arange(100) % 2)
    rows = draws.integers(0, 100, 400)
    assert copied(frame, range(100), drop=["case"]) == []
    [message] = copied(frame, rows, drop=["case"])
    assert message.startswith("301 of 400 rows are copies of others, and fits have seen")
    assert copied(frame, rows, group="case") == []
    # Few values meet again by chance.
    few = pd.DataFrame(draws.integers(0, 30, (2000, 1)), columns=["a"]).assign(y=[0, 1] * 1000)
    assert copied(few, range(2000)) == []


def test_a_column_that_gives_the_target_alone_is_warned_of():
    """Its copy, a name for each label, its order in other units or nearly; not a strong cause."""
    x, draws = columns(200)
    label = np.where(x["a"] + draws.normal(size=200) > 0.0, "yes", "no")
    frame = pd.DataFrame(x).assign(y=label)
    assert copied(frame, range(200)) == []
    coded = frame.assign(number=(label == "yes") * 2, word=np.char.add("was ", label))
    noisy = coded.assign(noisy=coded["number"] + 0.1 * draws.normal(size=200), case=range(200))
    [message] = copied(noisy[["a", "number", "word", "noisy", "y"]], range(200))
    assert message.startswith("each of the columns 'number', 'word', 'noisy' gives 'y' alone")
    # Of a rare label a few intervals are pure by chance.
    rare = pd.DataFrame(x).assign(y=(np.arange(200) % 67 == 5).astype(int))
    assert copied(rare, range(200)) == []
    response = x["a"] + draws.normal(size=200)
    frame = pd.DataFrame(x).assign(y=response, strong=response + 0.2 * draws.normal(size=200))
    assert copied(frame[["a", "b", "strong", "y"]], range(200)) == []
    frame["leak"] = 7.0 - 3.0 * response + 1e-6 * draws.normal(size=200)
    [message] = copied(frame[["a", "leak", "y"]], range(200))
    assert message == (
        "column 'leak' gives 'y' alone, or nearly: if it is made from the target, or known only "
        "after it, leave it out with --drop"
    )


@over(
    (0.96, 0.5, False),
    (0.918, 0.5, True),
    # Always its commonest label agrees in .97 of the rows.
    (0.97, 0.03, True),
    (0.995, 0.03, False),
    (0.94, None, True),
    (0.96, None, False),
)
def test_an_explainer_that_differs_from_its_black_box_is_warned_of(agreement, others, warned):
    lines = fidelity_message(agreement, others)
    assert bool(lines) == warned
    for line in lines:
        figure = "R²" if others is None else "agreement"
        assert f"{figure} {agreement:.3f} on rows that it has not seen" in line
