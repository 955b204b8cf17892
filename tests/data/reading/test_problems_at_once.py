"""All that a table has wrong is told at once, each with what mends it."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from lexppl.data import TableError, dataset_from_frame, read_table, with_decisions
from lexppl.data.divided_table import divided_frame
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


# Each decision for a table is a mend of what is wrong with it, is named, and can be changed.


ROWS = 400


def table(**columns):
    """Two columns of numbers, of which the second gives the target, and others before it."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"a": draw.normal(size=ROWS), "b": draw.normal(size=ROWS)})
    return frame.assign(**columns, y=np.where(frame.b > 0, "u", "v"))


def with_gaps(values, every, what=None):
    return [what if i % every == 0 else value for i, value in enumerate(values)]


def towns(common, rare):
    """Levels of 20 rows each, and others of 2 rows."""
    return [*(f"t{i % common}" for i in range(20 * common)), *(f"r{i // 2}" for i in range(rare))]


SHUFFLED = np.random.default_rng(1).permutation(ROWS)
CODES = [f"K-{i:04d}" for i in SHUFFLED]
CASES = {
    "numbers the rows": ({"id": range(ROWS)}, {"drop": ["id"]}, "id"),
    "shuffled numbers": ({"id": SHUFFLED + 9}, {"drop": ["id"]}, "id"),
    "identifier": ({"code": CODES}, {"drop": ["code"]}, "code"),
    "free text": ({"note": [f"seen {i} times" for i in SHUFFLED]}, {"drop": ["note"]}, "note"),
    "rare levels": ({"town": towns(8, 240)}, {"rare": 10}, "town"),
    "two rare": ({"town": towns(8, 240), "code": CODES}, {"drop": ["code"], "rare": 10}, "town"),
    "constant": ({"site": "north"}, {"drop": ["site"]}, None),
    "always missing": ({"site": None}, {"drop": ["site"]}, None),
    "one value": ({"flag": with_gaps(["yes"] * ROWS, 3)}, {"drop": ["flag"]}, None),
    "missing": ({"c": with_gaps(range(ROWS), 9)}, {"hide_missing": True}, None),
    "missing code": (
        {"code": with_gaps(CODES, 2), "c": with_gaps(range(ROWS), 9)},
        {"drop": ["code"], "hide_missing": True},
        "code",
    ),
}


def decided(frame, **options):
    with warnings.catch_warnings(action="error"):
        return with_decisions(dataset_from_frame, frame, "y", **options)


def changed_by(decision):
    """The arguments that a decision names."""
    found = re.findall(r"(\w+)=(True|\[[^\]]*\])", decision.rpartition("; ")[2])
    return {name: eval(value) for name, value in found}


@over(**CASES)
def test_a_decision_is_the_mend_of_the_error(columns, mends, _):
    frame = table(**columns)
    data, decisions = decided(frame)
    typed = dataset_from_frame(frame, "y", **mends)
    assert data.entry_names == typed.entry_names and torch.equal(data.x, typed.x)
    assert data.encoding.left_out == typed.encoding.left_out
    assert len(decisions) == len(mends)
    for column in columns:
        assert any(repr(column) in decision for decision in decisions)
    with pytest.raises(TableError) as refused:
        dataset_from_frame(frame, "y", include=())
    assert len(refused.value.problems) >= len(decisions)


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case][2]])
def test_what_a_decision_names_reads_the_column_as_it_is(case):
    columns, _, name = CASES[case]
    frame = table(**columns)
    _, decisions = decided(frame)
    [way] = [changed_by(d) for d in decisions if repr(name) in d.partition(":")[0]]
    assert way == {"include": [name]}
    again, others = decided(frame, **way)
    assert way not in map(changed_by, others)
    [column] = [column for column in again.encoding.columns if column.name == name]
    levels = getattr(column, "levels", None)
    assert levels is None or set(levels) == set(filter(None, columns[name]))


