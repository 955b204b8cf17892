"""What a fit minimises: a bound that may change as the fit goes on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pyro.infer import ELBO
from torch import Tensor, nn


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
