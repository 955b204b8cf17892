"""Sanity checks: importances must change when what they explain is thrown away."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor, nn

from lexppl.argument_checks import int_between
from lexppl.inference.contexts import seeded

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class SanityScores:
    """Likeness of importances before and after randomisation: means over rows, in −1 … 1. Near 0
    is sane; near 1 says that the importances do not depend on what was randomised. Importances
    that are all positive have a high cosine whatever they say: look at their rank correlation.

    Args:
        cosine: mean cosine of a row's importances; NaN where no row has one.
        spearman: mean rank correlation, ties at their mean rank; NaN where no row has one.
        cosine_rows: rows in the mean: those with an importance other than 0, before and after.
        spearman_rows: rows in the mean: those whose importances are not all equal, before and
            after.
    """

    cosine: float
    spearman: float
    cosine_rows: int
    spearman_rows: int


def sanity_scores(original: Tensor, randomised: Tensor, *, absolute: bool = False) -> SanityScores:
    """Compare importances row by row.

    Args:
        original: importances, `(B, G)`, G at least 2.
        randomised: those after model or data were randomised, `(B, G)`.
        absolute: compare magnitudes; where signs mean nothing.

    Raises:
        ValueError: other shapes, or values that are not finite.

    Source:
        Adebayo, Gilmer, Muelly, Goodfellow, Hardt, Kim. Sanity checks for saliency maps. NeurIPS
        2018 (rank correlation with and without magnitudes); Liang et al. 2020 (cosine).

    Example:
        >>> first = torch.tensor([[1.0, 2.0, 3.0], [3.0, 0.0, 1.0]])
        >>> sanity_scores(first, first).spearman, sanity_scores(first, first.flip(1)).spearman
        (1.0, -0.25)
    """
    for name, given in (("original", original), ("randomised", randomised)):
        if given.dim() != 2 or len(given) == 0 or given.shape[1] < 2:
            raise ValueError(
                f"{name} must have shape (B, G), B >= 1 and G >= 2; it has {tuple(given.shape)}"
            )
        if not bool(given.isfinite().all()):
            raise ValueError(f"{name} must be finite; it has NaN or infinite values")
    if original.shape != randomised.shape:
        raise ValueError(
            "original and randomised must have one shape; they have "
            f"{tuple(original.shape)} and {tuple(randomised.shape)}"
        )
    before, after = (
        np.abs(given) if absolute else given
        for given in (each.detach().cpu().double().numpy() for each in (original, randomised))
    )
    cosine = _cosines(before, after)
    ranks = [rankdata(each, axis=1) for each in (before, after)]
    spearman = _cosines(*(rank - rank.mean(1, keepdims=True) for rank in ranks))
    return SanityScores(
        _mean_of_known(cosine),
        _mean_of_known(spearman),
        int((~np.isnan(cosine)).sum()),
        int((~np.isnan(spearman)).sum()),
    )


def randomised(model: Module, *, seed: int = 0, last: int | None = None) -> Module:
    """A copy of a module whose weights are drawn anew, by each part's `reset_parameters`.

    All parts with weights are, whether they would be learned in a fit or not.

    Args:
        model: the module; it is left as it is.
        seed: of the new weights. Global random state is left alone.
        last: how many of the parts with weights, counted from the one that was registered last,
            which is the output in a sequence of layers; None for all. The same seed gives the same
            weights to the parts that two calls have in common.

    Raises:
        ValueError: a part with weights and no `reset_parameters`, no weights, or `last` outside
            1 … the number of parts.

    Example:
        >>> layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
        >>> drawn = randomised(layers, last=1)
        >>> [bool((a.weight == b.weight).all()) for a, b in zip(layers[::2], drawn[::2])]
        [True, False]
    """
    drawn = copy.deepcopy(model)
    parts = _parts_with_weights(drawn)
    if not parts:
        raise ValueError(f"{type(model).__name__} has no weights to draw anew")
    count = len(parts)
    if last is not None:
        count = int_between("last", last, 1, len(parts), note="the parts with weights")
    device = next(drawn.parameters()).device
    # A model built from the same seed must not get its own weights back.
    other_seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
    with seeded(other_seed, device):
        for name, part in parts[::-1][:count]:
            reset: Callable[[], None] | None = getattr(part, "reset_parameters", None)
            if not callable(reset):
                raise ValueError(
                    f"{type(part).__name__} ({name or 'the module itself'}) has weights but no "
                    "reset_parameters(), which draws them anew; define it"
                )
            reset()
    return drawn


def model_randomisation(
    importance: Callable[[Module], Tensor],
    model: Module,
    *,
    cascading: bool = False,
    absolute: bool = False,
    seed: int = 0,
) -> dict[str, SanityScores]:
    """Importances of a module against those of the same module with weights drawn anew.

    Args:
        importance: from a module to importances `(B, G)`, of the same rows at each call.
        model: the module that is explained, or the explainer itself.
        cascading: draw anew one more part after another, from the last registered to the first,
            and compare after each; else all at once.
        absolute: as :func:`sanity_scores`.
        seed: of the new weights.

    Returns:
        scores by the name of the part that was drawn anew last; by "all" if not cascading.

    Raises:
        ValueError: as :func:`randomised` and :func:`sanity_scores`.

    Source: Adebayo et al. 2018, model parameter randomization.

    Example:
        >>> layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        >>> found = model_randomisation(lambda m: m[0].weight.abs().sum(0)[None], layers,
        ...     cascading=True)
        >>> list(found), found["2"].spearman
        (['2', '0'], 1.0)
    """
    original = importance(model)
    if not cascading:
        drawn = importance(randomised(model, seed=seed))
        return {"all": sanity_scores(original, drawn, absolute=absolute)}
    names = [name for name, _ in _parts_with_weights(model)][::-1]
    return {
        name: sanity_scores(
            original, importance(randomised(model, seed=seed, last=place + 1)), absolute=absolute
        )
        for place, name in enumerate(names)
    }


def data_randomisation(
    refit: Callable[[Tensor], Tensor], y: Tensor, *, absolute: bool = False, seed: int = 0
) -> SanityScores:
    """Importances after a fit to the labels against those after a fit to the labels permuted.

    Args:
        refit: fits model and explainer to training labels `(N, …)` and returns importances
            `(B, G)`, of the same rows at each call.
        y: the training labels, responses or probabilities, `(N, …)`.
        absolute: as :func:`sanity_scores`.
        seed: of the permutation of y over the rows.

    Raises:
        ValueError: fewer than two rows; as :func:`sanity_scores`.

    Source: Adebayo et al. 2018, data randomization.

    Example:
        >>> x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
        >>> slopes = lambda y: ((x * y[:, None]).mean(0)).expand(3, 2)
        >>> data_randomisation(slopes, x[:, 0]).cosine < 0.99
        True
    """
    if y.dim() == 0 or len(y) < 2:
        raise ValueError(f"y must have at least two rows to permute; it has {tuple(y.shape)}")
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed)).to(y.device)
    return sanity_scores(refit(y), refit(y[order]), absolute=absolute)


def _parts_with_weights(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The parts that have weights of their own, in the order in which they were registered."""
    return [
        (name, part)
        for name, part in model.named_modules()
        if next(part.parameters(recurse=False), None) is not None
    ]


def _cosines(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The cosine of each row, NaN where one side is all 0."""
    first, second = (_scaled(each) for each in (before, after))
    known = first.any(1) & second.any(1)
    norms = np.sqrt((first**2).sum(1) * (second**2).sum(1))
    return np.where(known, (first * second).sum(1) / np.where(known, norms, 1.0), np.nan)


def _scaled(rows: np.ndarray) -> np.ndarray:
    """Rows divided by their largest magnitude, so that squares of tiny ones do not underflow."""
    largest = np.abs(rows).max(1, keepdims=True)
    scaled: np.ndarray = rows / np.where(largest > 0, largest, 1.0)
    return scaled


def _mean_of_known(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
