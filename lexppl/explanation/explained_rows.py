"""The groups of a posterior: of all rows that are given, or of a part of a longer table."""

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from lexppl import __version__
from lexppl.effects import weights_first
from lexppl.explanation.given_program import (
    as_fitted,
    refuse_uncovered,
    sampled_draws,
    with_samples,
)
from lexppl.explanation.names import NamedRows, named_rows
from lexppl.explanation.posterior_arrays import PosteriorArrays
from lexppl.explanation.program_sites import (
    ROWS,
    ProgramSites,
    errors_without_y_explained,
    sites_of,
)
from lexppl.explanation.reading import masks as named
from lexppl.explanation.reading.masks import (
    GIVEN_X,
    GIVEN_XY,
    GUIDE,
    INDEPENDENT_DRAWS,
    MARKOV_CHAINS,
    PRIOR,
)
from lexppl.explanation.row_draws import RESPONSE, without_new_responses
from lexppl.explanation.row_plan import (
    OF_ITS_OWN,
    SHARED,
    Explaining,
    RowPlan,
    StatedMeans,
    is_listed,
    needs_draws,
    usual_draws,
)
from lexppl.inference.contexts import keep_parameters_local, seed_generators
from lexppl.inference.mask_plates import MaskList, MaskTree
from lexppl.inference.objective.dependence import (
    match_program,
    observed_without_y,
    refuse_batch_dependence,
    refuse_dependent_rows,
)
from lexppl.inference.objective.program import (
    Draw,
    ParticleProgram,
    ParticleTrace,
    refuse_coupled_rows,
    sample_nodes,
)
from lexppl.inference.predictive import FittedProgram, drawing, row_chunks
from lexppl.inference.training.result import FitResult
from lexppl.inference.training.rows import DIRICHLET
from lexppl.threads import evaluating

FEW = 20  # Rows on which a program is matched with the grammar
LEAST = 4  # Rows that show whether one depends on the others
BLOCK = 1000  # Rows of a longer table that are drawn from one seed: their number says which
STREAMS = (GIVEN_X, GIVEN_XY, PRIOR, GUIDE)  # What is drawn, each from a stream of seeds of its own


@dataclass(frozen=True)
class TablePart:
    """Which rows of a longer table are explained: blocks of `BLOCK`, from number `block`.

    Latents that all rows share are drawn with `first`, x and y of the table's first rows.
    """

    block: int
    first: tuple[Tensor, Tensor | None]


PROGRAM = "program"  # Under which a fit keeps what is known of its programs


@dataclass(frozen=True)
class KnownProgram:
    """What does not depend on the rows of a fit's programs: sites, and how E[z | x] is had."""

    sites: ProgramSites
    means: list[StatedMeans]
    parts: list[Any]
    rows: tuple[Any, ...]

    @classmethod
    def of(cls, result: FitResult, x: Tensor) -> Self:
        """By a run on the first row, or on more where one row has no distribution."""
        guide = result.guides[0]
        try:
            sites = sites_of(result.model, x[:1], guide)
        except torch.linalg.LinAlgError:
            sites = sites_of(result.model, x[:BLOCK], guide)
        means = [StatedMeans(sites.masks) for _ in result.models]
        return cls(sites, means, _parts(result), _kind(x))

    @property
    def is_constant(self) -> bool:
        """Whether plates and guides cannot make it another for other rows."""
        of_rows = all(site.plate == ROWS for site in self.sites.masks)
        return of_rows and not (self.sites.has_outer_latents or self.sites.guided)

    def is_of(self, result: FitResult, x: Tensor) -> bool:
        """Whether the programs have the same parts as before, and the rows are of one kind."""
        parts = _parts(result)
        same = len(parts) == len(self.parts) and all(map(operator.is_, parts, self.parts))
        return same and self.rows == _kind(x)


def kept_program(result: FitResult, x: Tensor) -> KnownProgram | None:
    """What a call before has found of a fit's programs; None if nothing, or of other ones."""
    known: KnownProgram | None = result.kept_between_calls.get(PROGRAM)
    return known if known is not None and known.is_of(result, x) else None


