"""How a model is inferred: objectives, gradient estimators, fits."""

from lexppl.inference.batches import ReplicateData
from lexppl.inference.estimators.base import GradientEstimator
from lexppl.inference.estimators.disarm import DisARM
from lexppl.inference.estimators.enumerate import Enumerate
from lexppl.inference.estimators.rebar import REBAR, TunedControl
from lexppl.inference.estimators.sample_path import (
    MarginalStraightThrough,
    Pathwise,
    PlugInMean,
    StraightThrough,
    Unscored,
)
from lexppl.inference.estimators.score_function import LeaveOneOut, ScoreFunction, SelfNormalized
from lexppl.inference.nested_iwae import NestedIWAE, annealed
from lexppl.inference.objective.objective import (
    Geometric,
    Linear,
    Objective,
    Schedule,
    WarmUp,
    entropy_unit,
)
from lexppl.inference.posterior.global_draws import (
    GlobalDraws,
    PosteriorInference,
    SampledGuide,
    SamplerRecord,
    SamplerWarning,
)
from lexppl.inference.posterior.mcmc import MCMC
from lexppl.inference.posterior.stochastic import SGHMC, SGLD, DiagonalVI, Ensemble, Laplace
from lexppl.inference.replicates import averaged
from lexppl.inference.stages import LossTerm, Stage, System
from lexppl.inference.training.checkpoint import Checkpoints, CheckpointWarning
from lexppl.inference.training.cross_fitting import CrossFitted
from lexppl.inference.training.diagnostics import (
    CollapseWarning,
    NotSettledWarning,
    Settled,
    collapse,
    settled,
)
from lexppl.inference.training.fit import fit
from lexppl.inference.training.result import FitResult, History
from lexppl.inference.training.watch import Epoch, SkippedStepsWarning, TensorBoardLog

__all__ = [
    "MCMC",
    "REBAR",
    "SGHMC",
    "SGLD",
    "CheckpointWarning",
    "Checkpoints",
    "CollapseWarning",
    "CrossFitted",
    "DiagonalVI",
    "DisARM",
    "Ensemble",
    "Enumerate",
    "Epoch",
    "FitResult",
    "Geometric",
    "GlobalDraws",
    "GradientEstimator",
    "History",
    "Laplace",
    "LeaveOneOut",
    "Linear",
    "LossTerm",
    "MarginalStraightThrough",
    "NestedIWAE",
    "NotSettledWarning",
    "Objective",
    "Pathwise",
    "PlugInMean",
    "PosteriorInference",
    "ReplicateData",
    "SampledGuide",
    "SamplerRecord",
    "SamplerWarning",
    "Schedule",
    "ScoreFunction",
    "SelfNormalized",
    "Settled",
    "SkippedStepsWarning",
    "Stage",
    "StraightThrough",
    "System",
    "TensorBoardLog",
    "TunedControl",
    "Unscored",
    "WarmUp",
    "annealed",
    "averaged",
    "collapse",
    "entropy_unit",
    "fit",
    "settled",
]
