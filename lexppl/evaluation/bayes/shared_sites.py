"""The latents that rows share, as one vector of real numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyro
import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from pyro.poutine.subsample_messenger import _Subsample
from torch import Tensor
from torch.distributions import biject_to

from lexppl.effects import ParticleCounts, weights_first
from lexppl.evaluation.bayes.simulated import RESPONSE, keep_local
from lexppl.inference.objective.site import Site
from lexppl.inference.predictive import drawing

Samples = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class SharedSites:
    """The latents of a program outside `mask_particles()`.

    Args:
        distributions: by site, the prior as one run of the program had it.
    """

    distributions: Mapping[str, TorchDistributionMixin]

    @classmethod
    def of(cls, model: Callable[..., Any], x: Tensor) -> SharedSites:
        """Those of a program.

        Args:
            model: the program.
            x: rows; a few are enough.
        """
        keep_local(model)
        with drawing(0, x.device), ParticleCounts(1, 1):
            trace = pyro.poutine.trace(weights_first(model)).get_trace(x[:1], None)
        found = {}
        for name, node in trace.nodes.items():
            if node["type"] != "sample" or isinstance(node["fn"], _Subsample) or name == RESPONSE:
                continue
            site = Site.of(node)
            if not (site.observed or site.in_particles):
                found[name] = site.distribution
        return cls(found)

    @property
    def discrete(self) -> list[str]:
        """The sites of whole numbers."""
        return [name for name, d in self.distributions.items() if d.support.is_discrete]

    def flat(self, samples: Samples) -> tuple[Tensor, Tensor]:
        """Draws `(S, *event)` by site as real vectors `(S, P)`, and the log-determinant `(S,)` of
        the way back.

        Raises:
            ValueError: sites of whole numbers, missing sites.
        """
        if self.discrete:
            raise ValueError(f"{self.discrete} are whole numbers, which have no real vector")
        missing = [name for name in self.distributions if name not in samples]
        if missing:
            raise ValueError(f"samples lack the program's latents {missing}")
        parts, total = [], None
        for name, distribution in self.distributions.items():
            way = biject_to(distribution.support)
            value = samples[name]
            free = way.inv(value)
            change = way.log_abs_det_jacobian(free, value)
            change = change.reshape(len(value), -1).sum(-1)
            total = change if total is None else total + change
            parts.append(free.reshape(len(value), -1))
        if total is None:
            raise ValueError("the program has no latents outside mask_particles()")
        return torch.cat(parts, -1), total

    def back(self, flat: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """The way back: `(S, P)` to draws by site, with the log-determinant `(S,)`."""
        samples, place = {}, 0
        total = flat.new_zeros(len(flat))
        for name, distribution in self.distributions.items():
            way = biject_to(distribution.support)
            full = tuple(distribution.batch_shape) + tuple(distribution.event_shape)
            shape = tuple(way.inverse_shape(torch.Size(full)))
            size = int(torch.Size(shape).numel())
            free = flat[:, place : place + size].reshape(len(flat), *shape)
            place += size
            samples[name] = way(free)
            change = way.log_abs_det_jacobian(free, samples[name])
            total = total + change.reshape(len(flat), -1).sum(-1)
        return samples, total
