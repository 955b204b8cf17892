"""What a posterior inference leaves: draws of global latents, and how they were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np
from torch import Tensor

from lexppl.inference.posterior.sampled_guide import SampledGuide


@dataclass(frozen=True, eq=False)
class SamplerRecord:
    """How draws were made.

    Args:
        name: of the method, as it is told to a reader: "NUTS", "SGHMC", "bootstrap".
        are_chains: whether they are Markov chains, of which r̂ speaks; else independent draws.
        sample_stats: by ArviZ's name, such as `diverging`, an array `(C, S)`.
        note: what a reader must know of what was sampled, if anything.
        r_hat: the largest rank-normalised split r̂ of any number of a global latent, which
            `fit` looks up; None where it is not known, as of one chain.
        ess: the least effective number of draws, bulk or tail, of all chains together.
    """

    name: str
    are_chains: bool
    sample_stats: Mapping[str, np.ndarray] = field(default_factory=dict)
    note: str | None = None
    r_hat: float | None = None
    ess: float | None = None

    @property
    def divergences(self) -> int:
        """Draws whose trajectory left the path of constant energy."""
        return int(np.sum(self.sample_stats.get("diverging", 0)))

    @property
    def summary(self) -> str | None:
        """How far the draws are to be relied on, in a line.

        Example:
            >>> stats = {"diverging": np.zeros((2, 9))}
            >>> SamplerRecord("NUTS", True, stats, r_hat=1.003, ess=812).summary
            'r̂ up to 1.003, 812 independent draws or more, 0 diverged'
        """
        known = [
            None if self.r_hat is None else f"r̂ up to {self.r_hat:.3f}",
            None if self.ess is None else f"{self.ess:,.0f} independent draws or more",
            f"{self.divergences:,} diverged" if "diverging" in self.sample_stats else None,
            self.note,
        ]
        return ", ".join(one for one in known if one is not None) or None

    def subset(self, places: Sequence[int]) -> Self:
        """Of some of the chains; of how they agree nothing is known."""
        stats = {name: values[list(places)] for name, values in self.sample_stats.items()}
        return replace(self, sample_stats=stats, r_hat=None, ess=None)


@dataclass(frozen=True, eq=False)
class GlobalDraws:
    """Draws of the latents that all rows share.

    Args:
        samples: by site `(C, S, *event)`: C chains of S draws.
        sampler: how they were made.
        model: the program that they belong to, in evaluation mode, with the parameters that it was
            sampled at.
    """

    samples: Mapping[str, Tensor]
    sampler: SamplerRecord
    model: Any

    @property
    def chains(self) -> int:
        """C."""
        return len(next(iter(self.samples.values())))

    def guides(self) -> list[SampledGuide]:
        """One guide a chain, which gives its draws."""
        return [
            SampledGuide({name: values[chain] for name, values in self.samples.items()})
            for chain in range(self.chains)
        ]


class PosteriorInference(Protocol):
    """A way from a program and its rows to draws of what all rows share: NUTS, SGHMC, Laplace."""

    def run(
        self, model: Any, rows: tuple[Tensor, ...], *, seed: int, progress: bool
    ) -> GlobalDraws:
        """Draw.

        Args:
            model: a program with priors on global latents.
            rows: all training rows, as arguments of the model: x `(N, *event)` and y.
            seed: of all that is random; global random state is left as it is.
            progress: show a progress bar, on a terminal or in a notebook.

        Raises:
            ValueError, TypeError: what the method cannot read, before any work.
        """
        ...
