"""Text files as they come: separators, decimals, letters; and Excel files."""

import json
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import torch

from lexppl.data import TableEncoding, read_table
from lexppl.data.files import FileFormat, read_frame, separator_of
from tests.refusals import refused

CELLS = pd.DataFrame(
    {
        "größe": [1.5, 2.25, -3.0, 1e-3],
        "ort, früher": ["São; João", "Süd", 'a "b"', "Süd"],
        "y": ["ja", "nein", "ja", "nein"],
    }
)


@pytest.mark.parametrize("letters", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("decimal", [".", ","])
def test_a_file_is_read_as_it_was_written(tmp_path, separator, decimal, letters):
    file = tmp_path / "t.csv"
    CELLS.to_csv(file, sep=separator, decimal=decimal, encoding=letters, index=False)
    frame = read_frame(file, decimal=decimal if separator != "," else None)
    if separator == "," and decimal == ",":
        # Written with quotes about the numbers, which are words then.
        frame = frame.assign(größe=[float(v.replace(",", ".")) for v in frame.größe])
    pd.testing.assert_frame_equal(frame, CELLS, check_dtype=False)


def test_letters_of_another_alphabet_are_named(tmp_path):
    file = tmp_path / "t.csv"
    CELLS.to_csv(file, encoding="cp1252", index=False)
    refused(r"not of utf-8; give text_encoding='cp1252'", read_frame, file)
    assert read_frame(file, text_encoding="cp1252").columns[0] == "größe"
    refused("not of ascii", read_frame, file, text_encoding="ascii")


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["a,b", "1,2"], ","),
        (["a;b", "1,5;2", "2,5;1"], ";"),
        (["name;x", '"a, b";1', "c;2"], ";"),
        (["a b", "1 2"], ","),
        (["a\tb", "1\t2,3"], "\t"),
        (["a,b;c", "1,2;3", "4,5;6"], ","),
        (["only"], ","),
    ],
)
def test_separators_are_found_out(lines, expected):
    assert separator_of(lines, None) == expected


def test_what_contradicts_itself_is_refused():
    for wrong, words in (
        ({"separator": "ab"}, "separator must be one character"),
        ({"decimal": ":"}, "decimal must be ',' or '.'"),
        ({"decimal": ",", "separator": ","}, "decimal must be ',' or '.' and not the separator"),
        ({"text_encoding": "utf-9"}, "text_encoding must be one that Python knows"),
    ):
        refused(words, FileFormat, **wrong)


def test_the_encoding_remembers_how_the_file_is_written(tmp_path):
    file = tmp_path / "t.csv"
    CELLS.assign(z=["?", "1,5", "2,5", "2,0"]).to_csv(file, sep=";", decimal=",", index=False)
    data = read_table(file, "y", decimal=",", missing=("?",), hide_missing=True)
    again = TableEncoding.from_json(json.loads(json.dumps(data.encoding.to_json())))
    assert again.file_format == FileFormat(missing=("?",), decimal=",")
    assert torch.equal(read_table(file, encoding=again).x, data.x)
    # What is given goes before it.
    CELLS.assign(z=[1, 2, 3, 4]).to_csv(file, index=False)
    assert len(read_table(file, encoding=again, decimal=".")) == 4


@pytest.mark.skipif(find_spec("openpyxl") is None, reason="openpyxl is not installed")
def test_excel(tmp_path):
    file = tmp_path / "t.xlsx"
    dates = pd.date_range("2026-01-01", periods=4)
    CELLS.assign(when=dates)[["größe", "when", "y"]].to_excel(file, index=False)
    data = read_table(file)
    assert data.entry_names == ("größe", "when")
    assert np.isfinite(data.x).all()
    (tmp_path / "broken.xlsx").write_bytes(b"PK")
    refused(r"'broken.xlsx' cannot be read as Excel", read_frame, tmp_path / "broken.xlsx")
    refused(r"decimal is for text files; .* of Excel, has its own", read_frame, file, decimal=",")


def test_missing_cells_of_typed_files_may_be_numbers(tmp_path):
    file = tmp_path / "t.parquet"
    pd.DataFrame({"pay": [1.5, -999.0, 2.0], "town": ["a", "?", "-999"]}).to_parquet(file)
    frame = read_frame(file, missing=("-999", "?"))
    assert frame.isna().to_numpy().tolist() == [[False, False], [True, True], [False, True]]
