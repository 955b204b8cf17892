"""`lexppl evaluate`: a synthetic set against its truth."""

import json
import re

import numpy as np
import pytest

from lexppl.cli import main
from lexppl.systems.lex import PENALTY
from lexppl.tabular.fit_plan import NOISE_BITS, PATH

QUICK = ["--rows", "300", "--epochs", "2", "--draws", "4", "--quiet"]
FIGURES = ["tpr", "fdr", "fpr", "mcc", "control_flow", "mean_size"]


def run(capsys, *words: str) -> str:
    code = main(list(words))
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def test_figures(tmp_path, capsys):
    out = tmp_path / "deep" / "scores.json"
    printed = run(capsys, "evaluate", "S3", *QUICK, "--replicates", "2", "--out", str(out))
    for name in ("TPR", "FDR", "FPR", "MCC", "control flow", "log-likelihood", "oracle", "gap"):
        assert name in printed
    scores = json.loads(out.read_text())
    assert scores["set"] == "S3" and scores["penalty"] == 0.0225 and scores["epochs"] == 2
    figures = scores["by_replicate"]
    assert len(figures["mask_draws"]) == len(figures["likely_masks"]) == 2
    for each in figures["mask_draws"]:
        assert list(each) == FIGURES
        assert 0.0 <= each["tpr"] <= 1.0 and 0.0 <= each["fdr"] <= 1.0
    for each in figures["prediction"]:
        difference = each["oracle_log_likelihood"] - each["log_likelihood"]
        assert each["gap"] == pytest.approx(difference, abs=1e-6)
        assert each["gap"] > 0.0
    assert main(["evaluate", "S3", *QUICK, "--out", str(out)]) == 1
    assert "--overwrite" in capsys.readouterr().err


@pytest.mark.smoke
def test_fixed_size_has_no_threshold(capsys):
    printed = run(capsys, "evaluate", "Syn1", *QUICK, "--k", "2")
    assert "p > ½" not in printed
    assert re.search(r"mean number of selected features +2\.000", printed)
    assert "control flow" not in printed


def test_same_seed_same_figures(capsys):
    first, second, other = (
        run(capsys, "evaluate", "S1", *QUICK, "--seed", seed).split("\n", 1)[1]
        for seed in ("3", "3", "4")
    )
    assert first == second != other


def test_a_penalty_from_the_data(tmp_path):
    out = tmp_path / "scores.json"
    words = ["--rows", "200", "--draws", "3", "--epochs", "2", "--quiet", "--out", str(out)]
    assert main(["evaluate", "S1", *words, "--penalty", "auto"]) == 0
    scores = json.loads(out.read_text())
    # Of 200 rows 180 are fitted on, whose labels say a little less than a bit each.
    path = (NOISE_BITS / 180) ** 0.5 * PENALTY * np.array(PATH)
    assert np.any((scores["penalty"] > 0.97 * path) & (scores["penalty"] <= path))
    assert scores["replicates"] == len(scores["by_replicate"]["mask_draws"]) == 1
