"""Tables from files and frames: encodings by hand, refusals that name the thing, real files."""

from __future__ import annotations

import datetime
import gzip
import os
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from lexppl.data import dataset_from_frame, read_table
from tests.refusals import over, refused

PEOPLE = """age,job,member,income
30,clerk,True,low
50,smith,False,high
40,smith,True,low
20,baker,False,high
"""


@pytest.fixture
def people(tmp_path):
    file = tmp_path / "people.csv"
    file.write_text(PEOPLE)
    return file


def written(folder, text, name: str = "table.csv"):
    file = folder / name
    file.write_text(text)
    return file


def shared_data():
    here = Path(__file__).resolve().parents[2]
    folder = Path(os.environ.get("LEXPPL_DATA", here.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("no data: set LEXPPL_DATA, or have ../shared/data beside the repository")
    return folder


def test_encoding_is_that_of_scikit_learn():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "a": generator.normal(5, 3, 60),
            "b": generator.choice(["u", "v", "w"], 60),
            "c": generator.integers(0, 50, 60),
            "d": generator.choice(["p", "q"], 60),
            "y": generator.normal(size=60),
        }
    )
    transformer = ColumnTransformer(
        [
            ("a", StandardScaler(), ["a"]),
            ("b", OneHotEncoder(sparse_output=False), ["b"]),
            ("c", StandardScaler(), ["c"]),
            ("d", OneHotEncoder(sparse_output=False), ["d"]),
        ]
    )
    data = dataset_from_frame(frame, "y", dtype=torch.float64)
    np.testing.assert_allclose(data.x.numpy(), transformer.fit_transform(frame), atol=1e-12)
    assert data.task == "regression"
    np.testing.assert_allclose(data.y.numpy(), frame["y"])


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".csv.xz", ".tsv", ".tab", ".parquet"])
def test_every_kind_of_file_reads_the_same(people, tmp_path, suffix):
    frame = pd.read_csv(people)
    file = tmp_path / f"other{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(file)
    else:
        frame.to_csv(file, index=False, sep="," if "csv" in suffix else "\t")
    data, expected = read_table(file), read_table(people)
    assert torch.equal(data.x, expected.x)
    assert torch.equal(data.y, expected.y)
    assert data.name == "other"
    assert data.encoding == expected.encoding


def test_separator_and_column_names(tmp_path):
    file = written(tmp_path, "1 a 0\n2 b 1\n4 a 1\n", "table.data")
    data = read_table(file, "y", separator=" ", column_names=["n", "c", "y"])
    assert (len(data), data.entry_names, data.y.tolist()) == (3, ("n", "c"), [0, 1, 1])
    with pytest.raises(
        ValueError, match=r"column_names must have shape \(3,\), as the first line .* is \(2,\)"
    ):
        read_table(file, "y", separator=" ", column_names=["n", "c"])


def test_an_index_column_of_pandas_is_left_out(people, tmp_path):
    file = tmp_path / "indexed.csv"
    pd.read_csv(people).to_csv(file)
    assert read_table(file).entry_names == ("age", "job", "member")
    some = written(tmp_path, ",a,y\n7,1.5,0\n9,2.5,1\n")
    with pytest.warns(UserWarning, match="the first column has no name: it is left out"):
        assert read_table(some).entry_names == ("a",)
    other = written(tmp_path, ",a,y\n7,1.5,0\n7,2.5,1\n")
    refused(r"first column of 'table.csv' has no name; give it one", read_table, other)


def test_a_named_index_in_parquet_is_a_column(tmp_path):
    file = tmp_path / "indexed.parquet"
    frame = pd.DataFrame({"age": [30.0, 40.0], "job": ["clerk", "smith"], "y": [0, 1]})
    frame.set_index("age").to_parquet(file)
    assert read_table(file).entry_names == ("age", "job")


def test_a_first_line_that_is_data_is_warned_of(tmp_path, people):
    lines = people.read_text().partition("\n")[2]
    with pytest.warns(UserWarning, match=r"'30', 'clerk'.*among their cells.*give column_names"):
        read_table(written(tmp_path, lines * 2, "headless.csv"))


@pytest.mark.parametrize("cells", [["012", "907"], ["012", ""]])
def test_codes_that_are_read_as_numbers_are_warned_of(tmp_path, cells):
    file = written(tmp_path, f"zip,a,y\n{cells[0]},0.5,0\n{cells[1]},1,1\n7,2,0\n8,3,1\n")
    with pytest.warns(UserWarning, match="columns 'zip' have cells with leading zeros"):
        read_table(file, drop_missing=True)


