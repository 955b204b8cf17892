"""Conditional distributions of the hidden features given the kept ones."""

from lexppl.models.imputers.complement import ComplementImputer
from lexppl.models.imputers.conditional_gaussian import ConditionalGaussianImputer
from lexppl.models.imputers.constant import ConstantImputer
from lexppl.models.imputers.copula import CopulaImputer
from lexppl.models.imputers.gap import GapImputer
from lexppl.models.imputers.gaussian import GaussianImputer
from lexppl.models.imputers.imputed import Imputed
from lexppl.models.imputers.imputer import Imputer
from lexppl.models.imputers.marginal import MarginalImputer
from lexppl.models.imputers.mixture.discretized_logistics import (
    DiscretizedLogisticMeansImputer,
    DiscretizedLogisticMixtureImputer,
)
from lexppl.models.imputers.mixture.gaussian_mixture import GaussianMixtureImputer
from lexppl.models.imputers.mixture.kmeans_data import KMeansDataImputer
from lexppl.models.imputers.mixture.mixture_data import MixtureDataImputer
from lexppl.models.imputers.mixture.mixture_means import MixtureMeansImputer
from lexppl.models.imputers.squared import SquaredMaskImputer
from lexppl.models.imputers.vaeac.imputer import VAEACImputer
from lexppl.models.imputers.vaeac.networks import ImageDecoder, ImageEncoder, TableDecoder
from lexppl.models.imputers.vaeac.program import VAEAC, VAEACProposal

__all__ = [
    "VAEAC",
    "ComplementImputer",
    "ConditionalGaussianImputer",
    "ConstantImputer",
    "CopulaImputer",
    "DiscretizedLogisticMeansImputer",
    "DiscretizedLogisticMixtureImputer",
    "GapImputer",
    "GaussianImputer",
    "GaussianMixtureImputer",
    "ImageDecoder",
    "ImageEncoder",
    "Imputed",
    "Imputer",
    "KMeansDataImputer",
    "MarginalImputer",
    "MixtureDataImputer",
    "MixtureMeansImputer",
    "SquaredMaskImputer",
    "TableDecoder",
    "VAEACImputer",
    "VAEACProposal",
]
