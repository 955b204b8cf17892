"""How a model is inferred: objectives, gradient estimators, fits."""

from lexppl.effects import batch_scale
from lexppl.inference.batches import ReplicateData
from lexppl.inference.estimators.base import GradientEstimator
from lexppl.inference.estimators.disarm import DisARM
from lexppl.inference.estimators.enumerate import Enumerate
from lexppl.inference.estimators.leave_one_out import LeaveOneOut
from lexppl.inference.estimators.rebar import REBAR, TunedControl
from lexppl.inference.estimators.sample_path import (
    MarginalStraightThrough,
    Pathwise,
    PlugInMean,
    StraightThrough,
    Unscored,
)
from lexppl.inference.estimators.score_function import ScoreFunction, SelfNormalized
from lexppl.inference.nested_iwae import NestedIWAE, annealed
from lexppl.inference.objective.objective import Geometric, Linear, Objective, WarmUp, entropy_unit
from lexppl.inference.posterior.global_draws import SamplerWarning
from lexppl.inference.posterior.mask_gibbs import MaskGibbs
from lexppl.inference.posterior.mcmc import MCMC
from lexppl.inference.posterior.stochastic import SGHMC, SGLD, DiagonalVI, Ensemble, Laplace
from lexppl.inference.replicates import averaged
from lexppl.inference.stages import LossTerm, Stage, System
from lexppl.inference.training.checkpoint import Checkpoints
from lexppl.inference.training.diagnostics import CollapseWarning, NotSettledWarning, settled
from lexppl.inference.training.fit import fit
from lexppl.inference.training.result import FitResult
from lexppl.inference.training.settings import TrainingOptions
from lexppl.inference.training.watch import TensorBoardLog

__all__ = [
    "MCMC",
    "REBAR",
    "SGHMC",
    "SGLD",
    "Checkpoints",
    "CollapseWarning",
    "DiagonalVI",
    "DisARM",
    "Ensemble",
    "Enumerate",
    "FitResult",
    "Geometric",
    "GradientEstimator",
    "Laplace",
    "LeaveOneOut",
    "Linear",
    "LossTerm",
    "MarginalStraightThrough",
    "MaskGibbs",
    "NestedIWAE",
    "NotSettledWarning",
    "Objective",
    "Pathwise",
    "PlugInMean",
    "ReplicateData",
    "SamplerWarning",
    "ScoreFunction",
    "SelfNormalized",
    "Stage",
    "StraightThrough",
    "System",
    "TensorBoardLog",
    "TrainingOptions",
    "TunedControl",
    "Unscored",
    "WarmUp",
    "annealed",
    "averaged",
    "batch_scale",
    "entropy_unit",
    "fit",
    "settled",
]
