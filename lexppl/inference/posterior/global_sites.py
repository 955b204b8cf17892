"""The latents that all rows share, as real numbers without constraints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import biject_to

from lexppl.inference.objective.site import Site
from lexppl.inference.posterior.global_latents import (
    Latents,
    latents_of,
    refuse_discrete,
    refuse_none,
    refuse_of_rows,
)


@dataclass(frozen=True)
class GlobalSite:
    """A latent that all rows share.

    Args:
        name: of the site.
        transform: from an unconstrained value to one of its support.
        shape: of the unconstrained value.
    """

    name: str
    transform: Any
    shape: torch.Size

    @property
    def size(self) -> int:
        """How many of the vector's numbers are its own."""
        return math.prod(self.shape)


class GlobalSites:
    """A program's global latents θ as real numbers u, by site or as one vector of D, and back.

    Each site's part of u is `biject_to(support)⁻¹(θ)`, so that a density of θ is one of u times
    `|dθ/du|`.

    Args:
        sites: in the order in which they stand in u.

    Example:
        >>> import pyro, pyro.distributions as dist
        >>> def model(x):
        ...     pyro.sample("slope", dist.Normal(0.0, 1.0))
        ...     pyro.sample("spread", dist.HalfNormal(1.0))
        >>> sites, _ = GlobalSites.of(model, (torch.zeros(4, 1),))
        >>> sites.dimensions, sites.names
        (2, ('slope', 'spread'))
        >>> values, log_jacobian = sites.constrained(torch.tensor([-1.0, 0.5]))
        >>> float(values["slope"]), round(float(values["spread"]), 3), float(log_jacobian)
        (-1.0, 1.649, 0.5)
    """

    def __init__(self, sites: list[GlobalSite]) -> None:
        self.sites = sites

    @classmethod
    def of(cls, model: Any, rows: tuple[Tensor, ...]) -> tuple[GlobalSites, Latents]:
        """Find them, by one draw of the program's latents, which comes with them.

        Args:
            model: the program, whose weights with priors are drawn first.
            rows: one row or more, as its arguments.

        Raises:
            ValueError: none; a discrete one; one of a single row; a prior that cannot be drawn
                from; a support that depends on another latent.
        """
        latents, again = _continuous(model, rows), _continuous(model, rows)
        sites = []
        for name, site in latents.shared.items():
            transform = _transform(site)
            value = transform.inv(site.value)
            probe = torch.full_like(value, 0.5)
            if not torch.equal(transform(probe), _transform(again.shared[name])(probe)):
                raise ValueError(
                    f"the support of {name!r} depends on another latent, and its bounds would move "
                    "under the sampler; write it as a transform of a latent whose support is "
                    "fixed, such as scale * pyro.sample(…)"
                )
            sites.append(GlobalSite(name, transform, value.shape))
        return cls(sites), latents

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(site.name for site in self.sites)

    @property
    def dimensions(self) -> int:
        """D."""
        return sum(site.size for site in self.sites)

    def of_parts(
        self, parts: Mapping[str, Tensor], batch: int = 0
    ) -> tuple[dict[str, Tensor], Tensor]:
        """θ by site of u by site, and `log |dθ/du|`.

        Args:
            parts: u, `(…, *shape)` by site.
            batch: how many dimensions stand before a site's own, which are those of the latter.
        """
        values: dict[str, Tensor] = {}
        changes: list[Tensor] = []
        for site in self.sites:
            own = parts[site.name]
            values[site.name] = value = site.transform(own)
            change = site.transform.log_abs_det_jacobian(own, value)
            changes.append(change.reshape(*change.shape[:batch], -1).sum(-1))
        return values, sum(changes[1:], changes[0])

    def constrained(self, vectors: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """θ by site `(…, *event)` of vectors u `(…, D)`, and `log |dθ/du|`, `(…)`."""
        each = vectors.split([site.size for site in self.sites], -1)
        parts = {
            site.name: part.reshape((*vectors.shape[:-1], *site.shape))
            for site, part in zip(self.sites, each, strict=True)
        }
        return self.of_parts(parts, vectors.dim() - 1)

    def parts(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """u by site of θ by site, the way back of :meth:`of_parts`."""
        return {site.name: site.transform.inv(values[site.name]).detach() for site in self.sites}

    def vectors(self, values: Mapping[str, Tensor]) -> Tensor:
        """u `(…, D)` of θ by site `(…, *event)`, the way back of :meth:`constrained`."""
        each = []
        for site in self.sites:
            part = site.transform.inv(values[site.name]).detach()
            each.append(part.reshape(*part.shape[: part.dim() - len(site.shape)], site.size))
        return torch.cat(each, -1)

    def drawn(self, model: Any, rows: tuple[Tensor, ...]) -> Tensor:
        """A draw of u from the prior, `(D,)`.

        Args:
            model, rows: as :meth:`of` takes them.
        """
        return self.vectors(values_of(_continuous(model, rows)))

    def samples(self, vectors: Tensor) -> dict[str, Tensor]:
        """θ by site `(C, S, *event)` of vectors `(C, S, D)`."""
        return {name: value.detach() for name, value in self.constrained(vectors)[0].items()}


def values_of(latents: Latents) -> dict[str, Any]:
    """θ by site, as a run drew it."""
    return {name: site.value for name, site in latents.shared.items()}


def _continuous(model: Any, rows: tuple[Tensor, ...]) -> Latents:
    """The latents of a run whose global ones are all real numbers.

    Raises:
        ValueError: none; a discrete one; one of a single row; a prior that cannot be drawn from.
    """
    with torch.no_grad():
        found = latents_of(model, rows)
    refuse_of_rows(found)
    refuse_none(found.shared)
    refuse_discrete(found.shared, "a gradient moves real numbers")
    return found


def _transform(site: Site) -> Any:
    try:
        return biject_to(site.distribution.support)
    except NotImplementedError as error:
        raise ValueError(
            f"the support of {site.name!r}, {site.distribution.support}, has no map from the real "
            "numbers"
        ) from error
