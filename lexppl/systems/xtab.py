"""XTab: importances that agree over seeds, by averaging mask networks."""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from lexppl.argument_checks import finite_float, fraction, int_between
from lexppl.configured import Configured
from lexppl.inference import LossTerm, NestedIWAE, Pathwise, Stage, System
from lexppl.models.architectures.base import Architecture, TableArchitecture
from lexppl.models.grouping import Grouping
from lexppl.models.imputers.simple import SquaredMaskImputer
from lexppl.models.lex import LEX
from lexppl.models.networks import MLP
from lexppl.models.penalties import GiniPenalty, SizePenalty
from lexppl.models.predictor import check_classes, predictor_with
from lexppl.models.regimes import frozen
from lexppl.models.selectors import SoftMaskSelector


class SubsetNetwork(Configured, nn.Module):
    """`network(mean_i leaky_relu(encoder(x[subset i])))` (Uçar & Hajiramezanali 2022, § 3.2).

    The D columns are cut into n runs of `⌈D / n⌉`; each takes `round(overlap · ⌈D / n⌉)` more from
    its right neighbour, cyclically.
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
        return self.network(leaky_relu(self.encoder(x[:, self.columns])).mean(-2))


def subset_width(features: int, subsets: int, overlap: float) -> int:
    """Columns of each subset, `⌈D / n⌉ + round(overlap · ⌈D / n⌉)`, at most D."""
    subsets = int_between("subsets", subsets, 1, features, note="the features")
    overlap = fraction("overlap", overlap, zero=True, one=True)
    step = math.ceil(features / subsets)
    return min(features, step + round(overlap * step))


MOMENTUM = 0.1  # Weight of the newest batch in the running divisor, as in torch's batch norms


class CombinedMask(Configured, nn.Module):
    """Logits of `m = (m_g + m_l) / C`, `C = max (m_g + m_l)` over the batch, of a frozen global and
    a learning local mask (Uçar & Hajiramezanali 2022, eq. 7).

    After training C is the running mean of the batches' numbers.
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


class NoisyFeatures(Configured, nn.Module):
    """While training, each entry is replaced with probability p by a draw `ε ~ N(0, σ²)` (Uçar &
    Hajiramezanali 2022, § 3.2)."""

    def __init__(self, network: nn.Module, share: float, scale: float = 1.0) -> None:
        super().__init__()
        self.network = network
        self.share = fraction("share", share, zero=True, one=True)
        self.scale = finite_float("scale", scale, least=0.0)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.share > 0.0:
            noise = self.scale * torch.randn_like(x)
            x = torch.where(torch.rand_like(x) < self.share, noise, x)
        return self.network(x)


def xtab(
    features: int | Architecture,
    *,
    classes: int | None,
    shared: nn.Module | None = None,
    subsets: int | None = None,
    overlap: float = 0.75,
    noise: float = 0.2,
    noise_scale: float = 0.05,
    dropout: float = 0.2,
    gini: float = 1.0,
    size: float = 1.0,
    grouping: Grouping | None = None,
    encoder_hidden: Sequence[int] | None = None,
    predictor_hidden: Sequence[int] = (1024, 1024),
) -> System:
    """XTab (Uçar & Hajiramezanali, 2022, eqs. 3 to 8): a deterministic soft mask `m = σ(MLP_{D → D
    → D}(x))`, rows `m² ⊙ x`, cut into overlapping noisy subsets, one encoder, the mean over
    subsets, a classifier, and the loss

        −log q(y | m² ⊙ x) + mean_g (1 − m_g² − (1 − m_g)²) + mean_g m_g.

    Round one is `fit(xtab(…), train, replicates=10)`; the global mask is the mean of the mask
    networks' **parameters**, `averaged(result.models).selector.network`; round two is `xtab(…,
    shared=that)`, whose mask is `(m_g + m_l) / C` with one number C, m_g frozen. The paper's fits
    have all rows for training: `fit(…, valid=None)`.

    Deviations: none in the loss. For a real response the normal log-likelihood takes the place of
    the cross-entropy; subsets lose no column. The paper's gates, its clipped weights and its other
    kinds of noise are left out.

    Args:
        features: D of a table; an architecture is refused.
        classes: C for labels, or None for a real response.
        shared: a global mask's network, for the final round.
        subsets, overlap: n (two, of a single column one) and the share taken from the neighbour.
        noise, noise_scale: share of entries that are replaced by noise, and σ.
        dropout: of the classifier's hidden layers.
        gini, size: weights of the two penalties.
        grouping: columns of one variable that share an entry; one a column if None, as in the
            paper, which adds up the columns' masks afterwards.
        encoder_hidden: widths of the encoder's layers; the classifier's first width if None.
        predictor_hidden: widths of the classifier's hidden layers.

    Raises:
        ValueError: an architecture, an encoder without layers, n outside 1 … D, shares outside [0,
            1], fewer than two classes.

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

    def build() -> list[Stage]:
        *before, code = encoder_hidden
        encoder = NoisyFeatures(MLP(width, code, before, "leaky_relu"), noise, noise_scale)
        classifier = MLP(code, classes or 1, predictor_hidden, "leaky_relu", dropout=dropout)
        network = SubsetNetwork(features, subsets, overlap, encoder, classifier)
        local = MLP(features, entries, (features,), "leaky_relu")
        model = LEX(
            SoftMaskSelector(local if shared is None else CombinedMask(shared, local)),
            SquaredMaskImputer(),
            predictor_with(lambda _: network, classes),
            [GiniPenalty(gini), SizePenalty(size / entries)],
            grouping,
        )
        term = LossTerm(model, NestedIWAE(1, estimator=Pathwise()))
        return [Stage([term], optimizer=partial(torch.optim.AdamW, lr=1e-3, eps=1e-7))]

    return System(build, {"epochs": 40, "batch_size": 1024})
