"""What the model is: Pyro programs, and the parts they are made of."""

from lexppl.effects import (
    ParticleCounts,
    imputation_particles,
    label_expectation,
    mask_particles,
    penalty,
)
from lexppl.models.adapted_normalisation import AdaptedNormalisation, adapted_normalisation
from lexppl.models.black_box import BlackBox, black_box
from lexppl.models.counts import (
    NegativeBinomialLikelihood,
    PoissonLikelihood,
    ZeroInflatedPoissonLikelihood,
)
from lexppl.models.grouping import Grouping
from lexppl.models.imputers import (
    ComplementImputer,
    ConditionalGaussianImputer,
    ConstantImputer,
    GapImputer,
    GaussianImputer,
    GaussianMixtureImputer,
    KMeansDataImputer,
    MarginalImputer,
    MixtureDataImputer,
    MixtureMeansImputer,
    SquaredMaskImputer,
)
from lexppl.models.lex import LEX, observe
from lexppl.models.likelihoods import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    HeteroscedasticLikelihood,
    Likelihood,
    NormalLikelihood,
    StudentTLikelihood,
)
from lexppl.models.missing import GapsFromMarkers, HiddenByNature, ObservedSelector
from lexppl.models.networks import MLP, ScaledOutput
from lexppl.models.ordinal import OrdinalLikelihood
from lexppl.models.penalties import (
    CostPenalty,
    GiniPenalty,
    KLPenalty,
    Penalty,
    RatePenalty,
    SizePenalty,
    TotalVariationPenalty,
)
from lexppl.models.predictor import Predictor
from lexppl.models.priors import (
    BetaBernoulliSelector,
    HorseshoeLinear,
    PriorLogits,
    RandomSizeSelector,
    SiteOffsets,
    with_prior,
)
from lexppl.models.regimes import Frozen, Regime, frozen, regime_targets
from lexppl.models.selectors import (
    BernoulliSelector,
    DirichletSelector,
    KSubsetSelector,
    MaxConcreteSelector,
    RandomSelector,
    SoftMaskSelector,
)
from lexppl.models.survival import (
    BaselineHazard,
    CoxLikelihood,
    PartialLikelihood,
    ProportionalHazards,
)
from lexppl.models.trees import (
    BoostedTrees,
    EstimatorPredictor,
    TreePredictor,
    estimator_predictor,
    tree_predictor,
)
from lexppl.models.unmasked_predictor import UnmaskedPredictor

__all__ = [
    "LEX",
    "MLP",
    "AdaptedNormalisation",
    "BaselineHazard",
    "BernoulliLikelihood",
    "BernoulliSelector",
    "BetaBernoulliSelector",
    "BlackBox",
    "BoostedTrees",
    "CategoricalLikelihood",
    "ComplementImputer",
    "ConditionalGaussianImputer",
    "ConstantImputer",
    "CostPenalty",
    "CoxLikelihood",
    "DirichletSelector",
    "EstimatorPredictor",
    "Frozen",
    "GapImputer",
    "GapsFromMarkers",
    "GaussianImputer",
    "GaussianMixtureImputer",
    "GiniPenalty",
    "Grouping",
    "HeteroscedasticLikelihood",
    "HiddenByNature",
    "HorseshoeLinear",
    "KLPenalty",
    "KMeansDataImputer",
    "KSubsetSelector",
    "Likelihood",
    "MarginalImputer",
    "MaxConcreteSelector",
    "MixtureDataImputer",
    "MixtureMeansImputer",
    "NegativeBinomialLikelihood",
    "NormalLikelihood",
    "ObservedSelector",
    "OrdinalLikelihood",
    "PartialLikelihood",
    "ParticleCounts",
    "Penalty",
    "PoissonLikelihood",
    "Predictor",
    "PriorLogits",
    "ProportionalHazards",
    "RandomSelector",
    "RandomSizeSelector",
    "RatePenalty",
    "Regime",
    "ScaledOutput",
    "SiteOffsets",
    "SizePenalty",
    "SoftMaskSelector",
    "SquaredMaskImputer",
    "StudentTLikelihood",
    "TotalVariationPenalty",
    "TreePredictor",
    "UnmaskedPredictor",
    "ZeroInflatedPoissonLikelihood",
    "adapted_normalisation",
    "black_box",
    "estimator_predictor",
    "frozen",
    "imputation_particles",
    "label_expectation",
    "mask_particles",
    "observe",
    "penalty",
    "regime_targets",
    "tree_predictor",
    "with_prior",
]
