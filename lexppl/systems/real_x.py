"""REAL-X, and BASE-X, its ablation."""

from collections.abc import Sequence
from types import MappingProxyType

from torch import nn

from lexppl.inference import REBAR, LossTerm, NestedIWAE, Stage, System, Unscored, annealed
from lexppl.models.architectures.base import (
    Architecture,
    architecture_of,
    joint_explainer,
    predictor_of,
)
from lexppl.models.grouping import Grouping
from lexppl.models.lex import LEX
from lexppl.models.priors import Prior, explainer_with_prior
from lexppl.models.selectors import RandomSelector, penalised

WIDTHS = MappingProxyType({"hidden": (200, 200, 200), "predictor_hidden": (200, 200)})
"""The paper's: a selector of three hidden layers, a predictor of two (Jethani et al., § 5)."""


def real_x(
    features: int | Architecture,
    *,
    classes: int | None,
    penalty: float | Sequence[float] = 0.01,
    temperature: float = 0.1,
    samples: int = 1,
    alternate: bool = False,
    folds: int = 1,
    towards: float | None = None,
    grouping: Grouping | None = None,
    imputer: nn.Module | None = None,
    hidden: Sequence[int] | None = None,
    predictor_hidden: Sequence[int] | None = None,
    prior: Prior | None = None,
) -> System:
    """REAL-X (Jethani, Sudarshan, Aphinyanaphongs & Ranganath, AISTATS 2021, eq. 6):

        max_γ E_{s ~ Bernoulli(π_γ(x))} log q_θ*(y | x ⊙ s) − λ E‖s‖₀,
        θ* = argmax_θ E_{r ~ Bernoulli(½)} log q_θ(y | x ⊙ r).

    The predictor learns from masks that are independent of x, so that no label can be read off
    which features are kept; the selector learns by REBAR.

    Deviations: the predictor is fitted to its end and then frozen, as the released code does it,
    where the paper alternates and reports both equal; `alternate=True` is the paper's. λ is in nats
    for each entry kept (the released code's λ is G times this one). Neither paper nor code anneals
    or cross-fits. At a low λ on S3 a selector that saturates early keeps the features of both
    branches (`benchmarks/real_x.py`).

    Args:
        features, classes, grouping: as in :func:`lexppl.systems.lex`.
        penalty: λ, or the two ends of a range. The paper's grid is .05 … .25 over the mean of the
            entries: .0045 … .023 here for its 11 features.
        temperature: of REBAR; its scale is 1.
        samples: masks averaged a row and step.
        alternate: move predictor and selector in the same steps.
        folds: cross-fitted predictors; 1 for the paper's one.
        towards: as in :func:`lexppl.systems.lex`; None for the paper's constant λ without an
            entropy.
        imputer: 0 for hidden features if None.
        hidden, predictor_hidden: widths; the paper's (200, 200, 200) and (200, 200) if None.
        prior: of the selector's weights, as in :func:`lexppl.systems.lex`; the predictor is fitted
            by itself and can have none.

    Raises:
        ValueError: fewer than two classes, λ < 0, a temperature that is not positive, no folds, a
            rate of keeping outside (0, 1).

    Example:
        >>> [len(stage.terms) for stage in real_x(11, classes=2).build()]
        [1, 1]
    """
    architecture = architecture_of(features, grouping, WIDTHS, hidden, predictor_hidden)
    entries = architecture.entries
    estimator = REBAR(temperature)
    if towards is None:
        bound = NestedIWAE(1, samples=samples, estimator=estimator)
    else:
        bound = annealed(1, towards=towards, samples=samples, estimator=estimator)

    def build() -> list[Stage]:
        predictor = predictor_of(architecture, classes)
        hides = architecture.imputer() if imputer is None else imputer
        selector, cost = penalised(architecture, penalty, 0.5 if towards is None else towards)
        explainer = LEX(selector, hides, predictor, [cost], architecture.grouping)
        explainer_with_prior(explainer, prior, ("selector",))
        select = LossTerm(
            explainer,
            bound,
            learns=[selector] if prior is None else None,
            spares=() if prior is None else [predictor],
        )
        predict = random_mask_predictor(
            predictor, hides, entries, grouping=architecture.grouping, samples=samples
        )
        return [Stage([select, predict])] if alternate else [Stage([predict]), Stage([select])]

    return System(build, {"epochs": 1000, "learning_rate": 1e-4, "weight_decay": 0.0}, folds)


def base_x(
    features: int | Architecture,
    *,
    classes: int | None,
    penalty: float | Sequence[float] = 0.01,
    temperature: float = 0.1,
    samples: int = 1,
    grouping: Grouping | None = None,
    imputer: nn.Module | None = None,
    hidden: Sequence[int] | None = None,
    predictor_hidden: Sequence[int] | None = None,
    prior: Prior | None = None,
) -> System:
    """BASE-X (Jethani et al. 2021, § 5): REAL-X whose predictor learns from the selector's own
    masks, jointly by REBAR,

        max_{θ,γ} E_{s ~ Bernoulli(π_γ(x))} log q_θ(y | x ⊙ s) − λ E‖s‖₀.

    An ablation: the label may be read off which features are kept.

    Args:
        features, classes, penalty, temperature, samples, grouping, imputer, hidden,
            predictor_hidden: as in :func:`real_x`.
        prior: of the networks' weights, as in :func:`lexppl.systems.lex`.

    Raises:
        ValueError: as in :func:`real_x`.

    Example:
        >>> len(base_x(11, classes=2).build())
        1
    """
    architecture = architecture_of(features, grouping, WIDTHS, hidden, predictor_hidden)

    def build() -> list[Stage]:
        selector, cost = penalised(architecture, penalty)
        model = joint_explainer(architecture, selector, classes, imputer, prior, [cost])
        objective = NestedIWAE(1, samples=samples, estimator=REBAR(temperature))
        return [Stage([LossTerm(model, objective)])]

    return System(build, {"epochs": 1000, "learning_rate": 1e-4, "weight_decay": 0.0})


def random_mask_predictor(
    predictor: nn.Module,
    imputer: nn.Module,
    entries: int,
    *,
    grouping: Grouping | None = None,
    samples: int = 1,
) -> LossTerm:
    """The term in which a predictor learns from masks that are independent of x:

        max_θ E_{r ~ Bernoulli(½)} E_{x̃ ~ p_ι(·|x, r)} log q_θ(y | x̃).

    REAL-X's first stage, and the surrogate constant of LEX (Senetaire et al. 2023, App. B).

    Args:
        predictor: the distribution of y given x̃; it is what learns.
        imputer: what hidden features are replaced with.
        entries: G.
        grouping: which features an entry keeps.
        samples: masks averaged a row and step.

    Example:
        >>> from lexppl.models import ConstantImputer
        >>> from lexppl.models.predictor import table_predictor
        >>> term = random_mask_predictor(table_predictor(3, 2, (8,)), ConstantImputer(-5.0), 3)
        >>> type(term.model.selector).__name__
        'RandomSelector'
    """
    program = LEX(RandomSelector(entries), imputer, predictor, grouping=grouping)
    objective = NestedIWAE(1, samples=samples, estimator=Unscored())
    return LossTerm(program, objective, learns=[predictor])
