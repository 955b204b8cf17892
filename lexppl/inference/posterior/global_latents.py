"""The latents of a program by what shares them: all rows, a row, a mask."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyro
import pyro.distributions as dist
from pyro.poutine.messenger import Messenger
from pyro.poutine.subsample_messenger import _Subsample
from torch import Tensor, nn

from lexppl.effects import ParticleCounts
from lexppl.evaluation_mode import evaluating
from lexppl.inference.objective.site import Site
from lexppl.weights_drawn_first import weights_first


@dataclass(frozen=True)
class Latents:
    """The latent sites of a program, of one draw, by name.

    Args:
        shared: those of all rows together: weights with priors, a global scale.
        of_rows: those outside `mask_particles()` that each row has its own of.
        in_particles: masks, imputations and what else is drawn with them.
        observed: what is no latent.
        row_plates: the names of the plates over rows.
    """

    shared: Mapping[str, Site]
    of_rows: Mapping[str, Site]
    in_particles: Mapping[str, Site]
    observed: Mapping[str, Site]
    row_plates: frozenset[str]


def latents_of(program: Callable[..., Any], rows: tuple[Tensor | None, ...]) -> Latents:
    """Look for a program's latents in a run of it.

    A plate over rows is one that grows with them: the program is run on one row more, and on two.
    So a plate of sites or of groups, whose effects all rows share, is told from it whatever its
    size.

    Args:
        program: a module or a function; its weights with priors are drawn first.
        rows: one row or more, as arguments of the program, which may be None.

    Raises:
        ValueError: an improper prior.

    Example:
        >>> import torch
        >>> def program(x):
        ...     scale = pyro.sample("scale", dist.HalfNormal(1.0))
        ...     with pyro.plate("sites", 2):
        ...         pyro.sample("effect", dist.Normal(0.0, scale))
        ...     with pyro.plate("data", len(x)):
        ...         pyro.sample("noise", dist.Normal(0.0, 1.0))
        >>> found = latents_of(program, (torch.zeros(2, 3),))
        >>> sorted(found.shared), sorted(found.of_rows), set(found.row_plates)
        (['effect', 'scale'], ['noise'], {'data'})
    """
    every, more = (
        sites_of(program, tuple(None if c is None else _repeated(c, n) for c in rows))
        for n in (1, 2)
    )
    observed = {name: site for name, site in every.items() if site.observed}
    two = {name: site for name, site in every.items() if not site.observed}
    sizes = {plate.name: _size(plate) for site in every.values() for plate in site.plates}
    grown = frozenset(
        plate.name
        for site in more.values()
        for plate in site.plates
        if plate.name in sizes and sizes[plate.name] != _size(plate)
    )
    outside = {name: site for name, site in two.items() if not site.in_particles}
    of_rows = {name for name, site in outside.items() if grown & set(site.plate_names)}
    return Latents(
        {name: site for name, site in outside.items() if name not in of_rows},
        {name: site for name, site in outside.items() if name in of_rows},
        {name: site for name, site in two.items() if site.in_particles},
        observed,
        grown,
    )


def refuse_none(
    shared: Mapping[str, Site],
    purpose: str = "there is nothing to sample",
    instead: str = (
        'Without priors, fit(replicates=…, row_weights="dirichlet") tells how sure a fit is'
    ),
) -> None:
    """Refuse a program without latents that all rows share.

    Args:
        shared: those of :func:`latents_of`.
        purpose: what they are needed for, which starts the message.
        instead: what to do without, which ends it.

    Raises:
        ValueError: there are none.
    """
    if not shared:
        raise ValueError(
            f"{purpose}: the program has no global latents, which all rows share; give a prior to "
            "some of its weights (PyroSample), as lex(…, prior=dist.Normal(0.0, 1.0)) does, or "
            f"sample them outside mask_particles() and the plate over rows. {instead}"
        )


def refuse_discrete(shared: Mapping[str, Site], purpose: str) -> None:
    """Refuse global latents that are whole numbers, or zeros and ones.

    Args:
        shared: those of :func:`latents_of`.
        purpose: what takes none, which starts the message.

    Raises:
        ValueError: one is discrete, or states no support.
    """
    for name, site in shared.items():
        if is_discrete(site):
            raise ValueError(
                f"{purpose}, and the global latent {name!r} is discrete "
                f"({type(site.distribution).__name__}): sum it out in the program, or write a "
                "guide that samples it from a distribution of its own, with parameters to learn, "
                "whose score NestedIWAE estimates (guide=)"
            )


def refuse_of_rows(latents: Latents) -> None:
    """Refuse latents outside `mask_particles()` that each row has its own of.

    Raises:
        ValueError: there is one.
    """
    for name in latents.of_rows:
        raise ValueError(
            f"latent {name!r} is outside mask_particles() and each row has its own, so that new "
            "rows would have none; sample it inside mask_particles(), or outside the plate over "
            "rows"
        )


def is_discrete(site: Site) -> bool:
    """Whether a site's values are whole numbers or zeros and ones.

    Raises:
        ValueError: its distribution states no support.

    Example:
        >>> import torch
        >>> few = (torch.zeros(1, 3),)
        >>> found = latents_of(lambda x: pyro.sample("k", dist.Poisson(2.0)), few)
        >>> is_discrete(found.shared["k"])
        True
    """
    try:
        return bool(site.distribution.support.is_discrete)
    except NotImplementedError as error:
        raise ValueError(
            f"the prior of {site.name!r}, {type(site.distribution).__name__}, states no support"
        ) from error


def _repeated(rows: Tensor, more: int) -> Tensor:
    """The rows, and some of them once more."""
    return rows[[i % len(rows) for i in range(len(rows) + more)]]


def _size(plate: Any) -> tuple[Any, Any]:
    return plate.size, plate.full_size


def sites_of(program: Callable[..., Any], rows: tuple[Tensor | None, ...]) -> dict[str, Site]:
    """The sample statements of one run of a program with one particle, by name.

    Args:
        program: a module or a function; its weights with priors are drawn first.
        rows: arguments of the program.

    Raises:
        ValueError: an improper prior.
    """
    module = program if isinstance(program, nn.Module) else nn.Module()
    with ParticleCounts(1, 1), evaluating(module), _RefuseImproper():
        trace = pyro.poutine.trace(weights_first(program)).get_trace(*rows)
    sites = {
        name: Site.of(node)
        for name, node in trace.nodes.items()
        if node["type"] == "sample" and not isinstance(node["fn"], _Subsample)
    }
    return {name: site for name, site in sites.items() if not site.is_deterministic}


class _RefuseImproper(Messenger):
    """Refuse a prior that nothing can be drawn from, by the site's name."""

    def _pyro_sample(self, msg: Any) -> None:
        if isinstance(msg["fn"], dist.ImproperUniform) and not msg["is_observed"]:
            raise ValueError(
                f"the prior of {msg['name']!r} is improper: nothing can be drawn from it, and it "
                "may leave no posterior; give a proper one, such as Normal(0., 10.)"
            )
