"""INVASE: an actor that selects, and a critic that predicts, against a predictor of all of x."""

from collections.abc import Sequence

from torch import Tensor, nn

from lexppl.inference import LossTerm, NestedIWAE, ScoreFunction, Stage, System, Unscored
from lexppl.models.architectures.base import (
    Architecture,
    architecture_of,
    joint_explainer,
    predictor_of,
)
from lexppl.models.grouping import Grouping
from lexppl.models.predictor import UnmaskedPredictor
from lexppl.models.priors import Prior
from lexppl.models.selectors import penalised
from lexppl.systems.l2x import PERCEPTRONS


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
        prior: as in :func:`lexppl.systems.l2x`.

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
