"""What an explanation is worth: against a known truth, by an impartial judge, by its nats."""

from lexppl.evaluation.accuracy_by_size import accuracy_by_size
from lexppl.evaluation.evalx import (
    EvalX,
    EvalXScores,
    fit_evalx,
)
from lexppl.evaluation.full_model import FullModel, fit_full
from lexppl.evaluation.oracle import BayesScores, Oracle
from lexppl.evaluation.oracle_gap import LabelOracle, OracleGap, oracle_gap, oracle_gaps
from lexppl.evaluation.prediction import (
    PredictionScores,
    auroc,
    prediction_scores,
    predictive,
    predictive_log_likelihood,
)
from lexppl.evaluation.selection import SelectionScores, selection_scores

__all__ = [
    "BayesScores",
    "EvalX",
    "EvalXScores",
    "FullModel",
    "LabelOracle",
    "Oracle",
    "OracleGap",
    "PredictionScores",
    "SelectionScores",
    "accuracy_by_size",
    "auroc",
    "fit_evalx",
    "fit_full",
    "oracle_gap",
    "oracle_gaps",
    "prediction_scores",
    "predictive",
    "predictive_log_likelihood",
    "selection_scores",
]
