"""What the model is: Pyro programs, and the parts they are made of."""

from lexppl.effects import (
    ParticleCounts,
    imputation_particles,
    label_expectation,
    mask_particles,
    penalty,
)
from lexppl.models.black_box import BlackBox, black_box
from lexppl.models.cx_plain import CXPlain, cx_plain, cx_plain_targets
from lexppl.models.fading_prior import FadingPrior
from lexppl.models.fast_shap import FastSHAP, TeacherTargets, fast_shap
from lexppl.models.full_program import FullProgram
from lexppl.models.grouping import Grouping
from lexppl.models.importance_divergence import importance_divergence
from lexppl.models.imputers import (
    ComplementImputer,
    ConditionalGaussianImputer,
    ConstantImputer,
    GaussianImputer,
    GaussianMixtureImputer,
    KMeansDataImputer,
    MarginalImputer,
    MixtureDataImputer,
    MixtureMeansImputer,
    SquaredMaskImputer,
)
from lexppl.models.invase import PredictorBaseline, invase
from lexppl.models.kl_penalty import KLPenalty
from lexppl.models.l2x import l2x
from lexppl.models.lex import LEX, lex, observe
from lexppl.models.likelihoods import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    Likelihood,
    NormalLikelihood,
    PoissonLikelihood,
)
from lexppl.models.meed import FlippedTargets, meed
from lexppl.models.methods import METHODS, Method, Settings, system_for
from lexppl.models.networks import MLP, ScaledOutput
from lexppl.models.noisy_features import NoisyFeatures
from lexppl.models.output_feedback import OutputFeedback
from lexppl.models.penalties import (
    GiniPenalty,
    Penalty,
    RatePenalty,
    SizePenalty,
    TotalVariationPenalty,
)
from lexppl.models.predictor import Predictor
from lexppl.models.q_fit import DirichletGuide, GlobalImportance, q_fit
from lexppl.models.rationale import rationale
from lexppl.models.real_x import base_x, real_x
from lexppl.models.regimes import Frozen, Regime, frozen, regime_targets
from lexppl.models.selectors import (
    BernoulliSelector,
    DirichletSelector,
    KSubsetSelector,
    MaxConcreteSelector,
    RandomSelector,
    SoftMaskSelector,
)
from lexppl.models.senn import SENN, senn
from lexppl.models.shared_mask import CombinedMask, GatedMask
from lexppl.models.subset_network import SubsetNetwork
from lexppl.models.surrogate import surrogate
from lexppl.models.uniform_size_selector import UniformSizeSelector
from lexppl.models.vibi import vibi
from lexppl.models.xtab import xtab

__all__ = [
    "LEX",
    "METHODS",
    "MLP",
    "SENN",
    "BernoulliLikelihood",
    "BernoulliSelector",
    "BlackBox",
    "CXPlain",
    "CategoricalLikelihood",
    "CombinedMask",
    "ComplementImputer",
    "ConditionalGaussianImputer",
    "ConstantImputer",
    "DirichletGuide",
    "DirichletSelector",
    "FadingPrior",
    "FastSHAP",
    "FlippedTargets",
    "Frozen",
    "FullProgram",
    "GatedMask",
    "GaussianImputer",
    "GaussianMixtureImputer",
    "GiniPenalty",
    "GlobalImportance",
    "Grouping",
    "KLPenalty",
    "KMeansDataImputer",
    "KSubsetSelector",
    "Likelihood",
    "MarginalImputer",
    "MaxConcreteSelector",
    "Method",
    "MixtureDataImputer",
    "MixtureMeansImputer",
    "NoisyFeatures",
    "NormalLikelihood",
    "OutputFeedback",
    "ParticleCounts",
    "Penalty",
    "PoissonLikelihood",
    "Predictor",
    "PredictorBaseline",
    "RandomSelector",
    "RatePenalty",
    "Regime",
    "ScaledOutput",
    "Settings",
    "SizePenalty",
    "SoftMaskSelector",
    "SquaredMaskImputer",
    "SubsetNetwork",
    "TeacherTargets",
    "TotalVariationPenalty",
    "UniformSizeSelector",
    "base_x",
    "black_box",
    "cx_plain",
    "cx_plain_targets",
    "fast_shap",
    "frozen",
    "importance_divergence",
    "imputation_particles",
    "invase",
    "l2x",
    "label_expectation",
    "lex",
    "mask_particles",
    "meed",
    "observe",
    "penalty",
    "q_fit",
    "rationale",
    "real_x",
    "regime_targets",
    "senn",
    "surrogate",
    "system_for",
    "vibi",
    "xtab",
]
