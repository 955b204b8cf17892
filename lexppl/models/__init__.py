"""What the model is: Pyro programs, and the parts they are made of."""

from lexppl.effects import (
    ParticleCounts,
    imputation_particles,
    label_expectation,
    mask_particles,
    penalty,
)
from lexppl.models.black_box import BlackBox, black_box
from lexppl.models.full_program import FullProgram
from lexppl.models.grouping import Grouping
from lexppl.models.imputers import (
    ConditionalGaussianImputer,
    ConstantImputer,
    GaussianImputer,
    GaussianMixtureImputer,
    KMeansDataImputer,
    MarginalImputer,
    MixtureDataImputer,
    MixtureMeansImputer,
)
from lexppl.models.lex import LEX, lex, observe
from lexppl.models.likelihoods import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    Likelihood,
    NormalLikelihood,
    PoissonLikelihood,
)
from lexppl.models.networks import MLP, ScaledOutput
from lexppl.models.penalties import (
    Penalty,
    RatePenalty,
    SizePenalty,
    TotalVariationPenalty,
)
from lexppl.models.predictor import Predictor
from lexppl.models.regimes import Frozen, Regime, frozen, regime_targets
from lexppl.models.selectors import BernoulliSelector, KSubsetSelector, RandomSelector

__all__ = [
    "LEX",
    "MLP",
    "BernoulliLikelihood",
    "BernoulliSelector",
    "BlackBox",
    "CategoricalLikelihood",
    "ConditionalGaussianImputer",
    "ConstantImputer",
    "Frozen",
    "FullProgram",
    "GaussianImputer",
    "GaussianMixtureImputer",
    "Grouping",
    "KMeansDataImputer",
    "KSubsetSelector",
    "Likelihood",
    "MarginalImputer",
    "MixtureDataImputer",
    "MixtureMeansImputer",
    "NormalLikelihood",
    "ParticleCounts",
    "Penalty",
    "PoissonLikelihood",
    "Predictor",
    "RandomSelector",
    "RatePenalty",
    "Regime",
    "ScaledOutput",
    "SizePenalty",
    "TotalVariationPenalty",
    "black_box",
    "frozen",
    "imputation_particles",
    "label_expectation",
    "lex",
    "mask_particles",
    "observe",
    "penalty",
    "regime_targets",
]
