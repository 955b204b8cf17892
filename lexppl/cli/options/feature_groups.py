"""The groups of features that are judged together, as typed."""

import json
from pathlib import Path
from typing import Any

from lexppl.cli.terminal.errors import UsageError
from lexppl.data import DividedTable
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.tabular.table_columns import markers_in

AUTO, NONE = "auto", "none"


def groups_of(given: str | None, source: DividedTable) -> FeatureGroups:
    """The groups of a table's features.

    Args:
        given: `auto` (or None), `none`, or the name of a JSON file of names and their columns.
        source: the table.

    Raises:
        UsageError: a file that does not say so, or has other columns than the table.
        FileNotFoundError: no such file.
    """
    data = source.data
    if given is None or given == AUTO:
        markers = markers_in(data.encoding)
        return FeatureGroups.dependent(data.x, data.groups, data.entry_names, markers=markers)
    if given == NONE:
        return FeatureGroups.alone(data.entry_names)
    try:
        named = json.loads(
            Path(given).read_text(encoding="utf-8"),
            object_pairs_hook=lambda p: _each_once(p, given),
        )
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"--groups {given}: it is no JSON file: {error}") from error
    if not isinstance(named, dict):
        raise UsageError(
            f'--groups {given}: it must be names and columns, {{"size": ["width", "height"]}}'
        )
    try:
        return FeatureGroups.named(named, data.entry_names)
    except ValueError as error:
        raise UsageError(f"--groups {given}: {error}") from error


def _each_once(pairs: list[tuple[str, Any]], given: str) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"--groups {given}: the name {twice[0]!r} is given twice")
    return dict(pairs)
