"""Data sets simulated from a program, and their posteriors by whatever finds them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyro
import torch
from pyro.poutine.subsample_messenger import _Subsample
from torch import Tensor
from torch.distributions import constraints

from lexppl.argument_checks import int_at_least, refuse_not_finite, shaped
from lexppl.effects import MASK_PLATE, ParticleCounts, weights_first
from lexppl.inference import LossTerm, ReplicateData, Stage, System, fit
from lexppl.inference.contexts import held, keep_parameters_local, program_settings, seeded
from lexppl.inference.posterior.global_draws import DrawIndex, PosteriorInference, Samples
from lexppl.inference.posterior.global_latents import sites_of_run
from lexppl.inference.predictive import drawing
from lexppl.inference.pyro_parameters import with_module
from lexppl.inference.replicates import OutOfPlaceDraws
from lexppl.inference.training.preparation import set_up_guides
from lexppl.inference.training.result import FitResult
from lexppl.threads import own_random_state

RESPONSE = "y"


@dataclass(frozen=True, eq=False)
class ProgramParts:
    """A program with fixed parameters, the original, and a system's guide, objective and stage."""

    model: Callable[..., Any]
    original: Callable[..., Any]
    guide: Any = None
    objective: Any = None
    stage: Stage | None = None


@dataclass(frozen=True, eq=False)
class Simulated:
    """A data set: shared latents `(*event)`, masks by site, and y `(B, *event)`.

    A mask is `(B, G)` of rows, `(J, G)` of J groups, `(G,)` of all rows.
    """

    shared: dict[str, Tensor]
    masks: dict[str, Tensor]
    y: Tensor
    penalties: tuple[str, ...] = ()


def parts_of_program(program: Any) -> ProgramParts:
    """The parts of a module, a function, or a :class:`System` of one stage with one term."""
    if isinstance(program, System):
        with own_random_state():
            stages = list(program.build())
        if len(stages) != 1 or len(stages[0].terms) != 1:
            raise ValueError(
                f"the system has {len(stages)} stages with {sum(len(s.terms) for s in stages)} "
                "terms, and no posterior is that of them all; give the program itself"
            )
        term = stages[0].terms[0]
        return ProgramParts(held(term.model), term.model, term.guide, term.objective, stages[0])
    if not callable(program):
        raise TypeError(f"program must be a Pyro program or System; it is {type(program).__name__}")
    return ProgramParts(held(with_module(program)), program)


