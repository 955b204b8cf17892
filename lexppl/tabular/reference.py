"""A predictor of all features that an explainer is compared with, on rows not learned from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lexppl.evaluation.evalx import FittedPredictor
from lexppl.evaluation.folds import Folds, judged
from lexppl.evaluation.prediction import (
    base_log_likelihood,
    behind_sentence,
    is_behind,
    prediction_scores,
    predictive,
    predictive_log_likelihood,
)
from lexppl.inference import Checkpoints, FitResult
from lexppl.inference.training.watch import Progress
from lexppl.systems.fit_plan import FitPlan
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.predictors import best_full_predictor, fit_full_predictor


@dataclass(frozen=True, eq=False)
class Reference:
    """A predictor of all features and the log-likelihood of judged rows by it and by the base rate.

    Args:
        network, full: the network, and the most likely kind of predictor.
        x, y, folds, weights: of the judged rows, as :meth:`EncodedRows.judged` has them.
        by_network, by_full, by_base: log p of each row by both and by the base rate, `(N,)`.
    """

    network: FittedPredictor
    full: FittedPredictor
    x: Tensor
    y: Tensor
    folds: Folds | None
    weights: NDArray[np.float64] | None
    by_network: NDArray[np.float64]
    by_full: NDArray[np.float64]
    by_base: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        plan: FitPlan,
        rows: EncodedRows,
        most: int,
        network: FittedPredictor | None,
        progress: Progress,
        checkpoint: Checkpoints | None,
    ) -> Reference:
        """The reference of a plan's fit on at most so many judged rows; a network that exists
        already is not fitted again."""
        if network is None:
            network = fit_full_predictor(plan, rows, progress, checkpoint)
        (x, y), folds, weights = rows.judged(most, plan.seed)
        full = network if y.dim() == 2 else best_full_predictor(network, plan, rows)
        of_rows = [
            judged(folds, predictive_log_likelihood, predictor.result, x, y, masks=1).mean(0)
            for predictor in (network, full)
        ]
        counts = None if weights is None else weights.cpu().double().numpy()
        of_rows.append(base_log_likelihood(rows.train[1], y))
        by_row = (values.double().cpu().numpy() for values in of_rows)
        return cls(network, full, x, y, folds, counts, *by_row)

    def is_ahead(self, log_likelihood: NDArray[np.float64]) -> bool:
        """Whether rows of these log p, `(N,)`, are less likely by an explainer than by the
        network."""
        return is_behind(log_likelihood, self.by_network, self.by_base, self.weights)

    def log_likelihood(self, result: FitResult, masks: int) -> NDArray[np.float64]:
        """log p of each row by an explainer, mean over replicates, `(N,)`."""
        how = {"masks": masks, "seed": result.seed}
        of_rows = judged(self.folds, predictive_log_likelihood, result, self.x, self.y, **how)
        return np.asarray(of_rows.double().mean(0).cpu().numpy())

    def mean(self, by_row: NDArray[np.float64]) -> float:
        """The mean of values of the judged rows, weighted."""
        return float(np.average(by_row, weights=self.weights))

    def sentence(self, result: FitResult, log_likelihood: NDArray[np.float64], masks: int) -> str:
        """That the explainer predicts worse, with both scores; empty where it does not."""
        if not is_behind(log_likelihood, self.by_full, self.by_base, self.weights):
            return ""
        observed = self.y if self.y.dim() == 1 else self.y.argmax(-1)

        def scores(fit: FitResult, by_row: NDArray[np.float64]) -> dict[str, Any]:
            predictions = judged(self.folds, predictive, fit, self.x, masks=masks, seed=result.seed)
            figures = asdict(prediction_scores(predictions.mean(0), observed))
            return {**figures, "log_likelihood": self.mean(by_row)}

        of_explainer, full = scores(result, log_likelihood), scores(self.full.result, self.by_full)
        return behind_sentence(of_explainer, full, self.full.kind)
