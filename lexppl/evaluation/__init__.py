"""What an explanation is worth: against a known truth, by an impartial judge, by its nats."""

from lexppl.evaluation.bayes.calibration import calibration, mask_calibration
from lexppl.evaluation.bayes.feature_evidence import feature_evidence, log_bayes_factors
from lexppl.evaluation.bayes.guide_check import guide_check
from lexppl.evaluation.bayes.loo import compare_loo, loo, reloo
from lexppl.evaluation.bayes.marginal_likelihood import log_marginal_likelihood
from lexppl.evaluation.bayes.mask_table import mask_table
from lexppl.evaluation.bayes.simulated import GuideFits
from lexppl.evaluation.certified import calibrated_stop, certified_masks
from lexppl.evaluation.change import explain_change, explanation_divergence
from lexppl.evaluation.effects import direction_table, feature_effects, revealed_predictions
from lexppl.evaluation.encode_meter import encode_meter, stripe_x
from lexppl.evaluation.evalx import fit_evalx, fit_predictor
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.folds import Folds
from lexppl.evaluation.importance import importance, interaction_table
from lexppl.evaluation.imputation import imputation
from lexppl.evaluation.mask_scores import fidelity_scores, selection_scores
from lexppl.evaluation.oracle import Oracle
from lexppl.evaluation.penalty_path import penalty_path, plateau
from lexppl.evaluation.prediction import (
    auroc,
    gain_over_base_rate,
    predictive,
    predictive_log_likelihood,
)
from lexppl.evaluation.survival import (
    concordance_index,
    log_hazard_ratio,
    predict_survival,
    with_baseline,
)

__all__ = [
    "FeatureGroups",
    "Folds",
    "GuideFits",
    "Oracle",
    "auroc",
    "calibrated_stop",
    "calibration",
    "certified_masks",
    "compare_loo",
    "concordance_index",
    "direction_table",
    "encode_meter",
    "explain_change",
    "explanation_divergence",
    "feature_effects",
    "feature_evidence",
    "fidelity_scores",
    "fit_evalx",
    "fit_predictor",
    "gain_over_base_rate",
    "guide_check",
    "importance",
    "imputation",
    "interaction_table",
    "log_bayes_factors",
    "log_hazard_ratio",
    "log_marginal_likelihood",
    "loo",
    "mask_calibration",
    "mask_table",
    "penalty_path",
    "plateau",
    "predict_survival",
    "predictive",
    "predictive_log_likelihood",
    "reloo",
    "revealed_predictions",
    "selection_scores",
    "stripe_x",
    "with_baseline",
]
