"""Text files as they come: separators, decimals, letters; and Excel files."""

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import warnings
import zipfile
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import torch

from lexppl.cli.image_text_rows import read_texts
from lexppl.cli.program import parse
from lexppl.cli.table_rows import file_format_of
from lexppl.cli.terminal import message_of
from lexppl.data import TableEncoding, TableError, dataset_from_frame, files, read_table
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


# Words such as "None", which mean missing in some files and are levels or classes in others.


WORDS = ("None", "NA", "N/A", "null", "NULL", "nan", "NaN", "n/a", "<NA>", "#N/A")


def written(tmp_path, rows=60, ending="csv", **columns):
    """A table whose columns repeat some cells."""
    frame = pd.DataFrame({n: [str(c[i % len(c)]) for i in range(rows)] for n, c in columns.items()})
    file = tmp_path / f"t.{ending}"
    frame.to_excel(file, index=False) if ending == "xlsx" else frame.to_csv(file, index=False)
    return file


@pytest.mark.smoke
@pytest.mark.parametrize("word", WORDS)
def test_a_class_of_such_a_name_stays_with_its_rows(tmp_path, word):
    file = written(tmp_path, dose=range(7), grade=(word, "mild", "severe"))
    for how in ({}, {"hide_missing": True}, {"drop_missing": True}):
        with pytest.warns(UserWarning, match=rf"'{re.escape(word)}' in 'grade' \(20\) may mean mi"):
            data = read_table(file, "grade", **how)
        assert set(data.class_names) == {word, "mild", "severe"} and len(data) == 60
    # What the warning names decides it, in either way and without a warning.
    with warnings.catch_warnings(action="error"):
        assert len(read_table(file, "grade", missing=("",))) == 60
    refused("'grade' is missing in 20 rows", read_table, file, "grade", missing=(word,))
    with pytest.warns(UserWarning, match="target 'grade' is missing in 20 rows: left out"):
        assert len(read_table(file, "grade", missing=(word,), hide_missing=True)) == 40


@pytest.mark.parametrize("word", WORDS)
def test_a_level_of_such_a_name_is_a_level(tmp_path, word):
    file = written(tmp_path, dose=range(7), job=("clerk", word, "smith", ""), y=("a", "b", "c"))
    with pytest.warns(UserWarning, match="may mean missing, and is read as a level"):
        data = read_table(file, "y", hide_missing=True)
    # The empty cells alone are missing.
    assert f"job={word}" in data.feature_names and len(data) == 60
    assert data.x[:, data.feature_names.index("job (hidden)")].sum() == 15
    both = read_table(file, "y", hide_missing=True, missing=(word,))
    assert f"job={word}" not in both.feature_names
    assert both.x[:, both.feature_names.index("job (hidden)")].sum() == 30


def test_several_words_are_named_together(tmp_path):
    file = written(
        tmp_path, fence=("NA", "wood"), alley=("None", "NA", "gravel"), y=("a", "b", "c")
    )
    with pytest.warns(UserWarning) as caught:
        read_table(file, "y")
    [told] = [str(one.message) for one in caught]
    assert told.startswith("'NA', 'None' in 'fence' (30), 'alley' (40) may mean missing")


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("cells", [(1.5, 2.5, 3.25), (1, 2, 3), ("2026-01-05", "2026-03-07")])
def test_beside_numbers_and_dates_they_mean_missing_without_a_warning(tmp_path, word, cells):
    file = written(tmp_path, dose=(*cells, word), y=("a", "b", "b", "a", "a"))
    with warnings.catch_warnings(action="error"):
        data = read_table(file, "y", hide_missing=True)
    assert data.entry_names == ("dose",) and "dose (hidden)" in data.feature_names


