"""Cross-fitting: each row's gain comes from a predictor that has not learned from that row."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor, nn

from lexppl.configured import Configured
from lexppl.effects import fold_shift
from lexppl.evaluation_mode import evaluating
from lexppl.inference.stages import LossTerm, Stage, learning_parameters, modules_of
from lexppl.weights_drawn_first import weights_with_priors

PREDICTOR = "predictor"
"""The part of a program that is cross-fitted, by the convention of explainers."""

FIT_ROWS = "fit_rows"
"""The method of a predictor that is fitted to rows in one go."""

FAMILIES: Mapping[type, list[str]] = MappingProxyType(
    {
        dist.Categorical: [],
        dist.Bernoulli: [],
        dist.Normal: ["loc", "scale"],
        dist.StudentT: ["df", "loc", "scale"],
        dist.Poisson: ["rate"],
        dist.NegativeBinomial: ["total_count", "logits"],
        dist.ZeroInflatedPoisson: ["rate", "gate_logits"],
        dist.ZeroInflatedNegativeBinomial: ["total_count", "logits", "gate_logits"],
    }
)
"""Distributions of y, and the parameters that each is made from; of labels logits or
probabilities."""

ROW_DIM = -1
"""Of the batch shape of a distribution of y."""


class CrossFitted(Configured, nn.Module):
    """F predictors, of which number f learns from all rows but those of fold f.

    Within a cross-fitted fit a batch stands in the order of its folds, and the rows of fold f see
    predictor `f + s` (modulo F), s being :func:`lexppl.effects.fold_shift`: for s = 0 the one that
    has not learned from them. Elsewhere the distribution of y is the mean of the predictors',

        p(y | x̃) = 1/F Σ_f p_f(y | x̃).

    Args:
        predictors: F modules from x̃ `(…, B, *event)` to distributions of y of one family, batch
            shape `(…, B)`: one of :data:`FAMILIES`, or one with class methods `mean_of` and
            `joined` of several distributions.

    Raises:
        ValueError: fewer than two predictors.
        TypeError: from a call, a distribution of another family.

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

    def forward(self, x: Tensor) -> TorchDistribution:
        shift = fold_shift()
        if shift is None:
            return mean_distribution([predictor(x) for predictor in self.predictors])
        folds = len(self.predictors)
        row_dim = -1 - int(getattr(self.predictors[0], "event_dim", 1))
        blocks = torch.tensor_split(x, folds, dim=row_dim)
        # A gain comes from a predictor as it will predict: no dropout, and no statistics moved.
        with evaluating(self.predictors) if shift == 0 else nullcontext():
            distributions = [
                self.predictors[(fold + shift) % folds](block)
                for fold, block in enumerate(blocks)
                if block.shape[row_dim]
            ]
        return joined_distribution(distributions)


def mean_distribution(distributions: Sequence[TorchDistribution]) -> TorchDistribution:
    """`1/F Σ_f p_f(y)`, of distributions of one family.

    Example:
        >>> each = [dist.Bernoulli(torch.tensor(p)) for p in (0.2, 0.4)]
        >>> mean_distribution(each).probs
        tensor(0.3000)
    """
    first = _one_family(distributions)
    if hasattr(first, "mean_of"):
        mean: TorchDistribution = first.mean_of(distributions)
        return mean
    if isinstance(first, dist.Categorical | dist.Bernoulli):
        return type(first)(
            probs=torch.stack([distribution.probs for distribution in distributions]).mean(0)
        )
    names = _parameters(first)
    parameters = {
        n: torch.stack([_full(distribution, n) for distribution in distributions], -1)
        for n in names
    }
    like = parameters[names[0]]
    even = torch.zeros_like(like)
    return dist.MixtureSameFamily(dist.Categorical(logits=even), type(first)(**parameters))


def joined_distribution(distributions: Sequence[TorchDistribution]) -> TorchDistribution:
    """The distribution of the rows of several distributions of one family, one block after the
    other.

    Example:
        >>> blocks = [dist.Normal(torch.zeros(2), 1.0), dist.Normal(torch.ones(1), 2.0)]
        >>> joined_distribution(blocks).stddev
        tensor([1., 1., 2.])
    """
    first = _one_family(distributions)
    if len(distributions) == 1:
        return first
    if hasattr(first, "joined"):
        joined: TorchDistribution = first.joined(distributions)
        return joined
    dim = ROW_DIM - (1 if isinstance(first, dist.Categorical) else 0)
    return type(first)(
        **{
            n: torch.cat([_full(distribution, n) for distribution in distributions], dim)
            for n in _parameters(first)
        }
    )


def _one_family(distributions: Sequence[TorchDistribution]) -> TorchDistribution:
    first = distributions[0]
    if type(first) not in FAMILIES and not hasattr(first, "mean_of"):
        raise TypeError(
            f"cross-fitting knows y of the distributions {[f.__name__ for f in FAMILIES]}, and "
            "those with class methods mean_of and joined; the predictor's is "
            f"{type(first).__name__}"
        )
    return first


