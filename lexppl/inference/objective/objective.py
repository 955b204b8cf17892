"""What a fit minimises: an objective, or one of Pyro's ELBOs as one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from pyro.infer import ELBO, TraceEnum_ELBO
from torch import Tensor, nn

from lexppl.effects import weights_first


@dataclass(frozen=True)
class Moving:
    """What of an objective changes in a fit: `kind` decides operations, `numbers` are inputs."""

    kind: Hashable = None
    numbers: Mapping[str, float] = field(default_factory=dict)


class Objective(ELBO):
    """A `pyro.infer.ELBO` with what a fit asks of it.

    An objective of one's own derives from it and gives a `differentiable_loss`.

    Example:
        >>> class Squares(Objective):
        ...     def differentiable_loss(self, model, guide, *args, **kwargs):
        ...         return (model(*args) - args[1]).square().sum()
        >>> Squares().at(0.5).settled, Squares().summary
        (0.0, 'Squares()')
    """

    vectorised: ClassVar[bool] = True
    """Whether replicates can be run as one under `torch.func.vmap`."""

    watched: ClassVar[bool] = True
    """Whether a collapse of the masks is looked for after the fit: it is where they are learned."""

    reads_scales: ClassVar[bool] = False
    """Whether it multiplies the terms of a site by the site's scale, which is how rows are
    weighted."""

    settled: float = 0.0
    """The progress of the fit from which the objective no longer changes, in [0, 1]."""

    @property
    def control_parameters(self) -> tuple[nn.Module, ...]:
        """Modules that a fit tunes to lessen the gradient's variance."""
        return ()

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """Modules that it reads, such as an estimator's baseline."""
        return ()

    @property
    def summary(self) -> str:
        """The objective in a line."""
        return f"{type(self).__name__}()"

    def at(self, progress: float) -> Objective:
        """The objective as it stands at a point of the fit, from 0 (start) to 1 (end)."""
        return self

    @property
    def moving(self) -> Moving | None:
        """What of it changes with :meth:`at`; None where that is not known, and no step is
        compiled."""
        return Moving() if type(self).at is Objective.at else None

    def with_numbers(self, numbers: Mapping[str, Tensor]) -> Objective:
        """The objective with 0-dimensional tensors in place of the numbers of :attr:`moving`."""
        return self

    def refuse_uncovered(self, model: Mapping[str, Any], guide: Mapping[str, Any]) -> None:
        """Refuse a latent that no guide covers, where the objective would misread it.

        Args:
            model, guide: the sample nodes of the programs, by name.
        """

    def differentiable_loss(
        self, model: Callable[..., Any], guide: Callable[..., Any] | None, *args: Any, **kwargs: Any
    ) -> Tensor:
        """The loss, a scalar with a gradient."""
        raise NotImplementedError(f"{type(self).__name__} has no differentiable_loss")

    def _get_trace(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} runs model and guide itself")


WHAT_WORKS = (
    "NestedIWAE(masks=L) is the importance-weighted bound and NestedIWAE(1, samples=S) the ELBO; "
    "of Pyro's own, Trace_ELBO, TraceMeanField_ELBO and TraceEnum_ELBO can be fitted"
)
OF_A_FIT = ("at", "settled", "control_parameters")
"""What a fit asks of an :class:`Objective`, and would not see in another."""


class PyroObjective(Objective):
    """A plain ELBO (copied) as an objective of a fit, with particle plates of size one."""

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
        """Refuse a latent that no guide covers, as its log-prior would be added to the bound."""
        listed = isinstance(self.elbo, TraceEnum_ELBO)
        for name, node in model.items():
            enumerated = listed and node["infer"].get("enumerate") == "parallel"
            if node["is_observed"] or name in guide or enumerated:
                continue
            raise ValueError(
                f"{type(self.elbo).__name__} counts the prior of {name!r}, which no guide covers: "
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
        return self.elbo.differentiable_loss(model, guide, *args, **kwargs)


def as_objective(objective: Any) -> Objective:
    """An objective of a fit: as it is, or a plain ELBO that gives a loss to differentiate."""
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
