"""The columns of a table behind its features: numbers as they are, indicators as one level."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lexppl.models.grouping import Grouping

Columns = Sequence[Sequence[int]]
"""For each column its features: one for a number, several for the indicators of its levels."""

MOST_LEVELS = 10
"""That trees part at will. Of more, only neighbours in their order stay together: parted at will,
66 levels that say nothing cost .07 nats a held-out row of 1,200, and so .002."""


def column_kind(features: Sequence[int]) -> int:
    """0 for a column of levels, 1 for one of more levels than trees part at will, 2 for a
    number."""
    return 2 if len(features) == 1 else int(len(features) > MOST_LEVELS)


def table_columns(x: Tensor, grouping: Grouping | None = None) -> tuple[Columns, list[int]]:
    """The columns of encoded rows `(N, D)`, those of levels first, and the mask entry of each. The
    features of an entry are one column's indicators where one of them is 1 and the others 0 in each
    row but those with NaN; else each is a number."""
    groups = range(x.shape[1]) if grouping is None else grouping.groups
    by_entry: dict[int, list[int]] = {}
    for feature, entry in enumerate(groups):
        by_entry.setdefault(entry, []).append(feature)
    found = []
    for entry, features in by_entry.items():
        if len(features) > 1 and _indicators(x[:, features]):
            found.append((features, entry))
        else:
            found += [([feature], entry) for feature in features]
    ordered = sorted(found, key=lambda column: column_kind(column[0]))
    return [features for features, _ in ordered], [entry for _, entry in ordered]


def _indicators(x: Tensor) -> bool:
    x = x[~x.isnan().any(1)]
    return len(x) > 0 and bool(((x == 0) | (x == 1)).all() and (x.sum(1) == 1).all())


def column_values(x: Tensor, columns: Columns) -> Tensor:
    """The value of each column, `(N, P)`: a number, or the place of its level; NaN where it is
    hidden."""
    # A gap in any of the indicators is one of the column: NaN takes part in the sum.
    of_levels = [
        _part(x, features) @ torch.arange(len(features), device=x.device, dtype=x.dtype)
        for features in columns
        if len(features) > 1
    ]
    numbers = _part(x, [features[0] for features in columns if len(features) == 1])
    return torch.cat([*(codes.unsqueeze(1) for codes in of_levels), numbers], 1)


def _part(x: Tensor, features: Sequence[int]) -> Tensor:
    """Some features; neighbours without a copy."""
    first = features[0] if features else 0
    if list(features) == list(range(first, first + len(features))):
        return x[:, first : first + len(features)]
    return x[:, list(features)]
