"""The posteriors of simulated data sets, by whatever finds them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyro
import torch
from pyro.poutine.subsample_messenger import _Subsample
from torch import Tensor
from torch.distributions import constraints

from lexppl.argument_checks import int_at_least
from lexppl.effects import MASK_PLATE, ParticleCounts
from lexppl.evaluation.bayes.simulated import ProgramParts, held, keep_local
from lexppl.inference import LossTerm, ReplicateData, Stage, System, fit
from lexppl.inference.contexts import program_settings, seeded
from lexppl.inference.posterior.global_draws import DrawIndex, PosteriorInference, Samples
from lexppl.inference.predictive import drawing
from lexppl.inference.replicates.replicate_draws import OutOfPlaceDraws
from lexppl.inference.training.preparation import set_up_guides
from lexppl.inference.training.result import FitResult
from lexppl.weights_drawn_first import weights_first

Infer = Callable[[Tensor, Tensor, int], Samples]
"""From x, y and a seed to draws of the posterior."""


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

    Example:
        >>> GuideFits(options={"epochs": 500}).at_once
        100
    """

    guide: Any = None
    at_once: int = 100
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        int_at_least("at_once", self.at_once)
        own = {"model", "train", "valid", "guide", "replicates", "seed"}
        taken = sorted(own & set(self.options))
        if taken:
            raise ValueError(f"options {taken} are set by calibration; leave them out of options")

    def posteriors(
        self, parts: ProgramParts, x: Tensor, ys: Sequence[Tensor], seeds: Sequence[int], draws: int
    ) -> Iterator[Samples]:
        """The posterior of each data set, as :func:`posteriors_of`.

        Raises:
            ValueError: neither the system nor the user has a guide.
        """
        guide = parts.guide if self.guide is None else self.guide
        if guide is None:
            raise ValueError(
                "GuideFits needs a guide of the program's global latents, as GuideFits(AutoNormal)"
            )
        # Before the fits, which have a copy of the program: a guide may hold the program itself.
        with seeded(seeds[0]), program_settings(validate=False):
            set_up_guides([guide], [parts.given], (x, ys[0]))
        options = {"progress": False, **self.options}
        if parts.objective is not None:
            options.setdefault("objective", parts.objective)
        for start in range(0, len(ys), self.at_once):
            some = slice(start, start + self.at_once)
            program, further = self._training(parts, guide, options)
            data = ReplicateData([(x, y) for y in ys[some]])
            result = fit(program, data, valid=None, seed=seeds[start], **further)
            for fitted, y, seed in zip(result.guides, ys[some], seeds[some], strict=True):
                yield guide_draws(fitted, (x, y), draws, seed)[0]

    def _training(
        self, parts: ProgramParts, guide: Any, options: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Arguments of `fit`: the program and its guide, or the system's stage around them."""
        stage = parts.stage
        if self.guide is not None or stage is None:
            return copy.deepcopy(parts.model), {"guide": guide, **options}
        further = dict(options)
        objective = further.pop("objective")

        def build() -> list[Stage]:
            model, own = copy.deepcopy((parts.model, guide))
            return [replace(stage, terms=[LossTerm(model, objective, own)])]

        return System(build), further


def guide_draws(
    guide: Callable[..., Any], args: tuple[Any, ...], draws: int, seed: int
) -> tuple[dict[str, Tensor], Tensor]:
    """Draws of what a guide samples outside `mask_particles()`, `(S, *event)` by site, and `log q`
    of each, `(S,)`, with what the guide draws on the way (`is_auxiliary`).

    Args:
        guide: the guide.
        args: of the guide.
        draws: S.
        seed: of the draws; global random state is left as it is.

    Raises:
        ValueError: a guide that draws nothing outside the mask plate.

    Example:
        >>> from lexppl.systems.q_fit import DirichletGuide
        >>> drawn, _ = guide_draws(DirichletGuide(3), (torch.zeros(1, 3), None), 5, 0)
        >>> drawn["importance"].shape
        torch.Size([5, 3])
    """
    keep_local(guide)
    program = weights_first(guide)

    def one(_: Tensor | None) -> tuple[dict[str, Tensor], Tensor]:
        trace = pyro.poutine.trace(program).get_trace(*args)
        kept, density = {}, torch.zeros(())
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
                kept[name] = value
        return kept, density

    with drawing(seed), ParticleCounts(1, 1):
        try:
            with OutOfPlaceDraws():
                drawn, density = torch.vmap(one, randomness="different")(torch.zeros(draws))
        except (RuntimeError, ValueError):
            # A guide that reads its own numbers, as one that gives stored draws in their order.
            each = []
            for draw in range(draws):
                with DrawIndex(draw, draws):
                    each.append(one(None))
            drawn = {name: torch.stack([d[name] for d, _ in each]) for name in each[0][0]}
            density = torch.stack([value for _, value in each])
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
        raise ValueError(
            f"give the {result.rows[0]} rows it learned from; x has {len(x)} (fit with valid=None)"
        )


def posteriors_of(
    infer: GuideFits | PosteriorInference | Infer,
    parts: ProgramParts,
    x: Tensor,
    ys: Sequence[Tensor],
    seeds: Sequence[int],
    draws: int,
) -> Iterator[Samples]:
    """The posterior draws of each data set.

    Args:
        infer: a function, a guide, or a posterior inference.
        parts: the program.
        x: rows that all data sets have.
        ys: the response of each.
        seeds: of each.
        draws: S of a guide.

    Raises:
        TypeError: an `infer` that is none of the three.
    """
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
            found = infer.run(held(parts.model), (x, y), seed=seed, progress=False)
            yield {name: values.flatten(0, 1) for name, values in found.samples.items()}
        else:
            yield infer(x, y, seed)


def name_of(infer: Any) -> str:
    """The name of a method in a table: its own `name`, else its function's or class's.

    Example:
        >>> from lexppl.inference import MCMC
        >>> name_of(MCMC()), name_of(GuideFits())
        ('NUTS', "the system's guide")
    """
    if isinstance(infer, GuideFits):
        guide = infer.guide
        if guide is None:
            return "the system's guide"
        return str(getattr(guide, "__name__", None) or type(guide).__name__)
    own = getattr(infer, "name", None)
    name = own if isinstance(own, str) else getattr(infer, "__name__", type(infer).__name__)
    return "a function" if name == "<lambda>" else str(name)