def _parameters(distribution: TorchDistribution) -> list[str]:
    """The parameters that a distribution was made from."""
    return FAMILIES[type(distribution)] or [_logits_or_probs(distribution)]


def _logits_or_probs(distribution: TorchDistribution) -> str:
    return "logits" if "logits" in vars(distribution) else "probs"


def _full(distribution: TorchDistribution, name: str) -> Tensor:
    value: Tensor = getattr(distribution, name)
    if isinstance(distribution, dist.Categorical):
        return value
    return value.expand(distribution.batch_shape)


def cross_fitted(stages: Sequence[Stage], folds: int) -> list[Stage]:
    """Stages whose predictors are F each, learned by terms of their own.

    A term that learns a predictor and more, as LEX's does, becomes two kinds of terms with the same
    bound ℒ. With `f(n)` the fold of row n,

        max_γ  Σ_n ℒ_n(γ; θ_{f(n)}),                 (predictor f has not learned from fold f)
        max_θ  1/(F−1) Σ_s Σ_n ℒ_n(γ; θ_{f(n)+s}),   s = 1 … F − 1,

    so that a row is scored for the selector by a predictor that has not seen it, and teaches the
    others. A term that learns the predictor alone is of the second kind, one that learns the rest
    alone of the first. All F start from the weights that the predictor has.

    Args:
        stages: which are changed: no one else may hold their modules.
        folds: F ≥ 2.

    Raises:
        ValueError: stages without a predictor that learns, or one whose weights have priors.
    """
    wrapped = _wrap_predictors(stages, folds)
    if not wrapped:
        raise ValueError(
            f"folds={folds} cross-fits the part of a program called {PREDICTOR!r}, and no term has "
            "one that learns; leave folds out"
        )
    return [
        replace(stage, terms=[t for term in stage.terms for t in _terms(term, wrapped, folds)])
        for stage in stages
    ]


def learned_predictors(stages: Sequence[Stage]) -> list[nn.Module]:
    """The predictors of programs that some term moves, or that are fitted to the rows in one go,
    each once."""
    learned = _learned(stages)
    found: dict[int, nn.Module] = {}
    for stage in stages:
        for term in stage.terms:
            predictor = getattr(term.model, PREDICTOR, None)
            if not isinstance(predictor, nn.Module):
                continue
            if hasattr(predictor, FIT_ROWS) or any(
                id(p) in learned for p in predictor.parameters()
            ):
                found[id(predictor)] = predictor
    return list(found.values())


def refuse_cross_fitted(stages: Sequence[Stage]) -> None:
    """Refuse to train predictors on that were cross-fitted: each would learn from rows on which it
    is to judge.

    Raises:
        ValueError: such a predictor that learns.
    """
    learned = _learned(stages)
    for term in (term for stage in stages for term in stage.terms):
        given = getattr(term.model, PREDICTOR, None)
        refitted = isinstance(given, CrossFitted) and hasattr(given.predictors[0], FIT_ROWS)
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
    return learning_parameters(
        part
        for stage in stages
        for term in stage.terms
        for part in (term.learns if term.learns is not None else (term.model, term.guide))
    )


def _wrap_predictors(stages: Sequence[Stage], folds: int) -> list[CrossFitted]:
    """Put F predictors in the place of each that learns, wherever it is held."""
    terms = [term for stage in stages for term in stage.terms]
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
        for term in terms
        for whole in (*modules_of(term), *term.objective.modules)
        for holder in whole.modules()
        if not isinstance(holder, CrossFitted)
    }
    for holder in holders.values():
        for name, child in list(holder.named_children()):
            if id(child) in wrappers:
                setattr(holder, name, wrappers[id(child)])
    return list(wrappers.values())


def _terms(term: LossTerm, wrapped: Sequence[CrossFitted], folds: int) -> list[LossTerm]:
    """The terms that a term becomes."""
    held = {id(module) for whole in modules_of(term) for module in whole.modules()}
    mine = [one for one in wrapped if id(one) in held]
    if not mine:
        return [term]
    by_predictor = {id(one.predictors[0]): one for one in mine}
    learns = term.learns
    if learns is not None:
        learns = [by_predictor.get(id(part), part) for part in learns]
    of_predictor = {id(p) for one in mine for p in one.parameters()}
    moved = learning_parameters(learns if learns is not None else [term.model, term.guide])
    found = []
    if moved - of_predictor:
        found.append(replace(term, learns=learns, spares=[*term.spares, *mine], fold_shift=0))
    if moved & of_predictor:
        found += [
            replace(term, learns=mine, weight=term.weight / (folds - 1), fold_shift=shift)
            for shift in range(1, folds)
        ]
    return found