@pytest.mark.parametrize("cells", [(0, 1), (1, 2, 3), (True, False)])
def test_beside_classes_that_are_numbers_they_are_refused_by_name(tmp_path, cells):
    file = written(tmp_path, dose=range(7), y=(*cells, "None"))
    for how in ({}, {"hide_missing": True}, {"drop_missing": True}):
        refused(r"target 'y' holds 'None' \(\d+\), read as missing", read_table, file, "y", **how)
    data = read_table(file, "y", missing=("",))
    assert set(data.class_names) == {"None", *map(str, cells)} and len(data) == 60
    assert read_table(file, "y", missing=("None",), drop_missing=True).class_names == tuple(
        sorted(map(str, cells))
    )


@pytest.mark.parametrize("how", [{"hide_missing": True}, {"drop_missing": True}])
def test_a_response_without_a_value_is_named_where_its_row_is_left_out(tmp_path, how):
    values = [i / 7 for i in range(59)]
    file = written(tmp_path, dose=range(7), y=(*values, "NA"))
    with pytest.warns(UserWarning, match=r"target 'y' holds 'NA' \(1\), read as missing"):
        data = read_table(file, "y", **how)
    assert len(data) == 59 and data.class_names is None


def test_numbers_of_another_form_are_named_beside_such_words(tmp_path):
    doses = [f"{i},5" for i in range(30)]
    file = tmp_path / "t.csv"
    file.write_text("dose;y\n" + "".join(f"{dose};{i % 2}\n" for i, dose in enumerate(doses * 2)))
    file.write_text(file.read_text() + "NA;1\n")
    with (
        pytest.warns(UserWarning),
        pytest.raises(TableError, match="with decimal commas") as caught,
    ):
        read_table(file, "y")
    assert caught.value.mends == {"decimal": ","}
    assert read_table(file, "y", decimal=",", hide_missing=True).feature_names[0] == "dose"


def test_the_encoding_reads_later_files_alike(tmp_path):
    with pytest.warns(UserWarning):
        data = read_table(written(tmp_path, job=("NA", "cook"), y=("None", "a", "b")), "y")
    new = written(tmp_path, rows=3, job=("NA",), y=("None",))
    with warnings.catch_warnings(action="error"):
        read = read_table(new, encoding=data.encoding)
    assert read.x.tolist() == [[1.0, 0.0]] * 3 and read.y.tolist() == [0, 0, 0]
    exact = read_table(written(tmp_path, n=(1, 2, ""), y=("None", 1, 2)), "y", missing=("",),
                       hide_missing=True)  # fmt: skip
    again = TableEncoding.from_json(json.loads(json.dumps(exact.encoding.to_json())))
    assert again.file_format.missing == ("",)
    assert torch.equal(read_table(tmp_path / "t.csv", encoding=again).x, exact.x)


def test_a_frame_has_what_it_has():
    frame = pd.DataFrame({"a": range(60), "job": ["None", None, "cook"] * 20, "y": [*"ab"] * 30})
    data = dataset_from_frame(frame, "y", hide_missing=True, drop=["a"])
    assert data.feature_names == ("job=None", "job=cook", "job (hidden)")


@pytest.mark.parametrize("ending", ["parquet", "xlsx"])
def test_typed_files(tmp_path, ending):
    if find_spec("openpyxl") is None and ending == "xlsx":
        pytest.skip("openpyxl is not installed")
    frame = pd.DataFrame(
        {"dose": [1.5, None, 2.5] * 20, "job": ["NA", None, "cook"] * 20, "y": ["None", *"ab"] * 20}
    )
    file = tmp_path / f"t.{ending}"
    getattr(frame, {"xlsx": "to_excel"}.get(ending, "to_parquet"))(file, index=False)
    found = read_frame(file)
    assert found.isna().sum().to_dict() == {"dose": 20, "job": 20, "y": 0}
    assert sorted(found["y"].unique()) == ["None", "a", "b"]
    assert read_frame(file, missing=("None",))["y"].isna().sum() == 20


