"""`lexppl impute`: the table that it prints is that of `lexppl.evaluation.imputation`."""

import json

import pandas as pd
import pytest

from lexppl.choices.imputers import IMPUTERS, LEARNED
from lexppl.cli import main
from lexppl.data import divided_set
from lexppl.evaluation import imputation
from lexppl.models.imputers.by_name import imputer_of
from tests.cli.tables import people, written

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


@pytest.mark.parametrize(
    "words,code,told",
    [
        (["wine", "--imputers", "mice"], 2, "mice given, of marginal"),
        (["wine", "--imputers", ","], 2, "none given"),
        (["wine", "--imputers", "gaussian,gaussian"], 2, "names an imputer twice"),
        (["wine", "--rates", "0.5,2"], 2, "must be a share of the features in (0, 1); it is 2 "),
        (["wine", "--rates", "half"], 2, "must be a share of the features"),
        (["wine", "--draws", "1"], 2, "at least 2"),
        (["wine", "--hide-missing"], 2, "give --drop-missing"),
        (["wine", "--test-share", "0.999"], 1, "another --test-share"),
        (["vine"], 2, "did you mean 'wine'?"),
    ],
)
def test_mistakes_are_one_line(words, code, told, capsys):
    assert main(["impute", *words]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert told in shown.err
    assert shown.err.count("\n") == 1


def test_help_lists_the_imputers(capsys):
    with pytest.raises(SystemExit) as end:
        main(["impute", "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert all(f"  {name}: " in text for name in (*IMPUTERS, *LEARNED))
    assert max(map(len, text.splitlines())) <= 100
