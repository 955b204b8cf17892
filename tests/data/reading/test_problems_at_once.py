"""All that a table has wrong is told at once, each with what mends it."""

import re

import numpy as np
import pandas as pd
import pytest

from lexppl.data import TableError, dataset_from_frame, read_table
from lexppl.data.problems import notices
from tests.refusals import over, refused


def frame_of(rows=150, **columns):
    draw = np.random.default_rng(0)
    return pd.DataFrame({"a": draw.normal(size=rows), **columns, "y": draw.integers(0, 2, rows)})


def problems_of(frame, **options):
    with pytest.raises(TableError) as caught:
        dataset_from_frame(frame, "y", **options)
    return caught.value


@pytest.mark.smoke
def test_everything_is_told_with_what_mends_it():
    rows = 150
    frame = frame_of(
        rows,
        id=[f"P-{i}" for i in range(rows)],
        site="north",
        dose=[f"{i % 7},5" for i in range(rows)],
        seen=["03/04/2026", "05/06/2026"] * 75,
        gap=[None, 1.0, 2.0] * 50,
        size=[*map(str, range(rows - 1)), "?"],
        far=[np.inf, *range(rows - 1)],
        long=pd.to_timedelta(range(rows), "D"),
    )
    error = problems_of(frame)
    told = str(error)
    assert told.startswith("the table has 8 problems:\n  - missing values in 1 of 8 columns: 'gap'")
    for words in (
        "constant columns explain nothing: 'site'",
        "'id' has 150 levels in 150 rows",
        "drop=['id'], or pool its rare levels with rare=10",
        "'dose' holds numbers with decimal commas, such as '0,5'; give decimal=','",
        "'seen' holds dates such as '03/04/2026', which do not tell the day from the month",
        "most are numbers, but not '?'",
        "'far' must be finite",
        "'long' holds values of kind 'timedelta64'",
    ):
        assert words in told, words
    assert told.splitlines()[-1] == (
        "all at once: hide_missing=True, drop=['site', 'id', 'long'], decimal=',', "
        "dates='dayfirst|monthfirst', missing=['?']"
    )


