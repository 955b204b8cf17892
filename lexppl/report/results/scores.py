"""Held-out scores of a fitted explainer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.choices.settings import NETWORK
from lexppl.data.divided_table import DividedTable
from lexppl.evaluation import prediction
from lexppl.evaluation.evalx import EvalX, EvalXScores, FittedPredictor
from lexppl.evaluation.folds import Folds, judged
from lexppl.explanation.explain import explanation_tree
from lexppl.explanation.reading.masks import PROBABILITY, kind_of, mask_means, masks_of
from lexppl.inference import FitResult
from lexppl.report.divided_rows import DividedRows
from lexppl.summary import number_text
from lexppl.tabular.predictors import WORDS

FIGURE_NAMES: Mapping[str, str] = {
    "agreement": "agrees with the black box",
    "accuracy": "accuracy",
    "auroc": "AUROC",
    "average_precision": "avg precision",
    "log_likelihood": "log-likelihood",
    "rmse": "RMSE",
    "r2": "R²",
}
JUDGED_DRAWS = 20  # Mask draws a row for EVAL-X
PREDICTED_MASKS, LEAST_PREDICTED, PREDICTIONS = 100, 25, 200_000
"""Masks of a row by which the explainer predicts, and fewest where all rows would have more
predictions than these: by 25 the log-likelihood of 20,000 rows is .0001 lower."""
EXPLAINER, FULL = "the explainer", "a predictor that sees everything"
BASE = "the base rate"  # Who is scored
BLACK_BOX = "the black box, on rows it may have learned from"


Rows = DividedTable | DividedRows  # Rows of a table, images or texts, to fit on and held out


def folds_at(source: DividedTable, rows: NDArray[np.int64]) -> Folds | None:
    """Folds of rows of a table, by their places; None where rows are held out from all fits."""
    if source.fold is None or source.folds is None:
        return None
    return Folds(torch.from_numpy(source.fold[rows]).to(source.data.x.device), source.folds)


def folds_of_judged(source: Rows) -> Folds | None:
    """Folds of the judged rows, where there are any."""
    return folds_at(source, source.test_rows) if isinstance(source, DividedTable) else None


@dataclass(frozen=True)
class ScoreRow:
    """One line of the table of held-out scores.

    Args:
        who: what was scored.
        size: mean number of features that it sees.
        figures: means over replicates, of folds over all rows, in the table's own units.
        spreads: standard deviations over replicates, of several.
        losses: share of replicates with a wrong label, or mean squared distance, `(N,)`; None if
            not known.
        kind: of what, in words, where it was chosen among several.
        by_row: log-likelihood of each row, `(N,)`; None if not known.
    """

    who: str
    size: float
    figures: dict[str, float]
    spreads: dict[str, float]
    losses: NDArray[np.float64] | None = field(default=None, compare=False)
    kind: str = ""
    by_row: NDArray[np.float64] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Judgement:
    """Held-out scores."""

    scores: tuple[ScoreRow, ...] = ()

    def of(self, who: str) -> ScoreRow | None:
        """The scores of one of those judged, if known."""
        return next((row for row in self.scores if row.who == who), None)

    @property
    def behind(self) -> str:
        """That the explainer predicts worse than all features, with both scores; empty where it
        does not or where it is not known."""
        known = [row for who in (EXPLAINER, FULL, BASE) if (row := self.of(who)) is not None]
        by_row = [row.by_row for row in known if row.by_row is not None]
        if len(by_row) < 3 or not prediction.is_behind(*by_row):
            return ""
        return prediction.behind_sentence(known[0].figures, known[1].figures, self.other_kind)

    @property
    def other_kind(self) -> str:
        """What the predictor of all features is, where it is no network; empty otherwise."""
        full = self.of(FULL)
        return "" if full is None or WORDS[NETWORK] in full.kind else full.kind


Part = tuple[Tensor, Tensor, Tensor]
"""Places of n held-out rows, R predictions of them `(R, n, …)`, and log-likelihoods `(R, n)`."""


def judge_explainer(
    result: FitResult, source: Rows, seed: int, masks: int = PREDICTED_MASKS
) -> ScoreRow:
    """Scores of the explainer's own predictions."""
    parts: list[Part] = []
    sizes = []
    masks = min(masks, max(LEAST_PREDICTED, PREDICTIONS // len(source.test.y)))
    for fitted, rows in _parts_of(result, source):
        x, y = source.test.x[rows], source.test.y[rows]
        predictions = prediction.predictive(fitted, x, masks=masks, seed=seed)
        if source.data.task == "regression":
            likelihoods = prediction.predictive_log_likelihood(fitted, x, y, masks=masks, seed=seed)
        else:
            labels = y.expand(fitted.replicates, -1)[..., None]
            likelihoods = predictions.gather(-1, labels)[..., 0].log()
        parts.append((rows, predictions, likelihoods))
        posterior = explanation_tree(fitted, x, draws=2, seed=seed)
        mask_sizes = (
            mask_means(posterior).sum("feature") if kind_of(posterior) is PROBABILITY else None
        )
        sizes.append(source.data.n_entries if mask_sizes is None else float(mask_sizes.mean()))
    return _scored(EXPLAINER, float(np.mean(sizes)), parts, source)


def _parts_of(result: FitResult, source: Rows) -> list[tuple[FitResult, Tensor]]:
    """Each replicate with the rows that it holds out, or all with all held-out rows."""
    folds = folds_of_judged(source)
    if folds is None:
        return [(result, torch.arange(len(source.test.y), device=source.test.y.device))]
    return list(folds.each(result))


def score_full(full: FittedPredictor, source: Rows) -> ScoreRow:
    """Scores of a predictor that sees all features."""
    parts: list[Part] = []
    for fitted, rows in _parts_of(full.result, source):
        x, best = source.test.x[rows], [fitted.best]
        likelihoods = prediction.predictive_log_likelihood(fitted, x, source.test.y[rows], masks=1)
        parts.append((rows, prediction.predictive(fitted, x, masks=1)[best], likelihoods[best]))
    return replace(_scored(FULL, source.data.n_entries, parts, source), kind=full.kind)


def judge_base_rate(source: Rows) -> ScoreRow:
    """Scores of the label frequencies, or the normal distribution, of the rows fitted on."""
    train, y = source.train.y, source.test.y
    if source.data.task == "classification":
        share = prediction.base_frequencies(train, len(source.data.class_names or ()))
        predictions = share.expand(1, len(y), -1)
    else:
        predictions = train.mean().expand(1, len(y))
    rows, likelihoods = (
        torch.arange(len(y), device=y.device),
        prediction.base_log_likelihood(train, y),
    )
    return _scored(BASE, 0, [(rows, predictions, likelihoods[None])], source)


def _scored(who: str, size: float, parts: Sequence[Part], source: Rows) -> ScoreRow:
    by_replicate: list[prediction.PredictionScores] = []
    losses, by_row = np.zeros((2, len(source.test.y)))
    for rows, predictions, likelihoods in parts:
        y, places = source.test.y[rows], rows.cpu()
        far = (predictions - y) ** 2 if y.is_floating_point() else predictions.argmax(-1) != y
        losses[places] = far.double().mean(0).cpu().numpy()
        by_row[places] = likelihoods.double().mean(0).cpu().numpy()
        by_replicate += [
            prediction.prediction_scores(p, y, log_likelihood=likelihood)
            for p, likelihood in zip(predictions, likelihoods, strict=True)
        ]
    row = _row(who, size, by_replicate, source)
    return replace(row, by_row=by_row, losses=losses * source.target_scale**2)


def judge_black_box(outputs: Tensor, source: DividedTable) -> ScoreRow:
    """Scores of the black box itself, which may know these rows by heart."""
    predictions = outputs[source.test_rows]
    scores = prediction.prediction_scores(predictions, source.test.y)
    return _row(BLACK_BOX, source.data.n_entries, [scores], source)


def agreement(result: FitResult, outputs: Tensor, source: DividedTable, seed: int) -> float:
    """Share of held-out rows with the black box's label, or R² against its responses, mean over
    replicates."""
    predictions = judged(
        folds_of_judged(source),
        prediction.predictive,
        result,
        source.test.x,
        masks=PREDICTED_MASKS,
        seed=seed,
    )
    target = outputs[source.test_rows]
    if source.data.task == "classification":
        return float((predictions.argmax(-1) == target.argmax(-1)).double().mean())
    scores = [prediction.prediction_scores(p, target).r2 for p in predictions]
    return float(np.mean([s for s in scores if s is not None]))


def judge_by_evalx(
    judge: EvalX, result: FitResult, source: Rows, seed: int, draws: int = JUDGED_DRAWS
) -> ScoreRow:
    """EVAL-X's scores of the explainer's masks."""
    by_replicate: list[EvalXScores] = []
    selects = True
    judges = [fitted for fitted, _ in _parts_of(judge.result, source)]
    for (fitted, rows), by in zip(_parts_of(result, source), judges, strict=True):
        x, y = source.test.x[rows], source.test.y[rows]
        judge_of_part = EvalX(by, judge.entries)
        posterior = explanation_tree(fitted, x, draws=draws, seed=seed)
        masks = _hard(masks_of(posterior)[mask_means(posterior).attrs["site"]].values)
        by_replicate += [
            judge_of_part.scores(x, y, torch.from_numpy(m).to(x.device), seed=seed) for m in masks
        ]
        selects = kind_of(posterior) is PROBABILITY
    size = float(np.mean([scores.mean_size for scores in by_replicate]))
    who = "the explainer's features" if selects else "features above their row's mean"
    return _row(f"EVAL-X on {who}", size, by_replicate, source)


def _hard(masks: np.ndarray) -> np.ndarray:
    """Masks of zeros and ones: of soft ones the entries above their row's mean in size."""
    if np.isin(masks, (0, 1)).all():
        return masks
    masks = np.abs(masks)
    return (masks > masks.mean(-1, keepdims=True)).astype(masks.dtype)


def _row(who: str, size: float, by_replicate: Sequence[Any], source: Rows) -> ScoreRow:
    figures, spreads = {}, {}
    folds = folds_of_judged(source) if len(by_replicate) > 1 else None
    rows = None if folds is None else folds.part.unique(return_counts=True)[1].cpu().numpy()
    for name in FIGURE_NAMES:
        values = [asdict(scores).get(name) for scores in by_replicate]
        known = [_in_own_units(name, value, source) for value in values if value is not None]
        if known:
            figures[name] = float(np.average(known, weights=rows))
            if len(known) > 1 and not np.isnan(spread := np.std(known, ddof=1)):
                spreads[name] = float(spread)
    variance = float(source.test.y.double().var(correction=0))
    if "rmse" in figures and rows is not None and variance > 0.0:
        # R² of a fold would be beside the mean of its own rows.
        error = float(np.average([scores.rmse**2 for scores in by_replicate], weights=rows))
        figures["rmse"] = source.target_scale * math.sqrt(error)
        figures["r2"] = 1.0 - error / variance
    return ScoreRow(who, size, figures, spreads)


def _in_own_units(name: str, value: float, source: Rows) -> float:
    """A figure of a standardised response in the table's own units."""
    scale = source.target_scale
    return {"rmse": value * scale, "log_likelihood": value - math.log(scale)}.get(name, value)


def score_cells(scores: Sequence[ScoreRow], entries: str) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of held-out scores, with spreads over replicates."""
    names = [name for name in FIGURE_NAMES if any(name in row.figures for row in scores)]
    head = ["", entries, *(FIGURE_NAMES[name] for name in names)]
    rows = []
    for row in scores:
        size = f"{row.size:.0f}" if float(row.size).is_integer() else f"{row.size:.1f}"
        who = f"{row.who} ({row.kind})" if row.kind else row.who
        rows.append([who, size, *(_figure(row, name) for name in names)])
    return head, rows


def _figure(row: ScoreRow, name: str) -> str:
    if math.isnan(row.figures.get(name, math.nan)):
        return "–"
    text = number_text if name == "rmse" else "{:.3f}".format
    spread = f" ± {text(row.spreads[name])}" if name in row.spreads else ""
    return text(row.figures[name]).replace("-0.000", "0.000") + spread
