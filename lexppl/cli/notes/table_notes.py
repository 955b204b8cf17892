"""What the reader should mind of a table: what is missing or pooled, what a black box says."""

from torch import Tensor

from lexppl.data import CategoricalColumn, DividedTable
from lexppl.data.columns import levels_in
from lexppl.tabular.estimator_outputs import said_of_all


def table_notes(source: DividedTable, outputs: Tensor | None) -> list[str]:
    """One line for each kind of thing.

    Args:
        source: the table.
        outputs: what a black box says of every row, or None.
    """
    data = source.data
    found = [_missing(source), *_pooled(source)]
    if outputs is not None:
        found.append(said_of_all(outputs, data.class_names))
    return [note for note in found if note is not None]


def _missing(source: DividedTable) -> str | None:
    encoding = source.data.encoding
    if encoding is None:
        return None
    markers = sorted({place for place in encoding.markers if place >= 0})
    if not markers:
        return None
    shares = source.test.x[:, markers].double().mean(0).tolist()
    names = [encoding.entry_names[encoding.groups[place]] for place in markers]
    each = ", ".join(f"{name!r} in {share:.0%}" for name, share in zip(names, shares, strict=True))
    return (
        f"missing values of the held-out rows ({each}) are hidden from the explainer: such a "
        "feature counts as not kept in its row, and gains nothing there"
    )


def _pooled(source: DividedTable) -> list[str]:
    encoding = source.data.encoding
    notes = []
    for column in () if encoding is None else encoding.columns:
        if isinstance(column, CategoricalColumn) and column.pooled is not None:
            rare = set(levels_in(source.table[column.name])) - set(column.levels)
            notes.append(
                f"{len(rare)} rare levels of {column.name!r} are pooled as {column.pooled!r}"
            )
    return notes
