"""What the model is: Pyro programs, and the parts they are made of."""

from lexppl.effects import imputation_particles, mask_particles, penalty
from lexppl.models.architectures.images import flat_images, images
from lexppl.models.architectures.texts import texts
from lexppl.models.black_box import black_box
from lexppl.models.grouping import Grouping
from lexppl.models.imputers.conditional_gaussian import ConditionalGaussianImputer
from lexppl.models.imputers.copula import CopulaImputer
from lexppl.models.imputers.imputer import Imputer
from lexppl.models.imputers.logistics import (
    DiscretizedLogisticMeansImputer,
    DiscretizedLogisticMixtureImputer,
)
from lexppl.models.imputers.mixture import GaussianMixtureImputer, MixtureMeansImputer
from lexppl.models.imputers.rows import KMeansDataImputer, MixtureDataImputer
from lexppl.models.imputers.simple import (
    ConstantImputer,
    GapImputer,
    GaussianImputer,
    MarginalImputer,
    SquaredMaskImputer,
)
from lexppl.models.imputers.vaeac import VAEACImputer
from lexppl.models.imputers.words import BigramImputer, PaddingImputer, UnigramImputer
from lexppl.models.lex import LEX, SequentialLEX, observe
from lexppl.models.likelihoods import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    HeteroscedasticLikelihood,
    Likelihood,
    NegativeBinomialLikelihood,
    NormalLikelihood,
    OrdinalLikelihood,
    PoissonLikelihood,
    StudentTLikelihood,
    ZeroInflatedNegativeBinomialLikelihood,
    ZeroInflatedPoissonLikelihood,
)
from lexppl.models.networks import MLP
from lexppl.models.penalties import (
    CostPenalty,
    GiniPenalty,
    GridVariationPenalty,
    IsingPenalty,
    KLPenalty,
    Penalty,
    SizePenalty,
    TotalVariationPenalty,
)
from lexppl.models.predictor import Predictor, UnmaskedPredictor
from lexppl.models.priors import (
    BetaBernoulliSelector,
    HorseshoeLinear,
    PriorLogits,
    SiteOffsets,
    with_prior,
)
from lexppl.models.regimes import frozen, regime_targets
from lexppl.models.selectors import (
    BernoulliSelector,
    ChainSelector,
    DirichletSelector,
    KSubsetSelector,
    MaxConcreteSelector,
    PenaltyConditioned,
    PenaltyRangeSelector,
    RandomSizeSelector,
    Selector,
)
from lexppl.models.survival import CoxLikelihood
from lexppl.models.trees.tree_predictor import tree_predictor

__all__ = [
    "LEX",
    "MLP",
    "BernoulliLikelihood",
    "BernoulliSelector",
    "BetaBernoulliSelector",
    "BigramImputer",
    "CategoricalLikelihood",
    "ChainSelector",
    "ConditionalGaussianImputer",
    "ConstantImputer",
    "CopulaImputer",
    "CostPenalty",
    "CoxLikelihood",
    "DirichletSelector",
    "DiscretizedLogisticMeansImputer",
    "DiscretizedLogisticMixtureImputer",
    "GapImputer",
    "GaussianImputer",
    "GaussianMixtureImputer",
    "GiniPenalty",
    "GridVariationPenalty",
    "Grouping",
    "HeteroscedasticLikelihood",
    "HorseshoeLinear",
    "Imputer",
    "IsingPenalty",
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
    "OrdinalLikelihood",
    "PaddingImputer",
    "Penalty",
    "PenaltyConditioned",
    "PenaltyRangeSelector",
    "PoissonLikelihood",
    "Predictor",
    "PriorLogits",
    "RandomSizeSelector",
    "Selector",
    "SequentialLEX",
    "SiteOffsets",
    "SizePenalty",
    "SquaredMaskImputer",
    "StudentTLikelihood",
    "TotalVariationPenalty",
    "UnigramImputer",
    "UnmaskedPredictor",
    "VAEACImputer",
    "ZeroInflatedNegativeBinomialLikelihood",
    "ZeroInflatedPoissonLikelihood",
    "black_box",
    "flat_images",
    "frozen",
    "images",
    "imputation_particles",
    "mask_particles",
    "observe",
    "penalty",
    "regime_targets",
    "texts",
    "tree_predictor",
    "with_prior",
]