def test_gaps_are_changed_by_what_the_decision_names():
    frame = table(c=with_gaps(range(ROWS), 10), flag=with_gaps(["yes"] * ROWS, 4))
    hidden, (of_flag, of_gaps) = decided(frame)
    assert len(hidden) == ROWS and hidden.entry_names == ("a", "b", "c")
    assert changed_by(of_gaps) == {"drop_missing": True}
    whole, decisions = decided(frame, **changed_by(of_gaps))
    # Gaps of a column that is left out drop no row.
    assert len(whole) == ROWS - ROWS // 10 and "'flag'" in decisions[0]
    assert decisions[1] == (
        "missing values in 1 of 3 columns: 'c' (40): their rows are left out; drop leaves a column "
        "out in their place"
    )
    assert changed_by(of_flag) == {"missing_indicator": True}
    marked = dataset_from_frame(frame, "y", hide_missing=True, missing_indicator=True)
    assert marked.entry_names == ("a", "b", "c", "c is missing", "flag is missing")
    place = marked.feature_names.index("flag is missing")
    assert marked.x[:, place].tolist() == [1.0, 0.0, 0.0, 0.0] * (ROWS // 4)
    assert torch.equal(marked.encoding.encode(frame), marked.x)


def test_rows_without_a_target_are_left_out_and_counted():
    frame = table(id=range(ROWS))
    frame["y"] = with_gaps(frame.y, 8)
    data, decisions = decided(frame)
    assert len(data) == ROWS - 50 and data.entry_names == ("a", "b")
    assert "target 'y' is missing in 50 rows: left out; without decisions" in decisions[1]
    # Rows that are dropped at once hide neither their number nor a column that numbers the rows.
    with pytest.warns(UserWarning, match="target 'y' is missing in 50 rows: left out"):
        data, decisions = with_decisions(dataset_from_frame, frame, "y", hide_missing=True)
    assert len(data) == ROWS - 50 and decisions[0].startswith("column 'id' numbers the rows")


def test_many_levels_of_enough_rows_are_all_read():
    frame = pd.concat([table()] * 6, ignore_index=True).assign(
        town=[f"t{i % 120}" for i in range(6 * ROWS)]
    )
    frame = frame[["town", "a", "b", "y"]]
    data, (decision,) = decided(frame)
    assert len(data.encoding.columns[0].levels) == 120
    assert "has 120 levels in 2400 rows, at most 100 are expected: all are read" in decision
    assert changed_by(decision) == {"drop": ["town"]}
    assert decided(frame, drop=["town"])[0].entry_names == ("a", "b")


def test_what_is_kept_by_name_is_not_left_out():
    frame = table(id=range(ROWS), code=CODES)
    data, (decision,) = decided(frame, keep=["a", "id", "code"])
    assert data.entry_names == ("a", "id", "code")
    assert "'code'" in decision and "all are read" in decision


@over(
    ({"y": None}, "target 'y' is always missing"),
    ({"day": [f"0{i % 9 + 1}/0{i % 8 + 1}/2026" for i in range(ROWS)]}, "dates='dayfirst'"),
    ({"pay": [f"{i},5" for i in range(ROWS)]}, "decimal commas"),
    ({"pay": [f"{i} kg" for i in range(ROWS)]}, "'pay' holds numbers with 'kg'"),
    ({"age": with_gaps(map(str, range(ROWS)), 9, "?")}, "most are numbers, but not '?'"),
    ({"far": with_gaps(range(ROWS), 9, np.inf)}, "'far' must be finite"),
)
def test_what_cannot_be_decided_is_refused_without_the_rest(columns, words):
    frame = table(id=range(ROWS), site="north", gap=with_gaps(range(ROWS), 5)).assign(**columns)
    with pytest.raises(TableError) as caught:
        with_decisions(dataset_from_frame, frame, "y")
    assert len(caught.value.problems) == 1 and words in str(caught.value)


def test_nothing_is_left_of_columns_that_say_nothing():
    frame = table(site="north", code=CODES)[["site", "code", "y"]]
    with pytest.raises(ValueError, match=r"no column is left beside.*'site', 'code'.*--text"):
        with_decisions(dataset_from_frame, frame, "y")


def test_parts_of_a_divided_table_decide_by_its_rows_to_fit_on(tmp_path):
    frame = table(town=towns(8, 240), gap=with_gaps(range(ROWS), 5))
    file = tmp_path / "t.csv"
    frame.to_csv(file, index=False)
    shares = {"valid_share": 0.2, "test_share": 0.2, "seed": 0}
    parts, decisions = with_decisions(divided_frame, frame, "y", **shares)
    typed = divided_frame(frame, "y", rare=10, hide_missing=True, **shares)
    assert torch.equal(parts.data.x, typed.data.x) and len(decisions) == 2
    whole, _ = with_decisions(divided_frame, frame, "y", hide=False, **shares)
    assert len(whole.data) == ROWS - ROWS // 5
    assert with_decisions(read_table, file, "y")[1] == decisions
