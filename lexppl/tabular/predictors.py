"""Predictors beside an explainer: of all features, EVAL-X, and boosted trees of what is kept."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lexppl.choices.settings import NETWORK, TREES
from lexppl.evaluation import fit_evalx, fit_predictor
from lexppl.evaluation.evalx import EvalX, FittedPredictor
from lexppl.evaluation.folds import Folds, judged
from lexppl.evaluation.importance import LEAST_FOUND
from lexppl.evaluation.prediction import more_by_errors, predictive, predictive_log_likelihood
from lexppl.inference import Checkpoints, FitResult, ReplicateData, TrainingOptions
from lexppl.inference.contexts import seeded
from lexppl.inference.training.watch import Progress
from lexppl.models import (
    MLP,
    CategoricalLikelihood,
    GapImputer,
    HeteroscedasticLikelihood,
    Likelihood,
    NormalLikelihood,
    PoissonLikelihood,
    Predictor,
    StudentTLikelihood,
    UnmaskedPredictor,
    tree_predictor,
)
from lexppl.models.imputers.simple import LearnedConstantImputer
from lexppl.models.lex import LEX
from lexppl.models.likelihoods import CountLikelihood
from lexppl.models.trees.boosted_trees import column_kind, column_values, table_columns
from lexppl.models.trees.tree_predictor import MaskedRows, TreePredictor
from lexppl.systems.fit_plan import FitPlan
from lexppl.tabular.encoded_rows import MOST_JUDGED, EncodedRows
from lexppl.tabular.missing_values import gapped
from lexppl.threads import evaluating

JUDGE_BITS, JUDGE_EPOCHS = 2000, (0.5, 0.75)
"""EVAL-X in folds has the share √(bits / 2000) of a plan's epochs, between these two."""
HIDDEN_RATE = 2.0
"""How far EVAL-X's constant of a hidden number moves by a step, in standard deviations; hidden
levels and markers stay at 0, which no level is."""


def fit_judge(
    plan: FitPlan,
    rows: EncodedRows,
    progress: Progress = False,
    checkpoint: Checkpoints | None = None,
) -> EvalX:
    """Fit EVAL-X by a plan, of rows in folds one for each fold, with fewer steps and more decay for
    few rows; a hidden number becomes a constant that is learned, as 0 is a common value."""
    folds = rows.folds
    share = (plan.unit * len(rows.train[0]) / JUDGE_BITS) ** 0.5
    fewer = 1.0 if folds is None else float(np.clip(share, *JUDGE_EPOCHS))
    x = rows.train[0]
    numbers = ((x != 0) & (x != 1)).any(0).to(x.dtype)
    # What is hidden decides how far a response lies from its mean.
    spread = HeteroscedasticLikelihood() if rows.class_names is None else None
    return fit_evalx(
        rows.train,
        valid=rows.valid,
        imputer=LearnedConstantImputer(HIDDEN_RATE * numbers),
        grouping=rows.grouping,
        likelihood=rows.likelihood or spread,
        hidden=plan.predictor_hidden,
        epochs=max(1, round(fewer * plan.epochs)),
        batch_size=plan.batch_size,
        learning_rate=plan.learning_rate if folds is None else plan.schedule,
        weight_decay=plan.weight_decay if folds is None else plan.weight_decay / plan.unit**2,
        row_weights=None if folds is None else folds.weights,
        seed=plan.seed,
        progress=progress,
        sample_weight=rows.weights,
        training=TrainingOptions(patience=50 if folds is None else None, compile="graph"),
        checkpoint=checkpoint,
    )


def fit_full_predictor(
    plan: FitPlan,
    rows: EncodedRows,
    progress: Progress = False,
    checkpoint: Checkpoints | None = None,
) -> FittedPredictor:
    """Fit the predictor of all of x by a plan; in folds each replicate has its best epoch on its
    own fold.

    Where the plan explains it, a normal scale is then that of the validation residuals.
    """
    folds = rows.folds
    valid: Any = rows.valid
    if folds is not None:
        parts = [folds.rows(r) for r in range(folds.count)]
        fewest = min(map(len, parts))
        valid = ReplicateData([tuple(c[part[:fewest]] for c in rows.train) for part in parts])
    full = fit_predictor(
        rows.train,
        valid=valid,
        row_weights=None if folds is None else folds.weights,
        likelihood=rows.likelihood,
        hidden=plan.predictor_hidden,
        epochs=plan.epochs,
        batch_size=plan.batch_size,
        learning_rate=plan.schedule,
        training=TrainingOptions(compile="graph"),
        seed=plan.seed,
        progress=progress,
        sample_weight=rows.weights,
        checkpoint=checkpoint,
    )
    if full.result.interrupted:
        raise KeyboardInterrupt
    if plan.needs_full_predictor and rows.valid is not None:
        settle_scale(full.predictor, *rows.valid, None if rows.weights is None else rows.weights[1])
    return full


