"""The latents of a program by what shares them, and the global ones as unconstrained numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Transform, biject_to

from lexppl.effects import weights_first
from lexppl.inference.batches import Columns
from lexppl.inference.objective.program import sites_of
from lexppl.inference.objective.site import Site
from lexppl.threads import evaluating

Rows = tuple[Tensor | None, ...]  # Rows as arguments of a program; y may be None


@dataclass(frozen=True)
class Latents:
    """The latents of a program by name: of all rows, of each row, drawn in the particle plates; and
    its observed sites and plates over rows."""

    shared: dict[str, Site]
    of_rows: dict[str, Site]
    in_particles: dict[str, Site]
    observed: dict[str, Site]
    row_plates: frozenset[str]


def latents_of(program: Callable[..., Any], rows: Rows) -> Latents:
    """The latents of a program, by runs on one row more and two: plates over rows grow.

    Raises:
        ValueError: an improper prior.
    """

    def longer(more: int) -> Rows:
        """The rows, and some of them once more."""
        return tuple(
            None if column is None else column[[i % len(column) for i in range(len(column) + more)]]
            for column in rows
        )

    sites, more = (sites_of_run(program, longer(count)) for count in (1, 2))
    sizes = {p.name: (p.size, p.full_size) for site in sites.values() for p in site.plates}
    row_plates = frozenset(
        plate.name
        for site in more.values()
        for plate in site.plates
        if sizes.get(plate.name, (plate.size, plate.full_size)) != (plate.size, plate.full_size)
    )
    latents = Latents({}, {}, {}, {}, row_plates)
    for name, site in sites.items():
        grows = name in more and site.distribution.shape() != more[name].distribution.shape()
        of_rows = grows or row_plates & set(site.plate_names)
        outside = latents.of_rows if of_rows else latents.shared
        inside = latents.in_particles if site.in_particles else outside
        (latents.observed if site.observed else inside)[name] = site
    return latents


def sites_of_run(program: Callable[..., Any], rows: Rows) -> dict[str, Site]:
    """The sample sites of one run of a program with one particle, by name."""
    module = program if isinstance(program, nn.Module) else nn.Module()
    with evaluating(module):
        sites = sites_of(weights_first(program), rows)
    return {name: site for name, site in sites.items() if not site.is_deterministic}


def refuse_none(
    shared: Mapping[str, Site],
    purpose: str = "there is nothing to sample",
    instead: str = (
        'Without priors, fit(replicates=…, row_weights="dirichlet") measures how sure a fit is'
    ),
) -> None:
    """Refuse a program without global latents; `purpose` starts the message, `instead` ends it."""
    if not shared:
        raise ValueError(
            f"{purpose}: the program has no global latents, which all rows share; give a prior to "
            "some of its weights (PyroSample), as lex(…, prior=dist.Normal(0.0, 1.0)) does, or "
            f"sample them outside mask_particles() and the plate over rows. {instead}"
        )


def refuse_discrete(shared: Mapping[str, Site], purpose: str) -> None:
    """Refuse discrete global latents; `purpose` starts the message."""
    for name, site in shared.items():
        if is_discrete(site):
            raise ValueError(
                f"{purpose}, and the global latent {name!r} is discrete "
                f"({type(site.distribution).__name__}): sum it out in the program, or write a "
                "guide that samples it from a distribution of its own, with parameters to learn, "
                "whose score NestedIWAE estimates (guide=)"
            )


def refuse_of_rows(latents: Latents) -> None:
    """Refuse latents outside `mask_particles()` that each row has its own of."""
    for name in latents.of_rows:
        raise ValueError(
            f"latent {name!r} is outside mask_particles() and each row has its own, so that new "
            "rows would have none; sample it inside mask_particles(), or outside the plate over "
            "rows"
        )


def is_discrete(site: Site) -> bool:
    """Whether a site's values are integers."""
    try:
        return bool(site.distribution.support.is_discrete)
    except NotImplementedError as error:
        raise ValueError(f"the prior of {site.name!r} states no support") from error


