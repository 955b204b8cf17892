"""Guides of global latents by the classes of Pyro's AutoGuide family."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import pyro.infer
import torch
from pyro.infer.autoguide import (
    AutoCallable,
    AutoDiscreteParallel,
    AutoGuide,
    AutoGuideList,
    AutoLaplaceApproximation,
)
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel
from torch import nn

from lexppl.effects import around_calls, drawing_weights_first
from lexppl.inference.batches import Columns
from lexppl.inference.contexts import keep_parameters_local
from lexppl.inference.objective.program import beneath_handlers
from lexppl.inference.objective.site import Site
from lexppl.inference.posterior.global_latents import latents_of, refuse_discrete, refuse_none

GuideKind = Callable[[Any], AutoGuide]  # From a program to its guide, which is yet to be run


def guide_kind(guide: Any) -> GuideKind | None:
    """A class of automatic guides, or a partial of one; None for a guide itself, or for None."""
    kind = guide.func if isinstance(guide, partial) else guide
    of_class = kind if isinstance(kind, type) else type(kind)
    _refuse_laplace(kind)
    samples = issubclass(of_class, MCMCKernel | pyro.infer.MCMC)
    samples = samples or callable(getattr(of_class, "run", None))
    if samples and not issubclass(of_class, nn.Module):
        raise TypeError(
            f"{of_class.__name__} samples global latents and is no guide: give it as "
            f"inference={of_class.__name__}, in place of guide="
        )
    if not (guide is None or callable(guide)):
        raise TypeError(
            "guide must be a class of Pyro's automatic guides, such as AutoNormal, a module or a "
            f"function; it is {guide!r}"
        )
    if not isinstance(kind, type):
        return None
    if not issubclass(kind, AutoGuide):
        raise TypeError(
            f"guide={kind.__name__} is a class, and of classes fit builds Pyro's automatic guides "
            f"alone, such as AutoNormal; of any other give an instance, {kind.__name__}(…)"
        )
    if isinstance(guide, partial) and guide.args:
        raise TypeError(
            f"give the arguments of {kind.__name__} by name, as partial({kind.__name__}, rank=3): "
            "its first is the program, which fit gives"
        )
    return guide


def set_up(guide: AutoGuide, models: Sequence[nn.Module], rows: Columns) -> None:
    """Run an automatic guide once, which makes its parameters, of latents all rows share."""
    name = type(guide).__name__
    keep_parameters_local(guide)
    program = beneath_handlers(guide.model)
    programs = list(models)
    if isinstance(program, nn.Module) and not any(
        program is part for model in models for part in model.modules()
    ):
        keep_parameters_local(program)
        programs = [program, *models]
    with torch.no_grad(), ExitStack() as handlers:
        shared: Mapping[str, Site] = {}
        if programs:
            shared = latents_of(programs[0], rows).shared
            _refuse_laplace(type(guide))
            refuse_none(shared, f"{name} has nothing to cover", "Or leave guide= out")
            if not isinstance(guide, AutoCallable | AutoDiscreteParallel | AutoGuideList):
                refuse_discrete(shared, f"{name} covers continuous latents")

        def expose(call: ExitStack) -> None:
            """Hide all other sites of a call from the handlers outside it."""
            call.enter_context(pyro.poutine.block(expose=list(shared)))

        for program in programs:
            handlers.enter_context(drawing_weights_first(program))
            handlers.enter_context(around_calls(program, expose))
        values = guide(*rows)
    # Pyro takes type and device of the priors, which may be written in others than the rows.
    guide.to(rows[0].device, rows[0].dtype if rows[0].is_floating_point() else None)
    if programs and not set(shared) & set(values or ()):
        raise ValueError(
            f"{name} sees none of the program's global latents {list(shared)}: "
            "leave them to be seen, or give its class"
        )


def _refuse_laplace(kind: Any) -> None:
    if isinstance(kind, type) and issubclass(kind, AutoLaplaceApproximation):
        raise ValueError(
            "AutoLaplaceApproximation is a point until its Hessian is taken, and Pyro would take "
            "that at one draw of the masks: use AutoMultivariateNormal, or AutoDelta for the point "
            "alone"
        )
