"""Tables from files and frames: encodings by hand, refusals that name the thing, real files."""

from __future__ import annotations

import datetime
import gzip
import json
import os
import warnings
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from lexppl import ExplainerClassifier
from lexppl.data import TableEncoding, TableError, dataset_from_frame, load, read_table
from lexppl.data.cells import days_of, holds_dates
from lexppl.data.columns import CategoricalColumn, DateColumn, IndicatorColumn, NumericColumn
from lexppl.data.divided_table import divided_frame
from lexppl.data.stratification import fold_of_times, training_and_validation
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
    with warnings.catch_warnings(action="error"):
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


# Missing values beside their markers, and rare levels in one.


FRAME = pd.DataFrame(
    {
        "age": [30.0, None, 50.0, 40.0, None, 40.0],
        "job": ["cook", "king", None, "cook", "cook", "king"],
        "size": [1.0, 2.0, 3.0, 4.0, 5.0, 7.0],
        "y": [0, 1, 1, 0, 1, 0],
    }
)


def test_missing_values_enter_as_nothing_beside_a_marker():
    data = dataset_from_frame(FRAME, "y", hide_missing=True, dtype=torch.float64)
    assert data.feature_names == (
        "age", "age (hidden)", "job=cook", "job=king", "job (hidden)", "size",
    )  # fmt: skip
    assert data.entry_names == ("age", "job", "size") and data.groups == (0, 0, 1, 1, 1, 2)
    assert data.encoding.markers == (1, 1, 4, 4, 4, -1)
    # Statistics are of the four ages that are there: mean 40, variance 50.
    assert data.encoding.columns[0] == NumericColumn("age", 40.0, 50**0.5, gaps=True)
    scale = 50**0.5
    assert data.x[:, 0].tolist() == pytest.approx([-10 / scale, 0, 10 / scale, 0, 0, 0])
    assert data.x[:, 1].tolist() == [0, 1, 0, 0, 1, 0]
    assert data.x[2, 2:5].tolist() == [0, 0, 1] and data.x[0, 2:5].tolist() == [1, 0, 0]
    again = TableEncoding.from_json(json.loads(json.dumps(data.encoding.to_json())))
    assert again == data.encoding
    assert torch.equal(again.encode(FRAME, torch.float64), data.x)
    with pytest.raises(ValueError, match=r"columns that had none in fit: 'size' \(1\)"):
        again.encode(FRAME.assign(size=[None, 1, 2, 3, 4, 5]))


def test_indicators_are_entries_of_their_own():
    data = dataset_from_frame(FRAME, "y", hide_missing=True, missing_indicator=True)
    assert data.entry_names == ("age", "age is missing", "job", "job is missing", "size")
    assert data.encoding.columns[1] == IndicatorColumn("age is missing", of="age")
    place = data.feature_names.index("age is missing")
    assert data.x[:, place].tolist() == [0, 1, 0, 0, 1, 0]
    assert data.encoding.markers[place] == -1
    again = TableEncoding.from_json(json.loads(json.dumps(data.encoding.to_json())))
    assert again == data.encoding and torch.equal(again.encode(FRAME), data.x)


def towns(rows=200):
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"town": draw.choice(list("abcd"), rows), "x": draw.normal(size=rows)})
    frame.loc[:2, "town"] = ["rare", "rarer", "rarest"]
    return frame.assign(y=draw.integers(0, 2, rows))


def test_rare_levels_are_pooled_and_stand_for_unseen_ones():
    data = dataset_from_frame(towns(), "y", rare=5)
    column = data.encoding.columns[0]
    assert column == CategoricalColumn("town", (*"abcd", "other levels"), pooled="other levels")
    assert data.x[:3, :5].tolist() == [[0, 0, 0, 0, 1]] * 3
    again = TableEncoding.from_json(json.loads(json.dumps(data.encoding.to_json())))
    new = again.encode(pd.DataFrame({"town": ["nowhere", "a"], "x": [0.0, 0.0]}))
    assert new[:, :5].tolist() == [[0, 0, 0, 0, 1], [1, 0, 0, 0, 0]]


def test_levels_are_rare_by_the_rows_to_fit_on():
    frame = towns()
    frame.loc[:59, "town"] = "late"
    data = dataset_from_frame(frame, "y", rare=5, statistics_rows=range(60, 200))
    assert "late" not in data.encoding.columns[0].levels
    parts = divided_frame(towns(), "y", valid_share=0.2, test_share=0.2, seed=0, rare=5)
    assert parts.data.encoding.columns[0].pooled == "other levels"