def check_rows(x: Any) -> None:
    """Refuse what is no tensor of finite rows `(B, *event)`."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor of rows (B, *event); it is {type(x).__name__}")
    shaped("x", x, "N …", filled=True)
    refuse_not_finite("x", x)


def refuse_penalties(names: Iterable[str]) -> None:
    """Refuse penalties beside latents that rows share, under which these have no posterior."""
    if names := list(names):
        raise ValueError(
            f"the program has penalties {names}, under which the latents that rows share have no "
            "posterior; write them as priors of the masks, or leave them out"
        )


def simulate(model: Callable[..., Any], x: Tensor, seed: int) -> Simulated:
    """All that a program draws for rows `(B, *event)`; global random state is left as it is."""
    rows = len(x)
    keep_parameters_local(model)
    with drawing(seed, x.device):
        sites = sites_of_run(model, (x, None))
    shared, masks, y = {}, {}, None
    for name, site in sites.items():
        if site.observed or site.value is None:
            continue
        event = tuple(site.distribution.event_shape)
        if name == RESPONSE:
            y = site.value
            if y.numel() == rows * math.prod(event):
                y = y.reshape(rows, *event)
        elif not site.in_particles:
            shared[name] = site.value
        elif site.is_mask and len(event) == 1:
            count = site.value.numel() // math.prod(event)
            masks[name] = site.value.reshape(event if count == 1 < rows else (count, *event))
    if y is None or y.dim() == 0 or len(y) != rows:
        raise ValueError(
            "called as program(x, None), the program must draw a response 'y' with one value for "
            f"each of {rows} rows; "
            + (f"its sites are {list(sites)}" if y is None else f"y is {tuple(y.shape)}")
        )
    for name, value in {**shared, RESPONSE: y}.items():
        if not bool(value.isfinite().all()):
            raise FloatingPointError(f"draws of {name!r} are not finite; is the prior improper?")
    penalties = tuple(name for name, site in sites.items() if site.is_penalty)
    return Simulated(shared, masks, y, penalties)


def seeds_of(seed: int, stream: int, count: int) -> list[int]:
    """Independent seeds: `count` of them, of one of several streams."""
    state = np.random.SeedSequence(seed, spawn_key=(stream,)).generate_state(count, np.uint64)
    return [int(number >> np.uint64(1)) for number in state]


Infer = Callable[[Tensor, Tensor, int], Samples]  # From x, y and a seed to draws of the posterior


@dataclass(frozen=True)
class GuideFits:
    """Posteriors by a guide, fitted to many data sets at once as replicates of one fit.

    Args:
        guide: as :func:`lexppl.inference.fit` takes it; None for a system's own, trained as the
            system trains it.
        at_once: R, data sets that are trained at once.
        options: further arguments of `fit`, such as `epochs`, `objective` or `learning_rate`.

    Raises:
        ValueError: fewer than one at once; options that calibration itself sets.
    """

    guide: Any = None
    at_once: int = 100
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        int_at_least("at_once", self.at_once)
        set_here = {"model", "train", "valid", "guide", "replicates", "seed"}
        taken = sorted(set_here & set(self.options))
        if taken:
            raise ValueError(f"options {taken} are set by calibration; leave them out of options")

    def posteriors(
        self, parts: ProgramParts, x: Tensor, ys: Sequence[Tensor], seeds: Sequence[int], draws: int
    ) -> Iterator[Samples]:
        """The posterior of each data set, as :func:`posteriors_of`."""
        guide = parts.guide if self.guide is None else self.guide
        if guide is None:
            raise ValueError("GuideFits needs a guide of global latents, as GuideFits(AutoNormal)")
        # Before the fits, which have a copy of the program: a guide may hold the program itself.
        with seeded(seeds[0]), program_settings(validate=False):
            set_up_guides([guide], [parts.original], (x, ys[0]))
        options = {"progress": False, **self.options}
        if parts.objective is not None:
            options.setdefault("objective", parts.objective)
        stage = parts.stage if self.guide is None else None
        if stage is None:
            options["guide"] = guide
        objective = None if stage is None else options.pop("objective")

        def build() -> list[Stage]:
            model, guide_copy = copy.deepcopy((parts.model, guide))
            return [replace(stage, terms=[LossTerm(model, objective, guide_copy)])] if stage else []

        for start in range(0, len(ys), self.at_once):
            batch = slice(start, start + self.at_once)
            data = ReplicateData([(x, y) for y in ys[batch]])
            program = copy.deepcopy(parts.model) if stage is None else System(build)
            result = fit(program, data, valid=None, seed=seeds[start], **options)
            for fitted, y, seed in zip(result.guides, ys[batch], seeds[batch], strict=True):
                yield guide_draws(fitted, (x, y), draws, seed)[0]


def guide_draws(
    guide: Callable[..., Any], args: tuple[Any, ...], draws: int, seed: int
) -> tuple[dict[str, Tensor], Tensor]:
    """Draws of a guide's shared latents, `(S, *event)` by site, and `log q` with auxiliaries,
    `(S,)`."""
    keep_parameters_local(guide)
    program = weights_first(guide)

    def drawn_once(_: Tensor | None) -> tuple[dict[str, Tensor], Tensor]:
        trace = pyro.poutine.trace(program).get_trace(*args)
        latents, density = {}, torch.zeros(())
        for name, node in trace.nodes.items():
            if (
                node["type"] != "sample"
                or node["is_observed"]
                or isinstance(node["fn"], _Subsample)
            ):
                continue
            if any(plate.name == MASK_PLATE for plate in node["cond_indep_stack"]):
                continue
            value = node["value"]
            if node["fn"].support is constraints.simplex:
                # A share that underflows has no density.
                value = value.clamp(min=torch.finfo(value.dtype).tiny)
            density = density + node["fn"].log_prob(value).sum()
            if not (node["infer"] or {}).get("is_auxiliary", False):
                latents[name] = value
        return latents, density

    with drawing(seed), ParticleCounts(1, 1):
        try:
            with OutOfPlaceDraws():
                drawn, density = torch.vmap(drawn_once, randomness="different")(torch.zeros(draws))
        except (RuntimeError, ValueError):
            # A guide that reads its own numbers, as one that gives stored draws in their order.
            runs = []
            for draw in range(draws):
                with DrawIndex(draw, draws):
                    runs.append(drawn_once(None))
            drawn = {name: torch.stack([d[name] for d, _ in runs]) for name in runs[0][0]}
            density = torch.stack([value for _, value in runs])
    if not drawn:
        raise ValueError("the guide draws no latent outside mask_particles()")
    return drawn, density


def check_fit(result: FitResult, x: Tensor, y: Tensor) -> None:
    """Refuse a fit without guides, or rows other than those that it learned from."""
    result.check(x, y)
    if any(guide is None for guide in result.guides):
        raise ValueError(
            "the fit has no guide and no draws of latents that rows share; leave rows out by "
            "refits, reloo(), or score held-out rows by predictive_log_likelihood()"
        )
    if result.rows is not None and result.rows[0] != len(x):
        raise ValueError(f"give the {result.rows[0]} rows of the fit (valid=None); x has {len(x)}")


def posteriors_of(
    infer: GuideFits | PosteriorInference | Infer,
    parts: ProgramParts,
    x: Tensor,
    ys: Sequence[Tensor],
    seeds: Sequence[int],
    draws: int,
) -> Iterator[Samples]:
    """The posterior draws of each data set, by a function, a guide, or a posterior inference."""
    if isinstance(infer, GuideFits):
        yield from infer.posteriors(parts, x, ys, seeds, draws)
        return
    if isinstance(infer, type) or not (hasattr(infer, "run") or callable(infer)):
        raise TypeError(
            "infer must be a function (x, y, seed) -> samples, a GuideFits, or a posterior "
            f"inference with run(model, rows, seed=, progress=); it is {infer!r}"
        )
    for y, seed in zip(ys, seeds, strict=True):
        if hasattr(infer, "run"):
            posterior = infer.run(held(parts.model), (x, y), seed=seed, progress=False)
            yield {name: values.flatten(0, 1) for name, values in posterior.samples.items()}
        else:
            yield infer(x, y, seed)


def name_of(infer: Any) -> str:
    """The name of a method in a table: its own `name`, else its function's or class's."""
    if isinstance(infer, GuideFits):
        guide = infer.guide
        if guide is None:
            return "the system's guide"
        return str(getattr(guide, "__name__", None) or type(guide).__name__)
    stated = getattr(infer, "name", None)
    name = stated if isinstance(stated, str) else getattr(infer, "__name__", type(infer).__name__)
    return "a function" if name == "<lambda>" else str(name)
