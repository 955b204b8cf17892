"""What a posterior inference leaves: draws of global latents, and how they were made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

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
    """

    name: str
    are_chains: bool
    sample_stats: Mapping[str, np.ndarray] = field(default_factory=dict)


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