def test_columns_of_rare_levels_alone_are_refused_and_many_levels_are_accepted():
    frame = towns().assign(id=[f"n{i}" for i in range(200)])
    with pytest.raises(TableError, match=r"'id' has no level in 5 rows or more.*drop=\['id'\]"):
        dataset_from_frame(frame, "y", rare=5)
    many = frame.assign(id=[f"n{min(i, 150)}" for i in range(200)])
    assert dataset_from_frame(many, "y", rare=5).encoding.columns[2].levels == (
        "n150",
        "other levels",
    )
    refused("rare must be a whole number of at least 1", dataset_from_frame, towns(), "y", rare=0)


@pytest.mark.smoke
def test_a_black_box_sees_the_table_as_it_was():
    frame = towns().assign(id=[f"n{i}" for i in range(200)])
    frame.loc[5, "x"] = None
    parts = divided_frame(
        frame, "y", valid_share=0.2, test_share=0.2, seed=0, drop=["id"], hide_missing=True
    )
    pd.testing.assert_frame_equal(parts.table, frame.drop(columns="y"))
    assert parts.data.entry_names == ("town", "x")
    gone = divided_frame(
        frame, "y", valid_share=0.2, test_share=0.2, seed=0, drop=["id"], drop_missing=True
    )
    assert len(gone.table) == 199 and "id" in gone.table


# Dates: which words are some, which day they mean, and the features they become.


DAY = (datetime.date(2026, 11, 22) - datetime.date(1970, 1, 1)).days

WORDS = {
    "2026-11-22": DAY,
    "2026/11/22": DAY,
    "2026-11": DAY - 21,
    "2026-11-22T06:00": DAY + 0.25,
    "2026-11-22 06:00:00Z": DAY + 0.25,
    "2026-11-22T06:00:00.000+02:00": DAY + 4 / 24,
    "2026-11-22T06:00:00-0130": DAY + 7.5 / 24,
    "22.11.2026": DAY,
    "22/11/2026 12:00": DAY + 0.5,
    "11/22/2026": DAY,
    "22 Nov 2026": DAY,
    "Nov 22, 2026": DAY,
    "22-nov-2026": DAY,
    "November 22 2026": DAY,
}


@pytest.mark.parametrize("word", WORDS)
def test_words(word):
    cells = pd.Series([word, None, word])
    assert holds_dates(cells)
    order = "monthfirst" if word == "11/22/2026" else "dayfirst"
    days = days_of(cells, order)
    assert days[[0, 2]].tolist() == pytest.approx([WORDS[word]] * 2) and np.isnan(days[1])


@over(
    ["clerk", "smith"],
    ["1.5", "2.5"],
    ["10-12", "12-14"],
    ["May", "June"],
    ["192.168.1.1", "10.0.0.1"],
    ["v2.1.2026x"],
    [20261122, 20261123],
    [1.5, 2.5],
    [None, None],
)
def test_no_dates(cells):
    assert not holds_dates(pd.Series(cells))


def table(dates):
    draw = np.random.default_rng(0)
    return pd.DataFrame({"when": dates, "y": draw.integers(0, 2, len(dates))})


@pytest.mark.smoke
def test_a_column_becomes_a_trend_and_what_recurs_in_one_entry():
    days = pd.date_range("2024-01-01", periods=400, freq="31h")
    data = dataset_from_frame(table(days.astype(str)), "y", dtype=torch.float64)
    assert data.entry_names == ("when",) and set(data.groups) == {0}
    assert data.feature_names == (
        "when",
        *(f"when: {part} {w}" for part in ("month", "weekday", "hour") for w in ("sin", "cos")),
    )
    assert float(data.x[:, 0].mean()) == pytest.approx(0.0, abs=1e-12)
    assert float(data.x[:, 0].std(correction=0)) == pytest.approx(1.0)
    expected = {
        "month": 2 * np.pi * (days.month.to_numpy() - 1) / 12,
        "weekday": 2 * np.pi * days.weekday.to_numpy() / 7,
        "hour": 2 * np.pi * days.hour.to_numpy() / 24,
    }
    for place, angle in enumerate(expected.values()):
        np.testing.assert_allclose(data.x[:, 1 + 2 * place], np.sin(angle), atol=1e-12)
        np.testing.assert_allclose(data.x[:, 2 + 2 * place], np.cos(angle), atol=1e-12)


