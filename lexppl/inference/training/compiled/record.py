"""How the steps of a fit were computed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True)
class CompiledSteps:
    """How often a fit found a term's loss and gradients by a graph, and why not always.

    Args:
        backend: "inductor", or "graph" for graphs that are run as they were traced.
        compiled: how often by a compiled graph.
        traced: by a graph as it was traced.
        eager: by the program itself; the first step of each kind and the checks are among them.
        reasons: why terms were not compiled, one a term and cause; none where all were.

    Example:
        >>> steps = CompiledSteps("inductor", 950, 40, 10)
        >>> steps.summary
        'inductor: 950 of 1,000 compiled, 40 traced, 10 eager'
        >>> CompiledSteps.from_json(steps.as_json()) == steps
        True
    """

    backend: str
    compiled: int = 0
    traced: int = 0
    eager: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """In a line."""
        total = self.compiled + self.traced + self.eager
        counts = f"{self.compiled:,} of {total:,} compiled, {self.traced:,} traced"
        told = f"{self.backend}: {counts}, {self.eager:,} eager"
        return "; ".join([told, *self.reasons])

    def as_json(self) -> dict[str, Any]:
        """What a file keeps of it."""
        return {**asdict(self), "reasons": list(self.reasons)}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """From what a file keeps.

        Args:
            told: what :meth:`as_json` gave.
        """
        return cls(**{**told, "reasons": tuple(told["reasons"])})
