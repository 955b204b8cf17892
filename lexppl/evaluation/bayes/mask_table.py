"""Every mask of every row, with its prior and its likelihood: the exact p(z | x, y) for small G."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.effects import IMPUTATION_DIM, LABEL_PLATE, MASK_DIM
from lexppl.evaluation.bayes.simulated import RESPONSE, keep_local
from lexppl.inference.contexts import seeded
from lexppl.inference.objective.listed_latents import (
    ListedLatents,
    is_point,
    refuse_missing,
    refuse_shared_by_logs,
)
from lexppl.inference.objective.program import ParticleProgram, ParticleTrace, log_weight_of
from lexppl.inference.objective.site import Site
from lexppl.inference.posterior.global_latents import sites_of
from lexppl.inference.predictive import LARGEST_TENSOR, LEAST_WIDTH
from lexppl.weights_drawn_first import weights_first


@dataclass(frozen=True, eq=False)
class MaskTable:
    r"""The M masks that B rows may have, or that all rows share.

    Where rows have masks and a log of their own, B is their number. Where `mask_particles()` is
    entered before the rows' plate, or all rows are observed in one event, they have one log and one
    joint mask (spike and slab; masks of groups): B is then 1, or the number of the plates'
    entries that stand before the particles.

    Args:
        masks: `(M, G)`, of several mask sites, or of several entries of one log, one behind
            another; `(1, 0)` for a program without masks.
        log_prior: log p(z | x), `(M, B)`.
        log_likelihood: log p(y | x, z), `(M, B)`, averaged over K imputations; other discrete
            latents of the particles (a regime, hidden states) are summed out.
        exact: whether every mask is listed; else they are M draws of p(z | x), `masks` is
            `(M, B, G)`, and `log_prior` is −log M.
    """

    masks: Tensor
    log_prior: Tensor
    log_likelihood: Tensor
    exact: bool = True

    @property
    def log_evidence(self) -> Tensor:
        """log p(y | x) = log Σ_z p(z | x) p(y | x, z), `(B,)`, in nats."""
        return torch.logsumexp(self.log_prior + self.log_likelihood, 0)

    @property
    def posterior(self) -> Tensor:
        """p(z | x, y), `(M, B)`."""
        return torch.softmax(self.log_prior + self.log_likelihood, 0)

    def draws(self, count: int, seed: int) -> Tensor:
        """Independent draws of p(z | x, y), `(S, B, G)`.

        Args:
            count: S.
            seed: of the draws; global random state is left as it is.
        """
        count = int_at_least("count", count)
        with seeded(seed):
            chosen = torch.multinomial(self.posterior.T, count, replacement=True).T
        return self._listed()[chosen]

    def likelihood_of(self, masks: Tensor) -> Tensor:
        """log p(y | x, z) of some masks of each row.

        Args:
            masks: `(S, B, G)`.

        Returns:
            `(S, B)`.

        Raises:
            ValueError: a mask that is not in the table.
        """
        weight = 2.0 ** torch.arange(masks.shape[-1], dtype=torch.float64)
        code, own = masks.double() @ weight, self._listed().double() @ weight
        order = own.argsort()
        place = torch.searchsorted(own[order], code).clamp(max=len(own) - 1)
        index = order[place]
        if not torch.equal(own[index], code):
            raise ValueError("some masks are none of those that the program can draw")
        return self.log_likelihood.gather(0, index)

    def _listed(self) -> Tensor:
        if not self.exact:
            raise ValueError("the masks of this table are draws, not all that there are")
        return self.masks


def mask_table(
    model: Callable[..., Any],
    x: Tensor,
    y: Tensor,
    shared: Mapping[str, Tensor] | None = None,
    *,
    masks: float = math.inf,
    imputations: int = 1,
) -> MaskTable:
    """List the masks of each row, with their prior and their likelihood.

    Penalties are of the fit, and have no part in p(z | x) or p(y | x, z) of a fitted program; one
    whose shared latents are given has no posterior with them, and is refused.

    Imputations that are random are drawn, K for each mask, from torch's default generator: put the
    call in :func:`lexppl.inference.predictive.drawing`.

    Args:
        model: the program.
        x: rows `(B, *event)`.
        y: their labels or responses `(B,)`.
        shared: values of the latents outside `mask_particles()`, `(*event)` by site; what is left
            out is drawn.
        masks: `math.inf` to list all, up to 65,536 joint values of all discrete latents of one log;
            else L draws of p(z | x).
        imputations: K.

    Raises:
        ValueError: too many masks, or latents that cannot be listed; a mask that rows with a log
            each share; scales, no site `y`; penalties beside shared latents.

    Example:
        >>> from lexppl.inference.predictive import drawing
        >>> from lexppl.systems import lex
        >>> program = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,)).program()
        >>> with drawing(seed=0):
        ...     table = mask_table(program, torch.zeros(5, 3), torch.zeros(5, dtype=torch.long))
        >>> table.masks.shape, table.posterior.shape, table.posterior.sum(0)
        (torch.Size([3, 3]), torch.Size([3, 5]), tensor([1., 1., 1., 1., 1.]))
    """
    if masks != math.inf:
        masks = int_at_least("masks", masks)
    keep_local(model)
    program = ParticleProgram(model, _point(shared), (x, y))
    first = program.run()
    if shared:
        _refuse_penalties(first)
    latents = [site for site in first.mask_sites if not is_point(site.distribution)]
    refuse_shared_by_logs(first, latents)
    if latents and masks != math.inf:
        run = program.run(int(masks), imputations)
        likelihood = _by_log(_likelihood(run, int(masks)))
        flat = likelihood.new_full(likelihood.shape, -math.log(masks))
        drawn = run.sites[latents[0].name].value
        return MaskTable(
            flat.new_zeros((1, 0)) if drawn is None else drawn, flat, likelihood, False
        )
    refuse_shared_by_logs(first, latents)
    # Masks change slowest, so that the others are summed out side by side.
    latents.sort(key=_is_no_mask)
    listed = ListedLatents(first, latents)
    only = ListedLatents(first, [site for site in latents if not _is_no_mask(site)])
    parts = []
    for part in listed.parts(max(1, LARGEST_TENSOR // (len(x) * imputations * LEAST_WIDTH))):
        run = program.run(len(part), imputations, part.give)
        likelihood = _likelihood(run, len(part))
        parts.append((part.log_prior(run).expand(likelihood.shape), likelihood))
    prior, likelihood = (_by_log(torch.cat(of, MASK_DIM)) for of in zip(*parts, strict=True))
    refuse_missing(prior, listed.names)
    if len(listed) > len(only):
        joint = (prior + likelihood).unflatten(0, (len(only), -1)).logsumexp(1)
        prior = prior.unflatten(0, (len(only), -1)).logsumexp(1)
        likelihood = torch.where(prior.isneginf(), -math.inf, joint - prior)
    return MaskTable(only.entries.to(x.device), prior, likelihood)


def count_listed(
    model: Callable[..., Any], x: Tensor, y: Tensor, shared: Mapping[str, Tensor] | None = None
) -> int:
    """How many joint values :func:`mask_table` runs a program with.

    Raises:
        ValueError: as it does.
    """
    keep_local(model)
    first = ParticleProgram(model, _point(shared), (x, y)).run()
    return len(ListedLatents(first, first.mask_sites))


def shared_log_prior(
    model: Callable[..., Any], x: Tensor, y: Tensor, shared: Mapping[str, Tensor]
) -> Tensor:
    """log p(θ) of latents outside `mask_particles()`, a scalar.

    Args:
        model: the program.
        x: rows; a few are enough.
        y: their responses.
        shared: by site, `(*event)`.

    Raises:
        ValueError: the program has latents outside `mask_particles()` that are not given, or none
            of the names given.
    """
    keep_local(model)
    given = pyro.poutine.condition(weights_first(model), data=dict(shared))
    sites = sites_of(given, (x[:1], y[:1]))
    outside = [n for n, site in sites.items() if not (site.in_particles or site.observed)]
    missing = [name for name in outside if name != RESPONSE]
    unknown = [name for name in shared if name not in sites]
    if missing or unknown:
        raise ValueError(
            f"the program's latents outside mask_particles() are {[*shared, *missing]}; "
            f"{missing} are missing and {unknown} are none of them"
        )
    for name in shared:
        _refuse_scaled(sites[name])
    terms = [sites[name].log_prob().sum() for name in shared]
    return torch.stack(terms).sum() if terms else x.new_zeros(())


def _point(shared: Mapping[str, Tensor] | None) -> Callable[..., None] | None:
    """A guide that puts shared latents at given values."""
    if not shared:
        return None

    def guide(*_: Any) -> None:
        for name, value in shared.items():
            pyro.sample(name, dist.Delta(value, event_dim=value.dim()))

    return guide


def _is_no_mask(site: Site) -> bool:
    return len(site.distribution.event_shape) != 1


def _refuse_penalties(run: ParticleTrace) -> None:
    for site in run.sites.values():
        if site.is_penalty:
            raise ValueError(
                f"the program has a penalty {site.name!r}, under which the latents that rows share "
                "have no posterior; write it as a prior of the masks, or leave it out"
            )


def _likelihood(run: ParticleTrace, masks: int) -> Tensor:
    """log 1/K Σ_k p(y | x̃_k), `(…, M, B or 1)`."""
    responses = [
        site
        for site in run.sites.values()
        if site.observed and not site.is_deterministic and site.name.split("_")[0] == RESPONSE
    ]
    if not responses:
        raise ValueError(
            f"the program must observe a site 'y', or sites 'y_…'; its sites are {list(run.sites)}"
        )
    for site, _ in run.weighted:
        _refuse_scaled(site)
        if LABEL_PLATE in site.plate_names:
            raise ValueError("the program expects over labels; give it labels")
    inside = any(site.in_particles for site in responses)
    weight = run.log_weight if inside else log_weight_of([(site, 1.0) for site in responses])
    weight = torch.atleast_2d(torch.as_tensor(weight))
    if weight.dim() > 2 and (imputations := weight.shape[IMPUTATION_DIM]) > 1:
        weight = torch.logsumexp(weight, IMPUTATION_DIM, keepdim=True) - math.log(imputations)
    return weight.expand(*weight.shape[:MASK_DIM], masks, weight.shape[-1])


def _by_log(value: Tensor) -> Tensor:
    """`(…, M, B)` as `(M, B)`, a column for each log."""
    return value.movedim(MASK_DIM, 0).flatten(1)


def _refuse_scaled(site: Site) -> None:
    scale = torch.as_tensor(site.scale)
    if not bool((scale == 1.0).all()):
        raise ValueError(
            f"site {site.name!r} is scaled, so that what is inferred is no posterior of the "
            "program; leave pyro.poutine.scale out (a kl_weight of 1)"
        )
