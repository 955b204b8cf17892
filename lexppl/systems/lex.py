"""LEX: the nested bound on a selector, an imputer and a predictor learned together."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from lexppl.argument_checks import finite_float, int_between
from lexppl.choices.settings import Regime
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
from lexppl.inference.batches import TensorRows
from lexppl.inference.estimators.leave_one_out import Labels
from lexppl.inference.nested_iwae import COURSE, EARLY_COURSE
from lexppl.models.architectures.base import NONE, Architecture, architecture_of, predictor_of
from lexppl.models.grouping import Grouping
from lexppl.models.imputers import GapImputer, imputer_by_dependence
from lexppl.models.lex import LEX
from lexppl.models.likelihoods import Likelihood
from lexppl.models.penalties import Penalty
from lexppl.models.predictor import check_classes
from lexppl.models.priors import Prior, explainer_with_prior
from lexppl.models.selectors import KSubsetSelector, penalised
from lexppl.systems.fit_plan import PENALTY, FitPlan, plan_for


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

    **By the rows.** Given a table, :func:`lexppl.fit` chooses what is None here and in its own
    arguments as `lexppl explain` and :class:`lexppl.ExplainerClassifier` do; what is given stays:

    - where there is neither k nor a penalty, one fit of every λ from 1/64 of to four times the
      usual one, which ends with its last epoch and is read at λ = 0.02 units:
      :func:`lexppl.evaluation.penalty_path` chooses another by rows that were held out;
    - `imputer`: a `CopulaImputer` of the rows where columns depend, else a `MarginalImputer`; both
      hold up to 5,000 of the rows, which are saved with the result;
    - widths of 64 below 2,000 rows (a range of λ: 20,000), else of 200;
    - `batch_size`: a third of the rows, at most 500 (a range: 256);
    - `epochs`: at most 200, of up to 2,000 steps together (a range: 350 √(N / 1,100)
      (G / 30)^2.5, factors at least 1, at most 3,000);
    - `learning_rate`: 1e-3 (a range: 3e-3 after a warm-up), falling; `weight_decay`: 1e-3 units (a
      range: 2 / N units where that is more, at most 0.01), times 2 / F of F > 2 folds.

    A program that has seen no rows (`lex(…).program()`), a `DataLoader`, rows read in batches, an
    architecture, weights with a prior and an inference have λ = 0.02 units, the architecture's
    imputer, widths of 200, and the defaults of `fit`. What the command and the estimators alone do:
    they divide rows in the proportions of the classes and fit a range around a given λ too; after
    the fit they choose λ and the scale of the logits by rows that were held out. The command fits
    five replicates in folds, and boosted trees where they predict better.

    Args:
        features: D of a table, or an architecture, such as :func:`lexppl.models.images`.
        classes: C for labels, or None for a response, normal unless a likelihood is given.
        k: entries that a mask keeps; or
        penalty: λ in nats. `(low, high)` or `(low, middle, high)` for one fit of every λ between
            (:class:`lexppl.models.PenaltyConditioned`), of which `explain(result, x, penalty=0.02)`
            names one.
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
        imputer: distribution of what is hidden; if None by the rows, else the standard Gaussian of
            a table, 0 of an image; a gap where the predictor reads gaps.
        grouping: which features an entry keeps; one entry a feature if None.
        predictor: in place of the network. A copy learns from its weights, unless it is
            :func:`lexppl.models.frozen`; a :func:`lexppl.models.tree_predictor` is fitted before
            the selector's first step.
        likelihood: what the network's outputs mean: :class:`lexppl.models.CoxLikelihood` for
            survival times, `NegativeBinomialLikelihood`, `OrdinalLikelihood` …; a copy is learned.
            Of survival times give `unit=` the share of events.
        hidden: widths of the selector's hidden layers; by the rows, else (200, 200), if None.
        predictor_hidden: widths of the predictor's; by the rows, else (200, 200, 200), if None.
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
    settings = dict(locals())

    def at_rows(
        rows: TensorRows, counts: Tensor | None, arguments: Mapping[str, Any]
    ) -> tuple[System, Mapping[str, Any]]:
        x, y = (column.flatten(0, rows.row_dim) for column in rows.columns[:2])
        counts = None if rows.by_replicate else counts
        chosen: dict[str, Any] = {**settings, "unit": unit}
        if classes is not None and settings["unit"] is None:
            chosen["unit"] = entropy_unit(y, classes, counts)
        is_table = x.shape[1:] == (features,) and x.is_floating_point() and len(x) > 1
        if not is_table or prior is not None:
            return lex(**chosen), {}
        is_range = penalty is None and k is None and objective is None
        seed, valid, count = arguments["seed"], arguments["valid"], len(rows)
        if isinstance(valid, float) and 0.0 < valid < 1.0 and not is_range:
            count -= round(valid * count)
        plan = plan_for(
            count,
            architecture.entries,
            regime=Regime.SURROGATE_POST_HOC if classes and y.dim() > 1 else Regime.FREE_IN_SITU,
            unit=chosen["unit"],
            one_penalty=not (is_range or isinstance(penalty, Sequence)),
            batch_size=arguments["batch_size"],
            folds=arguments["folds"] or folds,
            k=k,
        )
        if imputer is None and not reads_gaps:
            groups = None if grouping is None else grouping.groups
            chosen["imputer"] = imputer_by_dependence(x, groups, seed, counts)
        chosen |= {name: v for name, v in plan.settings.items() if chosen[name] is None}
        system = lex(**chosen)
        return system.changed(partial(_read_at, plan)) if is_range else system, plan.training

    architecture = architecture_of(features, grouping, NONE, hidden, predictor_hidden)
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

    system = System(build, folds=folds, at_rows=at_rows)
    is_inferred = prior is not None and weights_with_priors(system.program().predictor)
    return replace(system, folds=1) if is_inferred else system


def _read_at(plan: FitPlan, stages: Sequence[Stage]) -> list[Stage]:
    """Stages of a range of λ, read at the plan's and ending with the last epoch."""
    for stage in stages:
        program: Any = stage.terms[0].model
        program.selector.penalty = plan.penalty
    return [replace(stage, keep="last") for stage in stages]


def _own(predictor: nn.Module | None) -> nn.Module | None:
    """A copy of a predictor that learns, so that replicates share nothing."""
    learns = predictor is not None and (
        hasattr(predictor, "fit_rows") or any(p.requires_grad for p in predictor.parameters())
    )
    return copy.deepcopy(predictor) if learns else predictor
