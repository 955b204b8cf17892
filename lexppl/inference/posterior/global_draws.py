"""Draws of global latents: how they were made, and as a guide that gives them one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule
from pyro.poutine.messenger import Messenger
from pyro.poutine.runtime import effectful
from torch import Tensor

Samples = Mapping[str, Tensor]
"""Draws by site, `(S, *event)`."""


@effectful(type="draw_index")
def draw_index() -> tuple[int, int] | None:
    """The index d of D draws that the running program gives; None outside a :class:`DrawIndex`."""
    return None


class DrawIndex(Messenger):
    """Context in which :func:`draw_index` is (d, D)."""

    def __init__(self, draw: int, draws: int) -> None:
        super().__init__()
        self._value = (draw, draws)

    def _pyro_draw_index(self, msg: Any) -> None:
        if not msg["done"]:
            msg["value"], msg["done"] = self._value, True


class SampledGuide(PyroModule):
    """A guide whose every call gives one of S draws of a program's global latents.

    Of D draws that a program is run for, draw d gives sample `⌊d S / D⌋`; called otherwise it gives
    one at random.

    Args:
        samples: by site a tensor `(S, *event)`, its draws.

    Raises:
        ValueError: no sites, no draws, or sites of different S.
        TypeError: draws that are no tensor.

    Example:
        >>> guide = SampledGuide({"slope": torch.tensor([0.5, 0.7])})
        >>> with DrawIndex(1, 2):
        ...     guide(None)["slope"]
        tensor(0.7000)
    """

    def __init__(self, samples: Samples) -> None:
        super().__init__()
        if not samples:
            raise ValueError("samples must hold the draws of at least one site; it is empty")
        for name, values in samples.items():
            if not isinstance(values, Tensor):
                raise TypeError(
                    f"samples[{name!r}] must be a tensor (S, *event); it is {type(values).__name__}"
                )
        counts = {name: len(values) if values.dim() else 0 for name, values in samples.items()}
        if len(set(counts.values())) > 1 or 0 in counts.values():
            raise ValueError(f"every site must have the same number of draws; they have {counts}")
        for name, values in samples.items():
            # The name of a buffer has no dots.
            self.register_buffer(name.replace(".", "/"), values.detach().clone())

    @property
    def sites(self) -> dict[str, Tensor]:
        """The draws of each site, `(S, *event)`."""
        return {name.replace("/", "."): values for name, values in self.named_buffers()}

    @property
    def draws(self) -> int:
        """S."""
        return len(next(iter(self.buffers())))

    @classmethod
    def of_state(cls, state: Samples) -> Self:
        """The guide of a `state_dict()`."""
        return cls({name.replace("/", "."): values for name, values in state.items()})

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """One of the draws, by site."""
        place = draw_index()
        if place is None:
            index = int(torch.randint(self.draws, ()))
        else:
            index = place[0] * self.draws // place[1]
        return {
            name: pyro.sample(name, dist.Delta(value[index], event_dim=value.dim() - 1))
            for name, value in self.sites.items()
        }


@dataclass(frozen=True, eq=False)
class SamplerRecord:
    """How draws were made.

    Args:
        name: of the method: "NUTS", "SGHMC", "bootstrap".
        are_chains: whether they are Markov chains, of which r̂ speaks; else independent draws.
        sample_stats: by ArviZ's name, such as `diverging`, an array `(C, S)`.
        note: what was sampled, where it is not the posterior itself.
        r_hat: the largest rank-normalised split r̂ of any number of a global latent, which
            `fit` computes; None where it is not known, as of one chain.
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
        """Number of draws whose trajectory left the path of constant energy."""
        return int(np.sum(self.sample_stats.get("diverging", 0)))

    @property
    def summary(self) -> str | None:
        """r̂, effective draws and divergences in a line.

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
        """The record of some of the chains, without r̂ and effective draws."""
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

    samples: Samples
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
