"""Cross-fitting: each row's gain comes from a predictor that has not learned from that row."""

import copy
import itertools
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lexppl.configured import Configured
from lexppl.effects import EVERY_SHIFT, fold_shift, weights_with_priors
from lexppl.inference.contexts import seeded
from lexppl.inference.pyro_parameters import FirstRows, floating_type
from lexppl.inference.stages import (
    LossTerm,
    Stage,
    TrainingModules,
    learning_parameters,
    modules_of,
    shifted,
)
from lexppl.inference.training.rows.fold_distributions import (
    ROW_DIM,
    HeldOut,
    joined_distribution,
    mean_distribution,
)
from lexppl.threads import evaluating

PREDICTOR = "predictor"
"""The part of a program that is cross-fitted, by the convention of explainers."""

FIT_ROWS = "fit_rows"
"""The method of a predictor that is fitted to rows in one go."""

TRIED_ROWS = 32
"""On which a term of one run is compared with terms of a run each."""


class CrossFitted(Configured, nn.Module):
    """F predictors, of which number f learns from all rows but those of fold f.

    Within a cross-fitted fit a batch stands in the order of its folds, and the rows of fold f see
    predictor `f + s` (modulo F), s being :func:`lexppl.effects.fold_shift`: for s = 0 the one that
    has not learned from them. Elsewhere the distribution of y is the mean of the predictors',

        p(y | x̃) = 1/F Σ_f p_f(y | x̃),

    and of predictors that give numbers (logits, a mean), of which the program makes a distribution,
    the mean of the numbers.

    Args:
        predictors: F modules from x̃ `(…, B, *event)` to distributions of y of one kind, batch
            shape `(…, B)`, or to tensors of floats `(…, B, …)`; or to tuples of these. A kind of
            its own way has class methods `mean_of` and `joined` of several distributions.

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
    """The outputs of blocks of rows as of all rows, which stand at a dimension of x from the left;
    of a distribution's batch they are the last."""
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
    found: dict[int, bool] | None = None,
) -> list[Stage]:
    """Stages whose predictors are F each, learned by terms of their own.

    A term that learns a predictor and more, as LEX's does, becomes two kinds of terms with the same
    bound ℒ. With `f(n)` the fold of row n,

        max_γ  Σ_n ℒ_n(γ; θ_{f(n)}),                 (predictor f has not learned from fold f)
        max_θ  1/(F−1) Σ_s Σ_n ℒ_n(γ; θ_{f(n)+s}),   s = 1 … F − 1,

    so that a row is scored for the selector by a predictor that has not seen it, and teaches the
    others. A term that learns the predictor alone is of the second kind, one that learns the rest
    alone of the first. All F start from the weights that the predictor has.

    Terms of both kinds become one, whose program is run once for all predictors, where on a first
    batch its gradient is that of the terms apart, for the same draws: where masks are learned by a
    score, and the predictor's output is the distribution of the one y.

    Args:
        stages: which are changed: no one else may hold their modules.
        folds: F ≥ 2.
        first: gives that batch; None for terms apart.
        found: whether the term of each place is one run, where another copy of the stages has
            found it; what is found here is added.

    Raises:
        ValueError: stages without a predictor that learns, or one whose weights have priors.
    """
    wrapped = _wrap_predictors(stages, folds)
    if not wrapped:
        raise ValueError(
            f"folds={folds} cross-fits the part of a program called {PREDICTOR!r}, and no term has "
            "one that learns; leave folds out"
        )
    found = {} if found is None else found
    places = itertools.count()

    def terms_of(term: LossTerm) -> list[LossTerm]:
        place, (apart, at_once) = next(places), _terms(term, wrapped, folds)
        if first is None or at_once is None:
            return apart
        if place not in found:
            found[place] = _same_gradients([at_once], apart, first)
        return [at_once] if found[place] else apart

    return [
        replace(stage, terms=[one for term in stage.terms for one in terms_of(term)])
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


def _terms(
    term: LossTerm, wrapped: Sequence[CrossFitted], folds: int
) -> tuple[list[LossTerm], LossTerm | None]:
    """The terms that a term becomes, and where they are of both kinds a term of one run."""
    held = {id(module) for whole in modules_of(term) for module in whole.modules()}
    mine = [one for one in wrapped if id(one) in held]
    if not mine:
        return [term], None
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
    at_once = replace(term, learns=learns, fold_shift=EVERY_SHIFT)
    return found, at_once if len(found) == folds else None


def _same_gradients(
    terms: Sequence[LossTerm], others: Sequence[LossTerm], first: FirstRows
) -> bool:
    """Whether terms have the gradient of others on a few rows, for the same draws."""
    modules = TrainingModules([Stage([*terms, *others])])
    try:
        batch = tuple(column[:TRIED_ROWS] for column in first(floating_type([modules])))
        expected, found = (_gradients(modules, each, batch) for each in (others, terms))
    except Exception:
        # A program may do with a distribution what this one has not. What cannot be run at all is
        # refused by the fit's own checks.
        return False
    # A gradient that is not finite is that of rows that the fit's own checks refuse.
    return found.keys() == expected.keys() and all(
        bool(gradient.isfinite().all())
        and torch.allclose(
            found[name], gradient, rtol=1e-3, atol=1e-5 * float(gradient.abs().max())
        )
        for name, gradient in expected.items()
    )


def _gradients(
    modules: TrainingModules, terms: Sequence[LossTerm], batch: tuple[Tensor, ...]
) -> dict[str, Tensor]:
    """The gradient of terms in what they move, by name; running statistics stay as they are."""
    total: dict[str, Tensor] = {}
    parameters = dict(modules.named_parameters())
    statistics = [(buffer, buffer.clone()) for buffer in modules.buffers()]
    for term in terms:
        names = modules.learned_by(term)
        with seeded(0, batch[0].device), shifted(term):
            loss = term.weight * modules(term, term.objective.at(1.0), batch)
        found = torch.autograd.grad(loss, [parameters[n] for n in names], allow_unused=True)
        for name, gradient in zip(names, found, strict=True):
            if gradient is not None:
                total[name] = gradient + total.get(name, 0.0)
    for buffer, before in statistics:
        buffer.copy_(before)
    return total
