"""Cross-fitting: each row's gain comes from a predictor that has not learned from that row."""

import copy
import itertools
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, ClassVar

import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from pyro.distributions.util import broadcast_shape
from torch import Tensor, nn
from torch.distributions import constraints

from lexppl.configured import Configured
from lexppl.effects import EVERY_SHIFT, fold_shift, weights_with_priors
from lexppl.inference.batches import Columns
from lexppl.inference.contexts import seeded
from lexppl.inference.pyro_parameters import FirstRows, floating_type
from lexppl.inference.stages import (
    LossTerm,
    Stage,
    TrainingModules,
    learning_parameters,
    modules_of,
    moved_parts,
    shifted,
    terms_of,
)
from lexppl.threads import evaluating

ROW_DIM = -1  # Of the batch shape of a distribution of y


def mean_distribution(distributions: Sequence[TorchDistribution]) -> TorchDistribution:
    """`1/F Σ_f p_f(y)`, of distributions of one kind: of labels by their probabilities."""
    first = distributions[0]
    if hasattr(first, "mean_of"):
        return first.mean_of(distributions)
    if (labels := _of_labels(first)) is not None:
        return labels(probs=torch.stack([d.probs for d in distributions]).mean(0))
    return MeanDistribution(distributions)


def joined_distribution(distributions: Sequence[TorchDistribution]) -> TorchDistribution:
    """The distribution of rows of several distributions of one kind, block after block."""
    first = distributions[0]
    if len(distributions) == 1:
        return first
    if hasattr(first, "joined"):
        return first.joined(distributions)
    if (labels := _of_labels(first)) is not None:
        dim = ROW_DIM - (1 if labels is dist.Categorical else 0)
        return labels(logits=torch.cat([d.logits for d in distributions], dim))
    return RowBlocks(distributions)


def _of_labels(distribution: TorchDistribution) -> type[TorchDistribution] | None:
    kinds = (kind for kind in (dist.Categorical, dist.Bernoulli) if isinstance(distribution, kind))
    return next(kinds, None)


