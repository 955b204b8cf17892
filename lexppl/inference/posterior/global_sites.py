"""The latents that all rows share, as one vector without constraints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import biject_to

from lexppl.inference.objective.site import Site
from lexppl.inference.posterior.global_latents import latents_of


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
    """A program's global latents θ as one vector u of D real numbers, and back.

    Each site's part of u is `biject_to(support)⁻¹(θ)`, so that a density of θ is one of u times
    `|dθ/du|`.

    Args:
        sites: in the order in which they stand in u.

    Example:
        >>> import pyro, pyro.distributions as dist
        >>> def model(x):
        ...     pyro.sample("slope", dist.Normal(0.0, 1.0))
        ...     pyro.sample("spread", dist.HalfNormal(1.0))
        >>> sites, u = GlobalSites.of(model, (torch.zeros(4, 1),))
        >>> sites.dimensions, u.shape
        (2, torch.Size([2]))
        >>> values, log_jacobian = sites.constrained(torch.tensor([-1.0, 0.5]))
        >>> float(values["slope"]), round(float(values["spread"]), 3), float(log_jacobian)
        (-1.0, 1.649, 0.5)
    """

    def __init__(self, sites: list[GlobalSite]) -> None:
        self.sites = sites

    @classmethod
    def of(cls, model: Any, rows: tuple[Tensor, ...]) -> tuple[GlobalSites, Tensor]:
        """Find them, and draw u from the prior.

        Args:
            model: the program, whose weights with priors are drawn first.
            rows: a few rows, as its arguments.

        Raises:
            ValueError: none; a discrete one; one of a single row; a prior that cannot be drawn
                from; a support that depends on another latent.
        """
        latents = _drawn_latents(model, rows)
        if not latents:
            raise ValueError(
                "the program has no global latents: give weights a prior, as in lex(…, "
                "prior=dist.Normal(0.0, 1.0)), or sample them outside mask_particles() and the "
                "plate over rows; without priors, fit(bootstrap=…) tells how sure a fit is"
            )
        again = _drawn_latents(model, rows)
        sites, values = [], []
        for name, site in latents.items():
            transform = _transform(name, site.distribution)
            value = transform.inv(site.value).detach()
            probe = torch.full_like(value, 0.5)
            other = _transform(name, again[name].distribution)
            if not torch.equal(transform(probe), other(probe)):
                raise ValueError(
                    f"the support of {name!r} depends on another latent, and its bounds would move "
                    "under the sampler: write it as a function of a latent of fixed support"
                )
            sites.append(GlobalSite(name, transform, value.shape))
            values.append(value.flatten())
        return cls(sites), torch.cat(values)

    @property
    def dimensions(self) -> int:
        """D."""
        return sum(site.size for site in self.sites)

    def constrained(self, vector: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """From u to θ by site, and `log |dθ/du|`.

        Args:
            vector: u, `(D,)`.
        """
        values: dict[str, Tensor] = {}
        log_jacobian = vector.new_zeros(())
        parts = vector.split([site.size for site in self.sites])
        for site, part in zip(self.sites, parts, strict=True):
            own = part.reshape(site.shape)
            values[site.name] = value = site.transform(own)
            log_jacobian = log_jacobian + site.transform.log_abs_det_jacobian(own, value).sum()
        return values, log_jacobian

    def drawn(self, model: Any, rows: tuple[Tensor, ...]) -> Tensor:
        """A draw of u from the prior, `(D,)`.

        Args:
            model, rows: as :meth:`of` takes them.
        """
        latents = _drawn_latents(model, rows)
        parts = [site.transform.inv(latents[site.name].value).flatten() for site in self.sites]
        return torch.cat(parts).detach()

    def samples(self, vectors: Tensor) -> dict[str, Tensor]:
        """θ by site `(C, S, *event)` of vectors `(C, S, D)`."""
        parts = vectors.split([site.size for site in self.sites], -1)
        return {
            site.name: site.transform(part.reshape(*part.shape[:-1], *site.shape)).detach()
            for site, part in zip(self.sites, parts, strict=True)
        }


def _drawn_latents(model: Any, rows: tuple[Tensor, ...]) -> Mapping[str, Site]:
    """The global latents of a run, by name.

    Raises:
        ValueError: a discrete one; one of a single row; a prior that cannot be drawn from.
    """
    with torch.no_grad():
        found = latents_of(model, rows)
    for name in found.of_rows:
        raise ValueError(
            f"site {name!r} is a latent of each row, outside mask_particles(): only latents that "
            "all rows share can be sampled so; fit(guide=…) has those of rows"
        )
    for name, site in found.shared.items():
        if _support(name, site.distribution).is_discrete:
            raise ValueError(
                f"site {name!r} is discrete ({type(site.distribution).__name__}), and a gradient "
                "cannot move it: sum it out in the program, or use fit(guide=…) with a guide that "
                "draws it"
            )
    return found.shared


def _support(name: str, fn: Any) -> Any:
    try:
        return fn.support
    except NotImplementedError as error:
        raise ValueError(
            f"the prior of {name!r}, {type(fn).__name__}, states no support"
        ) from error


def _transform(name: str, fn: Any) -> Any:
    try:
        return biject_to(_support(name, fn))
    except NotImplementedError as error:
        raise ValueError(
            f"the support of {name!r}, {fn.support}, has no map from the real numbers"
        ) from error
