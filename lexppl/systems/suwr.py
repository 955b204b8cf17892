"""SUWR: sequential unmasking without reversion, selections that cannot leak."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from lexppl.argument_checks import fraction
from lexppl.inference import LeaveOneOut, LossTerm, NestedIWAE, Stage, System
from lexppl.inference.schedules import Linear
from lexppl.models.architectures import Architecture
from lexppl.models.grouping import Grouping
from lexppl.models.imputers import ConstantImputer
from lexppl.models.networks import MLP
from lexppl.models.penalties import SizePenalty
from lexppl.models.priors.of_explainer import explainer_with_prior
from lexppl.models.priors.with_prior import Prior
from lexppl.models.sequential import SequentialLEX, SequentialSelector, StepPolicy
from lexppl.models.table_parts import mask_entries, table_predictor

EXPLORING, RISE = 0.05, 0.05
"""Shares of the fit: 50 of 1,000 epochs at random throughout, and 50 in which λ rises then."""
LEAST, LEAST_STOP = 0.05, 0.1
"""What exploration of choices and of the stop falls to."""


def suwr(
    features: int | Architecture,
    *,
    classes: int | None,
    penalty: float = 0.01,
    most: int | None = None,
    samples: int = 4,
    explore: bool = True,
    exploring: float = EXPLORING,
    rising: float = RISE,
    grouping: Grouping | None = None,
    imputer: nn.Module | None = None,
    hidden: Sequence[int] = (100, 100, 100),
    predictor_hidden: Sequence[int] = (100, 100, 100),
    prior: Prior | None = None,
) -> System:
    """SUWR (Oosterhuis, Lyu & Anand, ICML 2024, § 4 and eqs. 9 to 12): each next entry is chosen,
    and the end of choosing, by what is kept already,

        max_{θ,γ} E_{j_1 … j_k ~ p_γ(· | x)} [ log q_θ(y | x ⊙ z_k) − λ k ],    z_k = {j_1 … j_k},

    so that which entries are kept tells nothing that their values do not: there is no leak, of
    labels or of features, whatever the networks (:class:`lexppl.distributions.SequentialMask`).

    Its schedule, stretched from its 1,000 epochs to those of the fit: for 50 epochs choices and
    stops are uniform and λ is 0; then λ rises to its value over 50 more, and exploration falls by
    .995 an epoch from 1, to .05 of the choices and .1 of the stops. There is none after training.
    Where all is at random the policy learns nothing, and weight decay leaves it as it is.

    A fit of fewer steps than its 10,000 needs longer shares. What one entry more is worth to a
    predictor that has learned little is less than λ, so that the policy learns to keep nothing,
    and then nothing more is learned: on S1, in 3,600 steps, so it ended with the published shares,
    and with `exploring=.2, rising=.2` it did not.

    Deviations: the stop is drawn with the choices and both are scored among `samples` sequences of
    a row, where the paper sums over stops along one sequence and scores the choices without a
    baseline (the same expectation); the three networks share no layers, and rectify where its
    `simple` one has tanh, layer norm and dropout; they are told which entries are kept in place of
    the step's number. λ is in nats for each entry kept (the released code multiplies the
    log-likelihood by 10: its λ is ten times this one).

    Args:
        features: D of a table; an architecture is refused: the policy is a perceptron of columns
            and of which are kept.
        classes: C for labels, or None for a real response.
        penalty: λ.
        most: the most entries kept (its budget); all of them if None.
        samples: sequences averaged a row and step, at least 2.
        explore: whether it explores; False for λ and the law itself from the start.
        exploring: share of the fit in which all is at random and λ is 0.
        rising: share of it after that in which λ rises.
        grouping: which features an entry keeps.
        imputer: of the predictor's hidden features, 0 if None. The policy sees 0 in their places.
        hidden: widths of the hidden layers of the policy.
        predictor_hidden: widths of the predictor's.
        prior: of the networks' weights, as in :func:`lexppl.systems.base_x`; None for weights that
            are fitted.

    Raises:
        ValueError: an architecture; fewer than two classes, λ < 0, a budget outside 1 … G, shares
            outside (0, 1) or of more than 1 together.

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
    entries = mask_entries(features, grouping)
    exploring = fraction("exploring", exploring, of="the fit", zero=True)
    rising = fraction("rising", rising, of="the fit", one=True)
    if exploring + rising > 1.0:
        raise ValueError(
            "exploring and rising are shares of one fit, one after the other, and together at most "
            f"1; they are {exploring!r} and {rising!r}"
        )

    def build() -> list[Stage]:
        policy = StepPolicy(MLP(features + entries, entries + 1, hidden))
        least, least_stop = (LEAST, LEAST_STOP) if explore else (None, None)
        selector = SequentialSelector(
            policy, entries, most, least, least_stop, exploring, grouping=grouping
        )
        model = SequentialLEX(
            selector,
            ConstantImputer(0.0) if imputer is None else imputer,
            table_predictor(features, classes, predictor_hidden),
            [SizePenalty(penalty)],
            grouping,
        )
        explainer_with_prior(model, prior)
        rise = Linear(0.0, 1.0, exploring, min(exploring + rising, 1.0)) if explore else 1.0
        objective = NestedIWAE(1, samples=samples, estimator=LeaveOneOut(), penalty=rise)
        return [Stage([LossTerm(model, objective)])]

    published = {"epochs": 1000, "batch_size": 1000, "learning_rate": 1e-3, "weight_decay": 1e-4}
    return System(build, published)
