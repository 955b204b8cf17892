"""Certified features of held-out rows, by `--guarantee`."""

import numpy as np
import pandas as pd
import pytest

from lexppl.choices.files import OUTPUTS
from lexppl.cli import main
from tests.cli.tables import page_of
from tests.refusals import over

RUN = ["--epochs", "40", "--replicates", "2", "--draws", "3", "--quiet", "--drop-constant"]


def table(folder, response=False):
    """y is decided by a, and of its three other columns none matters."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(size=(200, 4)), columns=list("abcd"))
    signal = 3 * frame["a"]
    noise = draw.normal(size=200)
    frame["y"] = signal + 0.1 * noise if response else np.where(signal > 0, "up", "down")
    frame.to_csv(folder / "table.csv", index=False)
    return folder / "table.csv"


@pytest.mark.parametrize("response", [False, pytest.param(True, marks=pytest.mark.complete)])
def test_the_features_that_are_enough_are_written_row_by_row(tmp_path, capsys, response):
    out, path = tmp_path / "out", table(tmp_path, response)
    assert main(["explain", str(path), "--out", str(out), *RUN, "--guarantee", "0.9"]) == 0
    # Else a second run with --overwrite would be refused.
    assert {entry.name for entry in out.iterdir()} <= set(OUTPUTS)
    found = pd.read_csv(out / "certified.csv", keep_default_na=False)
    assert sorted(found["row"]) == list(range(200))
    assert (found["bound"] == 0.9).all()
    counts = found["features"].map(lambda row: len(row.split("; ")) if row else 0)
    assert (found["size"] == counts).all()
    # A row far from 0 is safe with a alone, and never without it.
    far = found["row"].isin(np.flatnonzero(pd.read_csv(path)["a"].abs() > 1))
    assert found["features"][far].str.contains("a").all()
    assert found["size"][far].mean() < 2
    printed = capsys.readouterr().out
    stays = "moves by at most" if response else "the predicted label stays as it is"
    sentence = f"{found['size'].mean():.1f} of 4 features on average, in 200 of 200 held-out rows"
    for text in (" ".join(printed.split()), " ".join(page_of(out).split())):
        assert sentence in text and stays in text and "at confidence 0.9" in text


@over(
    (["--k", "2"], "--guarantee takes the order in which features go as their penalty rises"),
    (["--penalty", "0.1"], "--guarantee takes the order"),
    (["--method", "l2x"], "--guarantee takes the order"),
    (["--predictor", "trees"], "boosted trees and --imputer constant draw none"),
    (["--imputer", "constant"], "boosted trees and --imputer constant draw none"),
    (["--guarantee", "1"], r"must be a share of the draws in (0, 1); it is 1"),
)
def test_what_has_no_order_or_level_is_refused_in_a_line(words, message, tmp_path, capsys):
    path = table(tmp_path)
    code = main(
        ["explain", str(path), "--out", str(tmp_path / "out"), "--guarantee", "0.9", *words]
    )
    error = capsys.readouterr().err
    assert code == 2 and message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()
