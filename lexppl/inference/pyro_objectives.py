"""Pyro's own objectives in a fit: `Trace_ELBO`, `TraceMeanField_ELBO`, `TraceEnum_ELBO`."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from pyro.infer import TraceEnum_ELBO
from torch import Tensor

from lexppl.effects import weights_first
from lexppl.inference.nested_iwae import NestedIWAE

WHAT_WORKS = (
    "NestedIWAE(masks=L) is the importance-weighted bound and NestedIWAE(1, samples=S) the ELBO; "
    "of Pyro's own, Trace_ELBO, TraceMeanField_ELBO and TraceEnum_ELBO can be fitted"
)


def refuse_unusable(objective: Any) -> None:
    """Refuse an objective that gives no loss to differentiate.

    Raises:
        TypeError: naming what can be fitted.
    """
    name = type(objective).__name__
    if not hasattr(objective, "differentiable_loss"):
        raise TypeError(
            f"objective must be a pyro.infer.ELBO with a differentiable_loss; it is {name}. "
            f"{WHAT_WORKS}"
        )
    if name.startswith("Jit"):
        raise TypeError(f"{name} is compiled for one batch and one model. {WHAT_WORKS}")


def pyro_loss(
    objective: Any, model: Callable[..., Any], guide: Callable[..., Any] | None, args: Any
) -> Tensor:
    """The loss of one of Pyro's own objectives: every particle plate has size one, and weights with
    priors are drawn before the plates."""
    guide = _nothing if guide is None else weights_first(guide)
    model = weights_first(model)
    if not torch.is_grad_enabled():
        # TraceEnum_ELBO refuses a loss that has no gradient.
        return torch.tensor(objective.loss(model, guide, *args))
    loss: Tensor = objective.differentiable_loss(model, guide, *args)
    return loss


def refuse_uncovered(objective: Any, model: Mapping[str, Any], guide: Mapping[str, Any]) -> None:
    """Refuse a latent that no guide covers under an objective that would count its prior.

    :class:`NestedIWAE` proposes such latents from the model; Pyro's own objectives add their
    log-prior at the draw to the bound.

    Args:
        objective: any.
        model, guide: the sample nodes of the programs, by name.

    Raises:
        ValueError: naming the latent.
    """
    if isinstance(objective, NestedIWAE):
        return
    listed = isinstance(objective, TraceEnum_ELBO)
    for name, node in model.items():
        if node["is_observed"] or name in guide:
            continue
        if listed and node["infer"].get("enumerate") == "parallel":
            continue
        raise ValueError(
            f"{type(objective).__name__} counts the prior of {name!r}, which no guide covers: "
            "add it to the guide, enumerate it (infer={'enumerate': 'parallel'} under "
            "TraceEnum_ELBO), or use NestedIWAE, which proposes it from the model"
        )


def _nothing(*args: Any, **kwargs: Any) -> None:
    """A guide without latents."""