def _parts(result: FitResult) -> list[Any]:
    programs = (*result.models, *result.guides)
    return [
        part
        for program in programs
        for part in (program.modules() if isinstance(program, torch.nn.Module) else (program,))
    ]


def _kind(x: Tensor) -> tuple[Any, ...]:
    return x.shape[1:], x.dtype, x.device


@dataclass(frozen=True)
class ExplainedRows:
    """The groups of a posterior by ArviZ's names, built when called for; `means` lists the
    variables that are means over rows, of a longer table sums."""

    groups: Callable[[], dict[str, xr.Dataset]]
    attrs: dict[str, Any]
    means: list[tuple[str, str]]


def explained_rows(
    program: Any,
    x: Any,
    y: Any,
    how: Explaining,
    *,
    row_names: Sequence[Any] | None = None,
    part: TablePart | None = None,
) -> ExplainedRows:
    """The groups of :func:`lexppl.explain`; each block of a longer table is drawn from a seed of
    its own, by its number there, and the first as `explain` draws it."""
    how.check()
    with ExitStack() as modes:
        result = as_fitted(program, x, how.guide)
        for module in (*result.models, *result.guides):
            if result is not program and isinstance(module, torch.nn.Module):
                modes.enter_context(evaluating(module))
        result, rows, known = _prepared(result, x, y, how, row_names, part)
        sites = known.sites
        draws = how.draws
        if draws is None:
            usual = usual_draws(sites, len(rows) * len(result.models))
            draws = sampled_draws(result.guides[0]) or usual
        reason = needs_draws(sites, rows.y)
        if draws == 0 and reason is not None:
            raise ValueError(f"draws=0 takes E[z | x] from the masks' distribution, and {reason}")
        first = rows.arguments(slice(0, None)) if part is None else part.first
        tree, listed = None, None
        if rows.y is not None or sites.beside:
            with drawing(how.seed, rows.x.device):
                tree, listed = _observed(result, first, sites, how.proposals, how.imputations)
        plan = RowPlan(result, rows, how, sites, draws, known.means, tree, listed)
        if part is not None and (plan.is_joint or sites.are_together):
            raise ValueError(
                "rows share a mask or are observed in one, so that their masks are drawn together: "
                "explain as many rows as fit at once"
            )
        arrays = PosteriorArrays(plan, is_part=part is not None)
        _draw(plan, arrays, part, first)
    likelihoods = what_likelihoods_are(plan)
    attrs, own = attributes(result, how.seed), draws_of_groups(plan, likelihoods)
    groups = partial(arrays.groups, attrs, own, are_draws=likelihoods is not HELD_OUT)
    return ExplainedRows(groups, attrs, arrays.over_rows)


def _prepared(
    result: FitResult,
    x: Any,
    y: Any,
    how: Explaining,
    row_names: Sequence[Any] | None,
    part: TablePart | None,
) -> tuple[FitResult, NamedRows, KnownProgram]:
    """The fit, the rows with their names, and what there is to explain."""
    keep_parameters_local(*result.models, *result.guides)
    rows = named_rows(result, x, y, row_names)
    if part is not None:
        start = part.block * BLOCK
        rows = replace(rows, names=range(start, start + len(rows)))
    kept, known = result.kept_between_calls, kept_program(result, rows.x)
    is_checked = known is not None
    if known is None or how.samples is not None or not known.is_constant:
        device = rows.x.device
        with errors_without_y_explained(), drawing(how.seed, device):
            if not is_checked:
                with suppress(torch.linalg.LinAlgError):  # So few rows may have no distribution.
                    few = (rows.x[:LEAST], None)
                    refuse_batch_dependence(ParticleProgram(result.model, None, few))
                    refuse_dependent_rows(ParticleProgram(result.model, None, few))
            known = KnownProgram.of(result, rows.x)
        with drawing(how.seed, device):
            if how.samples is not None:
                result = with_samples(result, how.samples, known.sites, rows.dtype)
            if not how.from_prior:
                refuse_uncovered(result, known.sites, rows.arguments(slice(0, 1)))
            elif not known.sites.has_prior:
                unstated = [site.name for site in known.sites.shared if not site.has_prior]
                raise ValueError(f"{unstated} have no prior to draw from: give them one")
        kept[PROGRAM] = known
    rows.check_response(known.sites.response, partial(_observed_y, result.model, rows))
    return result, rows, known


