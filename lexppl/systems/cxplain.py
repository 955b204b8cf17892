"""CXPlain: shares of the loss that a feature's absence costs, learned."""

from collections.abc import Sequence
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule
from torch import Tensor, nn

from lexppl.argument_checks import refuse_not_finite, shaped
from lexppl.configured import Configured
from lexppl.effects import MASK_KIND, mask_particles
from lexppl.inference import LossTerm, NestedIWAE, Stage, System, TrainingOptions, Unscored
from lexppl.models.architectures.base import Architecture, architecture_of
from lexppl.models.black_box import BlackBox, black_box
from lexppl.models.grouping import Grouping
from lexppl.models.imputers.simple import constant_imputer
from lexppl.models.lex import observe
from lexppl.models.missing import possible_logits


class CXPlain(Configured, PyroModule):
    """Shares of importance, observed as the probabilities of a categorical distribution over
    entries:

        Â(x) = softmax(network(x)),    g ~ Categorical(Â(x)) with the probabilities ω(x).

    The expectation is exact, `−Σ_g ω_g log Â_g = KL(ω ‖ Â) + H(ω)`: the paper's objective and a
    constant.

    Args:
        network: x `(B, *event)` to logits `(B, G)`.
        grouping: which features an entry stands for.

    Sites: `mask` `(L, B)` + `(G,)`, the shares Â, for certain; given y, the shares ω `(B, G)`,
    `entry`, observed with them.

    Raises:
        ValueError: a y of another shape than `(B, G)`.

    Example:
        >>> from lexppl.models import MLP
        >>> shares = CXPlain(MLP(4, 4, (8,)))(torch.zeros(3, 4))
        >>> shares.shape, bool(((shares.sum(-1) - 1).abs() < 1e-6).all())
        (torch.Size([1, 3, 4]), True)
    """

    def __init__(self, network: nn.Module, grouping: Grouping | None = None) -> None:
        super().__init__()
        self.network = network
        self.grouping = grouping

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        logits = possible_logits(self.network, x)
        if y is not None:
            shaped("y", y, logits.shape, note="as cxplain_targets gives them")
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            shares = logits.softmax(-1).detach()
            mask: Tensor = pyro.sample(
                "mask", dist.Delta(shares, event_dim=1), infer={MASK_KIND: "share"}
            )
            if y is not None:
                observe("entry", dist.Categorical(logits=logits), y)
            return mask


def cxplain(
    features: int | Architecture,
    *,
    grouping: Grouping | None = None,
    hidden: Sequence[int] | None = None,
    activation: str | None = None,
) -> System:
    """CXPlain (Schwab & Karlen, "CXPlain: causal explanations for model interpretation under
    uncertainty", NeurIPS 2019, eq. 5):

        min_Â 1/N Σ_n KL(ω(x_n) ‖ Â(x_n)),

    with the shares ω of :func:`cxplain_targets` as y. Fit it to `(x, ω)`: `fit(cxplain(D), (x,
    cxplain_targets(model, x, y)), replicates=10)`. Its intervals are quantiles of
    `selection_probability` over replicates.

    Deviations: the paper's members are fitted to bootstrap samples of the rows, replicates to the
    same rows in the same batches: their intervals are narrower, of initial weights alone.

    Args:
        features: as in :func:`lexppl.systems.lex`.
        grouping: which features an entry stands for; the same as that of the targets.
        hidden: widths of the hidden layers; (64, 64) if None.
        activation: of the hidden layers; "relu" if None.

    Raises:
        ValueError: no features, a grouping of others; in `fit`, targets of another shape.

    Example:
        >>> cxplain(5).published["batch_size"]
        64
    """
    usual = {"hidden": (64, 64), "activation": "relu"}
    architecture = architecture_of(features, grouping, usual, hidden, activation=activation)

    def build() -> list[Stage]:
        model = CXPlain(architecture.selector(architecture.entries), architecture.grouping)
        return [Stage([LossTerm(model, NestedIWAE(1, estimator=Unscored()))])]

    published = {
        "epochs": 100,
        "batch_size": 64,
        "learning_rate": 1e-4,
        "weight_decay": 0.0,
        "training": TrainingOptions(patience=12),
    }
    return System(build, published)


