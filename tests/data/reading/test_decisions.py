"""Each decision for a table is a mend of what is wrong with it, is named, and can be changed."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from lexppl.data import TableError, dataset_from_frame, read_table, with_decisions
from lexppl.data.divided_table import divided_frame
from tests.refusals import over

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
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return with_decisions(dataset_from_frame, frame, "y", **options)


def changed_by(decision):
    """The arguments that a decision names."""
    found = re.findall(r"(\w+)=(True|\[[^\]]*\])", decision.rpartition("; ")[2])
    return {name: eval(value) for name, value in found}


@pytest.mark.parametrize("case", CASES)
def test_a_decision_is_the_mend_of_the_error(case):
    columns, mends, _ = CASES[case]
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
    with pytest.raises(ValueError, match=r"no column is left beside.*'site', 'code'"):
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
