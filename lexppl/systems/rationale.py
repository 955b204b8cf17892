"""Rationales: short and contiguous selections from a text."""

from collections.abc import Sequence

from torch import nn

from lexppl.inference import LossTerm, NestedIWAE, ScoreFunction, Stage, System
from lexppl.models.architectures.base import Architecture, architecture_of, joint_explainer
from lexppl.models.grouping import Grouping
from lexppl.models.penalties import SizePenalty, TotalVariationPenalty
from lexppl.models.priors import Prior
from lexppl.models.selectors import BernoulliSelector


def rationale(
    features: int | Architecture,
    *,
    classes: int | None,
    penalty: float = 3e-4,
    coherence: float | None = None,
    baseline: float = 0.0,
    samples: int = 1,
    grouping: Grouping | None = None,
    imputer: nn.Module | None = None,
    hidden: Sequence[int] | None = None,
    predictor_hidden: Sequence[int] | None = None,
    prior: Prior | None = None,
) -> System:
    """Rationales (Lei, Barzilay & Jaakkola, "Rationalizing neural predictions", EMNLP 2016, eq. 5):

        min E_{z ~ Bernoulli(π(x))} [ −log q(y | x, z) + λ₁ Σ_t z_t + λ₂ Σ_t |z_t − z_{t−1}| ],

    short and contiguous selections, by the score function. The order of the entries is that of the
    features.

    Deviations: the loss is the negative log-likelihood, where the paper's ratings take a squared
    error (the same for `classes=None`, up to the learned scale); the size is charged by its exact
    expectation.

    Args:
        features, classes, grouping: as in :func:`lexppl.systems.lex`.
        penalty: λ₁, nats for each entry kept.
        coherence: λ₂, nats for each change along the entries; 2 λ₁ if None.
        baseline: of the score function, in nats.
        samples: masks averaged a row and step.
        imputer: 0, the padding value, for hidden features if None.
        hidden, predictor_hidden: widths; (200, 200) if None.
        prior: of the networks' weights, as in :func:`lexppl.systems.lex`.

    Raises:
        ValueError: fewer than two classes, a negative λ.

    Example:
        >>> model = rationale(20, classes=2).build()[0].terms[0].model
        >>> [round(penalty.weight, 5) for penalty in model.penalties]
        [0.0003, 0.0006]
    """
    usual = {"hidden": (200, 200), "predictor_hidden": (200, 200)}
    architecture = architecture_of(features, grouping, usual, hidden, predictor_hidden)

    def build() -> list[Stage]:
        selector = BernoulliSelector(architecture.selector(architecture.entries))
        variation = 2 * penalty if coherence is None else coherence
        costs = [SizePenalty(penalty), TotalVariationPenalty(variation)]
        model = joint_explainer(architecture, selector, classes, imputer, prior, costs)
        objective = NestedIWAE(1, samples=samples, estimator=ScoreFunction(baseline))
        return [Stage([LossTerm(model, objective)])]

    return System(build)