@pytest.mark.skipif(find_spec("openpyxl") is None, reason="openpyxl is not installed")
def test_numbers_of_excel_beside_such_words(tmp_path):
    file = tmp_path / "t.xlsx"
    pd.DataFrame({"dose": [1.5, "NA", 2.5], "n": [1, 2, "None"]}).to_excel(file, index=False)
    found = read_frame(file)
    assert found["dose"].tolist()[::2] == [1.5, 2.5] and found.dtypes.astype(str).tolist() == [
        "float64",
        "float64",
    ]
    assert found.isna().sum().sum() == 2


def test_the_command_has_the_same_option(tmp_path):
    file = written(tmp_path, dose=range(7), y=(0, 1, "None"))
    with pytest.raises(ValueError) as caught:
        read_table(file, "y")
    assert message_of(caught.value).endswith(
        "give --missing None, or --missing '' if it is a class"
    )
    for typed, rows in ((["--missing", ""], 60), (["--missing", "None"], 40)):
        options = parse(["explain", str(file), "--out", "r", *typed])
        frame = read_frame(file, file_format_of(options))
        assert frame["y"].notna().sum() == rows


def test_labels_of_texts_of_such_a_name_are_named_too(tmp_path):
    written_texts = tuple(f"a good film of {word}" for word in ("old", "new", "NA"))
    typed = ["--text", "review", "--out", "r", "--drop-missing"]
    file = written(tmp_path, review=written_texts, stars=(1, 2, "None"))
    options = parse(["explain", str(file), *typed])
    refused(r"target 'stars' holds 'None' \(20\)", read_texts, options, torch.device("cpu"))
    kept = read_texts(parse(["explain", str(file), *typed, "--missing", ""]), torch.device("cpu"))
    assert set(kept.data.class_names) == {"1", "2", "None"}


# Quotes that swallow rows, which are named by their line, and cells of several lines, which are
# read.


LINES = 60
SEPARATORS = {",": ("csv", {}), ";": ("csv", {}), "\t": ("tsv", {}), "|": ("csv", {}),
              " ": ("csv", {"separator": r"\s+"})}  # fmt: skip


def lines_of(cells, separator=","):
    """A header and rows of a number, what `cells` gives, and a label."""
    rows = [(str(i % 7), cells(i), str(i % 2)) for i in range(LINES)]
    return [separator.join(row) for row in [("n", "part", "y"), *rows]]


def lines_written(tmp_path, lines, ending="csv", end="\n"):
    file = tmp_path / f"t.{ending}"
    content = (end.join(lines) + end).encode()
    file.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    return file


def quoted_at(first, last, behind=False):
    """Cells of which two have a quote: before both, or behind the last."""

    def cell(i):
        word = f"pipe{i % 3}"
        if i == last and behind:
            return f'{word}"'
        return f'"{word}' if i in (first, last) else word

    return cell


@pytest.mark.smoke
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_quote_that_ends_lines_later_is_named(tmp_path, separator, end):
    ending, how = SEPARATORS[separator]
    file = lines_written(tmp_path, lines_of(quoted_at(10, 40), separator), ending, end)
    message = "quote opens in line 12 ends in line 42, before other words; leave the quote out"
    refused(message, read_frame, file, **how)
    # Before a separator it could be a text.
    for last in (11, 40):
        file = lines_written(tmp_path, lines_of(quoted_at(10, last, True), separator), ending, end)
        with pytest.warns(UserWarning, match=rf"in line 12 ends in line {last + 2}, and its lines"):
            assert len(read_frame(file, **how)) == LINES - (last - 10)


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_a_quote_that_never_ends_is_named(tmp_path, ending):
    for first in (0, 10, LINES - 1):
        file = lines_written(tmp_path, lines_of(quoted_at(first, LINES)), ending)
        refused(f"opens in line {first + 2} never ends", read_frame, file)
    refused("in line 12 ends in line 42", read_frame,
            lines_written(tmp_path, lines_of(quoted_at(10, 40)), ending))  # fmt: skip