TARGETS: list[tuple[list[Any], str | None, tuple[str, ...] | None, list[float]]] = [
    (["b", "a", "b"], None, ("a", "b"), [1, 0, 1]),
    ([True, False, True], None, ("False", "True"), [1, 0, 1]),
    ([10, 9, 10], None, ("9", "10"), [1, 0, 1]),
    ([1.5, 2.5, 1.5], None, None, [1.5, 2.5, 1.5]),
    ([1.0, 2.0, 1.0], None, None, [1, 2, 1]),
    ([1.0, 2.0, 1.0], "classification", ("1", "2"), [0, 1, 0]),
    ([3, 1, 2], "regression", None, [3, 1, 2]),
]


@pytest.mark.parametrize(("cells", "task", "classes", "labels"), TARGETS)
def test_target(cells, task, classes, labels):
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0], "y": cells})
    data = dataset_from_frame(frame, "y", task=task)
    assert (data.class_names, data.y.tolist()) == (classes, labels)


@pytest.mark.parametrize(("distinct", "task"), [(20, "classification"), (21, "regression")])
def test_integers_are_classes_up_to_20_values(distinct, task):
    frame = pd.DataFrame({"a": np.arange(50.0), "y": np.arange(50) % distinct})
    assert dataset_from_frame(frame).task == task


def test_ordered_categories_keep_their_order():
    size = pd.Categorical(["big", "small", "big"], ["small", "big", "huge"], ordered=True)
    data = dataset_from_frame(pd.DataFrame({"size": size, "y": [0, 1, 0]}))
    assert data.feature_names == ("size=small", "size=big")


def test_numeric_codes_as_levels():
    frame = pd.DataFrame({"zip": [10, 9, 10], "a": [1.0, 2.0, 4.0], "y": [0, 1, 0]})
    data = dataset_from_frame(frame, categorical=["zip"])
    assert data.feature_names == ("zip=9", "zip=10", "a")
    for wrong in (["zap"], ["y"]):
        refused(f"categorical names '{wrong[0]}'", dataset_from_frame, frame, categorical=wrong)


def test_numbers_kept_as_objects_are_numbers():
    frame = pd.DataFrame(
        {
            "decimal": pd.Series([Decimal("1.5"), Decimal("2.5"), Decimal("2.0")], dtype=object),
            "integer": pd.Series([1, 2, 4], dtype=object),
            "nullable": pd.array([1, 2, 4], dtype="Int64"),
            "y": [0, 1, 0],
        }
    )
    assert dataset_from_frame(frame).feature_names == ("decimal", "integer", "nullable")


def test_standardised_target_comes_back():
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0], "y": [10.0, 20.0, 60.0]})
    data = dataset_from_frame(frame, standardise_target=True, dtype=torch.float64)
    assert float(data.y.mean()) == pytest.approx(0)
    assert float(data.y.std(correction=0)) == pytest.approx(1)
    assert data.encoding.target.decode(data.y).tolist() == pytest.approx([10, 20, 60])


GAPS = "a,b,y\n1,u,0\n,v,1\n3,?,1\n4,,0\n5,v,1\n"


def test_missing_values_are_dropped_on_demand(tmp_path):
    file = written(tmp_path, GAPS)
    with_question = read_table(file, drop_missing=True)
    assert with_question.feature_names == ("a", "b=?", "b=u", "b=v")
    data = read_table(file, drop_missing=True, missing=("?",))
    assert (len(data), data.feature_names) == (2, ("a", "b=u", "b=v"))
    # Statistics are those of the rows that stay: mean 3, standard deviation 2.
    assert data.x[:, 0].tolist() == [-1, 1]
    empty = written(tmp_path, "a,b,y\n1,,0\n2,,1\n")
    refused("constant columns explain nothing: 'b'", read_table, empty, drop_missing=True)
    assert len(read_table(empty, drop_missing=True, drop_constant=True)) == 2
    rows = written(tmp_path, "a,b,y\n1,,0\n,2,1\n")
    refused("no row is left: each has a missing value", read_table, rows, drop_missing=True)


def test_constant_columns(tmp_path):
    file = written(tmp_path, "a,b,c,y\n1,2,u,0\n1,3,u,1\n")
    refused(r"constant columns.*'a', 'c'.*drop_constant=True", read_table, file)
    assert read_table(file, drop_constant=True).entry_names == ("b",)
    alone = written(tmp_path, "a,y\n1,0\n1,1\n")
    refused("no column is left", read_table, alone, drop_constant=True)


