"""The latents that all rows share, as one vector without constraints."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyro
import torch
from pyro.poutine.subsample_messenger import _Subsample
from torch import Tensor
from torch.distributions import biject_to

from lexppl.effects import MASK_PLATE, ParticleCounts
from lexppl.inference.contexts import rows_plate


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
        >>> import pyro.distributions as dist
        >>> def model(x):
        ...     pyro.sample("slope", dist.Normal(0.0, 1.0))
        ...     pyro.sample("spread", dist.HalfNormal(1.0))
        >>> sites, u = GlobalSites.of(model, (torch.zeros(4, 1),))
        >>> sites.dimensions, u.shape
        (2, torch.Size([2]))
        >>> values, log_jacobian = sites.constrained(torch.tensor([-1.0, 0.5]))
        >>> float(values["slope"]), float(values["spread"]) == math.exp(0.5), float(log_jacobian)
        (-1.0, True, 0.5)
    """

    def __init__(self, sites: list[GlobalSite]) -> None:
        self.sites = sites

    @classmethod
    def of(
        cls, program: Callable[..., Any], rows: tuple[Tensor, ...]
    ) -> tuple[GlobalSites, Tensor]:
        """Find them, and draw u from the prior.

        Args:
            program: whose weights with priors are drawn first.
            rows: a few rows, as its arguments.

        Raises:
            ValueError: none; a discrete one; one of a single row; a prior that cannot be drawn
                from; a support that depends on another latent.
        """
        nodes = latents_of(program, rows)
        if not nodes:
            raise ValueError(
                "the program has no global latents: give weights a prior, as in lex(…, "
                "prior=dist.Normal(0.0, 1.0)), or sample them outside mask_particles() and the "
                "plate over rows; without priors, fit(bootstrap=…) tells how sure a fit is"
            )
        again = latents_of(program, rows)
        sites, values = [], []
        for name, node in nodes.items():
            transform = _transform(name, node["fn"])
            value = transform.inv(node["value"]).detach()
            probe = torch.full_like(value, 0.5)
            if not torch.equal(transform(probe), _transform(name, again[name]["fn"])(probe)):
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

    def drawn(self, program: Callable[..., Any], rows: tuple[Tensor, ...]) -> Tensor:
        """A draw of u from the prior, `(D,)`.

        Args:
            program, rows: as :meth:`of` takes them.
        """
        nodes = latents_of(program, rows)
        parts = [site.transform.inv(nodes[site.name]["value"]).flatten() for site in self.sites]
        return torch.cat(parts).detach()

    def samples(self, vectors: Tensor) -> dict[str, Tensor]:
        """θ by site `(C, S, *event)` of vectors `(C, S, D)`."""
        parts = vectors.split([site.size for site in self.sites], -1)
        return {
            site.name: site.transform(part.reshape(*part.shape[:-1], *site.shape)).detach()
            for site, part in zip(self.sites, parts, strict=True)
        }


def latents_of(program: Callable[..., Any], rows: tuple[Tensor, ...]) -> dict[str, Any]:
    """The sample nodes of a program's global latents, by name, of one run.

    Args:
        program: whose weights with priors are drawn first.
        rows: a few rows, as its arguments.

    Raises:
        ValueError: a discrete one; one of a single row; a prior that cannot be drawn from.
    """
    try:
        with torch.no_grad(), ParticleCounts(1, 1):
            trace = pyro.poutine.trace(program).get_trace(*rows)
    except NotImplementedError as error:
        raise ValueError(
            f"the program cannot be drawn from ({error}); give every latent a proper prior"
        ) from error
    nodes = [node for node in trace.nodes.values() if node["type"] == "sample"]
    plate = rows_plate(nodes, len(rows[0]))
    found = {}
    for node in nodes:
        plates = {frame.name for frame in node["cond_indep_stack"]}
        if node["is_observed"] or isinstance(node["fn"], _Subsample) or MASK_PLATE in plates:
            continue
        _refuse_unsampled(node, plate in plates)
        found[node["name"]] = node
    return found


def _refuse_unsampled(node: Mapping[str, Any], of_a_row: bool) -> None:
    name, fn = node["name"], node["fn"]
    if of_a_row:
        raise ValueError(
            f"site {name!r} is a latent of each row, outside mask_particles(): only latents that "
            "all rows share can be sampled so; fit(guide=…) has those of rows"
        )
    if _support(name, fn).is_discrete:
        raise ValueError(
            f"site {name!r} is discrete ({type(fn).__name__}), and a gradient cannot move it: sum "
            "it out in the program, or use fit(guide=…) with a guide that draws it"
        )


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