def test_orders_are_told_by_the_dates_or_by_the_user():
    first = dataset_from_frame(table(["03/04/2026", "22/11/2026"] * 9), "y")
    assert first.encoding.columns[0].order == "dayfirst"
    second = dataset_from_frame(table(["03/04/2026", "11/22/2026"] * 9), "y")
    assert second.encoding.columns[0].order == "monthfirst"
    for order, day in (("dayfirst", 3), ("monthfirst", 4)):
        data = dataset_from_frame(table(["03/04/2026", "05/06/2026"] * 9), "y", dates=order)
        column = data.encoding.columns[0]
        early = datetime.date(2026, 7 - day, day) - datetime.date(1970, 1, 1)
        assert float(data.x[0, 0] * column.scale + column.mean) == pytest.approx(early.days)
    for dates, options, words in (
        (["03/04/2026", "05/06/2026"], {}, "give dates='dayfirst' or dates='monthfirst'"),
        (["13/04/2026", "05/16/2026"], {}, "of both orders"),
        (["13/04/2026", "05/06/2026"], {"dates": "monthfirst"}, "dates='monthfirst', and"),
        (["2026-02-30", "2026-02-01"], {}, "must hold dates; 9 cells do not, such as '2026-02-30'"),
        ([*(f"2026-01-{d}" for d in range(10, 28)), "unknown"], {}, "cells do not, such as 'unk"),
    ):
        every = dates * 9 if len(dates) == 2 else dates
        refused(words, dataset_from_frame, table(every), "y", error=TableError, **options)
    with pytest.raises(ValueError, match=r"dates must be one of .*'dayfirst', 'monthfirst'"):
        dataset_from_frame(table(["2026-01-01", "2026-01-02"]), "y", dates="first")


def test_later_dates_are_read_by_the_same_order_and_statistics():
    frame = table(["03/04/2026", "22/11/2026", None] * 9)
    data = dataset_from_frame(frame, "y", hide_missing=True)
    again = TableEncoding.from_json(json.loads(json.dumps(data.encoding.to_json())))
    assert again == data.encoding and isinstance(again.columns[0], DateColumn)
    new = pd.DataFrame({"when": ["03/04/2026", None, "2026-04-03"]})
    encoded = again.encode(new)
    assert torch.equal(encoded[0], data.x[0]) and torch.equal(encoded[2], encoded[0])
    assert encoded[1].tolist() == [0.0] * (encoded.shape[1] - 1) + [1.0]
    with pytest.raises(ValueError, match="must hold dates; 1 cells do not, such as 'soon'"):
        again.encode(pd.DataFrame({"when": ["soon"]}))


def test_estimators_read_dates_too():
    frame = table(pd.date_range("2024-01-01", periods=40, freq="9D").astype(str))
    explainer = ExplainerClassifier("l2x", k=1, epochs=1, random_state=0)
    explainer.fit(frame[["when"]], frame.y)
    assert list(explainer.result_.entry_names) == ["when"]
    assert isinstance(explainer.encoding_.columns[0], DateColumn)
    assert explainer.predict(pd.DataFrame({"when": ["2024-02-03 10:00"]})).shape == (1,)
    with pytest.raises(ValueError, match=r"do not tell the day.*pandas.to_datetime\(…, dayfirst"):
        explainer.fit(frame.assign(when=["03/04/2026", "05/06/2026"] * 20)[["when"]], frame.y)


# Tables in parts: statistics of the rows to fit on alone, levels of all rows.


SHARES = {"valid_share": 0.2, "test_share": 0.2, "seed": 0}


def fifty_people(rows=50):
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"age": draw.normal(40, 12, rows), "job": draw.choice(["a", "b"], rows)})
    frame["wage"] = 100.0 + 3.0 * frame.age
    return frame


def rows_of(part, frame):
    return frame.iloc[part.tolist()]