def _observed_y(model: Any, rows: NamedRows) -> Tensor | None:
    """What a program observes at its site of the response, `(B, *event)`, if of each row once."""
    with suppress(ValueError, TypeError, LookupError, RuntimeError), drawing(0, rows.x.device):
        y: Tensor = sample_nodes(weights_first(model), (rows.x, rows.y))[RESPONSE]["value"]
        while y.dim() > 1 and len(y) == 1 != len(rows):
            y = y[0]
        return y
    return None


def _draw(
    plan: RowPlan,
    arrays: PosteriorArrays,
    part: TablePart | None,
    first: tuple[Tensor, Tensor | None],
) -> None:
    """Fill the arrays, chain by chain."""
    result, rows, sites, seed = plan.result, plan.rows, plan.sites, plan.how.seed
    names = [site.name for site in sites.shared]
    few = slice(0, plan.rows_at_once(False))
    given = (first[0][few], None if rows.y is None or first[1] is None else first[1][few])
    for chain, (model, guide) in enumerate(zip(result.models, result.guides, strict=True)):
        fitted = partial(
            FittedProgram,
            model,
            guide,
            draws=plan.draws,
            outer=sites.has_outer_latents,
            plates=sites.row_plates,
        )
        for source in arrays.sources:
            stream = STREAMS.index(source)
            place = (chain, stream) if stream else (chain,)
            with drawing(_chain_seed(seed, *place), rows.x.device):
                if source == GIVEN_X:
                    program = own = fitted(given, from_prior=plan.how.from_prior)
                    group = PRIOR if plan.how.from_prior else GIVEN_XY
                    arrays.write_shared(chain, own.shared(names), group)
                elif source == PRIOR:
                    program = fitted((given[0], None), from_prior=True)
                    arrays.write_shared(chain, program.shared(names), PRIOR)
                    if rows.y is None:
                        continue
                else:
                    program = own
                for number, block in _blocks(len(rows), part):
                    if number:
                        seed_generators(_chain_seed(seed, chain, stream, number))
                    plan.draw(program, arrays, chain, block, source)


def _blocks(rows: int, part: TablePart | None) -> Iterator[tuple[int, slice]]:
    """The blocks of the rows, with their numbers in the table; all in one where it is no part."""
    start, size = (0, rows) if part is None else (part.block, BLOCK)
    yield from enumerate(row_chunks(rows, size), start)


def _observed(
    result: FitResult,
    first: tuple[Tensor, Tensor | None],
    sites: ProgramSites,
    proposals: float | None,
    imputations: int,
) -> tuple[MaskTree, MaskList | None]:
    """The plates of the program's masks, and the list of all masks where these are to be listed."""
    every = sites.are_together
    args = tuple(None if values is None else values[: None if every else FEW] for values in first)
    program = ParticleProgram(result.models[0], result.guides[0], args)
    match_program(program)

    def again(masks: int, draw: Draw | None = None) -> ParticleTrace:
        return without_new_responses(program.run(masks, 1, draw))

    run = again(1)
    observed = [site for site, _ in run.weighted if site.observed]
    beside = observed_without_y(program)
    if args[1] is not None and all(site.name in beside for site in observed):
        raise ValueError(
            "y is given, and the program has no site 'y' inside mask_particles() to observe it, no "
            f"other response, nor a pyro.factor; it observes {[site.name for site in observed]}"
        )
    refuse_coupled_rows(observed)
    names = [site.name for site in sites.masks]
    tree = MaskTree.of(run, again, names)
    if tree.plates == (None,) and len(first[0]) > FEW and not every:
        # Rows are weighed together, and so are those beyond the few.
        program = program.on(first)
        run = again(1)
        tree = MaskTree.of(run, again, names)
    shared = not tree.is_of_rows
    alone = bool(sites.beside) and not sites.has_outer_latents
    listed = None
    if is_listed(proposals) or (proposals is None and (sites.has_outer_latents or shared or alone)):
        try:
            listed = MaskList(run, tree, SHARED)
            if imputations == 1:
                listed.refuse_imputations(run)
            tree.refuse_missing(again(len(listed), listed.give), listed)
        except ValueError as error:
            if proposals is not None:
                raise ValueError(
                    f"proposals=math.inf lists every mask, and {error}; give proposals=4, by which "
                    "masks are drawn and resampled by importance"
                ) from None
            listed = None
        of_any_number = shared or alone or proposals is not None
        if listed is not None and (of_any_number or len(listed) <= OF_ITS_OWN):
            return tree, listed
    return tree.of_one_weight() if len(set(tree.levels.values())) > 1 else tree, None