REFUSED_FRAMES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"a": [], "y": []}, {}, "the table is empty: it has no rows"),
    ({"y": [0, 1]}, {}, "a target and another column; it has 'y'"),
    ({"a": [1, 2], "y": ["u", "u"]}, {}, "target 'y' has one class only: every row is 'u'"),
    ({"a": [1, 2], "y": [2, 2]}, {}, "target 'y' has one class only: every row is '2'"),
    ({"a": [1, 2], "y": [2.5, 2.5]}, {}, "target 'y' is constant: 2.5"),
    ({"a": [1, 2], "y": [1e9 + 0.5, 1e9 + 1.5]}, {}, "too close to each other for torch.float32"),
    ({"a": [1, 2], "y": [0, 1]}, {"task": "ranking"}, "task must be.*it is 'ranking'"),
    ({"a": [1, 2], "y": ["u", "v"]}, {"task": "regression"}, "'y' must hold numbers; 2 .*'u'"),
    ({"a": [1, 2], "y": [0, 1]}, {"standardise_target": True}, "standardise_target is for regr"),
    ({"a": [1.0, np.inf], "y": [0, 1]}, {}, "'a' must be finite; 1 are infinite"),
    ({"a": [1.0, 2.0], "y": [0.5, -np.inf]}, {}, "'y' must be finite; 1 are infinite"),
    ({"a": [1, 2], "y": [1e20, 1.5]}, {}, r"'y' has values up to 1e\+20, .*float32.*rescale it"),
    ({"a": [1, 2], "y": [1e-21, 0.0]}, {}, "'y' has values up to 1e-21, .*float32.*rescale it"),
    ({"a": [1j, 2j], "y": [0, 1]}, {}, "'a' holds values of kind 'complex'"),
    ({"a": pd.to_timedelta([1, 2], "D"), "y": [0, 1]}, {}, r"'a' holds values of.*drop=\['a'\]"),
    ({"a": [datetime.time(1), datetime.time(2)], "y": [0, 1]}, {}, "'a' holds values of.*'time'"),
    ({"a": [[1], [2]], "y": [0, 1]}, {}, "column 'a' holds values of kind"),
    (
        {"id": [f"n{i}" for i in range(101)], "y": [0, *[1] * 100]},
        {},
        "'id' has 101 levels in 101 rows, at most 50 are expected; it looks like an identifier",
    ),
    (
        {"a": [*map(str, range(150)), "-"], "y": [0, *[1] * 150]},
        {},
        r"'a' has 151 levels.*most are numbers, but not '-'.*missing=\('-',\)",
    ),
    ({"a": np.arange(101.0), "y": [f"n{i}" for i in range(101)]}, {}, "'y' has 101 levels"),
    (
        {"a": np.arange(24.0), "y": [*range(14), *range(10)]},
        {},
        "'y' has 14 levels in 24 rows, at most 12 .*, or give task='regression' for numbers",
    ),
    (
        {"a": [f"{i / 4}%" for i in range(90)], "y": [0, 1] * 45},
        {},
        r"'a' holds numbers with '%', such as '0.0%'.*categorical=\['a'\] if they are names",
    ),
    (
        {"a": [0, 1] * 45, "y": [f"-$1,{i:03d}.50" for i in range(90)]},
        {},
        r"'y' holds numbers with '\$', such as .*task='classification' if they are names",
    ),
]


@pytest.mark.parametrize(("columns", "options", "message"), REFUSED_FRAMES)
def test_refused_frames(columns, options, message):
    refused(message, dataset_from_frame, pd.DataFrame(columns), "y", **options)


def test_whole_numbers_with_decimal_points_may_be_classes():
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0], "y": [0.0, 1.0, 1.0]})
    with pytest.warns(UserWarning, match=r"'y' is read as a response.*2 values are classes"):
        assert dataset_from_frame(frame).class_names is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for task in ("regression", "classification"):
            dataset_from_frame(frame, task=task)
        dataset_from_frame(frame.assign(y=[0.5, 1.0, 1.0]))


def test_absent_target_lists_close_names(people):
    refused("no target column 'incom'; did you mean 'income'", read_table, people, "incom")
    refused("did you mean 'job'", read_table, people, "JOB")
    refused("the columns are 'age', 'job', 'member', 'income'", read_table, people, "zzzz")


