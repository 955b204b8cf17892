"""SUWR: sequential unmasking without reversion, selections that cannot leak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from torch import nn

from lexppl.argument_checks import one_of
from lexppl.inference import LeaveOneOut, LossTerm, NestedIWAE, Stage, System
from lexppl.inference.objective.objective import Linear
from lexppl.models.architectures.base import Architecture, TableArchitecture
from lexppl.models.grouping import Grouping
from lexppl.models.imputers.simple import ConstantImputer
from lexppl.models.lex import SequentialLEX
from lexppl.models.networks import MLP
from lexppl.models.penalties import SizePenalty
from lexppl.models.predictor import table_predictor
from lexppl.models.priors import Prior, explainer_with_prior
from lexppl.models.selectors import EXPLORE_UNTIL, SequentialSelector, StepPolicy
from lexppl.systems.real_x import random_mask_predictor

Schedule = Literal["annealed", "published", "constant"]

LEAST, LEAST_STOP = 0.05, 0.1  # What exploration of choices and of the stop falls to, as published
GOING = 0.9  # How often the law of nothing goes on: sequences are long while the choices learn


def suwr(
    features: int | Architecture,
    *,
    classes: int | None,
    penalty: float = 0.01,
    most: int | None = None,
    samples: int = 4,
    schedule: Schedule = "annealed",
    folds: int = 2,
    grouping: Grouping | None = None,
    imputer: nn.Module | None = None,
    hidden: Sequence[int] = (100, 100, 100),
    predictor_hidden: Sequence[int] = (100, 100, 100),
    prior: Prior | None = None,
) -> System:
    """SUWR (Oosterhuis, Lyu & Anand, ICML 2024, § 4 and eqs. 9 to 12): each next entry is chosen,
    and the end of choosing, by what is kept already,

        max_{θ,γ} E_{j_1 … j_k ~ p_γ(· | x)} [ log q_θ(y | x ⊙ z_k) − λ k ],    z_k = {j_1 … j_k},

    so that the choice of entries cannot leak (:class:`lexppl.distributions.SequentialMask`).

    **Schedules.** `"annealed"` (not the paper's) maximises, at a share t of the fit,

        max_γ E_{p_γ}[ log q_θ(y | x ⊙ z_k) − λ c(t) k ] − β(t) KL( p_γ ‖ u ),
        max_θ E_{p_γ}[ log q_θ(y | x ⊙ z_k) ] + E_{r ~ Bernoulli(½)^G}[ log q_θ(y | x ⊙ r) ],

    u going on with probability .9 to any entry left alike
    (:meth:`SequentialMask.divergence_along`). β falls linearly from .05 nats to .002 over .7 of the
    fit, and c rises from 0 to 1 between .3 and .6 of it. Gradients are leave-one-out. The rest of β
    charges a sure choice among n entries `.002 log(n / .9)` nats beside λ. The stop may settle too
    early at going on, in some runs on S1 (`benchmarks/README.md`).

    `"published"`, with `folds=1`, is the paper's, stretched from its 1,000 epochs to those of the
    fit: for 50 epochs choices and stops are uniform and λ is 0; λ rises to its value over 50 more,
    and exploration falls by .995 an epoch from 1, to .05 of the choices and .1 of the stops, and to
    none after training. A fit of far fewer steps than its 10,000 may keep nothing.

    `"constant"` has λ and the law itself from the start.

    Deviations: the stop is drawn with the choices and both are scored among `samples` sequences of
    a row, where the paper sums over stops along one sequence and scores the choices without a
    baseline (the same expectation); the three networks share no layers, and rectify where its
    `simple` one has tanh, layer norm and dropout; they see which entries are kept in place of the
    step's number. λ is in nats for each entry kept (the released code multiplies the log-likelihood
    by 10: its λ is ten times this one).

    Args:
        features: D of a table; an architecture is refused.
        classes: C for labels, or None for a real response.
        penalty: λ.
        most: the most entries kept (its budget); all of them if None.
        samples: sequences averaged a row and step, at least 2.
        schedule: "annealed", "published" or "constant".
        folds: cross-fitted predictors; 1 for the paper's one.
        grouping: which features an entry keeps.
        imputer: of the predictor's hidden features, 0 if None. The policy sees 0 in their places.
        hidden, predictor_hidden: widths of the policy's and the predictor's hidden layers.
        prior: of the networks' weights, as in :func:`lexppl.systems.lex`: then without folds and
            random masks.

    Raises:
        ValueError: an architecture; fewer than two classes, λ < 0, a budget outside 1 … G, another
            schedule, no folds.

    Example:
        >>> (stage,) = suwr(11, classes=2).build()
        >>> type(stage.terms[0].model).__name__
        'SequentialLEX'
    """
    if isinstance(features, Architecture):
        raise ValueError(
            "suwr's policy is a perceptron of a table's columns and of which of them are kept, and "
            f"{type(features).__name__} has rows of another shape: give a number of features"
        )
    entries = TableArchitecture(features, grouping=grouping).entries
    one_of(get_args(Schedule), "schedule", schedule)
    annealed, explores = schedule == "annealed", schedule == "published"
    rise: float | Linear = 1.0
    if annealed:
        rise = Linear(0.0, 1.0, 0.3, 0.6)
    elif explores:
        rise = Linear(0.0, 1.0, EXPLORE_UNTIL, 2 * EXPLORE_UNTIL)
    objective = NestedIWAE(
        1,
        samples=samples,
        estimator=LeaveOneOut(),
        penalty=rise,
        entropy=Linear(0.05, 0.002, end=0.7) if annealed else 0.0,
        towards=GOING if annealed else 0.5,
    )

    def build() -> list[Stage]:
        policy = StepPolicy(MLP(features + entries, entries + 1, hidden))
        least, least_stop = (LEAST, LEAST_STOP) if explores else (None, None)
        selector = SequentialSelector(policy, entries, most, least, least_stop, grouping)
        hides = ConstantImputer(0.0) if imputer is None else imputer
        predictor = table_predictor(features, classes, predictor_hidden)
        model = SequentialLEX(selector, hides, predictor, [SizePenalty(penalty)], grouping)
        explainer_with_prior(model, prior)
        terms = [LossTerm(model, objective)]
        if annealed and prior is None:
            terms.append(
                random_mask_predictor(predictor, hides, entries, grouping=grouping, samples=samples)
            )
        return [Stage(terms)]

    published = {"epochs": 1000, "batch_size": 1000, "learning_rate": 1e-3, "weight_decay": 1e-4}
    return System(build, published, folds if prior is None else min(folds, 1))
