"""Which rows stand in a report, class by class."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lexppl.explanation.reading.rows import RowOutcome

MOST_CLASSES = 12
"""Classes that a page shows."""


@dataclass(frozen=True)
class RowGroup:
    """Rows under a heading, by their places."""

    heading: str
    places: tuple[int, ...]


def shown_rows(outcomes: Sequence[RowOutcome], per_class: int) -> list[RowGroup]:
    """Rows of each class, some that are predicted right and some that are predicted wrong.

    Of those that are right an even choice, of those that are wrong the ones that are so most
    surely. Where no labels are known, rows of each label that is predicted; of responses, rows of
    all.

    Args:
        outcomes: of all rows.
        per_class: how many of a class are right, and how many are wrong.

    Example:
        >>> rows = [RowOutcome("a", "a", 0.9), RowOutcome("a", "b", 0.6), RowOutcome("a", "b", 0.8)]
        >>> shown_rows(rows, 1)
        [RowGroup(heading='a: 1 of 3 right', places=(0, 2))]
    """
    if all(outcome.right is None for outcome in outcomes):
        labels = sorted({o.predicted for o in outcomes if o.predicted and o.probability >= 0.0})
        if not labels:
            return [RowGroup("Some rows", _even(range(len(outcomes)), 2 * per_class))]
        found = []
        for label in labels[:MOST_CLASSES]:
            own = [i for i, outcome in enumerate(outcomes) if outcome.predicted == label]
            found.append(RowGroup(f"{label} is predicted", _even(own, per_class)))
        return found
    classes = sorted({o.observed for o in outcomes if o.observed is not None})
    groups = []
    for label in classes[:MOST_CLASSES]:
        own = [i for i, outcome in enumerate(outcomes) if outcome.observed == label]
        right = [i for i in own if outcomes[i].right]
        wrong = sorted(set(own) - set(right), key=lambda i: -outcomes[i].probability)
        heading = f"{label}: {len(right)} of {len(own)} right"
        groups.append(RowGroup(heading, (*_even(right, per_class), *wrong[:per_class])))
    return groups


def _even(places: Sequence[int], count: int) -> tuple[int, ...]:
    """An even choice of some of them."""
    chosen = np.unique(np.linspace(0, len(places) - 1, min(count, len(places))).round())
    return tuple(places[int(i)] for i in chosen)
