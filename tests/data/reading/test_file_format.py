"""Text files as they come: separators, decimals, letters; and Excel files."""

import bz2
import gzip
import json
import lzma
import zipfile
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import torch

from lexppl.data import TableEncoding, files, read_table
from lexppl.data.files import FileFormat, read_frame, separator_of
from tests.refusals import over, refused

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
@over(
    (["a,b", "1,2"], ","),
    (["a;b", "1,5;2", "2,5;1"], ";"),
    (["name;x", '"a, b";1', "c;2"], ";"),
    (["a b", "1 2"], ","),
    (["a\tb", "1\t2,3"], "\t"),
    (["a,b;c", "1,2;3", "4,5;6"], ","),
    (["only"], ","),
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


ROWS = "\n".join(["a,b,y", *(f"{n},{n % 3},{'uv'[n % 2]}" for n in range(40))])
RECORDS = [{"a": n, "b": n % 3, "y": "uv"[n % 2]} for n in range(40)]
NOT_TABLES = {
    "JSON": json.dumps(RECORDS),
    "JSON indented": json.dumps(RECORDS, indent=1),
    "JSON by column": json.dumps({"a": [1, 2], "b": [3, 4]}, indent=2),
    "JSON lines": "\n".join(map(json.dumps, RECORDS)),
    "JSON cut short": json.dumps(RECORDS)[:99],
    "XML": "<?xml version='1.0'?>\n<a>\n<b>1</b>\n</a>\n",
    "HTML": "\n<!DOCTYPE html>\n<html><body>\n<p>404, not found</p>\n</body></html>\n",
    "binary": "a,b,y\n1,2,u\n3,\0 4,v\n",
    "binary of another kind": bytes(range(256)) * 4,
}


@pytest.mark.parametrize("kind", NOT_TABLES)
def test_what_is_no_table_is_refused_by_what_it_is(tmp_path, kind):
    content = NOT_TABLES[kind]
    file = tmp_path / "t.csv"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    words = rf"'t.csv' cannot be read as a table: it holds {kind.split()[0]} content.* name it by"
    assert "\n" not in str(refused(words, read_frame, file))


def test_names_of_columns_may_begin_as_other_content_does(tmp_path):
    file = tmp_path / "t.csv"
    for name in ("[a]", "{a}", "<a>", "<htmls", "PAR1", "PK", '["a"]'):
        pd.DataFrame({name: [1, 2], "y": [3, 4]}).to_csv(file, index=False)
        assert list(read_frame(file)) == [name, "y"]


def test_content_of_another_kind_than_the_name_says_what_to_do(tmp_path):
    for kind, what in ((".xlsx", "Excel"), (".parquet", "Parquet"), (".csv.gz", "a table")):
        file = tmp_path / f"t{kind}"
        file.write_text(ROWS)
        error = refused(rf"'t{kind}' cannot be read as {what}: ", read_frame, file)
        assert "engine" not in str(error) and "\n" not in str(error)
    frame = pd.DataFrame(RECORDS)
    frame.to_parquet(tmp_path / "parquet.csv")
    (tmp_path / "gzip.csv").write_bytes(gzip.compress(ROWS.encode()))
    for name in ("parquet.csv", "gzip.csv"):
        refused(rf"{name}.* name it by what it is, such as", read_frame, tmp_path / name)


def test_a_line_that_is_too_long_is_named_by_its_number(tmp_path):
    (tmp_path / "t.csv").write_text("Dear reader\nof prose\nplaces, commas\nNo table\n")
    error = refused("line 3 has more cells than the first", read_frame, tmp_path / "t.csv")
    assert "tokenizing" not in str(error)


def far_cell(file):
    import openpyxl

    book = openpyxl.Workbook()
    book.active.append(["a", "b", "y"])
    book.active.cell(1_048_576, 16_384).value = 1
    book.save(file)


def long_sheet(file):
    """A sheet of many rows that take no place in the archive."""
    pd.DataFrame(RECORDS).to_excel(file, index=False)
    with zipfile.ZipFile(file) as held:
        parts = {part.filename: held.read(part) for part in held.infolist()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as held:
        for name, content in parts.items():
            rows = b"<row><c><v>1</v></c></row>" * 300_000
            held.writestr(name, content.replace(b"</sheetData>", rows + b"</sheetData>"))


def packed(opened):
    def write(file):
        with opened(file, "wb") as held:
            held.write(b"a,b,y\n" + b"1,2,u\n" * 10**6)

    return write


BOMBS = {
    **{"t.csv.gz": packed(gzip.open), "t.csv.bz2": packed(bz2.open), "t.csv.xz": packed(lzma.open)},
    **{"far.xlsx": far_cell, "long.xlsx": long_sheet},
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_that_needs_much_memory_is_refused_before_it_has_it(
    tmp_path, monkeypatch, name
):
    if name.endswith(".xlsx"):
        pytest.importorskip("openpyxl")
    monkeypatch.setattr(files, "LEAST_MOST", 2**20)
    BOMBS[name](tmp_path / name)
    size = (tmp_path / name).stat().st_size
    error = refused(rf"'{name}' has {size:,} bytes, and needs .* write it as .csv", read_frame,
                    tmp_path / name)  # fmt: skip
    assert "\n" not in str(error)


def test_usual_tables_need_less_than_is_refused(tmp_path, monkeypatch):
    """Sparse ones are packed most, by a factor of a hundred."""
    monkeypatch.setattr(files, "LEAST_MOST", 0)
    generator = np.random.default_rng(0)
    sparse = pd.DataFrame((generator.random((4000, 30)) < 0.01).astype(int)).add_prefix("c")
    for end in (".csv.gz", ".csv.bz2", ".csv.xz"):
        sparse.to_csv(tmp_path / f"t{end}", index=False)
        assert read_frame(tmp_path / f"t{end}").shape == (4000, 30)
    sparse.to_parquet(tmp_path / "t.parquet")
    assert read_frame(tmp_path / "t.parquet").shape == (4000, 30)
    if find_spec("openpyxl") is not None:
        sparse[:300].to_excel(tmp_path / "t.xlsx", index=False)
        assert read_frame(tmp_path / "t.xlsx").shape == (300, 30)
