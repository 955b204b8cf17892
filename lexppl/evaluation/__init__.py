"""What an explanation is worth: against a known truth, by an impartial judge, by its nats."""

from lexppl.evaluation.bayes.calibration import Calibration, calibration, mask_calibration
from lexppl.evaluation.bayes.guide_check import GuideWarning, guide_check
from lexppl.evaluation.bayes.loo import LooWarning, compare_loo, loo, reloo
from lexppl.evaluation.bayes.marginal_likelihood import log_marginal_likelihood
from lexppl.evaluation.bayes.mask_table import feature_evidence, log_bayes_factors, mask_table
from lexppl.evaluation.bayes.simulated import GuideFits
from lexppl.evaluation.effects import direction_table, feature_effects, revealed_predictions
from lexppl.evaluation.encode_meter import encode_meter, stripe_x
from lexppl.evaluation.explanation_divergence import explanation_divergence
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.fidelity import fidelity_scores
from lexppl.evaluation.folds import Folds
from lexppl.evaluation.gains import (
    feature_gains,
    gain_table,
    group_table,
    interaction_table,
    row_gains,
)
from lexppl.evaluation.imputation import imputation, imputed_samples
from lexppl.evaluation.judges import (
    EvalX,
    FittedPredictor,
    accuracy_by_size,
    fit_evalx,
    fit_predictor,
)
from lexppl.evaluation.penalty_path import best_validation, penalty_path, plateau
from lexppl.evaluation.prediction import (
    auroc,
    gain_over_base_rate,
    prediction_scores,
    predictive,
    predictive_log_likelihood,
)
from lexppl.evaluation.survival import (
    concordance_index,
    log_hazard_ratio,
    predict_survival,
    with_baseline,
)
from lexppl.evaluation.truth import Oracle, selection_scores

__all__ = [
    "Calibration",
    "EvalX",
    "FeatureGroups",
    "FittedPredictor",
    "Folds",
    "GuideFits",
    "GuideWarning",
    "LooWarning",
    "Oracle",
    "accuracy_by_size",
    "auroc",
    "best_validation",
    "calibration",
    "compare_loo",
    "concordance_index",
    "direction_table",
    "encode_meter",
    "explanation_divergence",
    "feature_effects",
    "feature_evidence",
    "feature_gains",
    "fidelity_scores",
    "fit_evalx",
    "fit_predictor",
    "gain_over_base_rate",
    "gain_table",
    "group_table",
    "guide_check",
    "imputation",
    "imputed_samples",
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
    "prediction_scores",
    "predictive",
    "predictive_log_likelihood",
    "reloo",
    "revealed_predictions",
    "row_gains",
    "selection_scores",
    "stripe_x",
    "with_baseline",
]