def settle_scale(predictor: nn.Module, x: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
    """Set a normal likelihood's scale to that of residuals of rows that were not learned from.

    Networks of few rows overfit before gradient steps have brought the scale down from 1.
    """
    if isinstance(likelihood := getattr(predictor, "likelihood", None), NormalLikelihood):
        with torch.no_grad(), evaluating(predictor):
            _settle(likelihood, y - predictor(x).mean, weights)


def _settle(likelihood: NormalLikelihood, residuals: Tensor, weights: Tensor | None) -> None:
    if bool(residuals.any()):
        likelihood.settle(residuals, weights)


LINEAR = "linear"
WORDS: Mapping[str, str] = MappingProxyType(
    {NETWORK: "a network", TREES: "boosted trees", LINEAR: "a linear model"}
)
LEAST_SHARE = 1e-12  # Of a label that no row had
GROWN, LEAVES, BINS = 100, 15, 255
"""Trees of an output, and at most leaves of a tree, and bins and levels of a column."""


def best_full_predictor(full: FittedPredictor, plan: FitPlan, rows: EncodedRows) -> FittedPredictor:
    """The predictor of all of x under which rows that it has not learned from are likeliest: the
    network, boosted trees or a linear model, by its `kind`.

    Validation rows choose. In folds those of all other folds do, each by the fit that leaves it
    out, so that no row chooses what it is judged by, and by over a standard error, as folds of
    near ties would choose against themselves. The same rows give a normal scale. Without such rows
    it is the network.
    """
    if not rows.has_judged:
        return full
    (x, y), folds, weights = rows.judged(MOST_JUDGED, plan.seed)
    choosers = [torch.ones(len(x)) > 0] if folds is None else list(folds.weights.cpu() > 0)
    counts = torch.ones(len(x)) if weights is None else weights.cpu()
    models = {NETWORK: copy.deepcopy(full.result.models), **_estimated(full, plan, rows)}
    likelihoods: dict[str, Tensor] = {}
    for name, of_kind in models.items():
        fit = replace(full.result, models=of_kind)
        if isinstance(fit.model.predictor.likelihood, NormalLikelihood):
            residuals = (y - judged(folds, predictive, fit, x, masks=1)[0]).cpu()
            for model, chooser in zip(of_kind, choosers, strict=True):
                _settle(model.predictor.likelihood, residuals[chooser], counts[chooser])
        of_rows = judged(folds, predictive_log_likelihood, fit, x, y, masks=1)[0]
        likelihoods[name] = of_rows.cpu().double()
    chosen = []
    for chooser in choosers:
        best, count = NETWORK, counts[chooser].double().numpy()
        for name in models:
            more = (likelihoods[name] - likelihoods[best])[chooser].numpy()
            better = folds is None and np.average(more, weights=count) > 0.0
            best = name if better or more_by_errors(more, count) else best
        chosen.append(best)
    kind = " or ".join(WORDS[name] for name in models if name in chosen)
    best_models = [models[name][replicate] for replicate, name in enumerate(chosen)]
    return FittedPredictor(replace(full.result, models=best_models), kind)


class _Estimated(nn.Module):
    """A fitted estimator of scikit-learn as a network, by its outputs of rows in float64."""

    def __init__(self, outputs: Callable[[Tensor], NDArray[np.float64]]) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.outputs(x.detach().cpu().double())
        return torch.from_numpy(outputs.reshape(len(x), -1)).to(x)


def _estimated(
    full: FittedPredictor, plan: FitPlan, rows: EncodedRows
) -> dict[str, list[UnmaskedPredictor]]:
    """Boosted trees and a linear model for each replicate, of the kind of y of a full predictor:
    labels, counts or numbers."""
    from sklearn import ensemble, linear_model  # noqa: PLC0415 - slow to import
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415 - slow to import

    x, y = rows.train[0].cpu().double(), rows.train[1].cpu().numpy()
    columns, _ = table_columns(gapped(x, rows.markers), rows.grouping)
    levels = [place for place, features in enumerate(columns) if column_kind(features) == 0]
    trees: dict[str, Any] = {"max_iter": GROWN, "max_leaf_nodes": LEAVES, "early_stopping": False}
    trees |= {"categorical_features": levels or None, "random_state": plan.seed}
    of_y: Likelihood = full.predictor.likelihood
    boosting, linear = ensemble.HistGradientBoostingRegressor(**trees), linear_model.Ridge()
    kind: type[Likelihood] = NormalLikelihood
    if of_y.discrete:
        kind, boosting = CategoricalLikelihood, ensemble.HistGradientBoostingClassifier(**trees)
        linear = linear_model.LogisticRegression(max_iter=1000)
    elif isinstance(of_y, CountLikelihood):
        kind, boosting = PoissonLikelihood, boosting.set_params(loss="poisson")
        linear = linear_model.PoissonRegressor(alpha=1.0 / len(x), max_iter=1000)

    def outputs(estimator: Any, read: Callable[[Tensor], Tensor], x: Tensor) -> NDArray[Any]:
        values = read(x).numpy()
        if not of_y.discrete:
            mean: NDArray[np.float64] = estimator.predict(values)
            return mean if kind is NormalLikelihood else np.log(mean)
        shares = np.full((len(x), len(rows.class_names or ())), LEAST_SHARE)
        shares[:, estimator.classes_] += estimator.predict_proba(values)
        return np.log(shares)

    reads = (lambda x: column_values(gapped(x, rows.markers), columns)), Tensor.double
    models: dict[str, list[UnmaskedPredictor]] = {TREES: [], LINEAR: []}
    for counts in _counts(rows):
        count = counts.double().numpy()
        learned = count > 0
        estimators = zip(models.values(), reads, (boosting, linear), strict=True)
        for of_kind, read, estimator in estimators:
            of_columns = MaskedRows(read(x).numpy()[learned], y[learned], count[learned])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                network = _Estimated(partial(outputs, of_columns.fitted(estimator), read))
            of_kind.append(UnmaskedPredictor(Predictor(network, kind()).to(rows.train[0])))
    return models


def _counts(rows: EncodedRows) -> list[Tensor]:
    """How often each training row counts in each replicate."""
    folds, weights = rows.folds, rows.weights
    counts = torch.ones(len(rows.train[0])) if weights is None else weights[0].cpu()
    return [counts] if folds is None else list(folds.weights.cpu() * counts)


LOGIT_STEP, MOST_LOGIT_STEPS = math.sqrt(2.0), 4
"""Between the factors of logits that are tried, and steps either way. Of scales too: under narrower
ones few draws of what is hidden reach y, and gains are too large."""


def rescale_logits(
    result: FitResult,
    rows: tuple[Tensor, Tensor],
    folds: Folds | None,
    weights: Tensor | None,
    masks: int,
) -> float:
    """Multiply the logits of a fit's networks, or the scales of their normals, by the factor, ¼ to
    4, that makes judged rows likeliest, and return it; 1 where the predictors are no such networks.

    The weight decay of few rows keeps networks unsure of labels that are nearly certain, and few
    steps the scale of responses wide. They stay as they are unless all rows together gain a nat,
    the price of a parameter.

    Source: Guo, Pleiss, Sun, Weinberger. On calibration of modern neural networks. ICML 2017.
    """
    scaled: list[tuple[Tensor, Tensor, bool]] = []
    for part in (part for model in result.models for part in model.predictor.modules()):
        if isinstance(part, Predictor) and isinstance(part.network, MLP):
            likelihood, last = part.likelihood, part.network.layers[-1]
            if isinstance(likelihood, CategoricalLikelihood):
                scaled += [(weight, weight.clone(), False) for weight in last.parameters()]
            elif isinstance(likelihood, NormalLikelihood | StudentTLikelihood):
                scaled.append((likelihood.log_scale, likelihood.log_scale.clone(), True))
    if not scaled:
        return 1.0
    counts = torch.ones(len(rows[0])) if weights is None else weights.cpu()

    def rescale(factor: float) -> None:
        for weight, before, is_log in scaled:
            weight.copy_(before + math.log(factor) if is_log else before * factor)

    def at(factor: float) -> float:
        """Log-likelihood of the judged rows, in nats."""
        rescale(factor)
        how = {"masks": masks, "seed": result.seed}
        of_rows = judged(folds, predictive_log_likelihood, result, *rows, **how)
        return float((counts.double() * of_rows.double().mean(0).cpu()).sum())

    with torch.no_grad():
        start = best = at(1.0)
        for step in (LOGIT_STEP, 1.0 / LOGIT_STEP):
            number = 0
            while number < MOST_LOGIT_STEPS and (nats := at(step ** (number + 1))) > best:
                best, number = nats, number + 1
            if number:
                break
        chosen = step**number if best - start > LEAST_FOUND else 1.0
        rescale(chosen)
    return chosen


MASKS = 50
COPIES, MOST_COPIES = 4, 20_000
"""Of each row, each with a mask of the explainer's, and of all rows at most."""


def trees_where_better(result: FitResult, rows: EncodedRows) -> Mapping[str, float]:
    """Replace a fit's networks by boosted trees where they predict validation labels better by over
    one standard error; the mean log-likelihoods of both, in nats, {} where trees were not tried.

    The selector stays. Trees read hidden features as missing, and learn from masks that it draws
    and from as many random ones. Responses, rows with missing values and wide columns keep
    networks.
    """
    if result.interrupted or not rows.has_judged or not _readable(result, rows):
        return MappingProxyType({})
    weights, models = _counts(rows), result.models
    if rows.folds is None:
        weights *= result.replicates
    try:
        first = _with_trees(
            models[result.best], rows, result.seed + result.best, weights[result.best]
        )
        network = result.subset([result.best])
        better, *means = says_more(replace(network, models=[first]), network, rows, result.best)
        scores = MappingProxyType(dict(zip((TREES, NETWORK), means, strict=True)))
        if not better:
            return scores
        others = [
            first
            if place == result.best
            else _with_trees(model, rows, result.seed + place, weights[place])
            for place, model in enumerate(models)
        ]
    except KeyboardInterrupt:
        result.interrupted = True
        return MappingProxyType({})
    for model, other in zip(models, others, strict=True):
        model.imputer, model.predictor = other.imputer, other.predictor
    return scores


def says_more(
    other: FitResult, fitted: FitResult, rows: EncodedRows, replicate: int = 0
) -> tuple[bool, float, float]:
    """Whether a fit predicts held-out rows better than another by over one standard error of the
    rows' differences, and the mean log-likelihood of each, in nats a row."""
    valid, folds, weights = rows.judged(MOST_JUDGED, fitted.seed)
    if folds is not None:
        fold_rows = folds.rows(replicate)
        valid = valid[0][fold_rows], valid[1][fold_rows]
        weights = None if weights is None else weights[fold_rows]
    count = None if weights is None else weights.cpu().double().numpy()
    by_other, by_fitted = (
        predictive_log_likelihood(fit, *valid, masks=MASKS, seed=fitted.seed)
        .mean(0)
        .double()
        .cpu()
        .numpy()
        for fit in (other, fitted)
    )
    mean, before = (float(np.average(log_p, weights=count)) for log_p in (by_other, by_fitted))
    return more_by_errors(by_other - by_fitted, count), mean, before


def _readable(result: FitResult, rows: EncodedRows) -> bool:
    y = rows.train[1]
    if rows.class_names is None or y.dim() != 1 or rows.markers:
        return False
    sizes = np.bincount(np.asarray(rows.grouping.groups))
    return int(sizes.max()) <= BINS and all(
        isinstance(model, LEX) and not getattr(model.predictor, "reads_gaps", False)
        for model in result.models
    )


def _with_trees(model: Any, rows: EncodedRows, seed: int, weights: Tensor | None) -> LEX:
    """The program with trees fitted to what its selector keeps."""
    x, y = rows.train
    copies = max(1, min(COPIES, MOST_COPIES // len(x)))
    with seeded(seed, x.device), torch.no_grad():
        mask = model.selector(x).sample((copies,))
        keep = mask if model.grouping is None else model.grouping(mask)
    trees: TreePredictor = tree_predictor(
        x, len(rows.class_names or ()), rows.grouping, trees=GROWN, leaves=LEAVES, bins=BINS
    )
    trees = trees.to(x.device, x.dtype)
    trees.fit_copies(torch.where(keep == 1, x, torch.nan), y, seed, weights)
    return LEX(model.selector, GapImputer(), trees, list(model.penalties), model.grouping)
