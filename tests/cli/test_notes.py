"""What `lexppl explain` says of a fit: a line an epoch, and where nothing shows that it learned."""

import re

import numpy as np
import pandas as pd
import pytest

from lexppl.cli import main
from lexppl.cli.fit_warnings import behind_message, collapse_messages
from lexppl.evaluation.learned import BaseRateGain
from tests.cli.tables import people, written

QUICK = ["--epochs", "2", "--replicates", "1", "--draws", "4", "--penalty", "0.02"]


@pytest.mark.complete(but=2)
@pytest.mark.parametrize("words", [[], ["--epoch-lines"], ["--epoch-lines", "--quiet"]])
def test_lines_are_there_where_they_are_asked_for(tmp_path, capsys, words):
    path = written(people(), tmp_path)
    assert main(["explain", str(path), "--out", str(tmp_path / "r"), *QUICK, *words]) == 0
    lines = re.findall(
        r"^epoch (\d) of 2: train \S+, valid \S+, \S+ s$", capsys.readouterr().err, re.M
    )
    # The first fit is the explainer's; the judges have epochs of their own.
    assert lines[:2] == (["1", "2"] if words == ["--epoch-lines"] else [])


SHORT = ["--replicates", "2", "--draws", "5", "--quiet"]


def warned(folder, table, capsys, *words):
    """What a run warns of."""
    command = ["explain", str(written(table, folder)), "--out", str(folder / "r"), *SHORT]
    assert main([*command, "--overwrite", *words]) == 0
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
    assert "what it says of the features says nothing" in told


@pytest.mark.complete
@pytest.mark.parametrize(("rows", "epochs"), [(400, 2), (600, 2)])
def test_masks_that_have_not_settled_are_told(tmp_path, capsys, rows, epochs):
    x, _ = columns(rows)
    x["outcome"] = np.where(x["a"] > 0, "yes", "no")
    told = warned(tmp_path, pd.DataFrame(x), capsys, "--epochs", str(epochs))
    assert re.search(r"masks have not settled: ([5-9]\d|100)%", told)


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


@pytest.mark.parametrize(
    ("own", "full", "gain", "warned"),
    [
        (-0.50, -0.40, 0.19, True),  # the full predictor knows more than the explainer
        (-0.50, -0.49, 0.19, False),  # not by two errors
        (-0.73, -0.69, -0.04, False),  # neither knows more than the base rate
        (-0.73, -0.60, -0.04, True),  # the full predictor alone does
    ],
)
def test_a_full_predictor_without_a_gain_is_no_reference(own, full, gain, warned):
    assert bool(behind_message(own, full, BaseRateGain(gain, 0.01, 400))) == warned
