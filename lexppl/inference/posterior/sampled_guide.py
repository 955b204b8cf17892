"""Draws of global latents, such as those of a Markov chain, as a guide."""

from collections.abc import Mapping
from typing import Any, Self

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule
from torch import Tensor

from lexppl.inference.posterior.draw_index import draw_index

SEPARATOR = "/"
"""For the dots of a site's name, which the name of a buffer may not have."""


class SampledGuide(PyroModule):
    """A guide whose every call gives one of S draws of a program's global latents.

    Of D draws that a program is run for (:func:`draw_index`), draw d gives sample `⌊d S / D⌋`: all
    S in their order for D = S, evenly thinned ones for fewer. Called otherwise it gives one of them
    at random. Whatever runs a model with a guide so runs it with a chain of NUTS, of SGHMC, or with
    replicates of a fit.

    Args:
        samples: by site a tensor `(S, *event)`, its draws.

    Raises:
        ValueError: no sites, no draws, or sites of different S.
        TypeError: draws that are no tensor.

    Example:
        >>> guide = SampledGuide({"slope": torch.tensor([0.5, 0.7])})
        >>> guide.draws, sorted(guide.sites)
        (2, ['slope'])
        >>> from lexppl.inference.posterior.draw_index import DrawIndex
        >>> with DrawIndex(1, 2):
        ...     guide(None)["slope"]
        tensor(0.7000)
    """

    def __init__(self, samples: Mapping[str, Tensor]) -> None:
        super().__init__()
        if not samples:
            raise ValueError("samples must hold the draws of at least one site; it is empty")
        for name, values in samples.items():
            if not isinstance(values, Tensor):
                raise TypeError(
                    f"samples[{name!r}] must be a tensor (S, *event) of draws; it is "
                    f"{type(values).__name__}"
                )
        counts = {name: len(values) if values.dim() else 0 for name, values in samples.items()}
        if len(set(counts.values())) > 1 or 0 in counts.values():
            raise ValueError(f"every site must have the same number of draws; they have {counts}")
        for name, values in samples.items():
            self.register_buffer(name.replace(".", SEPARATOR), values.detach().clone())

    @property
    def sites(self) -> dict[str, Tensor]:
        """The draws of each site, `(S, *event)`."""
        return {name.replace(SEPARATOR, "."): values for name, values in self.named_buffers()}

    @property
    def draws(self) -> int:
        """S."""
        return len(next(iter(self.buffers())))

    @classmethod
    def of_state(cls, state: Mapping[str, Tensor]) -> Self:
        """The guide whose `state_dict()` it is.

        Example:
            >>> guide = SampledGuide({"layer.weight": torch.zeros(4, 2)})
            >>> SampledGuide.of_state(guide.state_dict()).sites["layer.weight"].shape
            torch.Size([4, 2])
        """
        return cls({name.replace(SEPARATOR, "."): values for name, values in state.items()})

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Give one of the draws, by site."""
        place = draw_index()
        if place is None:
            index = int(torch.randint(self.draws, ()))
        else:
            index = place[0] * self.draws // place[1]
        return {
            name: pyro.sample(name, dist.Delta(value[index], event_dim=value.dim() - 1))
            for name, value in self.sites.items()
        }