@pytest.mark.smoke
def test_statistics_are_those_of_the_rows_to_fit_on():
    frame = fifty_people()
    parts = divided_frame(frame, **SHARES, dtype=torch.float64)
    learned = rows_of(parts.train_rows, frame)
    for name, values in (("age", parts.train.x[:, 0]), ("wage", parts.train.y)):
        assert float(values.mean()) == pytest.approx(0.0, abs=1e-12), name
        assert float(values.std(correction=0)) == pytest.approx(1.0), name
    target = parts.data.encoding.target
    assert (parts.target.level, parts.target_scale) == (target.mean, target.scale)
    assert parts.target.inverse([0.0, 1.0]) == pytest.approx(
        [target.mean, target.mean + target.scale]
    )
    assert target.mean == pytest.approx(learned.wage.mean())
    # What is not learned from moves no statistic.
    other = frame.copy()
    other.loc[[*parts.valid_rows.tolist(), *parts.test_rows.tolist()], ["age", "wage"]] *= 100.0
    again = divided_frame(other, **SHARES, dtype=torch.float64)
    assert again.data.encoding == parts.data.encoding
    assert torch.equal(again.train.x, parts.train.x)


def test_every_row_is_in_one_part_and_the_table_is_as_it_was():
    frame = fifty_people()
    frame.loc[3, "age"] = None
    parts = divided_frame(frame, **SHARES, drop_missing=True)
    rows = np.concatenate([parts.train_rows, parts.valid_rows, parts.test_rows])
    assert sorted(rows.tolist()) == list(range(49))
    kept = frame.dropna().drop(columns="wage").reset_index(drop=True)
    pd.testing.assert_frame_equal(parts.table, kept)
    decoded = parts.data.x[:, 0] * parts.data.encoding.columns[0].scale
    np.testing.assert_allclose(decoded + parts.data.encoding.columns[0].mean, kept.age, rtol=1e-5)


def test_a_level_and_a_number_that_only_held_out_rows_have():
    """Neither a refusal nor a NaN: levels are of all rows, and a constant has scale 1."""
    frame = fifty_people()
    held_out = divided_frame(frame, **SHARES).test_rows.tolist()
    frame["flag"] = 0.0
    frame.loc[held_out[0], "flag"] = 7.0
    frame.loc[held_out[0], "job"] = "rare"
    frame = frame[["age", "job", "flag", "wage"]]
    parts = divided_frame(frame, **SHARES)
    assert parts.data.feature_names == ("age", "job=a", "job=b", "job=rare", "flag")
    assert parts.data.encoding.columns[2].scale == 1.0
    assert parts.test.x[0].tolist()[1:] == [0.0, 0.0, 1.0, 7.0]
    assert bool(parts.data.x.isfinite().all()) and not parts.train.x[:, 4].any()


def test_parts_that_cannot_be_made():
    with pytest.raises(ValueError, match="each part needs a row; 10 rows give 10 to fit on and 0"):
        divided_frame(fifty_people(10), valid_share=0.2, test_share=0.01, seed=0)
    frame = fifty_people(10)
    frame["kind"] = ["x", *["y"] * 9]
    with pytest.raises(ValueError, match="class 'x' has no row to fit on"):
        divided_frame(frame, "kind", valid_share=0.2, test_share=0.7, seed=0)
    parts = divided_frame(frame, "kind", valid_share=0.2, test_share=0.2, seed=0)
    assert parts.valid is None and parts.valid_rows is None and len(parts.train) == 8


@pytest.mark.parametrize("share", [None, 0.01, 0.9])
def test_rows_are_all_learned_from_where_none_can_be_set_apart(share):
    strata = np.array([0] * 9 + [1])
    train, valid = training_and_validation(strata, share, seed=0)
    assert valid is None and train.tolist() == list(range(10))


def test_statistics_rows_of_tables_that_are_read(tmp_path):
    frame = fifty_people()
    frame.to_csv(tmp_path / "people.csv", index=False)
    options = {"statistics_rows": range(20), "standardise_target": True, "dtype": torch.float64}
    data = read_table(tmp_path / "people.csv", **options)
    assert float(data.x[:20, 0].mean()) == pytest.approx(0.0, abs=1e-12)
    assert data.encoding.target.scale == pytest.approx(frame.wage[:20].std(ddof=0))
    wine = load("wine", statistics_rows=np.arange(100), dtype=torch.float64)
    torch.testing.assert_close(wine.x[:100].std(0, correction=0), torch.ones(13).double())
    for wrong in ([], [50], [-1], [0.5], [[0]]):
        with pytest.raises(ValueError, match="statistics_rows must be places of rows"):
            dataset_from_frame(frame, statistics_rows=wrong)
    with pytest.raises(ValueError, match="must not be given: 'statistics_rows'"):
        dataset_from_frame(frame, encoding=data.encoding, statistics_rows=[0])
    refused(r"statistics_rows is for tables .*'S1' is none", load, "S1", statistics_rows=[0])


