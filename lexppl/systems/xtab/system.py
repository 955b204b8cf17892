"""XTab: importances that agree over seeds, by averaging mask networks."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from lexppl.inference import LossTerm, NestedIWAE, Pathwise, Stage, System
from lexppl.inference.training.clipped_weights import clipped_adamw
from lexppl.models.architectures import Architecture
from lexppl.models.grouping import Grouping
from lexppl.models.imputers import SquaredMaskImputer
from lexppl.models.lex import LEX
from lexppl.models.likelihoods import CategoricalLikelihood, NormalLikelihood
from lexppl.models.networks import MLP
from lexppl.models.penalties import GiniPenalty, SizePenalty
from lexppl.models.predictor import Predictor
from lexppl.models.selectors import SoftMaskSelector
from lexppl.models.table_parts import check_classes, mask_entries
from lexppl.systems.xtab.noisy_features import NoisyFeatures
from lexppl.systems.xtab.rectified_code import RectifiedCode
from lexppl.systems.xtab.shared_mask import CombinedMask, GatedMask
from lexppl.systems.xtab.subset_network import SubsetNetwork, subset_width


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
    (:class:`~lexppl.systems.xtab.CombinedMask`), or with `gated=True` `σ(f ⊙ m_g + i ⊙ m_l)`, with
    m_g frozen. The paper's fits have all rows for training: `fit(…, valid=None)`.

    Deviations: none in the loss. For a real response the normal log-likelihood takes the place of
    the cross-entropy; the gates are `σ(W x)`, which the paper leaves open; subsets lose no column.
    Where a feature tells the label of few rows, as f2 on SynRank, noise that is added
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
    entries = mask_entries(features, grouping)
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
