"""Programs with given weights, fits that hold them, and judges of masks."""

import numpy as np
import torch
from torch import nn

from lexppl.evaluation.evalx import EvalX
from lexppl.inference import FitResult
from lexppl.inference.training.result import History
from lexppl.models import (
    LEX,
    MLP,
    BernoulliLikelihood,
    BernoulliSelector,
    CategoricalLikelihood,
    ConstantImputer,
    GaussianImputer,
    KSubsetSelector,
    Predictor,
    SizePenalty,
)
from lexppl.models.selectors import RandomSelector


class Fixed(nn.Module):
    """The same logits for every row."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(torch.as_tensor(logits, dtype=torch.float64))

    def forward(self, x):
        return self.logits.expand(len(x), -1)


class Linear(nn.Module):
    """Logit `w · x` of a Bernoulli response."""

    def __init__(self, *weights):
        super().__init__()
        self.weights = nn.Parameter(torch.tensor(weights, dtype=torch.float64))

    def forward(self, x):
        return (x @ self.weights)[..., None]


def result_of(*models, guides=None, labels=None, event_shape=(3,), names=None):
    replicates = len(models)
    return FitResult(
        models=list(models),
        guides=[None] * replicates if guides is None else guides,
        objective=None,
        history=History(*(np.zeros((0, replicates)) for _ in range(4))),
        best_epoch=np.zeros(replicates, int),
        best_valid=np.zeros(replicates),
        collapse=[None] * replicates,
        interrupted=False,
        event_shape=event_shape,
        labels=labels,
        seed=0,
        entry_names=names,
    )


def model_of(
    logits=(0.3, -0.8, 1.1),
    likelihood=None,
    k=None,
    imputer=None,
    grouping=None,
    columns=3,
    classes=3,
    seed=0,
):
    selector = BernoulliSelector(Fixed(logits)) if k is None else KSubsetSelector(Fixed(logits), k)
    network = MLP(columns, classes if likelihood is None else 1, (8,), "tanh", seed=seed)
    predictor = Predictor(network, CategoricalLikelihood() if likelihood is None else likelihood)
    imputer = ConstantImputer(0.3) if imputer is None else imputer
    model = LEX(selector, imputer, predictor, [SizePenalty(0.1)], grouping=grouping)
    return model.double().eval()


def linear_model(weights, imputer=None, logits=None, likelihood=None, grouping=None):
    return LEX(
        BernoulliSelector(Fixed([0.0] * len(weights) if logits is None else logits)),
        GaussianImputer() if imputer is None else imputer,
        Predictor(Linear(*weights), likelihood or BernoulliLikelihood()),
        grouping=grouping,
    ).double()


def linear(weights):
    """A layer without a bias, `(C, D)` or `(D,)`."""
    weights = torch.as_tensor(weights, dtype=torch.float64)
    layer = nn.Linear(weights.shape[-1], weights.numel() // weights.shape[-1], bias=False)
    layer.weight = nn.Parameter(weights.reshape(-1, weights.shape[-1]))
    return layer


def judge_of(*networks, likelihood=None, imputer=None, grouping=None, columns=3, labels=(0, 1)):
    """EVAL-X whose replicates have these networks."""
    entries = columns if grouping is None else grouping.entries
    imputer = ConstantImputer(0.0) if imputer is None else imputer
    likelihood = CategoricalLikelihood() if likelihood is None else likelihood
    models = [
        LEX(RandomSelector(entries), imputer, Predictor(one, likelihood), grouping=grouping)
        for one in networks
    ]
    models = [model.double().eval() for model in models]
    return EvalX(result_of(*models, labels=labels, event_shape=(columns,)), entries)
