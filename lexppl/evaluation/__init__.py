"""What an explanation is worth: against a known truth, by an impartial judge, by its nats."""

from lexppl.evaluation.accuracy_by_size import accuracy_by_size
from lexppl.evaluation.evalx import (
    EvalX,
    EvalXScores,
    FullModel,
    FullProgram,
    ScaledOutput,
    fit_evalx,
    fit_full,
)
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
    "FullProgram",
    "LabelOracle",
    "Oracle",
    "OracleGap",
    "PredictionScores",
    "ScaledOutput",
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
