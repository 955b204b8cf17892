"""All masks of a row, listed: their prior, likelihood and posterior."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.distributions.support import DEFAULT_LIMIT, draws_zeros_and_ones
from lexppl.effects import LABEL_PLATE, weights_first
from lexppl.evaluation.bayes.simulated import (
    RESPONSE,
    refuse_penalties,
)
from lexppl.inference.contexts import keep_parameters_local, seeded
from lexppl.inference.mask_plates import MaskList, MaskTree, refuse_nan
from lexppl.inference.objective.dependence import match_program, observed_without_y
from lexppl.inference.objective.listed_latents import is_point
from lexppl.inference.objective.program import ParticleProgram, ParticleTrace, log_weight_of
from lexppl.inference.objective.site import Site
from lexppl.inference.posterior.global_draws import Samples
from lexppl.inference.posterior.global_latents import sites_of_run
from lexppl.inference.predictive import LARGEST_TENSOR, LEAST_WIDTH, drawing
from lexppl.inference.replicates import OutOfPlaceDraws


@dataclass(frozen=True, eq=False)
class MaskTable:
    """The M masks that B rows (or groups, or all rows as one) may have: `masks` `(M, G)`, or `(1,
    0)` without masks, `log_prior` log p(z | x) and `log_likelihood` log p(y | x, z), `(M, B)`."""

    masks: Tensor
    log_prior: Tensor
    log_likelihood: Tensor

    @property
    def log_evidence(self) -> Tensor:
        """log p(y | x) = log Σ_z p(z | x) p(y | x, z), `(B,)`, in nats."""
        return torch.logsumexp(self.log_prior + self.log_likelihood, 0)

    @property
    def posterior(self) -> Tensor:
        """p(z | x, y), `(M, B)`."""
        return torch.softmax(self.log_prior + self.log_likelihood, 0)

    def draws(self, count: int, seed: int) -> Tensor:
        """Independent draws of p(z | x, y), `(count, B, G)`."""
        count = int_at_least("count", count)
        with seeded(seed):
            chosen = torch.multinomial(self.posterior.T, count, replacement=True).T
        return self.masks[chosen]

    def likelihood_of(self, masks: Tensor) -> Tensor:
        """log p(y | x, z), `(S, B)`, of some masks of each row, `(S, B, G)`."""
        weight = 2.0 ** torch.arange(masks.shape[-1], dtype=torch.float64)
        code, codes = masks.double() @ weight, self.masks.double() @ weight
        order = codes.argsort()
        place = torch.searchsorted(codes[order], code).clamp(max=len(codes) - 1)
        index = order[place]
        if not torch.equal(codes[index], code):
            raise ValueError("some masks are none of those that the program can draw")
        return self.log_likelihood.gather(0, index)


def mask_table(
    model: Callable[..., Any],
    x: Tensor,
    y: Tensor,
    shared: Mapping[str, Tensor] | None = None,
    *,
    imputations: int = 1,
) -> MaskTable:
    """The masks of each row, listed, with their prior and their likelihood, without penalties, both
    given what is observed without y (:func:`observed_without_y`).

    Imputations that are random are drawn from torch's default generator: put the call in
    :func:`lexppl.inference.predictive.drawing`.

    Args:
        x, y: rows `(B, *event)` and their labels or responses `(B,)`.
        shared: values of the latents outside `mask_particles()`, `(*event)` by site; what is left
            out is drawn.
        imputations: K for each mask.

    Raises:
        ValueError: more than 65,536 masks, several mask sites, a program that
            observes all rows in one, has scales, or observes no y; penalties beside shared latents.

    Example:
        >>> from lexppl.systems import lex
        >>> program = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,)).program()
        >>> with drawing(seed=0):
        ...     table = mask_table(program, torch.zeros(5, 3), torch.zeros(5, dtype=torch.long))
        >>> table.masks.shape, table.posterior.sum(0)
        (torch.Size([3, 3]), tensor([1., 1., 1., 1., 1.]))
    """
    beside = _matched(model, x, y, shared)
    program, first, latents = _first_run(model, x, y, shared)
    if not latents:
        likelihood = _row_likelihood(program.run(1, imputations), beside, imputations, len(x))
        return MaskTable(likelihood.new_zeros((1, 0)), torch.zeros_like(likelihood), likelihood)
    if len(latents) > 1:
        raise ValueError(f"several latents are in mask_particles(), {latents}; one can be listed")
    law = first.sites[latents[0]].distribution
    if not (law.event_shape or draws_zeros_and_ones(law)):
        raise ValueError(
            f"site {latents[0]!r}, of {type(law).__name__}, is no mask of zeros and ones: "
            "draw one, such as OneHotCategorical in the place of Categorical"
        )
    tree = _tree(program, first)
    listed, run = _listed(program, first, tree, imputations)
    tree.refuse_missing(run, listed)
    level = max(tree.levels.values())

    def by_mask(of: ParticleTrace) -> Tensor:
        weight = tree.log_weights(of, listed.counts, imputations)[level]
        weight = weight.reshape(-1, weight.shape[-1])
        last = level == len(tree.plates) - 1
        return weight.unflatten(0, (-1, imputations)).logsumexp(1) if last else weight

    (values,) = listed.values.values()
    if values.dim() > 2 + len(law.event_shape) or values.shape[1] > 1:
        raise ValueError(
            "the entries of a plate have no own likelihood: all are observed in one; their "
            "posterior has explain(program, x, y)"
        )
    likelihood = by_mask(run)
    refuse_nan(likelihood)
    prior = listed.log_prior(run).expand_as(likelihood)
    if beside:
        log_beside = by_mask(run.weighing(beside))
        prior = (prior + log_beside).log_softmax(0)
        likelihood = torch.where(log_beside.isneginf(), 0.0, likelihood - log_beside)
    return MaskTable(values.flatten(1), prior, likelihood)


def _matched(
    model: Callable[..., Any], x: Tensor, y: Tensor, shared: Mapping[str, Tensor] | None = None
) -> frozenset[str]:
    """What a program observes beside y, matched with the grammar once before any run."""
    keep_parameters_local(model)
    program = ParticleProgram(model, _point(shared), (x, y))
    match_program(program)
    beside = observed_without_y(program)
    _refuse_unobserved(program.run(), beside)
    return beside


def _tree(program: ParticleProgram, first: ParticleTrace) -> MaskTree:
    return MaskTree.of(first, lambda count, draw: program.run(count, 1, draw))


def _first_run(
    model: Callable[..., Any], x: Tensor, y: Tensor, shared: Mapping[str, Tensor] | None
) -> tuple[ParticleProgram, ParticleTrace, list[str]]:
    """The program at given latents, a run of it, and its random latents in the mask plate."""
    program = ParticleProgram(model, _point(shared), (x, y))
    first = program.run()
    if shared:
        refuse_penalties(name for name, site in first.sites.items() if site.is_penalty)
    masks = [s for s in first.mask_sites if s.name not in first.unobserved]
    return program, first, [s.name for s in masks if not is_point(s.distribution)]


def _listed(
    program: ParticleProgram, first: ParticleTrace, tree: MaskTree, imputations: int
) -> tuple[MaskList, ParticleTrace]:
    """All masks, and a run of them."""
    listed = MaskList(first, tree, DEFAULT_LIMIT)
    return listed, program.run(len(listed), imputations, listed.give)


def _point(shared: Mapping[str, Tensor] | None) -> Callable[..., None] | None:
    if not shared:
        return None

    def guide(*_: Any) -> None:
        for name, value in shared.items():
            pyro.sample(name, dist.Delta(value, event_dim=value.dim()))

    return guide


def _refuse_unobserved(run: ParticleTrace, beside: Collection[str]) -> None:
    """Refuse a program that observes no y, or whose terms are scaled or expect over labels."""
    observed = [s for s in run.sites.values() if s.observed and not s.is_deterministic]
    if not [s for s in observed if not (s.is_penalty or s.name in beside)]:
        raise ValueError(f"the program must observe y, as at a site 'y'; it has {list(run.sites)}")
    weighted = [site for site, _ in run.weighted]
    for site in weighted:
        if LABEL_PLATE in site.plate_names:
            raise ValueError(f"site {site.name!r} expects over labels; give labels")
    _refuse_scaled(weighted)


def _row_likelihood(
    run: ParticleTrace, beside: Collection[str], imputations: int, rows: int
) -> Tensor:
    """log p(y | x), `(1, B)`, of a program without masks."""

    def by_row(weight: Tensor | None) -> Tensor:
        if weight is None or weight.shape[-1] != rows or weight.dim() > 3:
            raise ValueError(
                "the rows have no likelihood of their own: observe labels y row by row"
            )
        if weight.dim() == 3:
            weight = weight.expand(imputations, -1, -1)
            weight = torch.logsumexp(weight, 0) - math.log(imputations)
        return weight.expand(1, rows)

    if not run.weighted:
        sites = [s for s in run.sites.values() if s.observed and s.name not in beside]
        terms = [(s, 1.0) for s in sites if not (s.is_penalty or s.is_deterministic)]
        return by_row(log_weight_of(terms))
    log_beside = run.weighing(beside).log_weight
    return by_row(run.log_weight) - (0.0 if log_beside is None else by_row(log_beside))


def _refuse_scaled(sites: Iterable[Site]) -> None:
    for site in sites:
        if not bool((torch.as_tensor(site.scale) == 1.0).all()):
            raise ValueError(
                f"scaled site {site.name!r} has no posterior: leave poutine.scale, and plates of a "
                "part of the rows, out; a power s is pyro.factor(name, (s - 1) * log_prob)"
            )


def row_log_likelihood(
    model: Callable[..., Any],
    x: Tensor,
    y: Tensor,
    samples: Samples,
    *,
    masks: float = math.inf,
    imputations: int = 1,
    seed: int = 0,
) -> Tensor:
    """log Σ_z p(z | x_n, θ_s) p(y_n | x_n, z, θ_s) of each row and draw of the shared latents, `(S,
    B)`, or where rows share a mask of all rows together, `(S, 1)`; with L masks drawn from p(z | x)
    the bound `log 1/L Σ_l p(y | x, z_l)`, lower by about `Var(w) / (2 L E[w]²)`."""

    def tree_at(shared: Mapping[str, Tensor]) -> MaskTree | None:
        program, first, latents = _first_run(model, x, y, shared)
        if not latents:
            return None
        tree = _tree(program, first)
        if masks == math.inf:
            listed, run = _listed(program, first, tree, 1)
            tree.refuse_missing(run, listed)
        several = len(set(tree.levels.values())) > 1
        return tree.of_one_weight() if several and masks != math.inf else tree

    def at_draw(shared: Mapping[str, Tensor]) -> Tensor:
        program, first, _ = _first_run(model, x, y, shared)
        if (plates := tree) is None:
            return _row_likelihood(program.run(1, imputations), beside, imputations, len(x))[0]
        if masks == math.inf:
            listed, run = _listed(program, first, plates, imputations)
            counts, names = list(listed.counts), listed.names
        else:
            run, names = program.run(count, imputations), []
            counts = [1] * len(plates.plates)
            counts[max(plates.levels.values())] = count

        def summed(of: ParticleTrace) -> Tensor:
            weights = plates.log_weights(of, counts, imputations, names)
            return torch.logsumexp(weights[-1][0] if plates.is_of_rows else weights[0], -2)

        if not beside:
            return summed(run) - (0.0 if names else math.log(count))
        return summed(run) - summed(run.weighing(beside))

    with drawing(seed, x.device):
        at = {name: values[0] for name, values in samples.items()}
        beside = _matched(model, x, y, at)
        tree = _same_tree(tree_at, samples)
        count = 1 if masks == math.inf else int_at_least("masks", masks)
        particles = count
        if masks == math.inf and tree is not None:
            _, first, _ = _first_run(model, x, y, at)
            particles = len(MaskList(first, tree, DEFAULT_LIMIT))
        likelihood = _at_all(at_draw, samples, len(x) * imputations * particles)
        refuse_nan(likelihood)
        return likelihood


TREES = 64  # Draws of the latents that rows share at which a program's plates are looked at


def _same_tree(
    tree_at: Callable[[Mapping[str, Tensor]], MaskTree | None], samples: Samples
) -> MaskTree | None:
    """The tree that holds at all of up to 64 evenly spaced draws."""
    draws = len(next(iter(samples.values()))) if samples else 1
    smallest = None
    for place in sorted({draws * i // TREES for i in range(TREES)}):
        tree = tree_at({name: values[place] for name, values in samples.items()})
        if tree is None or tree.is_of_rows or not any(tree.levels.values()):
            return tree
        if smallest is None or len(tree.plates) < len(smallest.plates):
            smallest = tree
        elif len(tree.plates) == len(smallest.plates) and not all(
            map(torch.equal, tree.above, smallest.above)
        ):
            return tree.of_one_weight()
    return smallest


def log_prior(model: Callable[..., Any], x: Tensor, y: Tensor, samples: Samples) -> Tensor:
    """log p(θ_s), `(S,)`, in nats, of a program and a few of its rows."""

    def of_draw(shared: Mapping[str, Tensor]) -> Tensor:
        program = pyro.poutine.condition(weights_first(model), data=dict(shared))
        sites = sites_of_run(program, (x[:1], y[:1]))
        free = [n for n, s in sites.items() if not (s.in_particles or s.observed or n == RESPONSE)]
        unknown = [name for name in shared if name not in sites]
        if free or unknown:
            raise ValueError(
                f"the program's latents outside mask_particles() are {[*shared, *free]}; "
                f"{free} are missing and {unknown} are none of them"
            )
        _refuse_scaled(sites[name] for name in shared)
        terms = [sites[name].log_prob().sum() for name in shared]
        return torch.stack(terms).sum() if terms else x.new_zeros(())

    keep_parameters_local(model)
    with drawing(0, x.device):
        return _at_all(of_draw, samples, 1)


def log_joint(
    model: Callable[..., Any], x: Tensor, y: Tensor, samples: Samples, **options: Any
) -> Tensor:
    """log p(y, θ_s | x), `(S,)`, in double precision; arguments as :func:`row_log_likelihood`."""
    rows = row_log_likelihood(model, x, y, samples, **options)
    return rows.double().sum(-1) + log_prior(model, x, y, samples)


def _at_all(
    function: Callable[[Mapping[str, Tensor]], Tensor], samples: Samples, particles: int
) -> Tensor:
    """The values of a function at each draw, `(S, …)`, as many at once as fit."""
    by_site = dict(samples)
    if not by_site:
        return function({}).unsqueeze(0)
    draws = len(next(iter(by_site.values())))
    chunk = max(1, min(draws, LARGEST_TENSOR // (particles * LEAST_WIDTH)))
    try:
        with OutOfPlaceDraws():
            return torch.vmap(function, randomness="different", chunk_size=chunk)(by_site)
    except RuntimeError as error:
        if "vmap" not in str(error) and "data-dependent" not in str(error):
            raise
    # A program that decides by a number of its own is run for one draw after another.
    return torch.stack(
        [function({n: value[s] for n, value in by_site.items()}) for s in range(draws)]
    )
