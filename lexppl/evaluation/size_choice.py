"""How many features to keep, chosen by validation scores, by the published rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import pandas as pd

from lexppl.argument_checks import finite_float, fraction

Candidate = TypeVar("Candidate")

Rule = Callable[[Sequence[float], Sequence[float], float | None], int | None]
"""From sizes, scores and the full model's score to the index of the chosen candidate, or None."""


ROUNDING = 1e-9
"""A score on the limit is within it, however the limit was rounded."""


@dataclass(frozen=True, eq=False)
class SizeChoice(Generic[Candidate]):
    """What was tried and what was chosen: see :func:`choose`.

    Args:
        candidate: the chosen penalty λ or size k; None where the rule takes none.
        index: its place among the candidates; None likewise.
        table: one row a candidate: `candidate`, `size`, `score`, `chosen`.
    """

    candidate: Candidate | None
    index: int | None
    table: pd.DataFrame


def fewest_within(
    sizes: Sequence[float],
    scores: Sequence[float],
    full_score: float | None,
    tolerance: float = 0.05,
) -> int | None:
    """REAL-X's rule: the fewest features whose score is within 5 % of the full model's.

    "Within" is relative to the full model's score, and has no upper end:

        score ≥ full_score − tolerance · |full_score|,

    so with an accuracy of 0.80 at full size, 0.76 will do (0.75, five points less, will not). For
    scores in which 0 is not nothing (a log-likelihood in nats) a share of the score means little.

    Args:
        sizes: mean number of features that each candidate keeps.
        scores: its score on validation rows, higher is better.
        full_score: that of the predictor that sees everything, on the same rows.
        tolerance: the share of it that may be lost, in [0, 1].

    Returns:
        the index of the candidate: of equal sizes the better score, of equal scores the first;
        None where no candidate is within.

    Raises:
        ValueError: no candidates, other lengths, numbers that are not finite, sizes below 0, no
            `full_score`, a tolerance outside [0, 1].

    Source: Jethani et al. 2021 (REAL-X), the choice of λ on images.

    Example:
        >>> fewest_within([2.0, 5.0, 9.0], [0.70, 0.77, 0.79], full_score=0.80)
        1
        >>> fewest_within([2.0, 5.0], [0.50, 0.60], full_score=0.80) is None
        True
    """
    _check(sizes, scores)
    full_score = finite_float("full_score", full_score)
    tolerance = fraction("tolerance", tolerance, zero=True, one=True)
    least = full_score - (tolerance + ROUNDING) * abs(full_score)
    within = [index for index, score in enumerate(scores) if score >= least]
    return min(within, key=lambda index: (sizes[index], -scores[index]), default=None)


def best_validation(
    sizes: Sequence[float], scores: Sequence[float], full_score: float | None = None
) -> int:
    """The best score on validation rows, whatever it costs in features.

    Args:
        sizes: mean number of features that each candidate keeps.
        scores: its score on validation rows, higher is better.
        full_score: not read; rules are called alike.

    Returns:
        the index of the candidate: of equal scores the fewest features, of equal sizes the first.

    Raises:
        ValueError: no candidates, other lengths, numbers that are not finite, sizes below 0.

    Source: Jethani et al. 2021 (REAL-X), the choice of λ on the synthetic sets.

    Example:
        >>> best_validation([9.0, 2.0, 5.0], [0.79, 0.70, 0.79])
        2
    """
    _check(sizes, scores)
    return min(range(len(sizes)), key=lambda index: (-scores[index], sizes[index]))


