"""XTab: importances that agree over seeds, by averaging mask networks."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lexppl.argument_checks import finite_float, fraction, int_at_least, int_between
from lexppl.configured import Configured
from lexppl.inference import LossTerm, NestedIWAE, Pathwise, Stage, System
from lexppl.inference.stages import OptimizerFactory
from lexppl.models.architectures.base import Architecture, TableArchitecture
from lexppl.models.grouping import Grouping
from lexppl.models.imputers.simple import SquaredMaskImputer
from lexppl.models.lex import LEX
from lexppl.models.likelihoods import CategoricalLikelihood, NormalLikelihood
from lexppl.models.networks import MLP
from lexppl.models.penalties import GiniPenalty, SizePenalty
from lexppl.models.predictor import Predictor, check_classes
from lexppl.models.regimes import frozen
from lexppl.models.selectors import SoftMaskSelector


def clipped_adamw(bound: float, last: int | None = None, **options: Any) -> OptimizerFactory:
    """AdamW whose weights are put back to [−bound, bound] after each step.

    Args:
        bound: the largest size of a weight.
        last: hold the last so many parameters alone; a fit gives them sorted by name, so that a
            program's selector comes after its predictor. All of them if None.
        options: of `torch.optim.AdamW`.

    Raises:
        ValueError: a bound that is not positive, fewer than one parameter to hold.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([5.0]))
        >>> optimizer = clipped_adamw(0.2, lr=0.1)([weight])
        >>> weight.grad = torch.tensor([1.0])
        >>> optimizer.step()
        >>> round(float(weight.detach()), 6)
        0.2
    """
    bound = finite_float("bound", bound, above=0.0)
    if last is not None:
        last = int_at_least("last", last)

    def make(parameters: Iterable[Tensor]) -> Optimizer:
        moved = list(parameters)
        optimizer = torch.optim.AdamW(moved, **options)
        held = moved if last is None else moved[-last:]

        def put_back(*_: Any) -> None:
            with torch.no_grad():
                for parameter in held:
                    parameter.clamp_(-bound, bound)

        optimizer.register_step_post_hook(put_back)
        return optimizer

    return make


class SubsetNetwork(Configured, nn.Module):
    """`network(mean_i encoder(x[subset i]))` (Uçar & Hajiramezanali 2022, § 3.2).

    The D columns are cut into n runs of `⌈D / n⌉`; each takes `round(overlap · ⌈D / n⌉)` more from
    its right neighbour, cyclically, so that all have the same width and no column is lost.

    Args:
        features: D.
        subsets: n, from 1 to D.
        overlap: share in [0, 1] taken from the neighbour.
        encoder: `(N, width)` to codes, shared by the subsets; see :func:`subset_width`.
        network: codes to outputs.

    Raises:
        ValueError: n outside 1 … D, a share outside [0, 1].

    Example:
        >>> subset_width(10, 3, 0.5)
        6
        >>> network = SubsetNetwork(10, 3, 0.5, nn.Linear(6, 4), nn.Linear(4, 2))
        >>> network(torch.zeros(5, 10)).shape, sorted(set(network.columns.flatten().tolist()))
        (torch.Size([5, 2]), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """

    columns: Tensor

    def __init__(
        self, features: int, subsets: int, overlap: float, encoder: nn.Module, network: nn.Module
    ) -> None:
        super().__init__()
        width = subset_width(features, subsets, overlap)
        step = math.ceil(features / subsets)
        starts = torch.arange(subsets).unsqueeze(-1) * step
        self.register_buffer("columns", (starts + torch.arange(width)) % features, persistent=False)
        self.features, self.subsets, self.overlap = features, subsets, float(overlap)
        self.encoder, self.network = encoder, network

    def forward(self, x: Tensor) -> Tensor:
        pieces = x[:, self.columns]
        outputs: Tensor = self.network(self.encoder(pieces).mean(-2))
        return outputs


def subset_width(features: int, subsets: int, overlap: float) -> int:
    """Columns of each subset, `⌈D / n⌉ + round(overlap · ⌈D / n⌉)`, at most D.

    Raises:
        ValueError: n outside 1 … D, a share outside [0, 1].
    """
    subsets = int_between("subsets", subsets, 1, features, note="the features")
    overlap = fraction("overlap", overlap, zero=True, one=True)
    step = math.ceil(features / subsets)
    return min(features, step + round(overlap * step))


MOMENTUM = 0.1
"""Weight of the newest batch in the running divisor, as in torch's batch norms."""


class CombinedMask(Configured, nn.Module):
    """A soft mask between a given global one and a local one that learns, as logits.

        m = (m_g + m_l) / C,    C = max (m_g + m_l),    m_g = σ(shared(x)), m_l = σ(local(x)),

    XTab's final round (Uçar & Hajiramezanali 2022, eq. 7). C is one number, the largest entry
    of all rows of the batch. Afterwards it is the running mean of the training batches' numbers, so
    that a row's mask does not depend on the rows it stands with; entries above it are one.

    Args:
        shared: network of the global mask, `(B, D)` to logits; a frozen copy is used.
        local: network of the local mask.

    Example:
        >>> combined = CombinedMask(nn.Identity(), nn.Identity())
        >>> mask = torch.sigmoid(combined(torch.tensor([[0.0, 2.0], [-2.0, 0.0]])))
        >>> [[round(entry, 3) for entry in row] for row in mask.tolist()]
        [[0.568, 1.0], [0.135, 0.568]]
        >>> round(float(combined.divisor), 3)
        1.762
    """

    divisor: Tensor
    track_running_stats = True  # Replicates then have a divisor each.

    def __init__(self, shared: nn.Module, local: nn.Module) -> None:
        super().__init__()
        self.shared = frozen(shared)
        self.local = local
        self.register_buffer("divisor", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        both = torch.sigmoid(self.shared(x)) + torch.sigmoid(self.local(x))
        largest, before = both.amax(), self.divisor.to(both.dtype)
        if self.training:
            with torch.no_grad():
                mean = torch.where(before > 0, before.lerp(largest.detach(), MOMENTUM), largest)
                self.divisor.copy_(mean)
        else:
            largest = torch.where(before > 0, before, largest)
        return torch.logit(both / largest, eps=1e-6)


class GatedMask(Configured, nn.Module):
    """A soft mask between a given global one and a local one, by gates that learn, as logits.

        m = σ(f ⊙ m_g + i ⊙ m_l),        f = σ(W_f x), i = σ(W_i x),

    XTab's gated variant (eq. 8).

    Args:
        features: D.
        entries: G.
        shared: network of the global mask; a frozen copy is used.
        local: network of the local mask.

    Example:
        >>> GatedMask(2, 2, nn.Identity(), nn.Identity())(torch.zeros(1, 2)).shape
        torch.Size([1, 2])
    """

    def __init__(self, features: int, entries: int, shared: nn.Module, local: nn.Module) -> None:
        super().__init__()
        self.features, self.entries = features, entries
        self.shared = frozen(shared)
        self.local = local
        self.gates = nn.Linear(features, 2 * entries)

    def forward(self, x: Tensor) -> Tensor:
        keep, add = torch.sigmoid(self.gates(x)).chunk(2, -1)
        return keep * torch.sigmoid(self.shared(x)) + add * torch.sigmoid(self.local(x))


KINDS = ("gaussian", "added", "swap")


class NoisyFeatures(Configured, nn.Module):
    """While training, each entry is replaced with probability p; afterwards rows pass as they are.

    By a Gaussian draw `ε ~ N(0, σ²)`, by its own value with such a draw added ("added"), or by the
    same feature of another row of the batch ("swap"; Uçar & Hajiramezanali 2022, § 3.2). Of rows in
    pieces, each piece's entries are changed for themselves.

    Args:
        network: what sees the rows, `(N, …, D)`.
        share: p, in [0, 1].
        scale: σ.
        kind: "gaussian", "added" or "swap".

    Raises:
        ValueError: a share outside [0, 1], a negative scale, another kind.

    Example:
        >>> noisy = NoisyFeatures(nn.Identity(), share=1.0, kind="swap")
        >>> noisy(torch.ones(1, 2)), noisy.eval()(torch.ones(1, 2))
        (tensor([[1., 1.]]), tensor([[1., 1.]]))
    """

    def __init__(
        self, network: nn.Module, share: float, scale: float = 1.0, kind: str = "gaussian"
    ) -> None:
        super().__init__()
        share = fraction("share", share, zero=True, one=True)
        scale = finite_float("scale", scale, least=0.0)
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}; it is {kind!r}")
        self.network = network
        self.share, self.scale, self.kind = share, scale, kind

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.share > 0.0:
            if self.kind == "swap":
                other = x.gather(0, torch.rand_like(x).argsort(0))
            else:
                noise = self.scale * torch.randn_like(x)
                other = x + noise if self.kind == "added" else noise
            x = torch.where(torch.rand_like(x) < self.share, other, x)
        outputs: Tensor = self.network(x)
        return outputs


class RectifiedCode(Configured, nn.Module):
    """`leaky_relu(network(x))`: the code of XTab's encoder, averaged over subsets.

    Args:
        network: `(N, …, D)` to `(N, …, code)`.

    Example:
        >>> import torch
        >>> RectifiedCode(nn.Identity())(torch.tensor([-1.0, 2.0]))
        tensor([-0.0100,  2.0000])
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.leaky_relu(self.network(x))


def xtab(
    features: int | Architecture,
    *,
    classes: int | None,
    shared: nn.Module | None = None,
    gated: bool = False,
    subsets: int | None = None,
    overlap: float = 0.75,
    noise: float = 0.2,
    noise_scale: float = 0.05,
    noise_kind: str = "gaussian",
    dropout: float = 0.2,
    clip: float | None = None,
    gini: float = 1.0,
    size: float = 1.0,
    grouping: Grouping | None = None,
    encoder_hidden: Sequence[int] | None = None,
    predictor_hidden: Sequence[int] = (1024, 1024),
) -> System:
    """XTab (Uçar & Hajiramezanali, 2022, eqs. 3 to 8): a deterministic soft mask
    `m = σ(MLP_{D → D → D}(x))`, rows `m² ⊙ x`, cut into overlapping subsets of which each has noise
    of its own, one encoder, the mean over subsets, a classifier of three linear layers, and the
    loss

        −log q(y | m² ⊙ x) + mean_g (1 − m_g² − (1 − m_g)²) + mean_g m_g.

    Round one is `fit(xtab(…), train, replicates=10)`; the global mask is the mean of the mask
    networks' **parameters**, `averaged(result.models).selector.network`; round two is
    `xtab(…, shared=that)`, whose mask is `(m_g + m_l) / C` with one number C
    (`CombinedMask`), or with `gated=True` `σ(f ⊙ m_g + i ⊙ m_l)`, with
    m_g frozen. The paper's fits have all rows for training: `fit(…, valid=None)`.

    Deviations: none in the loss. For a real response the normal log-likelihood takes the place of
    the cross-entropy; the gates are `σ(W x)`, which the paper leaves open; subsets lose no column.
    Where a feature gives the label of few rows, as f2 on SynRank, noise that is added
    (`noise_kind="added"`) leaves it more than noise that takes its place (`benchmarks/xtab.py`).

    Args:
        features: D of a table; an architecture is refused, which has no columns to cut.
        classes: C for labels, or None for a real response.
        shared: a global mask's network, for the final round.
        gated: combine the masks by gates.
        subsets, overlap: n (two, of a single column one) and the share taken from the neighbour.
        noise, noise_scale, noise_kind: share of entries that are changed, σ, and how: replaced by
            noise ("gaussian") or by another row's entry ("swap"), or "added" noise.
        dropout: of the classifier's hidden layers.
        clip: largest size of the mask network's weights (0.2 steadies the average, § 3.4), or None
            as in the paper's tables.
        gini, size: weights of the two penalties.
        grouping: columns of one variable that share an entry; one a column if None, as in the
            paper, which adds up the columns' masks afterwards.
        encoder_hidden: widths of the encoder's layers, leaky ReLUs after each; the last is that of
            the code. The classifier's first width if None.
        predictor_hidden: widths of the classifier's hidden layers.

    Raises:
        ValueError: an architecture, an encoder without layers, n outside 1 … D, shares outside
            [0, 1], fewer than two classes.

    Example:
        >>> xtab(10, classes=2, encoder_hidden=(8,), predictor_hidden=(8,)).published["epochs"]
        40
    """
    if isinstance(features, Architecture):
        raise ValueError(
            "xtab cuts the columns of a table into subsets, and a row of shape "
            f"{features.event_shape} has none to cut: give the number of columns, as of "
            "x.flatten(1), and grouping= for entries of several"
        )
    entries = TableArchitecture(features, grouping=grouping).entries
    check_classes(classes)
    subsets = min(2, features) if subsets is None else subsets
    width = subset_width(features, subsets, overlap)
    encoder_hidden = tuple(predictor_hidden[:1] if encoder_hidden is None else encoder_hidden)
    if not encoder_hidden:
        raise ValueError("encoder_hidden must have at least one width, that of the code; it is ()")

    def mask_network() -> nn.Module:
        local = MLP(features, entries, (features,), "leaky_relu")
        if shared is None:
            return local
        return GatedMask(features, entries, shared, local) if gated else CombinedMask(shared, local)

    def build() -> list[Stage]:
        *before, code = encoder_hidden
        encoder = RectifiedCode(MLP(width, code, before, "leaky_relu"))
        network = SubsetNetwork(
            features,
            subsets,
            overlap,
            NoisyFeatures(encoder, noise, noise_scale, noise_kind),
            MLP(code, classes or 1, predictor_hidden, "leaky_relu", dropout=dropout),
        )
        likelihood = NormalLikelihood() if classes is None else CategoricalLikelihood()
        model = LEX(
            SoftMaskSelector(mask_network()),
            SquaredMaskImputer(),
            Predictor(network, likelihood),
            [GiniPenalty(gini), SizePenalty(size / entries)],
            grouping,
        )
        objective = NestedIWAE(1, estimator=Pathwise())
        of_the_mask = sum(p.requires_grad for p in model.selector.parameters())
        return [Stage([LossTerm(model, objective)], optimizer=_optimizer(clip, of_the_mask))]

    return System(build, {"epochs": 40, "batch_size": 1024})


def _optimizer(clip: float | None, of_the_mask: int) -> Any:
    if clip is not None:
        return clipped_adamw(clip, of_the_mask, lr=1e-3, eps=1e-7)
    return lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, eps=1e-7)