class _OfSeveral(TorchDistribution):
    """Distributions of one kind as one."""

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, parts: Sequence[TorchDistribution], batch_shape: Sequence[int]) -> None:
        self.parts = list(parts)
        self.has_rsample = all(part.has_rsample for part in parts)
        super().__init__(torch.Size(batch_shape), parts[0].event_shape, validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        return self.parts[0].support


class RowBlocks(_OfSeveral):
    """The rows of several distributions, along the last batch dimension, as one distribution."""

    def __init__(self, blocks: Sequence[TorchDistribution]) -> None:
        self._sizes = [block.batch_shape[ROW_DIM] for block in blocks]
        before = torch.Size(broadcast_shape(*(block.batch_shape[:ROW_DIM] for block in blocks)))
        aligned = [b.expand((*before, n)) for b, n in zip(blocks, self._sizes, strict=True)]
        super().__init__(aligned, (*before, sum(self._sizes)))

    def log_prob(self, value: Tensor) -> Tensor:
        shape = (sum(self._sizes), *self.event_shape)
        value = value.expand(torch.Size(broadcast_shape(value.shape, shape)))
        values = value.split(self._sizes, ROW_DIM - self.event_dim)
        pairs = zip(self.parts, values, strict=True)
        return torch.cat([part.log_prob(of_part) for part, of_part in pairs], ROW_DIM)

    def _joined(self, values: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(values), ROW_DIM - self.event_dim)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._joined([part.sample(torch.Size(sample_shape)) for part in self.parts])

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._joined([part.rsample(torch.Size(sample_shape)) for part in self.parts])

    @property
    def mean(self) -> Tensor:
        return self._joined([part.mean for part in self.parts])

    @property
    def variance(self) -> Tensor:
        return self._joined([part.variance for part in self.parts])

    def expand(self, batch_shape: Any, _instance: Any = None) -> "RowBlocks":
        sizes = zip(self.parts, self._sizes, strict=True)
        return RowBlocks([part.expand((*batch_shape[:ROW_DIM], n)) for part, n in sizes])


class HeldOut(_OfSeveral):
    """The distribution of y by predictors that have not learned from the rows (`judge`), with those
    by predictors that learn from them; it has a density and values to be listed, and no moments."""

    def __init__(self, judge: TorchDistribution, learning: Sequence[TorchDistribution]) -> None:
        super().__init__([judge], judge.batch_shape)
        self.learning = list(learning)

    @property
    def has_enumerate_support(self) -> bool:
        return bool(self.parts[0].has_enumerate_support)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self.parts[0].enumerate_support(expand=expand)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.parts[0].log_prob(value)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "HeldOut":
        others = [distribution.expand(batch_shape) for distribution in self.learning]
        return HeldOut(self.parts[0].expand(batch_shape), others)


class MeanDistribution(_OfSeveral):
    """`1/F Σ_f p_f`, of any distributions of one event."""

    def __init__(self, parts: Sequence[TorchDistribution]) -> None:
        shape = torch.Size(broadcast_shape(*(part.batch_shape for part in parts)))
        super().__init__([part.expand(shape) for part in parts], shape)
        self.has_rsample = False

    def log_prob(self, value: Tensor) -> Tensor:
        log_probs = torch.stack([part.log_prob(value) for part in self.parts])
        return log_probs.logsumexp(0) - math.log(len(log_probs))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            every = torch.stack([part.sample(torch.Size(sample_shape)) for part in self.parts])
            batch = every.shape[1 : every.dim() - self.event_dim]
            which = torch.randint(len(every), batch, device=every.device)
            which = which.reshape(1, *batch, *(1,) * self.event_dim).expand(1, *every.shape[1:])
            return every.gather(0, which).squeeze(0)

    @property
    def mean(self) -> Tensor:
        return torch.stack([part.mean for part in self.parts]).mean(0)

    @property
    def variance(self) -> Tensor:
        between = torch.stack([part.mean for part in self.parts]).var(0, unbiased=False)
        return torch.stack([part.variance for part in self.parts]).mean(0) + between

    def expand(self, batch_shape: Any, _instance: Any = None) -> "MeanDistribution":
        return MeanDistribution([part.expand(batch_shape) for part in self.parts])


PREDICTOR = "predictor"
"""The part of a program that is cross-fitted, by the convention of explainers."""

FIT_ROWS = "fit_rows"  # The method of a predictor that is fitted to rows in one go

TRIED_ROWS = 32  # On which a term of one run is compared with terms of a run each


class CrossFitted(Configured, nn.Module):
    """F predictors, of which number f learns from all rows but those of fold f.

    In a cross-fitted fit a batch stands in the order of its folds, and rows of fold f see predictor
    `f + s` (modulo F), s by :func:`lexppl.effects.fold_shift`: for s = 0 the one that has not
    learned from them. Elsewhere the distribution of y, or the tensor given for it, is the mean,

        p(y | x̃) = 1/F Σ_f p_f(y | x̃).

    Args:
        predictors: F modules from x̃ `(…, B, *event)` to distributions of y of one kind, batch
            shape `(…, B)`, to tensors of floats `(…, B, …)`, or to tuples of these. Another kind
            has class methods `mean_of` and `joined` of several distributions.

    Raises:
        ValueError: fewer than two predictors.
        TypeError: from a call, another output, or a distribution of other batch dimensions.

    Example:
        >>> from lexppl.models import MLP, CategoricalLikelihood, Predictor
        >>> each = [Predictor(MLP(3, 2, (4,), seed=s), CategoricalLikelihood()) for s in (0, 1)]
        >>> x = torch.zeros(4, 3)
        >>> both = CrossFitted(each)(x).probs
        >>> torch.allclose(both, (each[0](x).probs + each[1](x).probs) / 2)
        True
    """

    def __init__(self, predictors: Sequence[nn.Module]) -> None:
        super().__init__()
        if len(predictors) < 2:
            raise ValueError(f"cross-fitting needs two predictors or more; {len(predictors)} given")
        self.predictors = nn.ModuleList(predictors)

    @property
    def reads_gaps(self) -> bool:
        """Whether hidden features must come as NaN, as the first of them says it."""
        return bool(getattr(self.predictors[0], "reads_gaps", False))

    @property
    def likelihood(self) -> Any:
        """What the predictors' outputs mean, as the first of them says it."""
        return self.predictors[0].likelihood

    def forward(self, x: Tensor) -> Any:
        shift = fold_shift()
        if shift is None:
            return _mean([predictor(x) for predictor in self.predictors])
        if shift != EVERY_SHIFT:
            return self._shifted(x, shift)
        with torch.no_grad():
            judge = self._shifted(x, 0)
        return HeldOut(judge, [self._shifted(x, s) for s in range(1, len(self.predictors))])

    def _shifted(self, x: Tensor, shift: int) -> Any:
        """Of the rows of fold f what predictor `f + shift` gives."""
        folds = len(self.predictors)
        row_dim = -1 - int(getattr(self.predictors[0], "event_dim", 1))
        blocks = torch.tensor_split(x, folds, dim=row_dim)
        # A gain comes from a predictor as it will predict: no dropout, and no statistics moved.
        with evaluating(self.predictors) if shift == 0 else nullcontext():
            outputs = [
                (self.predictors[(fold + shift) % folds](block), block.shape[row_dim])
                for fold, block in enumerate(blocks)
                if block.shape[row_dim]
            ]
        return _joined(outputs, x.dim() + row_dim)


def _mean(outputs: Sequence[Any]) -> Any:
    """The mean of the predictors' outputs."""
    first = outputs[0]
    if isinstance(first, tuple):
        return tuple(_mean(parts) for parts in zip(*outputs, strict=True))
    if isinstance(first, Tensor) and first.is_floating_point():
        return torch.stack(list(outputs)).mean(0)
    _refuse_other(first)
    return mean_distribution(outputs)


def _joined(outputs: Sequence[tuple[Any, int]], rows: int) -> Any:
    """Outputs of blocks of rows joined to those of all rows, along the last batch dimension."""
    first = outputs[0][0]
    if isinstance(first, tuple):
        sizes = [size for _, size in outputs]
        parts = zip(*(output for output, _ in outputs), strict=True)
        return tuple(_joined(list(zip(part, sizes, strict=True)), rows) for part in parts)
    if isinstance(first, Tensor) and first.is_floating_point():
        return torch.cat([output for output, _ in outputs], rows)
    _refuse_other(first)
    distributions = []
    for distribution, size in outputs:
        shape = tuple(distribution.batch_shape) or (1,)
        if shape[ROW_DIM] not in (1, size):
            raise TypeError(
                f"cross-fitting joins the rows of {type(first).__name__}, the last dimension of "
                f"its batch shape, which is {shape} of {size} rows: make the others one event, by "
                ".to_event()"
            )
        distributions.append(distribution.expand((*shape[:ROW_DIM], size)))
    return joined_distribution(distributions)


def _refuse_other(output: Any) -> None:
    if not isinstance(output, torch.distributions.Distribution):
        raise TypeError(
            "cross-fitting takes a predictor that gives a distribution of y, a tensor of floats or "
            f"a tuple of these; it gives {type(output).__name__}"
        )


def cross_fitted(
    stages: Sequence[Stage],
    folds: int,
    first: FirstRows | None = None,
    same_gradients: dict[int, bool] | None = None,
) -> list[Stage]:
    """Stages whose predictors are F each, learned by terms of their own. With `f(n)` the fold of n,

        max_γ  Σ_n ℒ_n(γ; θ_{f(n)}),                 (predictor f has not learned from fold f)
        max_θ  1/(F−1) Σ_s Σ_n ℒ_n(γ; θ_{f(n)+s}),   s = 1 … F − 1.

    Terms of both kinds become one run where its gradient on the `first` batch is that of the terms
    apart; `same_gradients` holds by place whether it is, for other copies of the stages.

    Raises:
        ValueError: stages without a predictor that learns, or one whose weights have priors.
    """
    wrapped = _wrap_predictors(stages, folds)
    if not wrapped:
        raise ValueError(
            f"folds={folds} cross-fits the part of a program called {PREDICTOR!r}, and no term has "
            "one that learns; leave folds out"
        )
    same_gradients = {} if same_gradients is None else same_gradients
    places = itertools.count()

    def made_of(term: LossTerm) -> list[LossTerm]:
        place, (apart, at_once) = next(places), _terms(term, wrapped, folds)
        if first is None or at_once is None:
            return apart
        if place not in same_gradients:
            same_gradients[place] = _same_gradients([at_once], apart, first)
        return [at_once] if same_gradients[place] else apart

    return [
        replace(stage, terms=[made for term in stage.terms for made in made_of(term)])
        for stage in stages
    ]


def learned_predictors(stages: Sequence[Stage]) -> list[nn.Module]:
    """The predictors of programs that some term moves or that are fitted to rows, each once."""
    learned = _learned(stages)
    return [
        predictor
        for predictor in predictors_of(stages)
        if hasattr(predictor, FIT_ROWS) or any(id(p) in learned for p in predictor.parameters())
    ]


def predictors_of(stages: Sequence[Stage]) -> list[nn.Module]:
    """The predictors of programs, each once."""
    held = (getattr(term.model, PREDICTOR, None) for term in terms_of(stages))
    return list(
        {
            id(predictor): predictor for predictor in held if isinstance(predictor, nn.Module)
        }.values()
    )


def refuse_cross_fitted(stages: Sequence[Stage]) -> None:
    """Refuse to train cross-fitted predictors on rows on which they are to judge."""
    learned = _learned(stages)
    for term in terms_of(stages):
        predictor = getattr(term.model, PREDICTOR, None)
        refitted = isinstance(predictor, CrossFitted) and hasattr(predictor.predictors[0], FIT_ROWS)
        parts = (part for whole in modules_of(term) for part in whole.modules())
        held = (p for part in parts if isinstance(part, CrossFitted) for p in part.parameters())
        if refitted or any(id(parameter) in learned for parameter in held):
            raise ValueError(
                f"{type(term.model).__name__} has predictors of a cross-fitted fit, which would "
                "now learn from the rows that they have been kept from: fit a new model, or give "
                "this one lexppl.models.frozen(predictor)"
            )


def _learned(stages: Sequence[Stage]) -> set[int]:
    """The parameters that some term moves, by identity."""
    return learning_parameters(part for term in terms_of(stages) for part in moved_parts(term))


def _wrap_predictors(stages: Sequence[Stage], folds: int) -> list[CrossFitted]:
    """Put F predictors in the place of each that learns, wherever it is held."""
    wrappers = {}
    for predictor in learned_predictors(stages):
        if weights_with_priors(predictor):
            raise ValueError(
                f"folds={folds} fits predictors without a fold's rows, and this one's weights have "
                "priors, whose posterior is of all rows: leave folds out, or give 1"
            )
        others = [copy.deepcopy(predictor) for _ in range(1, folds)]
        wrappers[id(predictor)] = CrossFitted([predictor, *others])
    # All holders are found before any has a wrapper, which holds the predictor in its turn.
    holders = {
        id(holder): holder
        for term in terms_of(stages)
        for whole in (*modules_of(term), *term.objective.modules)
        for holder in whole.modules()
        if not isinstance(holder, CrossFitted)
    }
    for holder in holders.values():
        for name, child in list(holder.named_children()):
            if id(child) in wrappers:
                setattr(holder, name, wrappers[id(child)])
    return list(wrappers.values())


def _terms(
    term: LossTerm, wrapped: Sequence[CrossFitted], folds: int
) -> tuple[list[LossTerm], LossTerm | None]:
    """The terms that a term becomes, and where they are of both kinds a term of one run."""
    held = {id(module) for whole in modules_of(term) for module in whole.modules()}
    mine = [crossed for crossed in wrapped if id(crossed) in held]
    if not mine:
        return [term], None
    by_predictor = {id(crossed.predictors[0]): crossed for crossed in mine}
    learns = term.learns
    if learns is not None:
        learns = [by_predictor.get(id(part), part) for part in learns]
    of_predictor = {id(p) for crossed in mine for p in crossed.parameters()}
    moved = learning_parameters(moved_parts(replace(term, learns=learns)))
    terms = []
    if moved - of_predictor:
        terms.append(replace(term, learns=learns, spares=[*term.spares, *mine], fold_shift=0))
    if moved & of_predictor:
        terms += [
            replace(term, learns=mine, weight=term.weight / (folds - 1), fold_shift=shift)
            for shift in range(1, folds)
        ]
    at_once = replace(term, learns=learns, fold_shift=EVERY_SHIFT)
    return terms, at_once if len(terms) == folds else None


def _same_gradients(
    terms: Sequence[LossTerm], others: Sequence[LossTerm], first: FirstRows
) -> bool:
    """Whether terms have the gradient of others on a few rows, for the same draws."""
    modules = TrainingModules([Stage([*terms, *others])])
    try:
        batch = tuple(column[:TRIED_ROWS] for column in first(floating_type([modules])))
        expected, gradients = (_gradients(modules, chosen, batch) for chosen in (others, terms))
    except Exception:
        # A program may do with a distribution what this one has not. What cannot be run at all is
        # refused by the fit's own checks.
        return False
    # A gradient that is not finite is that of rows that the fit's own checks refuse.
    return gradients.keys() == expected.keys() and all(
        bool(gradient.isfinite().all())
        and torch.allclose(
            gradients[name], gradient, rtol=1e-3, atol=1e-5 * float(gradient.abs().max())
        )
        for name, gradient in expected.items()
    )


def _gradients(
    modules: TrainingModules, terms: Sequence[LossTerm], batch: Columns
) -> dict[str, Tensor]:
    """The gradient of terms in what they move, by name; running statistics stay."""
    total: dict[str, Tensor] = {}
    parameters = dict(modules.named_parameters())
    statistics = [(buffer, buffer.clone()) for buffer in modules.buffers()]
    for term in terms:
        names = modules.learned_by(term)
        with seeded(0, batch[0].device), shifted(term):
            loss = term.weight * modules(term, term.objective.at(1.0), batch)
        gradients = torch.autograd.grad(loss, [parameters[n] for n in names], allow_unused=True)
        for name, gradient in zip(names, gradients, strict=True):
            if gradient is not None:
                total[name] = gradient + total.get(name, 0.0)
    for buffer, before in statistics:
        buffer.copy_(before)
    return total