def test_a_target_with_something_wrong_is_told_beside_the_others():
    frame = frame_of(site="north")
    frame["y"] = "yes"
    assert [re.match(r"\w+ \S+", p.text).group() for p in problems_of(frame).problems] == [
        "constant columns",
        "target 'y'",
    ]
    frame["y"] = [f"{i},25" for i in range(len(frame))]
    assert problems_of(frame).mends == {"drop": ["site"], "decimal": ","}
    frame["y"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(range(len(frame)), "D")
    assert "target 'y' holds dates; predict another column" in str(problems_of(frame))


def test_missing_labels_are_not_to_be_filled_in():
    frame = frame_of().assign(y=["yes", "no", None] * 50)
    error = problems_of(frame)
    assert str(error).startswith("target 'y' is missing in 50 rows; give drop_missing=True or")
    assert "fill them in" not in str(error) and error.mends == {"hide_missing": True}
    with pytest.warns(UserWarning, match="target 'y' is missing in 50 rows: left out"):
        assert len(dataset_from_frame(frame, "y", **error.mends)) == 100
    frame.loc[1:2, "a"] = np.nan
    first, second = problems_of(frame).problems
    assert "missing values in 1 of 1 columns: 'a' (2)" in first.text and "50 rows" in second.text


def test_what_mends_it_mends_it(tmp_path):
    rows = 150
    frame = frame_of(
        rows,
        id=[f"P-{i}" for i in range(rows)],
        site="north",
        dose=np.where(np.arange(rows) % 9 == 0, np.nan, np.arange(rows) / 2),
    )
    file = tmp_path / "t.csv"
    frame.to_csv(file, sep=";", decimal=",", index=False)
    with pytest.raises(TableError) as caught:
        read_table(file)
    data = read_table(file, **caught.value.mends)
    assert data.entry_names == ("a", "dose") and len(data) == rows


def test_numbers_with_commas_that_part_thousands_are_not_called_decimals():
    error = problems_of(frame_of(pay=["1,200", "12,345", "900"] * 50))
    assert "if they part the thousands" in str(error) and not error.mends
    error = problems_of(frame_of(pay=[f"{100.5 * i:,.2f}" for i in range(150)]))
    assert "holds numbers with commas, such as '1,005.00': if they part the thou" in str(error)
    assert not error.mends
    for sign, what in ((" ", "blanks"), ("\u00a0", "blanks"), ("'", "apostrophes")):
        pay = [f"{10050 * i:,}".replace(",", sign) for i in range(150)]
        [problem] = problems_of(frame_of(pay=pay)).problems
        assert f"holds numbers with {what}, such as {pay[1]!r}: if they part" in problem.text
    assert "decimal" in problems_of(frame_of(pay=["1,20", "2", "1.234,5"] * 50)).mends
    words = frame_of(pay=["1,2 or so", "2", "3"] * 50)
    assert dataset_from_frame(words, "y").feature_names[1] == "pay=1,2 or so"
    # Said to be levels, they are.
    names = dataset_from_frame(frame_of(pay=["1,2", "2"] * 75), "y", categorical=["pay"])
    assert names.feature_names[1:] == ("pay=1,2", "pay=2")


def test_a_column_that_numbers_the_rows_is_warned_of():
    frame = frame_of(id=np.random.default_rng(0).permutation(150) + 7)
    with pytest.warns(UserWarning, match=r"column 'id' numbers the rows.*drop=\['id'\]"):
        dataset_from_frame(frame, "y")
    frame["id"] = frame.id * 2
    assert dataset_from_frame(frame, "y").entry_names == ("a", "id")


def test_numbers_with_a_few_words_among_them_are_not_read_as_levels():
    ages = [*map(str, range(20, 70)), *["?"] * 10] * 5
    error = problems_of(frame_of(300, age=ages))
    assert "most are numbers, but not '?'" in str(error) and error.mends == {"missing": ["?"]}
    assert "categorical=['age'] if all are names" in str(error)
    frame = frame_of(300, age=ages)
    assert len(dataset_from_frame(frame, "y", categorical=["age"]).feature_names) == 52
    # Few numbers may well be levels.
    assert "rooms=4+" in dataset_from_frame(frame_of(rooms=["1", "2", "4+"] * 50)).feature_names
    # A target is not named as categorical.
    frame["y"] = ages
    assert "task='classification' if all are names" in str(problems_of(frame[["a", "y"]]))
    assert dataset_from_frame(frame[["a", "y"]], task="classification").n_classes == 51


@over(("−", "−{}.5"), ("<", "<{}.5"), ("%", "{}.5 %"), ("~", "~{}"))
def test_numbers_of_another_form_are_neither_missing_nor_identifiers(sign, cell):
    cells = [cell.format(i) if i % 3 else str(i) for i in range(150)]
    error = problems_of(frame_of(dose=cells))
    assert f"'dose' holds numbers with '{sign}', such as '{cell.format(1)}'; wri" in str(error)
    assert not error.mends
    # A word without a digit may mean missing, beside them.
    error = problems_of(frame_of(dose=["?", *map(str, range(148)), cell.format(1)]))
    assert error.mends == {"missing": ["?"]} and "write those that are numbers" in str(error)
    codes = frame_of(code=[f"{i % 25}{'AB'[i % 2]}" if i % 3 else f"{i % 25}" for i in range(150)])
    assert dataset_from_frame(codes, "y").entry_names == ("a", "code")


def test_decimals_of_another_sign_are_not_read_as_levels(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("a;b;y\n" + "".join(f"{i},5;{i % 4}.5;{i % 3}.5\n" for i in range(60)))
    with pytest.raises(TableError) as caught:
        read_table(file, decimal=",")
    for problem, way in zip(
        caught.value.problems, ("categorical=['b']", "task='classification'"), strict=True
    ):
        assert "holds words that are numbers, such as '0.5'" in problem.text
        assert way in problem.text
    names = {"categorical": ["b"], "task": "classification"}
    assert read_table(file, decimal=",", **names).entry_names == ("a", "b")
    # Words of digits alone, such as zip codes, are levels.
    assert dataset_from_frame(frame_of(zip=["0815", "4711", "1"] * 50), "y").n_features == 4


def test_large_numbers_with_decimal_commas_are_written_without_their_points():
    error = problems_of(frame_of(pay=["1,20", "2", "1.234,5"] * 50))
    assert "write '1.234,5' without what parts its thousands" in str(error)


@over(
    ([-999.0, *range(20, 69)] * 3, "'pay' holds -999, far from .* missing=\\('-999',\\)"),
    ([1999, 2001, 2004, 2010, 9999] * 30, "'pay' holds 9999, far from"),
    ([18, 40, 89, 99, 99] * 30, None),
    (np.exp(np.random.default_rng(0).normal(size=150)), None),
    ([0.0] * 120 + [1e300] * 30, None),
    ([-999, *range(149)], None),
    (["no", "no ", "Yes"] * 50, "levels 'no', 'no ' of column 'pay' differ in blanks or"),
    (["no", "No", "Yes"] * 50, "levels 'No', 'no' of column 'pay' differ in blanks or"),
)
def test_what_may_not_have_been_meant_is_warned_of(cells, notice):
    found = list(notices(frame_of(pay=cells)))
    assert len(found) == (notice is not None)
    assert notice is None or re.search(notice, found[0])


def test_a_target_may_number_the_rows():
    frame = frame_of(30)
    assert list(notices(frame.assign(y=range(30)))) == []
    assert len(list(notices(frame.assign(b=range(30))[["b", "y"]]))) == 1


def test_columns_are_dropped_and_kept_by_name():
    frame = frame_of(b=range(150), site="north")[["a", "b", "site", "y"]]
    assert dataset_from_frame(frame, drop=["site", "b"]).entry_names == ("a",)
    assert dataset_from_frame(frame, keep=["a"]).entry_names == ("a",)
    # The last column that is left is the target.
    assert dataset_from_frame(frame, drop=["y", "site"]).target_name == "b"
    for options, words in (
        ({"drop": ["B", "sit"]}, r"drop names 'B', .*did you mean 'b'(?s:.*)drop names 'sit'"),
        ({"keep": ["aa"]}, "keep names 'aa', and there is no such column"),
        ({"drop": ["y"], "target": "y"}, "drop names 'y', which is the target"),
        ({"drop": ["a", "b", "site"]}, "no column is left beside the target 'y'"),
        ({"drop": ["a"], "keep": ["a"]}, "drop names 'a', which keep names too"),
        ({"drop": "a"}, "drop must be a sequence"),
        ({"drop": ["a"], "categorical": ["a"]}, "categorical names 'a', which are left out"),
    ):
        refused(words, dataset_from_frame, frame, **{"target": None, **options})


def test_later_tables_may_have_the_columns_that_were_left_out():
    frame = frame_of(b=np.arange(150) % 7, site="north")
    data = dataset_from_frame(frame, "y", drop=["b"], drop_constant=True)
    assert data.encoding.left_out == ("b", "site")
    again = dataset_from_frame(frame, encoding=data.encoding)
    without = dataset_from_frame(frame.drop(columns=["b", "site"]), encoding=data.encoding)
    assert (again.x == data.x).all() and (without.x == data.x).all()


def test_only_one_way_with_missing_values():
    frame = frame_of(gap=[None, 1.0, 2.0] * 50)
    with pytest.raises(ValueError, match="give one of the two"):
        dataset_from_frame(frame, "y", drop_missing=True, hide_missing=True)
    with pytest.raises(ValueError, match="missing_indicator=True is for hide_missing=True"):
        dataset_from_frame(frame, "y", missing_indicator=True)