def _chain_seed(seed: int, *place: int) -> int:
    """Seeds of independent streams for the chains, and for the blocks of a table."""
    state = np.random.SeedSequence(seed, spawn_key=place).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


HELD_OUT = (
    "log p(y | x), the log-density of the mean over all chains and draws, which have not learned "
    "from the rows: arviz.loo gives their log score"
)

BY_DRAW = "log p(y | x) with the masks summed out, given the draw of what all rows share"
BY_FIT = "log p(y | x) with the masks summed out, given the fit, whose rows had weights of its own"


def attributes(result: FitResult, seed: int) -> dict[str, Any]:
    """The attributes of all groups, of draws of a fit with a seed."""
    chains = "replicates of the fit, one chain each"
    if result.sampler is not None:
        kind = MARKOV_CHAINS if result.sampler.are_chains else INDEPENDENT_DRAWS
        chains = f"{kind}: {result.sampler.name}"
    return {
        "inference_library": "lexppl",
        "inference_library_version": __version__,
        "objective": "unknown" if result.objective is None else result.objective.summary,
        "seed": seed,
        "fit_seed": result.seed,
        "row_weights": result.row_weights or "none",
        "chains": chains,
    }


def draws_of_groups(plan: RowPlan, likelihoods: str) -> dict[str, dict[str, str]]:
    """What the draws of each group are, as its attributes."""
    sites, sampler = plan.sites, plan.result.sampler
    given_x = "independent draws of the masks given x alone, p(z | x)"
    if plan.draws == 0:
        given_x = "none: the means of p(z | x) are those that each fitted model states"
    of_all = [site.name for site in sites.masks if site.is_one_law]
    given_x += "".join(f"; the law of {name!r} is one for all rows" for name in of_all)
    parts, masks = [], ""
    if plan.rows.y is not None:
        way = f"resampled by importance from {plan.masks} proposals a row"
        if plan.listed is not None:
            way = f"exact, from all {plan.masks} masks"
        masks = f"draws of the masks given x and y, p(z | x, y), {way}"
        parts.append(masks)
    if sites.shared:
        by = "the guide" if sampler is None else sampler.name
        parts.append(f"draws of the latents that all rows share, by {by}")
        if not sites.has_prior:
            parts.append("none from a prior, as parameters of the fits have none")
    prior = "independent draws of the masks given x alone, p(z | x): of those given y the prior"
    if sites.has_outer_latents:
        prior = "independent draws from the prior of what is latent outside the masks' plate"
    meanings = {
        named.GIVEN_X: f"{given_x}; responses given those masks, p(y | x)",
        named.GIVEN_XY: "; ".join(parts),
        named.PRIOR: prior,
        named.PRIOR_Y: "responses given x and those draws",
        named.OF_ROWS: masks,
        named.NEW_Y: "new responses given those masks, p(y' | x, y)",
        "log_likelihood": likelihoods,
    }
    return {group: {"draws": meaning} for group, meaning in meanings.items()}


def what_likelihoods_are(plan: RowPlan) -> str:
    """What the log-likelihood of a posterior holds."""
    if plan.how.held_out:
        return HELD_OUT
    if plan.sites.shared or plan.sites.are_together:
        return BY_DRAW
    weighted = plan.result.row_weights == DIRICHLET and plan.result.replicates > 1
    return BY_FIT if weighted else HELD_OUT
