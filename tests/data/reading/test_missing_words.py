"""Words such as "None", which mean missing in some files and are levels or classes in others."""

import json
import re
import warnings
from importlib.util import find_spec

import pandas as pd
import pytest
import torch

from lexppl.cli.image_text_rows import read_texts
from lexppl.cli.program import parse
from lexppl.cli.table_rows import file_format_of
from lexppl.cli.terminal import message_of
from lexppl.data import TableEncoding, dataset_from_frame, read_table
from lexppl.data.files import read_frame
from lexppl.data.problems import TableError
from tests.refusals import refused

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
    with warnings.catch_warnings():
        warnings.simplefilter("error")
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
    with warnings.catch_warnings():
        warnings.simplefilter("error")
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
    with warnings.catch_warnings():
        warnings.simplefilter("error")
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
