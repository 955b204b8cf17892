"""Predictors fitted to judge: the one that sees all of x, and EVAL-X, which has seen every mask."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lexppl.argument_checks import check_binary, int_at_least, int_between, shaped
from lexppl.evaluation.prediction import (
    PredictionScores,
    prediction_scores,
    predictive,
    predictive_log_likelihood,
)
from lexppl.explanation.sampler import read_log_likelihood, read_prediction, read_runs
from lexppl.inference import CollapseWarning, FitResult, NestedIWAE, TrainingOptions, fit
from lexppl.inference.batches import Data, TensorRows, rows_of
from lexppl.inference.objective.program import ParticleTrace
from lexppl.inference.objective.site import Site
from lexppl.models import (
    LEX,
    MLP,
    CategoricalLikelihood,
    ConstantImputer,
    Grouping,
    Likelihood,
    NormalLikelihood,
    Predictor,
    UnmaskedPredictor,
)
from lexppl.models.architectures.base import Architecture
from lexppl.models.networks import ScaledOutput
from lexppl.models.selectors import RandomSelector


def mask_entries(x: Tensor, grouping: Grouping | None) -> int:
    """G, the mask entries of rows `(N, *event)`."""
    if grouping is not None:
        return grouping.entries
    if x.dim() != 2:
        raise ValueError(f"rows of shape {tuple(x.shape[1:])} need a grouping= of a mask's entries")
    return x.shape[1]


def with_hidden(
    x: Tensor, masks: Tensor, imputer: nn.Module | None, grouping: Grouping | None
) -> Tensor:
    """`x̃ ~ p(x̃ | x, z)`, `(…, N, *event)`, of masks `(…, N, G)`, with 0 without an imputer."""
    keep = masks if grouping is None else grouping(masks)
    distribution = ConstantImputer(0.0).to(x.device, x.dtype) if imputer is None else imputer
    with torch.no_grad():
        imputed: Tensor = distribution(x, keep.to(x.dtype)).sample()
    return imputed


def hard_draws(x: Tensor, masks: Tensor, entries: int) -> Tensor:
    """Checked masks of 0 and 1, `(L, N, G)` or `(N, G)`, as `(L, N, G)` in the type of x."""
    check_binary("masks", masks, (len(x), entries), draws=True)
    if masks.device != x.device:
        raise ValueError(f"x is on {x.device} and masks on {masks.device}; move one")
    return masks.reshape(-1, *masks.shape[-2:]).to(x.dtype)


HIDDEN = (200, 200, 200)
TRAINING: Mapping[str, Any] = {
    "epochs": 100,
    "batch_size": 500,
    "learning_rate": 1e-3,
    "weight_decay": 1e-4,
    "training": TrainingOptions(patience=20),
}


class TrainingShape(NamedTuple):
    """Shape, type and device of a training row, all y (None of a loader), and C if known."""

    event: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    y: Tensor | None
    classes: int | None


def training_shape(train: Data) -> TrainingShape:
    """The shape of a data set, `(x, y)`, or a loader's first batch."""
    if isinstance(train, DataLoader):
        first = next(iter(train), None)
        if not isinstance(first, list | tuple) or len(first) < 2:
            raise ValueError("train: the loader must give batches of (x, y)")
        x, y = first[0], None
    else:
        rows = rows_of(train, torch.get_default_dtype(), "train")
        if not isinstance(rows, TensorRows) or len(rows.columns) < 2:
            raise ValueError("train must have x and y; it has no y")
        x, y = rows.columns[:2]
    return TrainingShape(
        tuple(x.shape[1:]), x.dtype, x.device, y, getattr(train, "n_classes", None)
    )


def predictor_for(
    data: TrainingShape,
    network: nn.Module | None,
    hidden: Sequence[int],
    likelihood: Likelihood | None,
    seed: int,
    architecture: Architecture | None = None,
) -> Predictor:
    """A predictor of y, with network, likelihood and units chosen by the data if not given."""
    y, table = data.y, architecture is None
    if architecture is not None and (
        data.event not in (architecture.event_shape, architecture.hidden_shape)
        or network is not None
        or tuple(hidden) != HIDDEN
    ):
        raise ValueError(
            f"the architecture has rows {architecture.event_shape} and networks of its own; train "
            f"has rows {data.event}: leave network= and hidden= out, or the architecture"
        )
    if y is None and (network is None or likelihood is None):
        raise ValueError("a loader states no classes: give network= and likelihood=, or tensors")
    if table and network is None and len(data.event) != 1:
        raise ValueError(
            f"rows of shape {data.event} need a network=, or an architecture= such as "
            "lexppl.models.images(…); a perceptron takes tables"
        )
    response = y is not None and y.is_floating_point() and y.dim() == 1
    shift, scale = 0.0, 1.0
    if y is not None and response:
        shift = float(y.double().mean())
        scale = (float(y.double().std()) if len(y) > 1 else 0.0) or 1.0
    if likelihood is None:
        likelihood = NormalLikelihood(scale) if response else CategoricalLikelihood()
        likelihood = likelihood.to(data.device, data.dtype)
    if network is None:
        outputs = likelihood.outputs or 1
        if isinstance(likelihood, CategoricalLikelihood) and y is not None:
            outputs = data.classes or (int(y.shape[1]) if y.dim() == 2 else int(y.max()) + 1)
        if architecture is None:
            network = MLP(data.event[0], outputs, hidden, seed=seed)
        else:
            network = architecture.predictor(outputs, seed)
        network = network.to(data.device, data.dtype)
        if response and isinstance(likelihood, NormalLikelihood):
            network = ScaledOutput(network, shift, scale)
    return Predictor(network, likelihood, event_dim=len(data.event))


