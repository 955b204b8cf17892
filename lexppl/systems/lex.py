"""LEX: the nested bound on a selector, an imputer and a predictor learned together."""

import copy
from collections.abc import Sequence

from torch import Tensor, nn

from lexppl.argument_checks import finite_float, int_between
from lexppl.effects import weights_with_priors
from lexppl.inference import (
    LeaveOneOut,
    LossTerm,
    NestedIWAE,
    Stage,
    System,
    annealed,
    entropy_unit,
)
from lexppl.inference.estimators.score_function import Labels
from lexppl.inference.nested_iwae import COURSE, EARLY_COURSE
from lexppl.models.architectures.base import NONE, Architecture, architecture_of, predictor_of
from lexppl.models.grouping import Grouping
from lexppl.models.imputers.simple import GapImputer
from lexppl.models.lex import LEX
from lexppl.models.likelihoods import Likelihood
from lexppl.models.penalties import Penalty
from lexppl.models.predictor import check_classes
from lexppl.models.priors import Prior, explainer_with_prior
from lexppl.models.selectors import KSubsetSelector, penalised

PENALTY = 0.02
"""Nats for each entry kept, of labels as frequent as each other, where nothing is given."""


def lex(
    features: int | Architecture,
    *,
    classes: int | None,
    k: int | None = None,
    penalty: float | Sequence[float] | None = None,
    masks: int = 4,
    imputations: int = 1,
    folds: int = 2,
    towards: float = 0.8,
    labels: Labels = "observed",
    unit: float | None = None,
    imputer: nn.Module | None = None,
    grouping: Grouping | None = None,
    predictor: nn.Module | None = None,
    likelihood: Likelihood | None = None,
    hidden: Sequence[int] | None = None,
    predictor_hidden: Sequence[int] | None = None,
    objective: NestedIWAE | None = None,
    prior: Prior | None = None,
) -> System:
    """LEX: each row's features are chosen, the others imputed, and y predicted from the result.

    Use it with :func:`lexppl.fit` when you do not know which system to take: it chooses features of
    each row and predicts from what it kept. Give k for masks of one size, or a penalty for masks as
    small as the prediction allows.

    Example:
        >>> lex(11, classes=2, k=5).program().selector.k
        5

    It maximises (Senetaire, Garreau, Frellsen & Mattei, "Explainability as statistical inference",
    ICML 2023, eq. 6 and 8)

        max_{θ,γ} Σ_n E[log 1/(LK) Σ_{l,k} Φ(y_n | f_θ(x̃_{n,l,k}))] − λ Σ_n E[‖z‖₀].

    Masks are an exact k-subset, or independent Bernoullis with λ nats for each entry kept.
    Deviations from § 5.1: the k-subset distribution is exact, where the paper relaxes an ordered
    one; the gradient is leave-one-out; the selector is annealed (:func:`lexppl.inference.annealed`,
    earlier for a range of λ) towards keeping, and of k entries the number kept falls from G to k;
    predictors are cross-fitted, so that a row is judged by a predictor fitted without it.
    `folds=1, objective=NestedIWAE(4)` has none of these.

    The command line and :class:`lexppl.ExplainerClassifier` also choose by the rows, which a
    factory has not seen:

    ==================  ==========================  ==============================================
    what                here and in `fit`           there
    ==================  ==========================  ==============================================
    λ                   one: 0.02 units             one fit of every λ from 1/64 of to four
                                                    times the usual one, read at 0.02 units; in
                                                    `lexppl explain` at one of eight, by
                                                    :func:`lexppl.evaluation.penalty_path`
    `imputer`           standard normal noise       `CopulaImputer` of the training rows where
                                                    columns depend, else `MarginalImputer`
    widths              200                         64 below 20,000 rows
    epochs, batches     300 of 500 rows             200 or 500 steps, of a third of few rows, at
                                                    most 256
    learning rate       1e-3                        3e-3 after a warm-up
    validation rows     a fifth at random           a fifth in the proportions of the classes
    replicates          1                           in `lexppl explain` 5, the folds of a table
    masks               of the best epoch           of the last epoch; validation rows choose λ
    after the fit       the mean of F predictors    the same; in `lexppl explain` boosted trees
                                                    where they predict validation rows better
    ==================  ==========================  ==============================================

    With a k or of λ = 0, widths there are 64 below 2000 rows, epochs 200 or 2000 steps of at most
    500 rows at 1e-3, and the best epoch is kept.

    Args:
        features: D of a table, or an architecture, such as :func:`lexppl.models.images`.
        classes: C for labels, or None for a response, normal unless a likelihood is given.
        k: entries that a mask keeps; or
        penalty: λ in nats; 0.02 units if neither is given. `(low, high)` or `(low, middle, high)`
            for one fit of every λ between (:class:`lexppl.models.PenaltyConditioned`), of which
            `explain(result, x, penalty=0.02)` names one.
        masks, imputations: L and K.
        folds: F predictors, each fitted without a fold's rows, on which it judges the selector; 1
            for one that judges the rows it has learned from, and so keeps columns that it memorises
            by.
        towards: the rate of keeping that free masks start at and are annealed to; 0.5 for none.
        labels: "observed", or "averaged" to judge masks by every label, as likely as the predictor
            says (:class:`lexppl.inference.LeaveOneOut`): less noise, and an explanation of what the
            predictor uses. For y that are labels, not probabilities.
        unit: of the default penalty and the annealing; if None
            :func:`lexppl.inference.entropy_unit` of the labels that `fit` is given as tensors,
            arrays or a data set, and else 1.
        imputer: distribution of what is hidden; None for the standard Gaussian of a table, 0 of an
            image, and a gap where the predictor reads gaps.
        grouping: which features an entry keeps; one entry a feature if None.
        predictor: in place of the network. A copy learns from its weights, unless it is
            :func:`lexppl.models.frozen`; a :func:`lexppl.models.tree_predictor` is fitted before
            the selector's first step.
        likelihood: what the network's outputs mean: :class:`lexppl.models.CoxLikelihood` for
            survival times, `NegativeBinomialLikelihood`, `OrdinalLikelihood` …; a copy is learned.
            Of survival times give `unit=` the share of events.
        hidden: widths of the selector's hidden layers; (200, 200) if None.
        predictor_hidden: widths of the predictor's; (200, 200, 200) if None.
        objective: in place of the annealed bound, with L and K of its own.
        prior: of the networks' weights: a distribution of one number, such as `dist.Normal(0.0,
            1.0)`, for all of them; by part, as `{"selector": …}`; or a function of a weight's name
            and value (:func:`lexppl.models.with_prior`). A guide or a sampler then has their
            posterior; where the predictor's have a prior there are no folds.

    Raises:
        ValueError: both k and a penalty; k outside 1 … G; fewer than two classes; a likelihood that
            does not fit the classes, or beside a predictor; no folds, a rate outside (0, 1), a unit
            that is not above 0; labels of another name, or averaged ones of a real response or
            beside an objective.
    """
    given = dict(locals())

    def at_responses(y: Tensor, counts: Tensor | None) -> System:
        return lex(**{**given, "unit": entropy_unit(y, classes, counts)})

    architecture = architecture_of(features, grouping, NONE, hidden, predictor_hidden)
    chooses = at_responses if unit is None and classes is not None else None
    unit = 1.0 if unit is None else finite_float("unit", unit, above=0.0)
    charged = PENALTY * unit if penalty is None else penalty
    if k is not None:
        int_between("k", k, 1, architecture.entries, note="the mask entries")
        if penalty is not None:
            raise ValueError(
                "give either k, the entries a mask keeps, or a penalty for each of them"
            )
    check_classes(classes)
    if likelihood is not None and predictor is not None:
        raise ValueError("a given predictor has a likelihood of its own: give one of the two")
    estimator = LeaveOneOut(labels=labels)
    if labels == "averaged" and classes is None:
        raise ValueError("labels='averaged' needs classes: of responses leave labels='observed'")
    if labels == "averaged" and objective is not None:
        raise ValueError(
            "labels='averaged' is of the annealed bound, and objective= takes its place: give it "
            "estimator=LeaveOneOut(labels='averaged')"
        )
    reads_gaps = getattr(predictor, "reads_gaps", False)
    course = EARLY_COURSE if isinstance(charged, tuple) else COURSE
    bound = objective or annealed(
        masks, imputations, towards=towards, unit=unit, estimator=estimator, course=course
    )

    def build() -> list[Stage]:
        selector: nn.Module
        costs: list[Penalty] = []
        if k is not None:
            until = 0.0 if objective is not None else COURSE[0]
            selector = KSubsetSelector(architecture.selector(architecture.entries), k, until)
        else:
            selector, *costs = penalised(architecture, charged, towards)
        usual_imputer = GapImputer() if reads_gaps else architecture.multiple_imputer()
        model = LEX(
            selector,
            usual_imputer if imputer is None else imputer,
            _own(predictor) or predictor_of(architecture, classes, likelihood),
            costs,
            architecture.grouping,
        )
        explainer_with_prior(model, prior)
        return [Stage([LossTerm(model, bound)])]

    system = System(build, folds=folds, at_responses=chooses)
    if prior is not None and weights_with_priors(system.program().predictor):
        return System(build, at_responses=chooses)
    return system


def _own(predictor: nn.Module | None) -> nn.Module | None:
    """A copy of a predictor that learns, so that replicates share nothing."""
    learns = predictor is not None and (
        hasattr(predictor, "fit_rows") or any(p.requires_grad for p in predictor.parameters())
    )
    return copy.deepcopy(predictor) if learns else predictor
