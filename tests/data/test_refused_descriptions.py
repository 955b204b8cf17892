"""Encodings and vocabularies are read as they were written, or refused by name."""

import json

import pytest

from lexppl.data import TableEncoding, Vocabulary
from lexppl.data.columns import CategoricalColumn, DateColumn, IndicatorColumn, NumericColumn
from lexppl.data.encoding import TargetColumn
from lexppl.saving import UnreadableFileError
from tests.refusals import over, refused
from tests.saving.test_refused_files import assert_damage_is_refused, with_other

ENCODING = TableEncoding(
    (
        NumericColumn("größe", 1.5, 2.0, gaps=True),
        CategoricalColumn("job", ("clerk", "smith"), pooled="smith"),
        DateColumn("seen", 19000.0, 10.0, ("month sin",), "dayfirst"),
        IndicatorColumn("größe is missing", "größe"),
        NumericColumn("pay", 0.5, 2.0, asinh=(40.0, 3.0)),
    ),
    TargetColumn("wage", None, 10.0, 3.0),
    left_out=("id",),
)
KINDS = {"encoding.json": ENCODING, "vocabulary.json": Vocabulary(["ein", "größerer", "film"])}


@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_are_refused_by_name(tmp_path, name):
    made = KINDS[name]
    path = tmp_path / name
    made.save(path)
    assert type(made).load(path) == made
    assert_damage_is_refused(path, type(made).load)
    assert type(made).load(path) == made


@over(({}, "its format is None"), ({"format": 2}, "no checksum"))
def test_a_file_without_format_or_checksum_is_refused(form, words, tmp_path):
    path = tmp_path / "encoding.json"
    path.write_text(json.dumps({**form, **ENCODING.to_json()}), encoding="utf-8")
    refused(words, TableEncoding.load, path, error=UnreadableFileError)


@over(
    (("columns", 0, "scale"), 0.0, "scale must be a finite number above 0"),
    (("columns", 0, "mean"), "1.5", "mean of a NumericColumn must be float"),
    (("columns", 4, "asinh"), [40.0, 0.0], "scale must be a finite number above 0"),
    (("columns", 4, "asinh"), [40.0], "description is not of TableEncoding.to_json"),
    (("columns", 4, "asinh"), ["40", 3.0], "asinh of a NumericColumn must be"),
    (("columns", 1, "levels"), "clerk", r"levels of a CategoricalColumn must be tuple"),
    (("columns", 1, "levels"), ["clerk", "clerk"], "levels must differ"),
    (("columns", 1, "pooled"), "cook", "pooled must be a level of 'job'"),
    (("columns", 2, "parts"), ["year sin"], "parts of column 'seen'"),
    (("columns", 2, "order"), "yearfirst", "'dayfirst', 'monthfirst'"),
    (("columns", 3, "kind"), "text", "kind of column .* must be one of"),
    (("target", "class_names"), 3, "class_names of a TargetColumn must be tuple"),
)
def test_what_is_wrong_is_named(at, value, words):
    described = json.loads(json.dumps(ENCODING.to_json()))
    refused(words, TableEncoding.from_json, with_other(described, at, value))