@dataclass(frozen=True, eq=False)
class FittedPredictor:
    """A predictor that sees all of x: see :func:`fit_predictor`.

    Args:
        result: the fit of a :class:`lexppl.models.UnmaskedPredictor`; of several replicates the
            best one predicts.
        kind: what it is, in words, where it was chosen among several.
    """

    result: FitResult
    kind: str = ""

    @property
    def predictor(self) -> Any:
        """The distribution of y given x: a black box for the post-hoc regimes."""
        return self.result.model.predictor

    def predict(self, x: Tensor) -> Tensor:
        """Probabilities `(N, C)`, or means `(N,)` of responses."""
        return predictive(self.result, x, masks=1)[self.result.best]

    def scores(self, x: Tensor, y: Tensor) -> PredictionScores:
        """Scores of the predictions, the log-likelihood among them."""
        likelihood = predictive_log_likelihood(self.result, x, y, masks=1)[self.result.best]
        return prediction_scores(self.predict(x), y, log_likelihood=likelihood)


def fit_predictor(
    train: Data,
    *,
    valid: Data | float | None = 0.2,
    architecture: Architecture | None = None,
    network: nn.Module | None = None,
    hidden: Sequence[int] = HIDDEN,
    likelihood: Likelihood | None = None,
    replicates: int = 1,
    seed: int = 0,
    **fit_arguments: Any,
) -> FittedPredictor:
    """Fit the predictor that sees everything, `max_θ Σ_n log Φ(y_n | f_θ(x_n))`.

    Args:
        train, valid, architecture, network, hidden, likelihood: as
            :func:`lexppl.evaluation.fit_evalx`.
        replicates: R seeds trained at once; the best one predicts, and all are in `result`.
        fit_arguments: as :func:`lexppl.evaluation.fit_evalx`, and sample_weight.

    Example:
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> full = fit_predictor((x, y), hidden=(16,), epochs=20, batch_size=50,
        ...     learning_rate=1e-2, progress=False)
        >>> full.scores(x, y).accuracy > 0.9
        True
    """
    predictor = predictor_for(
        training_shape(train), network, hidden, likelihood, seed, architecture
    )
    options = {**TRAINING, "valid": valid, "replicates": replicates, "seed": seed, **fit_arguments}
    return FittedPredictor(
        fit(UnmaskedPredictor(predictor), train, objective=NestedIWAE(1), **options)
    )


MASK = "mask"
SCORES = ("accuracy", "auroc", "rmse", "r2", "average_precision")


@dataclass(frozen=True)
class EvalXScores(PredictionScores):
    """Means over draws of masks: eACC and eAUROC are `accuracy` and `auroc`."""

    log_likelihood: float = math.nan
    mean_size: float = math.nan


