"""VIBI: L2X with each draw held near the uniform distribution."""

from collections.abc import Sequence

from torch import nn

from lexppl.argument_checks import int_between
from lexppl.inference import LossTerm, NestedIWAE, Pathwise, Stage, System
from lexppl.models.architectures.base import Architecture, architecture_of, joint_explainer
from lexppl.models.grouping import Grouping
from lexppl.models.penalties import KLPenalty
from lexppl.models.priors import Prior
from lexppl.models.selectors import MaxConcreteSelector
from lexppl.systems.l2x import WIDTHS


def vibi(
    features: int | Architecture,
    *,
    classes: int | None,
    k: int,
    beta: float = 0.1,
    temperature: float = 0.5,
    samples: int = 1,
    grouping: Grouping | None = None,
    imputer: nn.Module | None = None,
    hidden: Sequence[int] | None = None,
    predictor_hidden: Sequence[int] | None = None,
    prior: Prior | None = None,
) -> System:
    """VIBI (Bang, Xie, Lee, Wu & Xing, "Explaining a black-box using deep variational information
    bottleneck approach", 2019, eq. 7):

        max_{θ,γ} E_x { E_{v ~ MaxConcrete(γ(x), k, τ)} Σ_c p_m(c | x) log q_θ(c | x ⊙ v)
                        − β KL(p_γ(· | x) ‖ uniform) },

    L2X with the distribution of each of the k draws held near the uniform one.

    Deviations: the released code samples without a gradient, inverts the order of importance by
    passing log-probabilities as probabilities, and takes the divergence the other way round; here
    it is the paper's.

    Args:
        features, classes, k, samples, grouping, imputer: as in :func:`lexppl.systems.l2x`.
        beta: β ≥ 0.
        temperature: τ.
        hidden, predictor_hidden: widths; (100, 100) and (200, 200).
        prior: of the networks' weights, as in :func:`lexppl.systems.lex`.

    Raises:
        ValueError: k outside 1 … G, fewer than two classes, β < 0, τ ≤ 0.

    Example:
        >>> result = vibi(11, classes=2, k=4).build()
        >>> result[0].terms[0].model.penalties[0].weight
        0.1
    """
    architecture = architecture_of(features, grouping, WIDTHS, hidden, predictor_hidden)
    entries = architecture.entries
    int_between("k", k, 1, entries, note="the mask entries")

    def build() -> list[Stage]:
        selector = MaxConcreteSelector(architecture.selector(entries), k, temperature)
        cost = KLPenalty(beta)
        model = joint_explainer(architecture, selector, classes, imputer, prior, [cost])
        return [Stage([LossTerm(model, NestedIWAE(1, samples=samples, estimator=Pathwise()))])]

    return System(build)
