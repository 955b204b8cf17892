"""Accuracy of predictions from the few entries that are ranked highest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lexppl.argument_checks import int_between
from lexppl.evaluation.refits.evalx import EvalX


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
    """EVAL-X's accuracy where each row keeps its k highest-ranked entries, for each size k.

    A steep rise says that the first entries hold what there is to know of y. The control is
    `random_ranking=True`: each row's entries in a random order, the curve that a ranking must
    beat.

    Args:
        evalx: the judge.
        ranking: importances, higher is kept earlier, such as selection probabilities: `(N, G)`.
            Of equal ones the entry that stands first is kept first. With `random_ranking` it is
            not read, and may be None.
        x: rows, `(N, *event)`, of no fit.
        y: their labels or responses, `(N,)`.
        sizes: the k, each in 0 … G; 1 … G if None.
        random_ranking: rank at random instead.
        imputations: K.
        seed: of a random ranking and of the imputations.

    Returns:
        the sizes, and for each the accuracy; for responses R², the share of their variance.

    Raises:
        ValueError: a ranking of another shape or not finite, sizes outside 0 … G, no sizes; as
            :meth:`EvalX.scores`.

    Source:
        Jethani et al. 2021, § 5, and the figures of accuracy against k of Chen et al. 2018 and
        Senetaire et al. 2023.

    Example:
        >>> import torch
        >>> from lexppl.evaluation.refits.evalx import fit_evalx
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> judge = fit_evalx((x, y), hidden=(16,), epochs=20, batch_size=50,
        ...     learning_rate=1e-2, progress=False)
        >>> sizes, found = accuracy_by_size(judge, torch.tensor([[0.9, 0.2, 0.1]] * 200), x, y)
        >>> _, chance = accuracy_by_size(judge, None, x, y, random_ranking=True)
        >>> sizes, found[0] > chance[0] + 0.1
        ((1, 2, 3), True)
    """
    if random_ranking:
        generator = torch.Generator().manual_seed(seed)
        place = torch.rand(len(x), evalx.entries, generator=generator).argsort(1).to(x.device)
    elif ranking is None:
        raise ValueError("give a ranking (N, G), or random_ranking=True for the control")
    else:
        place = places(ranking, len(x), evalx.entries)
    given = range(1, evalx.entries + 1) if sizes is None else sizes
    chosen = tuple(
        int_between("each of sizes", k, 0, evalx.entries, note="the mask entries") for k in given
    )
    if not chosen:
        raise ValueError("sizes must have at least one size; it is empty")
    options: dict[str, Any] = {"imputations": imputations, "seed": seed}
    reached = []
    for k in chosen:
        scores = evalx.scores(x, y, place < k, **options)
        value = scores.r2 if scores.accuracy is None else scores.accuracy
        reached.append(float("nan") if value is None else value)
    return chosen, tuple(reached)


def places(ranking: Tensor, rows: int, entries: int, name: str = "ranking") -> Tensor:
    """Each entry's place in its row's order, 0 for the most important: `(N, G)`.

    Of equal entries the one that stands first comes first.

    Args:
        ranking: importances, larger is more important, `(N, G)`.
        rows: N.
        entries: G.
        name: what the ranking is called in errors.

    Raises:
        ValueError: another shape, or NaN.

    Example:
        >>> places(torch.tensor([[0.1, 0.7, 0.7]]), 1, 3)
        tensor([[2, 0, 1]])
    """
    if ranking.shape != (rows, entries):
        raise ValueError(
            f"{name} must have shape ({rows}, {entries}); it has {tuple(ranking.shape)}"
        )
    if bool(ranking.isnan().any()):
        raise ValueError(f"{name} must be numbers; it has NaN")
    return ranking.argsort(dim=1, descending=True, stable=True).argsort(1)