@dataclass(frozen=True, eq=False)
class EvalX:
    """A predictor of y from any part of x, `p(y | x_S)`: see :func:`fit_evalx`.

    Args:
        result: the fit of a program with the sites `mask` and `y`, such as :class:`LEX`; of
            several replicates the best one judges.
        entries: G, of its masks.
    """

    result: FitResult
    entries: int

    @property
    def predictor(self) -> Any:
        """The distribution of y given an imputed row."""
        return self.result.model.predictor

    def predict(self, x: Tensor, masks: Tensor, *, imputations: int = 1, seed: int = 0) -> Tensor:
        """`p(y | x_S) = 1/K Σ_k p(y | x̃_k)` under masks `(L, N, G)` or `(N, G)`: probabilities
        `(L, N, C)`, or means `(L, N)` of responses.

        Raises:
            ValueError: rows unlike those of the fit, masks of another shape or that are not hard.
        """
        return self._run(x, None, masks, imputations, seed)[0]

    def outcomes(
        self, x: Tensor, y: Tensor, masks: Tensor, *, imputations: int = 1, seed: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Predictions as :meth:`predict`, and `log p(y | x_S)`, `(L, N)`, of one run."""
        shaped("y", y, (len(x),))
        return self._run(x, y, masks, imputations, seed)

    def scores(
        self, x: Tensor, y: Tensor, masks: Tensor, *, imputations: int = 1, seed: int = 0
    ) -> EvalXScores:
        """How well y is predicted from what masks `(L, N, G)` or `(N, G)` keep: figures of each
        draw over all rows `(N, *event)`, of no fit, averaged over the draws."""
        predictions, likelihoods = self.outcomes(x, y, masks, imputations=imputations, seed=seed)
        by_draw = [prediction_scores(drawn, y) for drawn in predictions]
        means: dict[str, float | None] = {}
        for name in SCORES:
            known = [value for s in by_draw if (value := getattr(s, name)) is not None]
            means[name] = sum(known) / len(known) if known else None
        return EvalXScores(
            **means,
            log_likelihood=float(likelihoods.double().mean()),
            mean_size=float(masks.double().sum(-1).mean()),
        )

    def _run(
        self, x: Tensor, y: Tensor | None, masks: Tensor, imputations: int, seed: int
    ) -> tuple[Tensor, Tensor]:
        """Predictions by draw, and log-likelihoods `(L, N)`, without y `(L, 0)`."""
        self.result.check(x, y)
        draws = hard_draws(x, masks, self.entries)
        alone = replace(self.result.subset([self.result.best]), guides=[None])

        def read(runs: Iterator[ParticleTrace], _: slice) -> dict[str, Tensor]:
            (run,) = runs
            if MASK not in run.sites:
                raise ValueError(f"EVAL-X needs a site {MASK!r}; there are {list(run.sites)}")
            values = {"predictions": read_prediction(run)}
            if y is not None:
                values["likelihoods"] = read_log_likelihood(run)
            return {n: v.expand(len(draws), *v.shape[1:]).movedim(0, 1) for n, v in values.items()}

        def forced(_: int, rows: slice) -> Callable[[Site], Tensor | None]:
            return lambda site: draws[:, rows] if site.name == MASK else None

        args = (x,) if y is None else (x, y)
        outcomes = read_runs(alone, args, read, len(draws), imputations, seed, forced=forced)
        outcomes = {name: value[0].movedim(1, 0) for name, value in outcomes.items()}
        return outcomes["predictions"], outcomes.get("likelihoods", draws.new_zeros(len(draws), 0))


def fit_evalx(
    train: Data,
    *,
    valid: Data | float | None = 0.2,
    architecture: Architecture | None = None,
    network: nn.Module | None = None,
    hidden: Sequence[int] = HIDDEN,
    imputer: nn.Module | None = None,
    grouping: Grouping | None = None,
    likelihood: Likelihood | None = None,
    samples: int = 2,
    imputations: int = 1,
    sizes: Sequence[float] | None = None,
    seed: int = 0,
    **fit_arguments: Any,
) -> EvalX:
    """Fit EVAL-X, a predictor that has seen every mask and so can judge any explainer's:

        max_θ Σ_n E_{z ~ Bernoulli(½)} log E_{x̃ ~ p(x̃|x_n,z)} Φ(y_n | f_θ(x̃)).

    Its masks know nothing of x or y, so that a mask buys it only what the kept features say.

    Args:
        train: a data set, `(x, y)`, or a loader (then with `network`, `grouping` and
            `likelihood`). y holds labels, responses (floating), or a black box's probabilities
            `(N, C)`.
        valid: as in :func:`lexppl.inference.fit`; the best epoch on it is kept.
        architecture: of rows that are no table, such as :func:`lexppl.models.images`, whose
            predictor, grouping and imputer EVAL-X then has where none are given.
        network: from imputed rows to the likelihood's outputs; if None a perceptron.
        hidden: widths of its hidden layers.
        imputer: distribution of the hidden features; 0 if None.
        grouping: which features an entry of a mask keeps; if None the architecture's, or the data
            set's own groups, or one entry a feature.
        likelihood: of y; if None categorical for labels, else normal with a learned scale.
        samples: S masks a row and step, at least 2.
        imputations: K imputations a mask.
        sizes: probabilities of masks of 0, …, G entries, those of one size being alike, in place of
            Bernoulli(½), which of many entries hardly ever keeps few: `[1.0] * (G + 1)` for every
            size as often. Probabilities are divided by their sum.
        fit_arguments: epochs (100), batch_size (500), learning_rate (1e-3), weight_decay (1e-4),
            training (`TrainingOptions(patience=20)`), progress (True), checkpoint, as in
            :func:`lexppl.inference.fit`.

    Raises:
        ValueError, TypeError: as `fit`; data from which the network's sizes are not known.

    Source: Jethani, Sudarshan, Aphinyanaphongs, Ranganath. Have we learned to explain? How
        interpretability methods can learn to encode predictions. AISTATS 2021, eq. 8.

    Example:
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> judge = fit_evalx((x, y), hidden=(16,), epochs=20, batch_size=50,
        ...     learning_rate=1e-2, progress=False)
        >>> right, wrong = torch.zeros(2, 200, 3)
        >>> right[:, 0], wrong[:, 2] = 1.0, 1.0
        >>> judge.scores(x, y, right).accuracy > judge.scores(x, y, wrong).accuracy + 0.2
        True
    """
    samples = int_at_least("samples", samples, 2)
    data = training_shape(train)
    if imputer is None:
        chosen = ConstantImputer(0.0) if architecture is None else architecture.imputer()
        imputer = chosen.to(data.device, data.dtype)
    groups = getattr(train, "groups", None)
    if grouping is None and architecture is not None and architecture.grouping is not None:
        grouping = copy.deepcopy(architecture.grouping).to(data.device)
    elif grouping is None and groups is not None:
        grouping = Grouping(groups, getattr(train, "entry_names", None), data.event)
        grouping = grouping.to(data.device)
    elif grouping is None and len(data.event) != 1:
        raise ValueError(f"rows of shape {data.event} need grouping=, or an architecture= with one")
    predictor = predictor_for(data, network, hidden, likelihood, seed, architecture)
    entries = data.event[0] if grouping is None else grouping.entries
    selector = RandomSelector(entries, sizes=sizes)
    model = LEX(selector, imputer, predictor, grouping=grouping)
    with warnings.catch_warnings():
        # One mask distribution for every row is what is wanted here.
        warnings.simplefilter("ignore", CollapseWarning)
        objective = NestedIWAE(1, imputations, samples=samples)
        options = {**TRAINING, "valid": valid, "seed": seed, **fit_arguments}
        result = fit(model, train, objective=objective, **options)
    result.collapse = [None] * result.replicates
    return EvalX(result, entries)


def accuracy_by_size(
    evalx: EvalX,
    ranking: Tensor | None,
    x: Tensor,
    y: Tensor,
    sizes: Sequence[int] | None = None,
    *,
    random_ranking: bool = False,
    imputations: int = 1,
    seed: int = 0,
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The sizes k, and EVAL-X's accuracy (R² of responses) where each row keeps its k
    highest-ranked entries; the control is `random_ranking=True`, each row's entries in a random
    order.

    Args:
        ranking: importances, higher is kept earlier, such as selection probabilities: `(N, G)`.
            Of equal ones the first is kept first. Not read with `random_ranking`.
        x, y: rows of no fit, `(N, *event)`, and their labels or responses, `(N,)`.
        sizes: the k, each in 0 … G; 1 … G if None.
        imputations: K.

    Raises:
        ValueError: a ranking of another shape or not finite, sizes outside 0 … G, no sizes; as
            :meth:`EvalX.scores`.

    Source: Jethani et al. 2021, § 5; figures of accuracy against k of Chen et al. 2018.

    Example:
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> judge = fit_evalx((x, y), hidden=(16,), epochs=20, batch_size=50,
        ...     learning_rate=1e-2, progress=False)
        >>> sizes, found = accuracy_by_size(judge, torch.tensor([[0.9, 0.2, 0.1]] * 200), x, y)
        >>> sizes, found[0] > 0.8
        ((1, 2, 3), True)
    """
    if random_ranking:
        generator = torch.Generator().manual_seed(seed)
        place = torch.rand(len(x), evalx.entries, generator=generator).argsort(1).to(x.device)
    elif ranking is None:
        raise ValueError("give a ranking (N, G), or random_ranking=True for the control")
    else:
        if ranking.shape != (len(x), evalx.entries) or bool(ranking.isnan().any()):
            raise ValueError(
                f"ranking must be numbers of shape ({len(x)}, {evalx.entries}); it has shape "
                f"{tuple(ranking.shape)}, or NaN"
            )
        place = ranking.argsort(dim=1, descending=True, stable=True).argsort(1)
    chosen = tuple(range(1, evalx.entries + 1) if sizes is None else sizes)
    if not chosen:
        raise ValueError("sizes must have at least one size; it is empty")
    reached = []
    for k in chosen:
        int_between("each of sizes", k, 0, evalx.entries, note="the mask entries")
        scores = evalx.scores(x, y, place < k, imputations=imputations, seed=seed)
        value = scores.r2 if scores.accuracy is None else scores.accuracy
        reached.append(math.nan if value is None else value)
    return chosen, tuple(reached)
