"""LEX: the latent-variable explainer, one Pyro program of four parts."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pyro
import pyro.distributions as dist
from pyro.distributions import TorchDistribution
from pyro.nn import PyroModule
from torch import Tensor, nn

from lexppl.configured import Configured
from lexppl.distributions.sequential_mask import ChosenMask
from lexppl.distributions.support import lists_labels
from lexppl.effects import (
    MASK_KIND,
    RowPenalties,
    draw_weights,
    imputation_particles,
    label_expectation,
    mask_particles,
)
from lexppl.effects import penalty as add_penalty
from lexppl.models.grouping import Grouping
from lexppl.models.penalties import Penalty
from lexppl.models.priors import name_by_place


class LEX(Configured, PyroModule):
    """Select, impute, predict (Senetaire et al. 2023, eq. 4):

        z ~ p_γ(z | x),    x̃ ~ p_ι(x̃ | x, z),    y ~ Φ(y | f_θ(x̃)).

    Args:
        selector: from x `(B, *event)` to the distribution of the mask, event shape `(G,)`. Of one
            for a range of λ (:class:`~lexppl.models.PenaltyRangeSelector`) each row's penalties are
            multiplied by the row's λ.
        imputer: from x and the features to keep `(…, B, *event)` to the distribution of x̃.
        predictor: from x̃ to the distribution of y.
        penalties: costs of a mask, summed, outside the objective's log.
        grouping: which features an entry of the mask keeps; None for one entry a feature.

    Called with labels `y` `(B,)`, they are observed: the in-situ regimes. Called with probabilities
    `y` `(B, C)` of a black box, the expectation over its labels is exact: the post-hoc regimes.
    Called with no y, it is drawn.

    Sites: `mask` `(L, B)` + `(G,)`, `x_imputed` `(K, L, B)` + event, `y` `(K, L, B)`, and a
    penalty's class name for each penalty.

    Example:
        >>> import torch
        >>> from lexppl.inference import NestedIWAE
        >>> from lexppl.models import (MLP, CategoricalLikelihood, ConstantImputer,
        ...     KSubsetSelector, Predictor)
        >>> predictor = Predictor(MLP(11, 2), CategoricalLikelihood())
        >>> model = LEX(KSubsetSelector(MLP(11, 11), k=5), ConstantImputer(), predictor)
        >>> x, y = torch.zeros(4, 11), torch.tensor([0, 1, 0, 1])
        >>> NestedIWAE(masks=10)(model, None)(x, y).shape
        torch.Size([])
    """

    def __init__(
        self,
        selector: nn.Module,
        imputer: nn.Module,
        predictor: nn.Module,
        penalties: Sequence[Penalty] = (),
        grouping: Grouping | None = None,
    ) -> None:
        super().__init__()
        names = [type(p).__name__ for p in penalties]
        if len(set(names)) != len(names):
            raise ValueError(f"each kind of penalty can be given once; they are {names}")
        if getattr(predictor, "reads_gaps", False) and not getattr(imputer, "leaves_gaps", False):
            raise ValueError(
                f"{type(predictor).__name__} reads hidden features as missing, and "
                f"{type(imputer).__name__} puts values in their place: give GapImputer()"
            )
        self.selector = selector
        self.imputer = imputer
        self.predictor = predictor
        self.penalties = nn.ModuleList(penalties)
        self.grouping = grouping
        name_by_place(self)

    def _mask_options(self) -> dict[str, Any]:
        kind = getattr(self.selector, MASK_KIND, None)
        return {} if kind is None else {MASK_KIND: kind}

    def mask_distribution(self, x: Tensor) -> TorchDistribution:
        """p_γ(z | x) of rows `(B, *event)`, batch shape `(B,)`, as :meth:`forward` samples it."""
        return self.selector(x)

    def _sample_masks(self, distribution: Any) -> tuple[Any, Tensor]:
        """The distribution of the masks that penalties charge, and the masks."""
        return distribution, pyro.sample("mask", distribution, infer=self._mask_options())

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        draw_weights(self)
        with pyro.plate("data", len(x), dim=-1):
            charge = _penalties_of_rows(self.selector, x)
            with nullcontext() if charge is None else RowPenalties(charge):
                distribution = self.mask_distribution(x)
            with mask_particles():
                charged, mask = self._sample_masks(distribution)
                for cost in self.penalties:
                    value = cost(charged, mask, *((x,) if cost.reads_rows else ()))
                    add_penalty(type(cost).__name__, value if charge is None else charge * value)
                keep = mask if self.grouping is None else self.grouping(mask)
                with imputation_particles():
                    x_imputed = pyro.sample("x_imputed", self.imputer(x, keep))
                    return observe("y", self.predictor(x_imputed), y)


class SequentialLEX(LEX):
    """LEX with masks chosen step by step: `j_1 … j_k ~ p_γ(· | x)`, by a selector that returns a
    :class:`~lexppl.distributions.SequentialMask`. Sites: `steps` `(L, B)` + `(T, G)`, the latent;
    `mask`, what it keeps, the law's start included; else as :class:`LEX`."""

    def _sample_masks(self, distribution: Any) -> tuple[Any, Tensor]:
        chosen = ChosenMask(distribution.mask_of(pyro.sample("steps", distribution)))
        return chosen, pyro.sample("mask", chosen, infer=self._mask_options())


def _penalties_of_rows(selector: Any, x: Tensor) -> Tensor | None:
    """λ of each row of a selector for a range of them, `(B,)`; None of one λ."""
    parts = selector.modules() if isinstance(selector, nn.Module) else ()
    drawn: list[Any] = [p.row_penalties for p in parts if hasattr(p, "row_penalties")]
    return drawn[0](x) if drawn else None


def observe(name: str, distribution: Any, y: Tensor | None) -> Tensor:
    """Sample y, observe labels `(B,)` or responses `(B, *event)`, or observe every label by its
    probability, `(B, C)`.

    Example:
        >>> import torch
        >>> with pyro.plate("data", 2, dim=-1):
        ...     observe("y", dist.Categorical(logits=torch.zeros(2, 3)), torch.tensor([2, 0]))
        tensor([2, 0])
    """
    if y is None:
        return pyro.sample(name, distribution)
    if isinstance(distribution, dist.Bernoulli):
        y = y.to(distribution.probs.dtype)
    if y.dim() - len(distribution.event_shape) < 2:
        return pyro.sample(name, distribution, obs=y)
    if not lists_labels(distribution):
        raise ValueError(
            f"y holds probabilities of {y.shape[-1]} labels, and the distribution of {name!r}, "
            f"{type(distribution).__name__}, is not one of labels; give a response of shape (B,)"
        )
    with label_expectation(y) as labels:
        return pyro.sample(name, distribution, obs=labels.to(y.dtype))
