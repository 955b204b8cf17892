"""The groups of a posterior: of all rows that are given, or of a part of a longer table."""

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
import xarray as xr
from pyro.distributions import Unit
from torch import Tensor

from lexppl.explanation.given_program import (
    as_fitted,
    refuse_uncovered,
    sampled_draws,
    with_samples,
)
from lexppl.explanation.layout.mask_groups import GIVEN_X, GIVEN_XY, GUIDE, PRIOR
from lexppl.explanation.masks.drawless import StatedMeans, needs_draws
from lexppl.explanation.masks.draws import RESPONSE
from lexppl.explanation.masks.program_sites import ROWS, ProgramSites, sites_of
from lexppl.explanation.meanings import (
    HELD_OUT,
    attributes,
    draws_of_groups,
    what_likelihoods_are,
)
from lexppl.explanation.named_rows import NamedRows, named_rows
from lexppl.explanation.posterior_arrays import PosteriorArrays
from lexppl.explanation.row_plan import (
    OF_ITS_OWN,
    SHARED,
    Explaining,
    RowPlan,
    is_listed,
    usual_draws,
)
from lexppl.inference.contexts import keep_parameters_local, seed_generators
from lexppl.inference.mask_plates import MaskList, MaskTree
from lexppl.inference.objective.program import ParticleProgram, refuse_coupled_rows
from lexppl.inference.predictive import FittedProgram, drawing, row_chunks
from lexppl.inference.training.first_look import plate_errors_explained
from lexppl.inference.training.result import FitResult
from lexppl.threads import evaluating

BLOCK = 1000
"""Rows of a longer table that are drawn from one seed: their number says which."""

STREAMS = (GIVEN_X, GIVEN_XY, PRIOR, GUIDE)
"""What is drawn, each from a stream of seeds of its own."""


@dataclass(frozen=True)
class TablePart:
    """Which rows of a longer table are explained: blocks of :data:`BLOCK`.

    Args:
        block: the number of the first, from 0.
        first: x and y of the table's first rows, a block or less: what all rows share is drawn as
            it is drawn with them.
    """

    block: int
    first: tuple[Tensor, Tensor | None]


PROGRAM = "program"
"""Under which a fit keeps what is known of its programs."""


@dataclass(frozen=True)
class KnownProgram:
    """What is the same of a fit's programs whatever the rows: their sites, and how E[z | x] of each
    is had without draws; of these modules and programs, and rows of one shape, type and device."""

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
        means = [StatedMeans([site.name for site in sites.masks]) for _ in result.models]
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
    """The groups of a posterior.

    Args:
        groups: builds them, by ArviZ's names.
        attrs: of all groups.
        means: the groups and names of what is a mean over rows, of a longer table their sum.
    """

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
    """The groups of :func:`lexppl.explain`.

    Each block of a longer table is drawn by its number there, from a seed of its own, so that it is
    the same whichever rows come beside it; the first block is drawn as `explain` draws it.

    Args:
        program, x, y, row_names: of `explain`.
        how: its other arguments.
        part: which part of a table these rows are; None where they are all.

    Raises:
        ValueError, TypeError, FloatingPointError: as `explain`.
    """
    how.check()
    with ExitStack() as modes:
        for module in (program, how.guide):
            if isinstance(module, torch.nn.Module):
                modes.enter_context(evaluating(module))
        result, rows, known = _prepared(program, x, y, how, row_names, part)
        sites = known.sites
        draws = how.draws
        if draws is None:
            usual = usual_draws(sites, len(rows) * len(result.models))
            draws = sampled_draws(result.guides[0]) or usual
        reason = needs_draws(sites, rows.y)
        if draws == 0 and reason is not None:
            raise ValueError(f"draws=0 takes E[z | x] from the masks' distribution, and {reason}")
        features = how.feature_names
        if features is None and rows.x.dim() == 2:
            features = result.feature_names
        first = rows.arguments(slice(0, None)) if part is None else part.first
        tree, listed = None, None
        if rows.y is not None:
            with drawing(how.seed, rows.x.device):
                tree, listed = _observed(result, first, sites, how.proposals)
        plan = RowPlan(how, sites, draws, known.means, tree, listed)
        if part is not None and (plan.is_joint or sites.are_together):
            raise ValueError(
                "rows share a mask or are observed in one, so that their masks are drawn together: "
                "explain as many rows as fit at once"
            )
        arrays = PosteriorArrays(result, rows, plan, features, part is not None)
        _draw(result, rows, plan, arrays, how.seed, part, first)
        attrs = attributes(result, how.seed)
        likelihoods = what_likelihoods_are(result, plan, how.held_out)
        own = draws_of_groups(result, plan, y is not None, likelihoods)
    groups = partial(arrays.groups, attrs, own, are_draws=likelihoods is not HELD_OUT)
    return ExplainedRows(groups, attrs, arrays.over_rows)


