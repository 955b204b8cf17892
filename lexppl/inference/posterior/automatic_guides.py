"""Guides of global latents by the classes of Pyro's AutoGuide family."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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
from torch import Tensor, nn

from lexppl.inference.contexts import keep_parameters_local
from lexppl.inference.objective.program import beneath_handlers
from lexppl.inference.objective.site import Site
from lexppl.inference.posterior.global_latents import latents_of, refuse_discrete, refuse_none
from lexppl.weights_drawn_first import drawing_weights_first

GuideKind = Callable[[Any], AutoGuide]
"""From a program to its guide, which is yet to be run."""

OF_ANY_LATENT = (AutoCallable, AutoDiscreteParallel, AutoGuideList)


def guide_kind(guide: Any) -> GuideKind | None:
    """A class of automatic guides, or a partial of one; None for what is a guide itself, or none.

    Args:
        guide: as given to `fit`.

    Raises:
        TypeError: a class of another kind, a sampler, or nothing that can be called.
        ValueError: Pyro's Laplace approximation.

    Example:
        >>> from pyro.infer.autoguide import AutoLowRankMultivariateNormal, AutoNormal
        >>> guide_kind(AutoNormal) is AutoNormal, guide_kind(None)
        (True, None)
        >>> guide_kind(partial(AutoLowRankMultivariateNormal, rank=3)).keywords
        {'rank': 3}
    """
    kind = guide.func if isinstance(guide, partial) else guide
    _refuse_laplace(kind)
    _refuse_samplers(kind)
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
    made: GuideKind = guide
    return made


def set_up(guide: AutoGuide, models: Sequence[nn.Module], rows: tuple[Tensor, ...]) -> None:
    """Run an automatic guide for the first time, which is when it makes its parameters.

    It sees the latents of its model that all rows share, and no others: no masks, and nothing in a
    plate over rows. Weights with priors are drawn before the plates.

    Args:
        guide: built on a program, or on a part of it that is left to be seen (`poutine.block`).
        models: the programs that are fitted, which have the same latents.
        rows: a few.

    Raises:
        ValueError: no global latents, or none that the guide sees; a discrete one for a guide of
            continuous ones.
    """
    keep_parameters_local(guide)
    own = _program_of(guide)
    programs = list(models)
    if own is not None and not any(own is part for model in models for part in model.modules()):
        keep_parameters_local(own)
        programs = [own, *models]
    with torch.no_grad(), ExitStack() as handlers:
        shared: Mapping[str, Site] = {}
        if programs:
            shared = latents_of(programs[0], rows).shared
            _refuse(guide, shared)
        for program in programs:
            handlers.enter_context(drawing_weights_first(program))
            handlers.enter_context(_showing_alone(program, shared))
        values = guide(*rows)
    if rows[0].is_floating_point():
        # Pyro takes the type of the priors, which may be written in another than the rows.
        guide.to(rows[0].dtype)
    if programs and not set(shared) & set(values or ()):
        raise ValueError(
            f"{type(guide).__name__} sees none of the program's global latents {list(shared)}: "
            "leave them to be seen, or give its class"
        )


def _program_of(guide: AutoGuide) -> nn.Module | None:
    """The module that a guide was built on, beneath Pyro's handlers."""
    program = beneath_handlers(guide.model)
    return program if isinstance(program, nn.Module) else None


@contextmanager
def _showing_alone(model: nn.Module, names: Mapping[str, Any]) -> Iterator[None]:
    """Hide the other sites of a module's calls from all handlers outside it.

    Args:
        model: the module; whatever wraps it calls it.
        names: of the sites to be seen.
    """
    calls: list[ExitStack] = []

    def before(_: nn.Module, __: Any) -> None:
        calls.append(ExitStack())
        calls[-1].enter_context(pyro.poutine.block(expose=list(names)))

    def after(*_: Any) -> None:
        calls.pop().close()

    hooks = (
        model.register_forward_pre_hook(before),
        model.register_forward_hook(after, always_call=True, prepend=True),
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _refuse(guide: AutoGuide, shared: Mapping[str, Site]) -> None:
    name = type(guide).__name__
    _refuse_laplace(type(guide))
    refuse_none(shared, f"{name} has nothing to cover", "Or leave guide= out")
    if not isinstance(guide, OF_ANY_LATENT):
        refuse_discrete(shared, f"{name} covers continuous latents")


def _refuse_samplers(kind: Any) -> None:
    """Refuse what draws global latents, which is given to `fit` by another name."""
    own = kind if isinstance(kind, type) else type(kind)
    samples = issubclass(own, MCMCKernel | pyro.infer.MCMC) or callable(getattr(own, "run", None))
    if samples and not issubclass(own, nn.Module):
        raise TypeError(
            f"{own.__name__} samples global latents and is no guide: give it as "
            f"inference={own.__name__}, in place of guide="
        )


def _refuse_laplace(kind: Any) -> None:
    if isinstance(kind, type) and issubclass(kind, AutoLaplaceApproximation):
        raise ValueError(
            "AutoLaplaceApproximation is a point until its Hessian is taken, and Pyro would take "
            "that at one draw of the masks: use AutoMultivariateNormal, or AutoDelta for the point "
            "alone"
        )
