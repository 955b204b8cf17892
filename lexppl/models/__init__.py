"""What the model is: Pyro programs, and the parts they are made of."""

from lexppl.effects import imputation_particles, label_expectation, mask_particles, penalty
from lexppl.models.architectures.base import Architecture, TableArchitecture
from lexppl.models.architectures.images import (
    FlatImageArchitecture,
    ImageArchitecture,
    flat_images,
    images,
)
from lexppl.models.architectures.texts import TextArchitecture, texts
from lexppl.models.black_box import BlackBox, black_box
from lexppl.models.grouping import Grouping, slic_segments
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
from lexppl.models.imputers.vaeac import VAEAC, VAEACImputer, VAEACProposal
from lexppl.models.imputers.words import BigramImputer, PaddingImputer, UnigramImputer
from lexppl.models.lex import LEX, observe
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
from lexppl.models.missing import HiddenByNature
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
    RandomSizeSelector,
    SiteOffsets,
    with_prior,
)
from lexppl.models.regimes import Frozen, adapted_normalisation, frozen, regime_targets
from lexppl.models.selectors import (
    BernoulliSelector,
    ChainSelector,
    DirichletSelector,
    KSubsetSelector,
    MaxConcreteSelector,
    PenaltyConditioned,
    RandomSelector,
    Selector,
)
from lexppl.models.survival import (
    BaselineHazard,
    CoxLikelihood,
    PartialLikelihood,
    ProportionalHazards,
)
from lexppl.models.trees.tree_predictor import TreePredictor, tree_predictor

__all__ = [
    "LEX",
    "MLP",
    "VAEAC",
    "Architecture",
    "BaselineHazard",
    "BernoulliLikelihood",
    "BernoulliSelector",
    "BetaBernoulliSelector",
    "BigramImputer",
    "BlackBox",
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
    "FlatImageArchitecture",
    "Frozen",
    "GapImputer",
    "GaussianImputer",
    "GaussianMixtureImputer",
    "GiniPenalty",
    "GridVariationPenalty",
    "Grouping",
    "HeteroscedasticLikelihood",
    "HiddenByNature",
    "HorseshoeLinear",
    "ImageArchitecture",
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
    "PartialLikelihood",
    "Penalty",
    "PenaltyConditioned",
    "PoissonLikelihood",
    "Predictor",
    "PriorLogits",
    "ProportionalHazards",
    "RandomSelector",
    "RandomSizeSelector",
    "Selector",
    "SiteOffsets",
    "SizePenalty",
    "SquaredMaskImputer",
    "StudentTLikelihood",
    "TableArchitecture",
    "TextArchitecture",
    "TotalVariationPenalty",
    "TreePredictor",
    "UnigramImputer",
    "UnmaskedPredictor",
    "VAEACImputer",
    "VAEACProposal",
    "ZeroInflatedNegativeBinomialLikelihood",
    "ZeroInflatedPoissonLikelihood",
    "adapted_normalisation",
    "black_box",
    "flat_images",
    "frozen",
    "images",
    "imputation_particles",
    "label_expectation",
    "mask_particles",
    "observe",
    "penalty",
    "regime_targets",
    "slic_segments",
    "texts",
    "tree_predictor",
    "with_prior",
]
