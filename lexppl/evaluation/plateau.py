"""Rules that choose a penalty, by validation scores and by how the number kept depends on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from lexppl.argument_checks import finite_float, fraction, int_at_least

ROUNDING = 1e-9
"""A score on the limit is within it, however the limit was rounded."""
WITHIN = 2.0
"""Standard errors below the best score that a candidate may be."""
COLLAPSED = 0.5
"""Entries from none, or from all, at which a selection is one no more."""


def slopes(penalties: Sequence[float], sizes: Sequence[float]) -> list[float]:
    r"""How fast the number of entries changes with the penalty, at each of a path:

        (|s_i − s_{i−1}| + |s_{i+1} − s_i|) / (log λ_{i+1} − log λ_{i−1}),

    at an end with the one neighbour it has. Where the size falls all the way this is the central
    difference of |ds / d log λ|; a size that falls and rises again, as fits do by chance, is no
    plateau, though the central difference there is 0.

    Args:
        penalties: λ, rising, above 0.
        sizes: mean number of entries kept at each.

    Raises:
        ValueError: other lengths, fewer than two, penalties that do not rise or are not above 0.

    Example:
        >>> [round(slope, 3) for slope in slopes([1.0, math.e, math.e**2], [5.0, 3.0, 3.0])]
        [2.0, 1.0, 0.0]
    """
    if len(penalties) != len(sizes) or len(sizes) < 2:
        raise ValueError(
            "penalties and sizes must be of one length, at least 2; they have "
            f"{len(penalties)} and {len(sizes)}"
        )
    for penalty in penalties:
        finite_float("a penalty of a path", penalty, above=0.0)
    steps = [math.log(after) - math.log(before) for before, after in pairwise(penalties)]
    if min(steps) <= 0.0:
        raise ValueError(f"penalties must rise from one to the next; they are {list(penalties)}")
    falls = [abs(after - before) for before, after in pairwise(sizes)]
    return [
        sum(falls[max(place - 1, 0) : place + 1]) / sum(steps[max(place - 1, 0) : place + 1])
        for place in range(len(sizes))
    ]


def plateau(
    penalties: Sequence[float],
    sizes: Sequence[float],
    scores: Sequence[float],
    errors: Sequence[float],
    entries: int,
    *,
    within: float = WITHIN,
    usual: float | None = None,
) -> int:
    """The plateau of a path: the λ at which the number of entries kept changes least with λ.

    What matters is kept over a range of λ, and what does not goes as soon as λ is above what chance
    says for it: between the two the size stands still. A path also stands still where nothing is
    left, or nothing has gone yet. Candidates are therefore the λ

    1. whose score is at most `within` standard errors below the best of the path,
    2. that keep more than half an entry, and less than all but half an entry, and
    3. that are no end of the path, where the slope on the other side is not known;

    where none is all three, those of 1 and 2; where none is both, those of 1. Of equal slopes the
    larger λ, which keeps fewer.

    A few hundred validation rows and a few fits say little of a slope. A `usual` λ is therefore
    kept, if it is a candidate of 1 and 2, and else the candidate of 1 and 2 next to it. One that
    keeps half an entry or less is kept too, where no other predicts better than it by more than one
    standard error: there is nothing that a smaller λ would find but noise.

    Args:
        penalties: λ, rising, above 0.
        sizes: mean number of entries that each keeps, on validation rows.
        scores: held-out log-likelihood of each, in nats a row; higher is better.
        errors: standard error of each score's distance to the best one. Over the rows in pairs, if
            the rows are the same: their common part is no doubt about which is better. NaN, as of
            one row, is no bound, and the score must be the best.
        entries: G.
        within: standard errors.
        usual: a λ of the path that is kept where nothing speaks against it; None for none, as is
            one that is not of the path.

    Returns:
        the place of the chosen λ.

    Raises:
        ValueError: other lengths, numbers that are not finite, sizes outside 0 … G, penalties that
            do not rise, errors below 0.

    Example:
        The size stands still about .02; at .16 it stands still too, at nothing, and the score says
        so.

        >>> sizes, scores = [7.0, 4.2, 4.0, 3.7, 0.1, 0.1], [-0.50, -0.49, -0.49, -0.50, -0.7, -0.7]
        >>> plateau([0.005, 0.01, 0.02, 0.04, 0.08, 0.16], sizes, scores, [0.01] * 6, entries=11)
        2
    """
    entries = int_at_least("entries", entries)
    within = finite_float("within", within, least=0.0)
    best = best_validation(sizes, scores)
    slope = slopes(penalties, sizes)
    if len(errors) != len(sizes):
        raise ValueError(f"errors must be one for each of {len(sizes)} sizes; {len(errors)}")
    if any(error < 0.0 for error in errors):
        raise ValueError(f"errors must not be negative; they are {list(errors)}")
    if max(sizes) > entries * (1.0 + ROUNDING):
        raise ValueError(f"sizes must be at most the {entries} entries; the most is {max(sizes)}")
    good = [
        place
        for place, (score, error) in enumerate(zip(scores, errors, strict=True))
        if score >= scores[best] - ROUNDING - (0.0 if math.isnan(error) else within * error)
    ]
    selecting = [p for p in good if COLLAPSED < sizes[p] < entries - COLLAPSED]
    # An error that is NaN shows of nothing that it is as good as the best.
    idle = [
        place
        for place in good
        if sizes[place] <= COLLAPSED and scores[place] >= scores[best] - ROUNDING - errors[place]
    ]
    if usual is not None and any(math.isclose(penalty, usual) for penalty in penalties):
        away = [round(abs(math.log(penalty / usual)), 9) for penalty in penalties]
        near = [*selecting, *(place for place in idle if math.isclose(penalties[place], usual))]
        if near:
            # Of two as far away the larger λ, which keeps fewer.
            return min(near, key=lambda place: (away[place], -penalties[place]))
    inner = [place for place in selecting if 0 < place < len(sizes) - 1]
    return min(
        inner or selecting or good, key=lambda place: (round(slope[place], 9), -penalties[place])
    )


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


def best_validation(sizes: Sequence[float], scores: Sequence[float]) -> int:
    """The best score on validation rows, whatever it costs in features.

    Args:
        sizes: mean number of features that each candidate keeps.
        scores: its score on validation rows, higher is better.

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
