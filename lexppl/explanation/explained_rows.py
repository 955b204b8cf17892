"""The groups of a posterior: of all rows that are given, or of a part of a longer table."""

import operator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lexppl import __version__
from lexppl.effects import weights_first
from lexppl.explanation.given_program import (
    as_fitted,
    refuse_uncovered,
    sampled_draws,
    with_samples,
)
from lexppl.explanation.mask_sampler import (
    BLOCK,
    OF_ITS_OWN,
    SHARED,
    ExplainOptions,
    MaskSampler,
    is_listed,
    needs_draws,
    usual_draws,
)
from lexppl.explanation.names import NamedRows, named_rows
from lexppl.explanation.posterior_arrays import HELD_OUT, PosteriorArrays
from lexppl.explanation.program_sites import (
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
from lexppl.inference.predictive import FittedProgram, drawing, sampled_masks
from lexppl.inference.training.result import FitResult
from lexppl.inference.training.rows import DIRICHLET
from lexppl.threads import evaluating

FEW = 20  # Rows on which a program is matched with the grammar
LEAST = 4  # Rows that show whether one depends on the others
STREAMS = (GIVEN_X, GIVEN_XY, PRIOR, GUIDE)  # What is drawn, each from a stream of seeds of its own


PROGRAM = "program"  # Under which a fit keeps what is known of its programs

Args = tuple[Tensor, Tensor | None]  # x and y


def known_sites(result: FitResult, x: Tensor) -> tuple[ProgramSites, dict[int, bool]] | None:
    """Sites of a fit's programs as an earlier call has seen them, with what :func:`mask_means` has
    seen; None where that was of programs of other parts, or of rows of another kind."""
    sites, agree, parts, kind = result.kept_between_calls.get(PROGRAM, (None, {}, [], None))
    now = _parts(result)
    same = len(now) == len(parts) and all(map(operator.is_, now, parts))
    return (sites, agree) if sites is not None and same and kind == _kind(x) else None


def _parts(result: FitResult) -> list[Any]:
    programs = (*result.models, *result.guides)
    return [
        part
        for program in programs
        for part in (program.modules() if isinstance(program, torch.nn.Module) else (program,))
    ]


def _kind(x: Tensor) -> tuple[Any, ...]:
    return x.shape[1:], x.dtype, x.device


def explained_rows(
    program: Any,
    x: Any,
    y: Any,
    options: ExplainOptions,
    *,
    part: tuple[int, Args] | None = None,
) -> PosteriorArrays:
    """The variables of :func:`lexppl.explain`. Of a `part` of a longer table, by the number of its
    first block and by x and y of the table's first rows, with which latents that all rows share are
    drawn, each block is drawn from a seed of its own, the first as `explain` draws it."""
    options.check()
    with ExitStack() as modes:
        result = as_fitted(program, x, options.guide)
        for module in (*result.models, *result.guides):
            if result is not program and isinstance(module, torch.nn.Module):
                modes.enter_context(evaluating(module))
        keep_parameters_local(*result.models, *result.guides)
        rows = named_rows(result, x, y, options.names_along("row"))
        if part is not None:
            rows = replace(rows, names=range(part[0] * BLOCK, part[0] * BLOCK + len(rows)))
        result, (sites, agree) = _prepared(result, rows, options)
        draws = options.draws
        if draws is None:
            usual = usual_draws(sites, len(rows) * len(result.models))
            draws = sampled_draws(result.guides[0]) or usual
        reason = needs_draws(sites, rows.y)
        if sampled_masks(result.guides[0]) and not options.from_prior:
            reason = "masks are draws of a sampler"
        if draws == 0 and reason is not None:
            raise ValueError(f"draws=0 takes E[z | x] from the masks' distribution, and {reason}")
        block, first = (None, rows.arguments(slice(0, None))) if part is None else part
        tree, listed = None, None
        if rows.y is not None or sites.beside:
            with drawing(options.seed, rows.x.device):
                tree, listed = _observed(result, first, sites, options)
        sampler = MaskSampler(result, rows, options, sites, draws, agree, tree, listed, block)
        if part is not None and (sampler.is_joint or sites.are_together):
            raise ValueError(
                "rows share a mask or are observed in one, so that their masks are drawn together: "
                "explain as many rows as fit at once"
            )
        arrays = PosteriorArrays(sampler, attributes(result, options.seed), groups_of(sampler))
        _fill(arrays, sampler, first)
    return arrays


def _prepared(
    result: FitResult, rows: NamedRows, options: ExplainOptions
) -> tuple[FitResult, tuple[ProgramSites, dict[int, bool]]]:
    """The fit with the samples, and what there is to explain."""
    x, known = rows.x, known_sites(result, rows.x)
    memory, is_checked = result.kept_between_calls, known is not None
    if known is None or options.samples is not None or not known[0].are_constant:
        with errors_without_y_explained(), drawing(options.seed, x.device):
            if not is_checked:
                with suppress(torch.linalg.LinAlgError):  # So few rows may have no distribution.
                    few = ParticleProgram(result.model, None, (x[:LEAST], None))
                    refuse_batch_dependence(few)
                    refuse_dependent_rows(few)
            try:
                sites = sites_of(result.model, x[:1], result.guides[0])
            except torch.linalg.LinAlgError:  # A row has no distribution.
                sites = sites_of(result.model, x[:BLOCK], result.guides[0])
            if sites.are_together:  # All rows may have other sites, or more groups.
                with suppress(ValueError):
                    sites = sites_of(result.model, x, result.guides[0])
            known = sites, {}
        parts = _parts(result)
        with drawing(options.seed, x.device):
            if options.samples is not None:
                result = with_samples(result, options.samples, sites, rows.dtype)
            if not options.from_prior:
                refuse_uncovered(result, sites, rows.arguments(slice(0, 1)))
            elif not sites.has_prior:
                unstated = [site.name for site in sites.shared if not site.has_prior]
                raise ValueError(f"{unstated} have no prior to draw from: give them one")
        memory[PROGRAM] = (*known, parts, _kind(x))
    rows.check_response(known[0].response, partial(_observed_y, result.model, rows))
    return result, known


def _observed_y(model: Any, rows: NamedRows) -> Tensor | None:
    """What a program observes at its site of the response, `(B, *event)`, if of each row once."""
    with suppress(ValueError, TypeError, LookupError, RuntimeError), drawing(0, rows.x.device):
        y: Tensor = sample_nodes(weights_first(model), (rows.x, rows.y))[RESPONSE]["value"]
        while y.dim() > 1 and len(y) == 1 != len(rows):
            y = y[0]
        return y
    return None


def _fill(arrays: PosteriorArrays, sampler: MaskSampler, first: Args) -> None:
    """Draw, chain by chain; latents that all rows share with the first rows."""
    result, sites, options = sampler.result, sampler.sites, sampler.options
    names = [site.name for site in sites.shared]
    few = slice(0, sampler.rows_at_once(False))
    args = (first[0][few], None if sampler.rows.y is None or first[1] is None else first[1][few])
    for chain, (model, guide) in enumerate(zip(result.models, result.guides, strict=True)):
        fitted = partial(
            FittedProgram,
            model,
            guide,
            draws=sampler.draws,
            outer=sites.has_outer_latents,
            plates=sites.row_plates,
        )
        for source in sampler.sources:
            stream = STREAMS.index(source)
            place = (chain, stream) if stream else (chain,)
            with drawing(_chain_seed(options.seed, *place), args[0].device):
                if source == GIVEN_X:
                    program = by_guide = fitted(args, from_prior=options.from_prior)
                    shared = {PRIOR if options.from_prior else GIVEN_XY: program.shared(names)}
                elif source == PRIOR:
                    program = fitted((args[0], None), from_prior=True)
                    shared[PRIOR] = program.shared(names)
                    if sampler.rows.y is None:
                        continue
                else:
                    program = by_guide
                for block, rows in sampler.chunks(source):
                    if block:
                        seed_generators(_chain_seed(options.seed, chain, stream, block))
                    arrays.write(chain, rows, sampler.drawn(chain, program, rows, source), source)
        for group, values in shared.items():
            arrays.write_shared(chain, values, group)


def _observed(
    result: FitResult, first: Args, sites: ProgramSites, options: ExplainOptions
) -> tuple[MaskTree, MaskList | None]:
    """The plates of the program's masks, and the list of all masks where these are to be listed."""
    every, proposals = sites.are_together, options.proposals
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
    sampled = bool(sampled_masks(result.guides[0]))
    if is_listed(proposals) or (
        not sampled and proposals is None and (sites.has_outer_latents or shared or alone)
    ):
        try:
            listed = MaskList(run, tree, SHARED)
            if options.imputations == 1:
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


BY_DRAW = "log p(y | x) with the masks summed out, given the draw of what all rows share"
BY_FIT = "log p(y | x) with the masks summed out, given the fit, whose rows had weights of its own"


def attributes(result: FitResult, seed: int) -> dict[str, Any]:
    """The attributes of all groups, of draws of a fit with a seed."""
    chains = "replicates of the fit, one chain each"
    objective = "none: the program was given, and not fitted here"
    if result.sampler is not None:
        kind = MARKOV_CHAINS if result.sampler.are_chains else INDEPENDENT_DRAWS
        chains = f"{kind}: {result.sampler.name}"
        objective = f"log posterior density, draws by {result.sampler.name}"
    return {
        "inference_library": "lexppl",
        "inference_library_version": __version__,
        "objective": objective if result.objective is None else result.objective.summary,
        "seed": seed,
        "fit_seed": result.seed,
        "row_weights": result.row_weights or "none",
        "chains": chains,
    }


def groups_of(sampler: MaskSampler) -> dict[str, dict[str, str]]:
    """What the draws of each group are, as its attributes."""
    sites, record = sampler.sites, sampler.result.sampler
    given_x = "independent draws of the masks given x alone, p(z | x)"
    if sampler.draws == 0:
        given_x = "none: the means of p(z | x) are those that each fitted model states"
    of_all = [site.name for site in sites.masks if site.is_one_law]
    given_x += "".join(f"; the law of {name!r} is one for all rows" for name in of_all)
    parts, masks = [], ""
    if sampler.rows.y is not None:
        way = f"resampled by importance from {sampler.masks} proposals a row"
        if sampler.are_sampled:
            way = "by MaskGibbs"
        elif sampler.listed is not None:
            way = f"exact, from all {sampler.masks} masks"
        masks = f"draws of the masks given x and y, p(z | x, y), {way}"
        parts.append(masks)
    if sites.shared:
        by = "the guide" if record is None else record.name
        parts.append(f"draws of the latents that all rows share, by {by}")
        if not sites.has_prior:
            parts.append("none from a prior, as parameters of the fits have none")
    if sampler.are_sampled:
        given_x = "of masks and of what else rows share the draws of `posterior`"
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
        "log_likelihood": what_likelihoods_are(sampler),
    }
    return {group: {"draws": meaning} for group, meaning in meanings.items()}


def what_likelihoods_are(sampler: MaskSampler) -> str:
    """What the log-likelihood of a posterior holds."""
    if sampler.options.held_out:
        return HELD_OUT
    if sampler.are_sampled:
        return "log p(y | x), given the draw of masks and of what else rows share"
    if sampler.sites.shared or sampler.sites.are_together:
        return BY_DRAW
    weighted = sampler.result.row_weights == DIRICHLET and sampler.result.replicates > 1
    return BY_FIT if weighted else HELD_OUT
