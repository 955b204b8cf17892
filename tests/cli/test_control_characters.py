"""Names and labels of a table cannot command the terminal that a command prints on."""

import ast
import unicodedata
from pathlib import Path

import pytest

import lexppl.cli
from lexppl.cli import main, terminal
from tests.cli.tables import epoch_lines, people, written

ESC, ERASE, OVERRIDE, C1 = "\x1b[31m", "\x1b[2K\x08", "\u202e", "\x9b5m"
QUICK = ["--epochs", "2", "--replicates", "2", "--draws", "5", "--folds", "1"]


def hostile():
    frame = people()
    names = {"age": f"age{ESC}", "height": f"{OVERRIDE}height{C1}", "income": f"income{ERASE}"}
    frame = frame.rename(columns=names).replace({"clerk": f"clerk{ESC}", "high": f"high{ERASE}"})
    frame["constant\x07\u2066"] = f"same{ESC}"
    return frame, names["income"]


def assert_plain(captured, *, holds):
    text = captured.out + captured.err
    assert all(word in text for word in holds), text
    found = {c for c in text if unicodedata.category(c) == "Cc" or c in "\u202e\u2066"}
    assert found <= {"\n", "\t"}, [line for line in text.splitlines() if found & set(line)]


def test_no_control_character_of_a_name_or_a_label_reaches_the_terminal(tmp_path, capsys):
    frame, target = hostile()
    path, out = str(written(frame, tmp_path)), str(tmp_path / "out")
    common = [path, "--target", target, "--out", out]
    assert main(["explain", *common, "--strict", *QUICK]) == 1
    assert_plain(capsys.readouterr(), holds=["constant", "--drop-constant"])
    words = ["explain", *common, "--drop-constant", *QUICK, "--row", "3"]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert not epoch_lines(captured.err), "for which nobody asked"
    assert_plain(captured, holds=["age\ufffd[31m", "\ufffdheight\ufffd5m", "high\ufffd"])
    assert main(["explain", path, "--with", out, "--out", f"{out}2"]) == 0
    assert_plain(capsys.readouterr(), holds=["age\ufffd[31m"])
    assert main(["explain", f"{path}{ESC}", "--target", "y", "--out", f"{out}3"]) == 2
    assert_plain(capsys.readouterr(), holds=["people.csv"])


@pytest.mark.parametrize("print_text", [terminal.show, terminal.show_progress, terminal.warn])
def test_each_control_and_bidirectional_character_has_a_sign_in_its_place(print_text, capsys):
    every = {c for c in map(chr, range(0x3000)) if unicodedata.category(c) == "Cc"}
    of_order = {c for c in map(chr, range(0x3000)) if unicodedata.bidirectional(c) in ORDERS}
    refused = (every | of_order | set("\u200e\u200f\u061c")) - {"\n", "\t"}
    print_text("a" + "".join(sorted(refused)) + "b é 你 नि \u200d\u200c\n\t")
    captured = capsys.readouterr()
    assert f"a{len(refused) * chr(0xFFFD)}b é 你 नि \u200d\u200c\n\t" in captured.out + captured.err


ORDERS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def test_commands_print_by_the_terminal_module_alone():
    for path in Path(lexppl.cli.__file__).parent.rglob("*.py"):
        calls = (n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        names = {n.func.id for n in calls if isinstance(n, ast.Call) and hasattr(n.func, "id")}
        assert "print" not in names or path.name == "terminal.py", path