def cxplain_targets(
    model: Any,
    x: Tensor,
    y: Tensor,
    *,
    grouping: Grouping | None = None,
    imputer: nn.Module | None = None,
) -> Tensor:
    """What each entry's absence costs a model, as shares (Schwab & Karlen 2019, eqs. 1 to 4):

        Δ_g = max(ε(x without g) − ε(x), 0),    ω_g = Δ_g / Σ_j Δ_j,

    with the loss ε = −log p(y | x) of labels, or `(y − ŷ)²` of responses. Absent features are
    replaced by a constant. Negative differences are put to 0 (the released code: to 1e-7); rows in
    which no absence costs anything get shares 1/G, here as there.

    Args:
        model: a :class:`~lexppl.models.black_box.BlackBox` or what :func:`~lexppl.models.black_box`
            wraps without more arguments.
        x: rows, `(B, *event)`.
        y: labels or responses `(B,)`, or probabilities of labels `(B, C)`.
        grouping: which features an entry stands for; one entry a column of a table if None.
        imputer: a :class:`~lexppl.models.ConstantImputer`; 0 if None.

    Returns:
        ω, `(B, G)`, of the type of x.

    Raises:
        ValueError: shapes that do not fit, values that are not finite, labels that the model does
            not have.
        TypeError: x or y that is no tensor, an imputer that draws.

    Example:
        >>> def model(rows):
        ...     return 1.0 / (1.0 + 9.0 ** -rows[:, 0])
        >>> cxplain_targets(model, torch.ones(2, 3), torch.tensor([1, 0]))
        tensor([[1.0000, 0.0000, 0.0000],
                [0.3333, 0.3333, 0.3333]])
    """
    box = model if isinstance(model, BlackBox) else black_box(model)
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a torch.Tensor; it is a {type(y).__name__}")
    hides = constant_imputer(imputer)
    with torch.no_grad():
        outputs = box.targets(x)
        hides, entries = hides.to(x.device, x.dtype), _entries(x, grouping)
        _check_outcome(outputs, y)
        whole = _loss(outputs, y)
        costs = []
        for entry in range(entries):
            present = torch.ones(entries, dtype=x.dtype, device=x.device)
            present[entry] = 0.0
            keep = present if grouping is None else grouping(present)
            without = box.targets(hides(x, keep.expand(x.shape) > 0.5).mean)
            costs.append((_loss(without, y) - whole).clamp(min=0.0))
        cost = torch.stack(costs, -1)
        total = cost.sum(-1, keepdim=True)
        return torch.where(total > 0.0, cost / total, 1.0 / entries)


def _entries(x: Tensor, grouping: Grouping | None) -> int:
    shape = tuple(x.shape[1:])
    if grouping is None:
        if len(shape) != 1:
            raise ValueError(
                f"rows of shape {shape} need a grouping= that carries a mask's entries to them, "
                "that of the architecture"
            )
        return shape[0]
    if grouping.event_shape != shape:
        raise ValueError(f"the grouping is of rows {grouping.event_shape}; those of x are {shape}")
    return grouping.entries


def _check_outcome(outputs: Tensor, y: Tensor) -> None:
    rows, shape = len(outputs), tuple(y.shape)
    refuse_not_finite("y", y)
    if y.is_floating_point() and y.shape == outputs.shape:
        return
    if outputs.dim() == 1:
        raise ValueError(f"the model gives responses: y must have shape ({rows},), not {shape}")
    classes = outputs.shape[1]
    labels = shape == (rows,) and not y.is_floating_point()
    if not labels or int(y.min()) < 0 or int(y.max()) >= classes:
        raise ValueError(
            f"the model gives probabilities of {classes} labels, and y must hold labels 0 to "
            f"{classes - 1}, shape ({rows},), or probabilities ({rows}, {classes}); it is "
            f"{y.dtype} of shape {shape}, from {float(y.min()):g} to {float(y.max()):g}"
        )


def _loss(outputs: Tensor, y: Tensor) -> Tensor:
    """−log p(y | x), or the squared error, `(B,)`."""
    if outputs.dim() == 1:
        return (y.to(outputs.dtype) - outputs).square()
    surprise = -outputs.clamp(min=torch.finfo(outputs.dtype).tiny).log()
    if y.dim() == 2:
        return (y * surprise).sum(-1)
    return surprise.gather(1, y.long()[:, None]).squeeze(1)