def test_rows_with_rare_cells_are_rows(tmp_path):
    lines = lines_of(quoted_at(10, 40, True))
    lines[20:26] = ["?,strange,1", ",pipe1,0", "3,,1", "-9.5e3,other,0", "4,pipe2,", "5,x,1"]
    with pytest.warns(UserWarning, match="in line 12 ends in line 42, and its lines look like"):
        read_frame(lines_written(tmp_path, lines))


@pytest.mark.parametrize("place", [0, 2])
def test_quotes_of_other_columns(tmp_path, place):
    lines = [line.split(",") for line in lines_of(lambda i: f"pipe {i % 3}")]
    lines[21][place], lines[31][2] = f'"{lines[21][place]}', f'{lines[31][2]}"'
    with pytest.warns(UserWarning, match="in line 22 ends in line 32, and its lines look like"):
        read_frame(lines_written(tmp_path, map(",".join, lines)))


@pytest.mark.parametrize("header", ['"n,part,y', 'n,"part,y', 'n,part,"y'])
def test_quotes_of_the_header(tmp_path, header):
    lines = lines_of(lambda i: "pipe")
    refused("opens in line 1 never ends", read_frame, lines_written(tmp_path, [header, *lines[1:]]))
    lines[25] = lines[25].replace("pipe", 'pipe"')
    file = lines_written(tmp_path, [header, *lines[1:]])
    refused("in line 1 ends in line 26, and its lines look like rows", read_frame, file)


@over(('{}" pipe', '{}" pipe'), ('pipe {}"', 'pipe {}"'), ('"{}"" pipe"', '{}" pipe'),
     ('"pipe, {}"""', 'pipe, {}"'), ('"{}"', "{}"), ("it's {}'", "it's {}'"))  # fmt: skip
def test_quotes_within_words_are_read(cell, value, tmp_path):
    with warnings.catch_warnings(action="error"):
        frame = read_frame(lines_written(tmp_path, lines_of(lambda i: cell.format(i % 5))))
    assert frame["part"].tolist() == [
        int(i % 5) if value == "{}" else value.format(i % 5) for i in range(LINES)
    ]


def test_quotes_that_are_not_doubled_are_named(tmp_path):
    file = lines_written(tmp_path, lines_of(lambda i: f'"pipe {i % 5}""'))
    refused("opens in line 2 ends in line 3, before other words", read_frame, file)


def texts(rows):
    """Texts of one to four lines, with commas, quotes and numbers."""
    draw = np.random.default_rng(0)
    words = ["a", "film", "great,", "and", "dull;", "but:", "10", "3.5", '"fine"', 'said "no",']
    for _ in range(rows):
        lines = [
            " ".join(draw.choice(words, draw.integers(1, 6))) for _ in range(draw.integers(1, 5))
        ]
        yield "\n".join(lines)


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
@pytest.mark.parametrize("order", ["text id label", "id text label", "id label text", "label text"])
def test_texts_of_several_lines_are_read_without_a_warning(tmp_path, order, quoting):
    expected = [
        {"id": i, "label": ("good", "bad")[i % 2], "text": text}
        for i, text in enumerate(texts(400))
    ]
    names = order.split()
    held = io.StringIO()
    writer = csv.writer(held, quoting=quoting)
    writer.writerows([names, *([row[name] for name in names] for row in expected)])
    file = tmp_path / "t.csv"
    file.write_bytes(held.getvalue().encode())
    with warnings.catch_warnings(action="error"):
        frame = read_frame(file)
    assert frame["text"].str.replace("\r\n", "\n").tolist() == [row["text"] for row in expected]


def test_a_header_of_two_lines_is_read(tmp_path):
    file = lines_written(tmp_path, ['n,"part\n(of, which)",y', *lines_of(lambda i: "pipe")[1:]])
    with warnings.catch_warnings(action="error"):
        assert list(read_frame(file)) == ["n", "part\n(of, which)", "y"]
