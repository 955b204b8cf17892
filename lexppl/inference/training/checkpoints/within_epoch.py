"""A place within an epoch: put down between two batches, and come back to."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Batch = TypeVar("Batch")

MOST_DRAWS = 1000
"""Batches of an epoch that may begin with draws; of more, no place is put down."""


class EpochBatches(Generic[Batch]):
    """The batches of an epoch, whose place among them can be come back to.

    An epoch's order, and what a buffer of rows holds next, are drawn from the random state that the
    steps between draw from too. So the states are kept that a batch was drawn from, where one was;
    to come back, they are set as their turn comes while the batches before are passed over.

    Args:
        batches: of the epoch, from its beginning.
        states: gives the random states.
        set_states: sets them.

    Attributes:
        number: batches so far.

    Example:
        >>> def drawn():
        ...     return EpochBatches(
        ...         (torch.rand(()).item() for _ in range(4)),
        ...         lambda: [torch.get_rng_state()],
        ...         lambda states: torch.set_rng_state(states[0]),
        ...     )
        >>> with torch.random.fork_rng(devices=[]):
        ...     whole, again = drawn(), drawn()
        ...     first, _ = next(whole), torch.rand(7)
        ...     second = next(whole)
        ...     place, state = whole.place(), torch.get_rng_state()
        ...     expected = [torch.rand(()).item(), *whole]
        ...     _ = torch.set_rng_state(state)
        ...     again.go_to(place)
        ...     found = [torch.rand(()).item(), *again]
        >>> found == expected, len(found), again.number
        (True, 3, 4)
    """

    def __init__(
        self,
        batches: Iterator[Batch],
        states: Callable[[], list[Tensor]],
        set_states: Callable[[Sequence[Tensor]], None],
    ) -> None:
        self._batches, self._states, self._set_states = batches, states, set_states
        self._drawn: list[tuple[int, list[Tensor]]] = []
        self.number = 0

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        before = self._states() if self.can_be_left else None
        batch = next(self._batches)
        if before is not None and not all(map(torch.equal, before, self._states())):
            self._drawn.append((self.number, before))
        self.number += 1
        return batch

    @property
    def can_be_left(self) -> bool:
        """Whether the place can be come back to; not where nearly every batch draws."""
        return len(self._drawn) <= MOST_DRAWS

    def place(self) -> dict[str, Any]:
        """How to come back here, but for the random states of now."""
        return {"number": self.number, "drawn": list(self._drawn)}

    def go_to(self, place: dict[str, Any]) -> None:
        """Pass over the batches before a place; the random states are left as they are.

        Args:
            place: of such batches.
        """
        now, drawn = self._states(), dict(place["drawn"])
        for number in range(place["number"]):
            if number in drawn:
                self._set_states(drawn[number])
            next(self._batches)
        self._set_states(now)
        self._drawn, self.number = list(place["drawn"]), place["number"]
