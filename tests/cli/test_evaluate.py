"""`lexppl evaluate`: a synthetic set against its truth."""

import json
import re

import pytest

from lexppl.cli import main

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