REFUSED_FILES = [
    ("empty.csv", "", "the table is empty: 'empty.csv' holds nothing"),
    ("head.csv", "a,b\n", "the table is empty: it has no rows"),
    ("twice.csv", "a,b,a\n1,2,3\n", "must differ.*repeated: 'a'.*give column_names"),
    ("long.csv", "a,b\n1,2\n1,2,3\n", "'long.csv' cannot be read as a table"),
    ("every.csv", "a,b\n1,2,3\n1,2,3\n", "a line has more cells than the first"),
    ("semi.tsv", "a;b\n1;2\n3;4\n", "single column 'a;b'.*give separator"),
    ("blank.csv", "a,,b\n1,2,3\n4,5,6\n", "column 2 has no name"),
    ("table.xls", "x", "no known kind; expected '.csv'.*separator"),
    ("table.parquet", "not parquet", "'table.parquet' cannot be read"),
]


@pytest.mark.parametrize(("name", "text", "message"), REFUSED_FILES)
def test_refused_files(tmp_path, name, text, message):
    refused(message, read_table, written(tmp_path, text, name))


def test_other_refused_files(tmp_path, people):
    refused(r"no file .*absent.csv", read_table, tmp_path / "absent.csv", error=FileNotFoundError)
    refused("is a folder", read_table, tmp_path)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"a,b\n\xff\xfe\x00,1\n")
    refused(r"'binary.csv' cannot be read as a table", read_table, binary)
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(gzip.compress(PEOPLE.encode())[:-20])
    refused(r"'cut.csv.gz' cannot be read as a table", read_table, cut)
    refused("missing must be a sequence", read_table, people, missing="?")
    refused("separator must be one character", read_table, people, separator=", ")
    with pytest.raises(TypeError, match=r"must be a pandas.DataFrame; it is a ndarray"):
        dataset_from_frame(np.zeros((2, 2)))


@pytest.mark.smoke
def test_a_test_file_is_read_by_the_training_encoding(people, tmp_path):
    train = read_table(people, "income")
    file = written(tmp_path, "income,age,job,member\nlow,35,smith,True\n", "test.csv")
    test = read_table(file, encoding=train.encoding)
    assert (test.y.tolist(), test.x.tolist()) == ([1], [[0, 0, 0, 1, 0, 1]])
    assert test.class_names == train.class_names
    refused("must not be given: 'target'", read_table, file, "income", encoding=train.encoding)
    unseen = written(tmp_path, "income,age,job,member\nmiddle,35,smith,True\n", "test.csv")
    with pytest.raises(ValueError, match="'income' has label 'middle', not seen in fit"):
        read_table(unseen, encoding=train.encoding)


@over(
    (
        {"job": ["king"]},
        "'job' has level 'king', not seen in fit; known are 'baker', 'clerk'.*with rare=10",
    ),
    ({"age": ["old"]}, "'age' must hold numbers; 1 cells do not, such as 'old'"),
    ({"age": [None]}, r"had none in fit: 'age' \(1\); fill them in, leave these"),
    ({"age": [np.inf]}, "'age' must be finite"),
    ({"extra": [1]}, "the 3 columns of fit.*it has 'extra', not there in fit"),
)
def test_new_rows_refused(changed, message, people):
    encoding = read_table(people, "income").encoding
    columns = {"age": [30.0], "job": ["clerk"], "member": [True]} | changed
    refused(message, encoding.encode, pd.DataFrame(columns))


def test_new_tables_refused(people):
    encoding = read_table(people, "income").encoding
    refused("it lacks 'job', 'member'", encoding.encode, pd.DataFrame({"age": [30.0]}))
    refused("it has no rows", encoding.encode, pd.read_csv(people).iloc[:0])
    with pytest.raises(ValueError, match="columns of the same name"):
        encoding.encode(pd.read_csv(people)[["age", "job", "member", "age"]])
    refused(r"must be a pandas.DataFrame", encoding.encode, np.zeros((1, 3)), error=TypeError)


ADULT_COLUMNS = [
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    *("native-country", "income"),
]


def test_adult():
    file = shared_data() / "adult" / "adult.data.gz"
    options: dict[str, Any] = {"separator": ",", "column_names": ADULT_COLUMNS}
    data = read_table(file, "income", **options)
    assert (len(data), data.n_entries, data.class_names) == (32_561, 14, ("<=50K", ">50K"))
    assert "workclass=?" in data.feature_names
    complete = read_table(file, "income", missing=("?",), drop_missing=True, **options)
    assert len(complete) == 30_162
    assert int((complete.y == 1).sum()) == 7_508
    with pytest.raises(
        ValueError, match=r"'workclass' \(1836\), 'occupation' \(1843\), 'native-country' \(583\)"
    ):
        read_table(file, "income", missing=("?",), **options)
