"""Explanations of predictions, as statistical inference.

- `lexppl.models`: what is the model. Pyro programs, and the parts they are made of.
- `lexppl.inference`: how it is inferred. Objectives, gradient estimators, fits.
- `lexppl.distributions`: distributions of masks.
- `lexppl.explanation`, `lexppl.plots`: the posterior of the masks as ArviZ data, and pictures.
- `lexppl.data`, `lexppl.evaluation`: sets with ground truth, and what an explanation is worth.
- `lexppl.tabular`: all of it as scikit-learn estimators.
"""

from importlib.metadata import version

from lexppl.explanation import explain
from lexppl.inference import fit
from lexppl.saving import load, save
from lexppl.tabular import ExplainerClassifier, ExplainerRegressor

__version__ = version("lexppl")
__all__ = [
    "ExplainerClassifier",
    "ExplainerRegressor",
    "__version__",
    "explain",
    "fit",
    "load",
    "save",
]