# Folds in which rows of a group stay together, or that follow each other in time.


ROWS, FOLDS = 60, 5


def frame():
    draw = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=ROWS).strftime("%Y-%m-%d").to_numpy()
    return pd.DataFrame(
        {
            "patient": np.repeat([f"p{n}" for n in range(ROWS // 3)], 3),
            "day": draw.permutation(days),
            "number": draw.permutation(ROWS),
            "dose": draw.normal(size=ROWS),
            "y": np.arange(ROWS) % 2,
        }
    )


def test_rows_of_a_group_are_in_one_fold_and_have_its_number():
    table = frame()
    parts = divided_frame(table, "y", folds=FOLDS, group="patient", seed=1, drop=["day"])
    by_patient = pd.Series(parts.fold).groupby(table["patient"]).nunique()
    assert (by_patient == 1).all() and np.bincount(parts.fold).tolist() == [12] * FOLDS
    assert (pd.factorize(table["patient"])[0] == parts.unit).all()
    assert parts.data.entry_names == ("number", "dose")


@pytest.mark.parametrize("column", ["day", "number"])
def test_folds_follow_each_other_in_time(column):
    table = frame()
    other = {"day", "number"} - {column}
    parts = divided_frame(table, "y", folds=FOLDS, time=column, seed=1, drop=["patient", *other])
    times = pd.Series(table[column]).rank()
    ends = [(times[parts.fold == f].min(), times[parts.fold == f].max()) for f in range(FOLDS)]
    assert all(a[1] < b[0] for a, b in pairwise(ends))
    assert parts.unit is None and parts.data.entry_names == ("dose",)


@over(
    ({"group": "nobody"}, "there is no column 'nobody'; columns: 'gap', 'half'"),
    ({"time": "patient"}, "column 'patient' is no time: it has the cell 'p0'"),
    ({"group": "patient", "time": "day"}, "give one of the two"),
    ({"group": "half"}, "5 folds need as many groups of rows; there are 2"),
    ({"time": "gap"}, "column 'gap' has 1 missing cells: fill or drop them"),
)
def test_other_columns_are_refused_in_a_line(settings, message):
    table = frame()
    table.insert(0, "half", np.arange(ROWS) % 2 == 0)
    table.insert(0, "gap", np.where(np.arange(ROWS) == 3, np.nan, 1.0))
    keep = {} if "time" in settings and settings["time"] == "gap" else {"drop": ["gap"]}
    refused(message, divided_frame, table, "y", folds=FOLDS, seed=1, **keep, **settings)


def test_rows_of_one_time_stay_together():
    years = np.random.default_rng(0).permutation(np.repeat([2020.0, 2021.0, 2022.0], [70, 20, 10]))
    fold = fold_of_times(years, 2)
    assert set(zip(years, fold, strict=True)) == {(2020.0, 0), (2021.0, 1), (2022.0, 1)}
    assert (fold_of_times(years, 3) == years - 2020).all()
    refused("4 folds .* need as many times that differ; there are 3", fold_of_times, years, 4)
    days = np.random.default_rng(0).permutation(np.arange(11.0))
    assert fold_of_times(days, 3)[np.argsort(days)].tolist() == [0] * 4 + [1] * 4 + [2] * 3


def test_times_that_are_equal_or_give_folds_of_one_class_are_refused():
    table = frame()[["number", "dose", "y"]]
    same, late = table.assign(number=3), table.assign(number=table["number"] + ROWS * table["y"])
    for changed, message in (
        (same, "5 folds that follow each other need as many times that differ; there are 1"),
        (late, "fold 1 of 5 by column 'number' has one class at most"),
    ):
        refused(message, divided_frame, changed, "y", folds=FOLDS, seed=1, time="number")
    with_groups = table.assign(number=table["y"] + 2 * (table.index % 10))
    refused(
        "has one class at most", divided_frame, with_groups, "y", folds=9, seed=1, group="number"
    )
    # Of a response there are no classes.
    divided_frame(late, "dose", folds=FOLDS, seed=1, time="number")
