"""Systems whose selector and predictor learn jointly: L2X, VIBI, INVASE and rationale selection."""

from collections.abc import Sequence
from types import MappingProxyType

from torch import Tensor, nn

from lexppl.argument_checks import int_between
from lexppl.inference import LossTerm, NestedIWAE, Pathwise, ScoreFunction, Stage, System, Unscored
from lexppl.models.architectures.base import (
    Architecture,
    architecture_of,
    joint_explainer,
    predictor_of,
)
from lexppl.models.grouping import Grouping
from lexppl.models.penalties import KLPenalty, SizePenalty, TotalVariationPenalty
from lexppl.models.predictor import UnmaskedPredictor
from lexppl.models.priors import Prior
from lexppl.models.selectors import BernoulliSelector, MaxConcreteSelector, penalised

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
        features, classes, k, samples, grouping, imputer: as in :func:`lexppl.systems.joint`.
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


class PredictorBaseline(nn.Module):
    """The baseline `log p_base(y | x)`, or its mean over a black box's labels, by a predictor
    learned elsewhere: `(B,)`."""

    def __init__(self, predictor: nn.Module) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        distribution = self.predictor(x)
        if y.dim() == 2:
            return (y * distribution.logits.log_softmax(-1)).sum(-1)
        return distribution.log_prob(y)


def invase(
    features: int | Architecture,
    *,
    classes: int | None,
    penalty: float | Sequence[float] | None = None,
    samples: int = 1,
    grouping: Grouping | None = None,
    imputer: nn.Module | None = None,
    hidden: Sequence[int] | None = None,
    predictor_hidden: Sequence[int] | None = None,
    activation: str | None = None,
    prior: Prior | None = None,
) -> System:
    """INVASE (Yoon, Jordon & van der Schaar, ICLR 2019, eq. 5): an actor's gradient

        E_{s ~ Bernoulli(π(x))} [ (log p_critic(y | x ⊙ s) − log p_base(y | x)) ∇ log π(s | x) ]
            − λ ∇ E‖s‖₀,

    the score function with the log-likelihood of a predictor of all of x as its control variate.
    Critic and baseline are fitted by maximum likelihood in the same steps.

    Deviations: `λ ∇E‖s‖₀` is exact, `λ Σ_g ∇π_g`, where the paper scores it too.

    Args:
        features, classes, grouping: as in :func:`lexppl.systems.lex`.
        penalty: λ; 0.1 / G if None, and 0.15 / G on Syn5: the released code charges 0.1 for the
            mean over the entries.
        samples: masks averaged a row and step.
        imputer: 0 for hidden features if None.
        hidden: widths of the actor's hidden layers; (100, 100) if None.
        predictor_hidden: widths of critic and baseline, with batch norm; (200, 200) if None.
        activation: "relu" if None, for Syn1 and Syn2; "selu" for Syn3 to Syn6.
        prior: as in :func:`lexppl.systems.joint`.

    Raises:
        ValueError: fewer than two classes, λ < 0.

    Example:
        >>> explainer, baseline = invase(11, classes=2).build()[0].terms
        >>> type(explainer.model).__name__, type(baseline.model).__name__
        ('LEX', 'UnmaskedPredictor')
    """
    architecture = architecture_of(
        features, grouping, PERCEPTRONS, hidden, predictor_hidden, activation=activation
    )
    entries = architecture.entries

    def build() -> list[Stage]:
        selector, cost = penalised(architecture, 0.1 / entries if penalty is None else penalty)
        model = joint_explainer(architecture, selector, classes, imputer, prior, [cost])
        full = UnmaskedPredictor(predictor_of(architecture, classes))
        actor_critic = NestedIWAE(
            1, samples=samples, estimator=ScoreFunction(PredictorBaseline(full.predictor))
        )
        likelihood = NestedIWAE(1, estimator=Unscored())
        return [Stage([LossTerm(model, actor_critic), LossTerm(full, likelihood)])]

    published = {"epochs": 1000, "batch_size": 1000, "learning_rate": 1e-4, "weight_decay": 1e-3}
    return System(build, published)


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
