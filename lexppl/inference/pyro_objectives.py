"""Pyro's own objectives in a fit: `Trace_ELBO`, `TraceMeanField_ELBO`, `TraceEnum_ELBO`."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from pyro.infer import ELBO, TraceEnum_ELBO
from torch import Tensor

from lexppl.effects import weights_first
from lexppl.inference.objective.objective import Objective

WHAT_WORKS = (
    "NestedIWAE(masks=L) is the importance-weighted bound and NestedIWAE(1, samples=S) the ELBO; "
    "of Pyro's own, Trace_ELBO, TraceMeanField_ELBO and TraceEnum_ELBO can be fitted"
)
OF_A_FIT = ("at", "settled", "control_parameters")
"""What a fit asks of an :class:`Objective`, and would not see in another."""


class PyroObjective(Objective):
    """A plain ELBO as an objective of a fit.

    Every particle plate has size one, and weights with priors are drawn before the plates.

    Args:
        elbo: it is copied, since Pyro's own remember how deep a program's plates are.
    """

    vectorised: ClassVar[bool] = False
    watched: ClassVar[bool] = False
    reads_scales: ClassVar[bool] = True

    def __init__(self, elbo: ELBO) -> None:
        super().__init__(max_plate_nesting=elbo.max_plate_nesting)
        self.elbo = copy.copy(elbo)

    @property
    def summary(self) -> str:
        return f"{type(self.elbo).__name__}()"

    def refuse_uncovered(self, model: Mapping[str, Any], guide: Mapping[str, Any]) -> None:
        """Refuse a latent that no guide covers: its log-prior at the draw would be added to the
        bound, where :class:`NestedIWAE` proposes it from the model."""
        name_of = type(self.elbo).__name__
        listed = isinstance(self.elbo, TraceEnum_ELBO)
        for name, node in model.items():
            if node["is_observed"] or name in guide:
                continue
            if listed and node["infer"].get("enumerate") == "parallel":
                continue
            raise ValueError(
                f"{name_of} counts the prior of {name!r}, which no guide covers: "
                "add it to the guide, enumerate it (infer={'enumerate': 'parallel'} under "
                "TraceEnum_ELBO), or use NestedIWAE, which proposes it from the model"
            )

    def differentiable_loss(
        self, model: Callable[..., Any], guide: Callable[..., Any] | None, *args: Any, **kwargs: Any
    ) -> Tensor:
        guide = _nothing if guide is None else weights_first(guide)
        model = weights_first(model)
        if not torch.is_grad_enabled():
            # TraceEnum_ELBO refuses a loss that has no gradient.
            return torch.tensor(self.elbo.loss(model, guide, *args, **kwargs))
        loss: Tensor = self.elbo.differentiable_loss(model, guide, *args, **kwargs)
        return loss


def as_objective(objective: Any) -> Objective:
    """An objective of a fit: as it is, or a plain ELBO that gives a loss to differentiate.

    Example:
        >>> from pyro.infer import Trace_ELBO
        >>> as_objective(Trace_ELBO()).summary
        'Trace_ELBO()'
    """
    if isinstance(objective, Objective):
        return objective
    name = type(objective).__name__
    if not hasattr(objective, "differentiable_loss"):
        raise TypeError(
            f"objective must be a pyro.infer.ELBO with a differentiable_loss; it is {name}. "
            f"{WHAT_WORKS}"
        )
    if name.startswith("Jit"):
        raise TypeError(f"{name} is compiled for one batch and one model. {WHAT_WORKS}")
    unseen = [what for what in OF_A_FIT if hasattr(objective, what)]
    if unseen:
        raise TypeError(
            f"{name} has {unseen}, which a fit reads of a lexppl.inference.Objective alone; derive "
            f"{name} from it"
        )
    return PyroObjective(objective)


def _nothing(*args: Any, **kwargs: Any) -> None:
    """A guide without latents."""
