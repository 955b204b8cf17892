"""What an explanation is worth: against a known truth, by an impartial judge, by its nats."""

from lexppl.evaluation.bayes.calibration import calibration
from lexppl.evaluation.bayes.calibration_result import Calibration, UniformRanks
from lexppl.evaluation.bayes.feature_evidence import feature_evidence, log_bayes_factors
from lexppl.evaluation.bayes.guide_check import GuideCheck, GuideWarning, guide_check
from lexppl.evaluation.bayes.log_joint import row_log_likelihood
from lexppl.evaluation.bayes.loo import Loo, LooWarning, compare_loo, loo, reloo
from lexppl.evaluation.bayes.marginal_likelihood import Evidence, log_marginal_likelihood
from lexppl.evaluation.bayes.mask_calibration import ResampledMasks, mask_calibration
from lexppl.evaluation.bayes.mask_table import MaskTable, mask_table
from lexppl.evaluation.bayes.posteriors import GuideFits
from lexppl.evaluation.effects import FeatureEffects, direction_table, feature_effects
from lexppl.evaluation.explanation_divergence import (
    ExplanationDivergence,
    explanation_divergence,
)
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.folds import Folds
from lexppl.evaluation.gain_tables import gain_table, group_table, row_gains
from lexppl.evaluation.gains import FeatureGains, feature_gains
from lexppl.evaluation.imputation import ImputationScores, fair_crps, imputation
from lexppl.evaluation.imputed_samples import ImputedSamples, imputed_samples
from lexppl.evaluation.leaks.encode_meter import EncodeMeter, encode_meter, stripe_x
from lexppl.evaluation.learned import BaseRateGain, gain_over_base_rate
from lexppl.evaluation.penalty_path import PenaltyPath, penalty_path
from lexppl.evaluation.plateau import best_validation, fewest_within, plateau
from lexppl.evaluation.prediction import (
    PredictionScores,
    auroc,
    average_precision,
    prediction_scores,
    predictive,
    predictive_log_likelihood,
)
from lexppl.evaluation.refits.accuracy_by_size import accuracy_by_size
from lexppl.evaluation.refits.evalx import (
    EvalX,
    EvalXScores,
    fit_evalx,
)
from lexppl.evaluation.refits.fidelity import FidelityScores, fidelity_scores
from lexppl.evaluation.refits.fitted_predictor import FittedPredictor, fit_predictor
from lexppl.evaluation.revealed import RevealedPredictions, RowSteps, revealed_predictions
from lexppl.evaluation.stability import Concordance, kendall_w, max_sensitivity
from lexppl.evaluation.survival import (
    concordance_index,
    log_hazard_ratio,
    predict_survival,
    with_baseline,
)
from lexppl.evaluation.truth.encode_oracle import (
    EncodeTruth,
    of_function,
    oracle_encode_meter,
)
from lexppl.evaluation.truth.oracle import BayesScores, Oracle
from lexppl.evaluation.truth.oracle_gap import LabelOracle, OracleGap, oracle_gap, oracle_gaps
from lexppl.evaluation.truth.outside import share_outside
from lexppl.evaluation.truth.selection import SelectionScores, selection_scores
from lexppl.evaluation.truth.switch_oracle import ThreeWaySwitchOracle

__all__ = [
    "BaseRateGain",
    "BayesScores",
    "Calibration",
    "Concordance",
    "EncodeMeter",
    "EncodeTruth",
    "EvalX",
    "EvalXScores",
    "Evidence",
    "ExplanationDivergence",
    "FeatureEffects",
    "FeatureGains",
    "FeatureGroups",
    "FidelityScores",
    "FittedPredictor",
    "Folds",
    "GuideCheck",
    "GuideFits",
    "GuideWarning",
    "ImputationScores",
    "ImputedSamples",
    "LabelOracle",
    "Loo",
    "LooWarning",
    "MaskTable",
    "Oracle",
    "OracleGap",
    "PenaltyPath",
    "PredictionScores",
    "ResampledMasks",
    "RevealedPredictions",
    "RowSteps",
    "SelectionScores",
    "ThreeWaySwitchOracle",
    "UniformRanks",
    "accuracy_by_size",
    "auroc",
    "average_precision",
    "best_validation",
    "calibration",
    "compare_loo",
    "concordance_index",
    "direction_table",
    "encode_meter",
    "explanation_divergence",
    "fair_crps",
    "feature_effects",
    "feature_evidence",
    "feature_gains",
    "fewest_within",
    "fidelity_scores",
    "fit_evalx",
    "fit_predictor",
    "gain_over_base_rate",
    "gain_table",
    "group_table",
    "guide_check",
    "imputation",
    "imputed_samples",
    "kendall_w",
    "log_bayes_factors",
    "log_hazard_ratio",
    "log_marginal_likelihood",
    "loo",
    "mask_calibration",
    "mask_table",
    "max_sensitivity",
    "of_function",
    "oracle_encode_meter",
    "oracle_gap",
    "oracle_gaps",
    "penalty_path",
    "plateau",
    "predict_survival",
    "prediction_scores",
    "predictive",
    "predictive_log_likelihood",
    "reloo",
    "revealed_predictions",
    "row_gains",
    "row_log_likelihood",
    "selection_scores",
    "share_outside",
    "stripe_x",
    "with_baseline",
]