class GlobalSites:
    """The map `u = biject_to(support)⁻¹(θ)` between global latents θ and real numbers u `(D,)`."""

    def __init__(self, transforms: Mapping[str, Any], shapes: Mapping[str, torch.Size]) -> None:
        self.transforms, self.shapes = transforms, shapes
        self.names = tuple(transforms)
        self.sizes = [shapes[name].numel() for name in self.names]
        self.dimensions = sum(self.sizes)

    @classmethod
    def of(cls, model: Any, rows: Columns, least: int = 1) -> tuple[GlobalSites, Latents]:
        """The map of a program, and the latents of the run that found it; refuses fewer than the
        `least`, discrete latents, latents of rows, improper priors and supports that depend on
        another latent."""
        latents, again = _continuous(model, rows, least), _continuous(model, rows, least)
        transforms, shapes = {}, {}
        for name, site in latents.shared.items():
            transforms[name] = transform = _transform(site)
            shapes[name] = (value := transform.inv(site.value)).shape
            probe = torch.full_like(value, 0.5)
            if not torch.equal(transform(probe), _transform(again.shared[name])(probe)):
                raise ValueError(
                    f"the support of {name!r} depends on another latent, and its bounds would move "
                    "under the sampler; write it as a transform of a latent whose support is "
                    "fixed, such as scale * pyro.sample(…)"
                )
        return cls(transforms, shapes), latents

    def of_parts(
        self, parts: Mapping[str, Tensor], batch: int = 0
    ) -> tuple[dict[str, Tensor], Tensor]:
        """θ by site of u by site, which has `batch` leading dimensions, and `log |dθ/du|`."""
        values = {name: self.transforms[name](parts[name]) for name in self.names}
        changes = []
        for name, transform in self.transforms.items():
            change = transform.log_abs_det_jacobian(parts[name], values[name])
            changes.append(change.reshape(*change.shape[:batch], -1).sum(-1))
        return values, sum(changes[1:], changes[0]) if changes else torch.zeros(())

    def constrained(self, vectors: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """θ by site `(…, *event)` of vectors u `(…, D)`, and `log |dθ/du|`, `(…)`."""
        by_site = zip(self.names, vectors.split(self.sizes, -1), strict=True)
        parts = {n: part.reshape((*vectors.shape[:-1], *self.shapes[n])) for n, part in by_site}
        return self.of_parts(parts, vectors.dim() - 1)

    def parts(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """u by site of θ by site, the inverse of :meth:`of_parts`."""
        return {name: t.inv(values[name]).detach() for name, t in self.transforms.items()}

    def vectors(self, values: Mapping[str, Tensor]) -> Tensor:
        """u `(…, D)` of θ by site `(…, *event)`, the inverse of :meth:`constrained`."""
        of_sites = [
            part.reshape(*part.shape[: part.dim() - len(self.shapes[name])], size)
            for (name, part), size in zip(self.parts(values).items(), self.sizes, strict=True)
        ]
        return torch.cat(of_sites, -1)

    def prior_draw(self, model: Any, rows: Columns) -> Tensor:
        """A draw of u from the prior, `(D,)`, of the model and rows of :meth:`of`."""
        return self.vectors(values_of(_continuous(model, rows)))


def values_of(latents: Latents) -> dict[str, Any]:
    """θ by site, as a run drew it."""
    return {name: site.value for name, site in latents.shared.items()}


def _continuous(model: Any, rows: Columns, least: int = 1) -> Latents:
    """The latents of a run whose global ones are all real numbers, or a refusal."""
    with torch.no_grad():
        latents = latents_of(model, rows)
    refuse_of_rows(latents)
    if least:
        refuse_none(latents.shared)
    refuse_discrete(latents.shared, "a gradient moves real numbers")
    return latents


def _transform(site: Site) -> Transform:
    try:
        return biject_to(site.distribution.support)
    except NotImplementedError as error:
        raise ValueError(f"the support of {site.name!r} has no map from numbers") from error