def _prepared(
    program: Any,
    x: Any,
    y: Any,
    how: Explaining,
    row_names: Sequence[Any] | None,
    part: TablePart | None,
) -> tuple[FitResult, NamedRows, KnownProgram]:
    """The program as a fit, the rows with their names, and what there is to explain."""
    result = as_fitted(program, x, how.guide)
    rows = named_rows(result, x, y, row_names)
    if part is not None:
        start = part.block * BLOCK
        rows = replace(rows, names=range(start, start + len(rows)))
    for module in (*result.models, *result.guides):
        if isinstance(module, torch.nn.Module):
            keep_parameters_local(module)
    known: KnownProgram | None = result.kept_between_calls.get(PROGRAM)
    if how.samples is not None or known is None or not known.is_of(result, rows.x):
        with drawing(how.seed, rows.x.device), plate_errors_explained():
            known = KnownProgram.of(result, rows.x)
            if how.samples is not None:
                result = with_samples(result, how.samples, known.sites, rows.x.dtype)
            refuse_uncovered(result, known.sites, rows.arguments(slice(0, 1)))
        if known.is_constant:
            result.kept_between_calls[PROGRAM] = known
    rows.check_response(known.sites.response)
    return result, rows, known


def _draw(
    result: FitResult,
    rows: NamedRows,
    plan: RowPlan,
    arrays: PosteriorArrays,
    seed: int,
    part: TablePart | None,
    first: tuple[Tensor, Tensor | None],
) -> None:
    """Fill the arrays, chain by chain."""
    sites, device = plan.sites, rows.x.device
    names = [site.name for site in sites.shared]
    few = slice(0, plan.rows_at_once(rows, False))
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
            with drawing(_chain_seed(seed, chain, *([stream] if stream else [])), device):
                if source == GIVEN_X:
                    program = own = fitted(given)
                    arrays.write_shared(chain, own.shared(names), GIVEN_XY)
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
                    plan.draw(program, rows, arrays, chain, block, source)


def _blocks(rows: int, part: TablePart | None) -> Iterator[tuple[int, slice]]:
    """The blocks of the rows, with their numbers in the table; all in one where it is no part."""
    size = rows if part is None else BLOCK
    for place, block in enumerate(row_chunks(rows, size)):
        yield place + (0 if part is None else part.block), block


def _observed(
    result: FitResult,
    first: tuple[Tensor, Tensor | None],
    sites: ProgramSites,
    proposals: float | None,
) -> tuple[MaskTree, MaskList | None]:
    """The plates of the program's masks, and all of these where they are to be listed, or are no
    more than would be proposed.

    Raises:
        ValueError: it does not observe y inside its particle plates, or its masks cannot be listed.
    """
    x, y = first
    few = slice(0, None if sites.are_together else 2)
    program = ParticleProgram(
        result.models[0], result.guides[0], (x[few], None if y is None else y[few])
    )
    program.match()
    run = program.run()
    observed = [site for site, _ in run.weighted if site.observed]
    if not any(
        s.name.split("_")[0] == RESPONSE or isinstance(s.distribution, Unit) for s in observed
    ):
        raise ValueError(
            "y is given, and the program has no site 'y' inside mask_particles() to observe it, no "
            f"sites 'y_…', nor a pyro.factor; it observes {[site.name for site in observed]}"
        )
    refuse_coupled_rows(observed)
    tree = MaskTree.of(
        run, lambda masks, draw: program.run(masks, 1, draw), [site.name for site in sites.masks]
    )
    shared = not tree.is_of_rows
    listed = None
    if is_listed(proposals) or (proposals is None and (sites.has_outer_latents or shared)):
        try:
            if shared and not sites.are_together:
                raise ValueError("all rows are observed in one, with masks of their own each")
            listed = MaskList(run, tree, SHARED)
        except ValueError as error:
            if proposals is not None:
                raise ValueError(
                    f"proposals=math.inf lists every mask, and {error}; give proposals=4, by which "
                    "masks are drawn and resampled by importance"
                ) from None
        if listed is not None and (shared or proposals is not None or len(listed) <= OF_ITS_OWN):
            return tree, listed
    return tree.of_one_weight() if len(set(tree.levels.values())) > 1 else tree, None


def _chain_seed(seed: int, *place: int) -> int:
    """Seeds of independent streams for the chains, and for the blocks of a table."""
    state = np.random.SeedSequence(seed, spawn_key=place).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))
