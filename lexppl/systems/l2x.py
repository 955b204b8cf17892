"""L2X: a k-subset by continuous draws, learned with the predictor."""

from collections.abc import Sequence
from types import MappingProxyType

from torch import nn

from lexppl.argument_checks import int_between
from lexppl.inference import LossTerm, NestedIWAE, Pathwise, Stage, System
from lexppl.models.architectures.base import Architecture, architecture_of, joint_explainer
from lexppl.models.grouping import Grouping
from lexppl.models.priors import Prior
from lexppl.models.selectors import MaxConcreteSelector

WIDTHS = MappingProxyType({"hidden": (100, 100), "predictor_hidden": (200, 200)})
PERCEPTRONS = MappingProxyType({**WIDTHS, "activation": "relu", "batch_norm": True})
"""Of L2X and INVASE."""


def l2x(
    features: int | Architecture,
    *,
    classes: int | None,
    k: int,
    temperature: float = 0.1,
    samples: int = 1,
    grouping: Grouping | None = None,
    imputer: nn.Module | None = None,
    hidden: Sequence[int] | None = None,
    predictor_hidden: Sequence[int] | None = None,
    activation: str | None = None,
    prior: Prior | None = None,
) -> System:
    """L2X (Chen, Song, Wainwright & Jordan, "Learning to explain", ICML 2018, eq. 6):

        max_{θ,γ} E_x E_{v ~ MaxConcrete(γ(x), k, τ)} Σ_c p_m(c | x) log q_θ(c | x ⊙ v),

    y the model's own probabilities `p_m` (or labels), pathwise gradients. After training the k
    entries of largest logit are kept.

    Deviations: none in the objective; weight decay acts on all layers.

    Args:
        features, classes, grouping: as in :func:`lexppl.systems.lex`.
        k: draws, the most entries that a mask keeps.
        temperature: τ; 0.1 for tables, 0.5 for text.
        samples: masks averaged a row and step.
        imputer: 0 for hidden features if None.
        hidden, predictor_hidden: widths; (100, 100), and (200, 200) with batch norm.
        activation: "relu" if None, for XOR and orange skin; "selu" for the additive set and switch.
        prior: of the selector's weights, `{"selector": dist.Normal(0.0, 1.0)}`, as in
            :func:`lexppl.systems.lex`; the predictor has batch norm and can have none.

    Raises:
        ValueError: k outside 1 … G, fewer than two classes, a temperature that is not positive.

    Example:
        >>> l2x(11, classes=2, k=4).published["learning_rate"]
        0.001
    """
    architecture = architecture_of(
        features, grouping, PERCEPTRONS, hidden, predictor_hidden, activation=activation
    )
    entries = architecture.entries
    int_between("k", k, 1, entries, note="the mask entries")

    def build() -> list[Stage]:
        selector = MaxConcreteSelector(architecture.selector(entries), k, temperature)
        model = joint_explainer(architecture, selector, classes, imputer, prior)
        return [Stage([LossTerm(model, NestedIWAE(1, samples=samples, estimator=Pathwise()))])]

    return System(build, {"batch_size": 1000, "learning_rate": 1e-3, "weight_decay": 1e-3})