def most_useful(
    sizes: Sequence[float],
    scores: Sequence[float],
    full_score: float | None = None,
    cost: float = 0.0,
) -> int:
    """The highest expected utility: the score less what its features cost,

        utility = score − cost · size,

    with the score a held-out log-likelihood and the cost in nats a feature: what a reader would
    give up in prediction to look at one feature less. The choice is the same in whatever unit, as
    long as both are in it.

    Args:
        sizes: mean number of features that each candidate keeps.
        scores: its score on validation rows, higher is better.
        full_score: not read; rules are called alike.
        cost: of one feature kept, at least 0; 0 is :func:`best_validation`.

    Returns:
        the index of the candidate: of equal utilities the fewest features, then the first.

    Raises:
        ValueError: no candidates, other lengths, numbers that are not finite, sizes below 0, a cost
            below 0.

    Example:
        >>> from functools import partial
        >>> sizes, scores = [9.0, 5.0, 2.0], [-0.50, -0.51, -0.60]
        >>> most_useful(sizes, scores), most_useful(sizes, scores, cost=0.01)
        (0, 1)
        >>> rule = partial(most_useful, cost=0.1)
        >>> choose([0.1, 0.2], lambda rate: (1 / rate, -rate), rule=rule).candidate
        0.2
    """
    _check(sizes, scores)
    cost = finite_float("cost", cost, least=0.0)
    utility = [score - cost * size for size, score in zip(sizes, scores, strict=True)]
    return min(range(len(sizes)), key=lambda index: (-utility[index], sizes[index]))


def choose(
    candidates: Sequence[Candidate],
    fit_one: Callable[[Candidate], tuple[float, float]],
    full_score: float | None = None,
    *,
    rule: Rule = fewest_within,
) -> SizeChoice[Candidate]:
    """Fit every candidate and choose one by a rule.

    Args:
        candidates: penalties λ or sizes k to try, in this order.
        fit_one: fits with one of them, and returns `(size, score)`: the mean number of features
            that are kept and the score, both on validation rows; higher scores are better.
        full_score: that of the predictor that sees everything, where the rule needs it.
        rule: :func:`fewest_within`, :func:`best_validation` or :func:`most_useful`, or a function
            called as they are; `functools.partial(fewest_within, tolerance=0.1)` for another
            tolerance.

    Raises:
        ValueError: no candidates, a size or score that is not finite (at once, before the rest are
            fitted), no full score for a rule that needs it.

    Example:
        >>> tried = {0.3: (1.0, 0.70), 0.1: (3.0, 0.78), 0.05: (6.0, 0.80)}
        >>> found = choose(list(tried), tried.__getitem__, full_score=0.80)
        >>> found.candidate
        0.1
        >>> found.table
           candidate  size  score  chosen
        0       0.30   1.0   0.70   False
        1       0.10   3.0   0.78    True
        2       0.05   6.0   0.80   False
    """
    if len(candidates) == 0:
        raise ValueError("candidates must have at least one; it is empty")
    # A rule that cannot be applied should fail before the fits, not after them.
    rule([0.0], [0.0], full_score)
    sizes, scores = [], []
    for candidate in candidates:
        size, score = (float(number) for number in fit_one(candidate))
        if not (math.isfinite(size) and math.isfinite(score)):
            raise ValueError(
                f"fit_one must give a finite size and score; for {candidate!r} it gave {size} and "
                f"{score}"
            )
        sizes.append(size)
        scores.append(score)
    index = rule(sizes, scores, full_score)
    table = pd.DataFrame(
        {
            "candidate": list(candidates),
            "size": sizes,
            "score": scores,
            "chosen": [place == index for place in range(len(sizes))],
        }
    )
    return SizeChoice(None if index is None else candidates[index], index, table)


def _check(sizes: Sequence[float], scores: Sequence[float]) -> None:
    if len(sizes) == 0 or len(sizes) != len(scores):
        raise ValueError(
            "sizes and scores must be of one length, at least 1; they have "
            f"{len(sizes)} and {len(scores)}"
        )
    for name, numbers in (("sizes", sizes), ("scores", scores)):
        wrong = [number for number in numbers if not math.isfinite(number)]
        if wrong:
            raise ValueError(f"{name} must be finite; they have {wrong}")
    if min(sizes) < 0:
        raise ValueError(f"sizes must not be negative; the least is {min(sizes)}")
