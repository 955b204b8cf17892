"""What features and groups are worth for the prediction of y, in nats: gains, intervals, tests."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import t
from torch import Tensor

from lexppl.argument_checks import fraction, one_of
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.folds import Folds, judged
from lexppl.evaluation.judges import EvalX, hard_draws
from lexppl.explanation.names import entry_names as names_of
from lexppl.explanation.reading.feature_values import strata_of
from lexppl.inference.training.result import FitResult


@dataclass(frozen=True, eq=False)
class FeatureGains:
    """The gains of :func:`feature_gains`, in nats.

    Args:
        gains: of each row and mask entry, `(N, G)` in double precision; NaN of an entry whose judge
            predicts worse than the explainer.
        entry_names, groups: the G mask entries, and the K groups or None.
        of_groups: of each row and group, `(N, K)`, or None.
        part: the fold of each row, `(N,)`; None of rows that are held out from all fits.
        errors: of each row with everything that is kept and without each group, `(N, 1 + K)`: 1 for
            another label than its own (a black box's likeliest one) and else 0, or the distance of
            the mean from a response; None where it is not known.
        unit: the group of each row, such as a patient, whose rows count as one in errors, `(N,)`.
        weight: how often each row counts, above 0, `(N,)`; only the ratios count. None for once.
        judge: of groups, in words; None of the explainer itself.
    """

    gains: Tensor
    entry_names: tuple[str, ...]
    of_groups: Tensor | None = None
    groups: FeatureGroups | None = None
    part: Tensor | None = None
    unit: Tensor | None = None
    errors: Tensor | None = None
    weight: Tensor | None = None
    judge: str | None = "EVAL-X"

    @property
    def counts(self) -> NDArray[np.float64]:
        """The weights of the rows, of mean 1, `(N,)`."""
        weight = torch.ones(len(self.gains)) if self.weight is None else self.weight
        counts: NDArray[np.float64] = weight.detach().cpu().double().numpy()
        if len(counts) != len(self.gains) or not 0 < counts.min() <= counts.max() < math.inf:
            raise ValueError("weight must be finite numbers above 0, one for each row of the gains")
        return counts / counts.mean()

    def where(self, rows: Tensor) -> FeatureGains:
        """The gains of some rows, by their places or a mask: what a feature is worth there."""
        by_row = ("gains", "of_groups", "part", "unit", "errors", "weight")
        every = {name: getattr(self, name) for name in by_row}
        taken: dict[str, Any] = {k: None if v is None else v[rows] for k, v in every.items()}
        return replace(self, **taken)


def feature_gains(
    judge: EvalX,
    x: Tensor,
    y: Tensor,
    masks: Tensor | None = None,
    *,
    groups: FeatureGroups | None = None,
    folds: Folds | None = None,
    imputations: int = 1,
    seed: int = 0,
    entry_names: Sequence[str] | None = None,
    member_judge: EvalX | None = None,
    explainer: Tensor | None = None,
    itself: EvalX | None = None,
    unit: Tensor | None = None,
    weight: Tensor | None = None,
) -> FeatureGains:
    """What each feature, and each group of features, is worth for the prediction of y:

        gain_{n,S} = log p(y_n | x_n, z) − log p(y_n | x_n, z without S),
        p(y | x, z) = 1/L Σ_l p(y | x_{z_l}),    z_l ~ q(z | x_n),

    with the masks z of an explainer, or everything kept, and p(y | x_S) by a predictor of random
    masks (:func:`lexppl.evaluation.fit_evalx`), or by the explainer's own program. The bias of the
    logarithm of a mean of L draws is taken off by the jackknife where L is even. With everything
    kept the mean over rows is the conditional mutual information I(y; x_S | rest), where the
    predictor is that of the law. Of a member j of a group S it is what is lost without j where the
    rest of S is known, in the draws that keep any of S: of two copies of a feature each is worth
    nothing, and their group is.

    Args:
        judge: fitted to other rows, or of folds; `EvalX(result, G)` of an explainer that draws
            hidden features judges by its own predictor.
        x: held-out rows, `(N, *event)`: on rows of the fit whatever identifies a row gains.
        y: labels or responses `(N,)`, or a black box's probabilities `(N, C)`, of which it is the
            expectation Σ_c y_c gain(c).
        masks: draws of 1 for kept and 0 for hidden, `(L, N, G)`; everything is kept if None.
        groups: of the G entries; each by itself if None.
        folds: of the rows, each held out by one replicate of the judge.
        imputations: K of a judge whose imputer draws.
        entry_names: names of the G entries; if None those of the judge's fit.
        member_judge: of the members of groups of several; `judge` if None.
        explainer: log p(y | x) of each row by the explainer of the masks, `(N,)`: gains by a judge
            under which the rows are less likely, by more than two standard errors of the
            differences, are NaN, with a warning.
        itself: the explainer as a judge of groups in place of one that predicts worse.
        unit, weight: of the rows, as in :class:`FeatureGains`.

    Raises:
        ValueError: groups of other entries; folds of another number of replicates; rows unlike
            those of the fit; masks of another shape or that are not hard.
        FloatingPointError: a log-likelihood that is NaN or −∞.

    Source: Williamson, Gilbert, Simon, Carone. A general framework for inference on
        algorithm-agnostic variable importance. JASA 2023. Jethani et al. 2021, eq. 8.

    Example:
        >>> from lexppl.evaluation import fit_evalx, gain_table
        >>> x = torch.randn(800, 2, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> judge = fit_evalx((x[:400], y[:400]), hidden=(8,), epochs=20, batch_size=50,
        ...     learning_rate=1e-2, progress=False)
        >>> gain_table(feature_gains(judge, x[400:], y[400:]))["found"].to_dict()
        {'x1': True, 'x2': False}
    """
    judge.result.check(x, y)
    entries = judge.entries
    names = tuple(map(str, names_of(judge.result, entries, entry_names)))
    members = FeatureGroups.alone(names).members if groups is None else groups.members
    if sum(map(len, members)) != entries:
        raise ValueError(f"groups must be of {entries} entries, not {sum(map(len, members))}")
    # Whatever is by row has the rows first, for folds to divide.
    kept = x.new_ones(1, len(x), entries) if masks is None else hard_draws(x, masks, entries)
    kept = kept.movedim(1, 0)

    def found(of: Callable[..., Tensor], by: EvalX, some: Sequence[tuple[int, ...]]) -> Tensor:
        how = partial(of, entries=entries, members=some, imputations=imputations)
        return judged(folds, how, by.result, x, y, kept, seed=seed)[0]

    part = None if folds is None else folds.part
    rows: dict[str, Any] = {"part": part, "unit": unit, "weight": weight}

    def worse(by: EvalX) -> str:
        """That a judge predicts worse than the explainer, in words; empty where it does not."""
        if explainer is None or by.name is None:
            return ""
        less = explainer.double()[:, None] - found(_of_rows, by, ())[:, :1]
        of_rows = FeatureGains(less, ("",), **rows)
        (mean,), (error,) = _mean_and_error(less.cpu().numpy(), of_rows)
        by_how_much = f"than the explainer, by {mean:.3f} ± {error:.3f} nats a row"
        return f"{by.name} predicts worse {by_how_much}" * bool(mean > 2.0 * error)

    by, unknown = judge if member_judge is None else member_judge, 1.0
    if (why := worse(judge)) and itself is not None:
        warnings.warn(f"{why}: the explainer itself judges groups in its place", stacklevel=2)
        judge = itself
    elif why:
        warnings.warn(f"{why}: what features gain is not known", stacklevel=2)
        unknown = math.nan
    together = found(_of_groups, judge, members) * unknown
    together, errors = together.tensor_split([len(members)], -1)
    single, several = together.new_empty(len(x), entries), [g for g in members if len(g) > 1]
    for group, gains in zip(members, together.T, strict=True):
        single[:, group] = gains[:, None]
    if several:
        beyond = found(_of_members, by, several)
        if why := worse(by):
            warnings.warn(f"{why}: what members of groups gain is not known", stacklevel=2)
            beyond *= math.nan
        single[:, [entry for group in several for entry in group]] = beyond
    rows |= {"errors": errors, "judge": judge.name}
    of_groups = (None, None) if groups is None else (together, groups)
    return FeatureGains(single, names, *of_groups, **rows)


def _of_rows(
    result: FitResult, x: Tensor, y: Tensor, masks: Tensor, *, members: Any, **how: int
) -> Tensor:
    """Log-likelihoods and errors of rows, `(1, N, 2)`, of masks `(N, L, G)`."""
    return _judged_by(result, x, y, masks.movedim(0, 1), **how)[None]


def _of_groups(
    result: FitResult, x: Tensor, y: Tensor, masks: Tensor, *, members: Any, **how: int
) -> Tensor:
    """Gains of the groups, and errors with everything and without each group, `(1, N, K + 1 + K)`,
    of masks `(N, L, G)`."""
    drawn = masks.movedim(0, 1)
    full = _judged_by(result, x, y, drawn, **how)
    others = [_judged_by(result, x, y, _without(drawn, group), **how) for group in members]
    without = torch.stack(others, -1)
    return torch.cat([full[:, :1] - without[:, 0], full[:, 1:], without[:, 1]], -1)[None]


def _of_members(
    result: FitResult, x: Tensor, y: Tensor, masks: Tensor, *, members: Any, **how: int
) -> Tensor:
    """Gains of the members, group after group, in the draws that keep any, `(1, N, members)`."""
    drawn, found = masks.movedim(0, 1), []
    for group in members:
        filled, places = drawn.clone(), list(group)
        filled[..., places] = drawn[..., places].amax(-1, keepdim=True).expand(-1, -1, len(group))
        whole = _judged_by(result, x, y, filled, **how)
        found += [whole - _judged_by(result, x, y, _without(filled, [g]), **how) for g in group]
    return torch.stack(found, -1)[:, 0][None]


def _without(masks: Tensor, some: Sequence[int]) -> Tensor:
    hidden = masks.clone()
    hidden[..., list(some)] = 0.0
    return hidden


def _judged_by(
    result: FitResult, x: Tensor, y: Tensor, masks: Tensor, *, entries: int, **drawing: int
) -> Tensor:
    """Log-likelihood of the mixture of masks `(L, N, G)` and judges, and its error, `(N, 2)`."""
    judges = [EvalX(result.subset([number]), entries) for number in range(result.replicates)]
    label = y.argmax(-1) if y.dim() == 2 else y
    if y.dim() == 2:
        # Of each class the mixture's: an expectation of each draw would be another mean.
        drawn = torch.stack([j.predict(x, masks, **drawing) for j in judges]).double()
        mean, each = drawn.mean((0, 1)), _expected(y.double(), _log_mean(drawn.log()))
    else:
        found = [j.outcomes(x, y, masks, **drawing) for j in judges]
        mean, drawn = (torch.stack(parts).double() for parts in zip(*found, strict=True))
        mean, each = mean.mean((0, 1)), _log_mean(drawn)
    if not bool(each.isfinite().all()):
        raise FloatingPointError(
            f"log p(y | x) is NaN or infinite in {int((~each.isfinite()).sum())} of {len(x)} rows, "
            "so that a gain has no value there; look for a y outside the support of its "
            "distribution"
        )
    wrong = (mean.argmax(-1) != label) if mean.dim() == 2 else (mean - label).abs()
    return torch.stack([each, wrong.double()], -1)


def _log_mean(each: Tensor) -> Tensor:
    """Log of the mean of exp(each) over replicates and draws, `(R, L, N, …)`, without the
    first-order bias of an even number of draws: 2 log m − (log m₁ + log m₂) / 2, m₁ and m₂ the
    means of both halves (the jackknife)."""
    count = each.shape[0] * each.shape[1]
    whole = each.logsumexp((0, 1)) - math.log(count)
    if each.shape[1] % 2:
        return whole
    halves = each.unflatten(1, (2, -1)).logsumexp((0, 2)) - math.log(count / 2)
    return torch.where(halves.isfinite().all(0), 2.0 * whole - halves.mean(0), whole)


def _expected(y: Tensor, log_p: Tensor) -> Tensor:
    """Σ_c y_c log p_c of probabilities y under predicted ones, `(N, C)`."""
    if log_p.shape != y.shape:
        raise ValueError(
            f"y of shape {tuple(y.shape)} must hold the probabilities of the judge's classes; its "
            f"predictions have shape {tuple(log_p.shape)}"
        )
    return torch.where(y > 0, y * log_p, 0.0).sum(-1)


FDR, LEVEL = 0.1, 0.9
LEAST_FOUND = 1.0
"""Nats that all rows together gain of what is found, the price of a parameter by Akaike's
criterion: predictors are sharper or blunter by how much is kept, by thousandths of a nat."""
INTERACTION = ["gain", "standard_error", "lower", "upper", "difference"]
INTERACTION += ["difference_error", "difference_lower", "difference_upper"]


def group_table(
    gains: FeatureGains, fdr: float | None = FDR, *, fwer: float | None = None, level: float = LEVEL
) -> pd.DataFrame:
    """The groups of features by their gain, the largest first, with intervals, and what is found.

    With the gains `d_n` of N rows, columns:

    - `members`, how many; `gain`: the mean, in nats a row, weighted by `gains.weight`, of `d_n` or
      of `log((1 + exp d_n) / 2)`, whichever is larger: what p(y | x, z) gains, or its even mixture
      with p(y | x, z without S). No predictor is expected to gain more than the law's own, and of
      an effect δ that is small the mixture's score is 3/2 times as large.
    - `lower`, `upper`: the intervals `gain ± t_{1−α, C−1} √V` of both, the larger of each end, α as
      below. With C units of rows
      (`gains.unit`; of one row each if None) and weights w of mean 1 (1 if None), V is
      `C / (C − 1) Σ_c (Σ_{n in c} w_n (d_n − gain))² / N²`, that is var(d_n) / N without either, or
      of rows in R folds `var_r(mean_{n in r} d_n) / R` where that is larger. Whole weights have the
      intervals of as many copies of each row in one unit.
    - `p`: of the hypothesis that the gain is not above 0, one-sided, the smaller of both.
    - `found`: whether p ≤ α, that is, the interval is above 0, and N · gain is above a nat, the
      price of a parameter; else p counts as 1 in the procedure below.
    - `error` and `error_without`, where errors are known: the share of rows whose likeliest label
      is wrong, or the mean distance of a response from its prediction, with everything that is
      kept and without the group.

    α is that of Benjamini and Hochberg's procedure, fdr · k / m for the k found of m groups (of
    none, k = 1), but at most (1 − level) / 2: of the groups found at most a share `fdr` is expected
    to have no gain (tests independent, or positively dependent), and of their intervals at most
    that share to lie above the truth. With `fwer` α is fwer / m (Bonferroni), or half of it where
    groups have several members: the probability that anything is found that has no gain. With
    `fdr=None` α is (1 − level) / 2, not adjusted. Rows must be independent of each other and of the
    fits, and N large enough for a normal mean.

    Args:
        fdr: the false discovery rate, in (0, 1), or None.
        fwer: the family-wise error rate in its place.
        level: least level of an interval, in (0, 1).

    Raises:
        ValueError: fewer than two rows, gains that are not finite, a rate or level outside (0, 1).

    Source: Benjamini, Hochberg. Controlling the false discovery rate. JRSS B 1995. Benjamini,
        Yekutieli. False discovery rate-adjusted multiple confidence intervals. JASA 2005.

    Example:
        >>> each = torch.tensor([[0.3, 0.1], [0.2, -0.2], [0.4, 0.1], [0.3, -0.1]])
        >>> table = group_table(FeatureGains(each.double(), ("age", "noise")))
        >>> table[["gain", "p"]].round(2).loc["age"].tolist(), table["found"].tolist()
        ([0.3, 0.0], [True, False])
    """
    values = gains.gains if gains.of_groups is None else gains.of_groups
    names, sizes = gains.entry_names, [1] * values.shape[1]
    if gains.groups is not None:
        names, sizes = gains.groups.names, [len(group) for group in gains.groups.members]
    if fwer is not None and max(sizes) > 1:
        fwer = fraction("fwer", fwer) / 2.0
    table = _tested(gains, values, fdr, fwer, level, mixed=True)
    table["members"] = sizes
    if gains.errors is not None:
        errors = np.average(gains.errors.cpu().numpy(), axis=0, weights=gains.counts)
        table["error"], table["error_without"] = errors[0], errors[1:]
    table.index = pd.Index(names, name="group")
    return table.sort_values("gain", ascending=False, kind="stable")


def gain_table(
    gains: FeatureGains, fdr: float | None = FDR, *, fwer: float | None = None, level: float = LEVEL
) -> pd.DataFrame:
    """The features by their gain given all others, by group, the largest first, with intervals,
    and what is found.

    Columns as in :func:`group_table`, with the `group` of each in place of its size. A feature that
    is a group by itself has the group's line. The members of groups of several are tested where
    their group is found, as a family of their own (with `fwer`, at half of it over all members of
    such groups, found or not), without the mixture, which gains by errors of p(y | x, z without j)
    where features depend; members of groups that are not found are not found.

    Args:
        gains, fdr, fwer, level: as in :func:`group_table`.

    Example:
        >>> each = torch.tensor([[0.3, 0.1], [0.2, -0.2], [0.4, 0.1], [0.3, -0.1]])
        >>> gain_table(FeatureGains(each.double(), ("age", "noise")))["found"].to_dict()
        {'age': True, 'noise': False}
    """
    names = pd.Index(gains.entry_names, name="feature")
    by_group = group_table(gains, fdr, fwer=fwer, level=level)
    groups = gains.groups
    table = _tested(gains, gains.gains, fdr, fwer, level)
    table.index = names
    table["group"] = names if groups is None else [groups.names[k] for k in groups.of_entries()]
    own = by_group.loc[table["group"]]
    alone = (own["members"] == 1).to_numpy()
    shared = ["gain", "lower", "upper", "p", "found"]
    for column in shared:
        table[column] = np.where(alone, own[column], table[column])
    table["found"] &= alone
    tested = ~alone & own["found"].to_numpy(dtype=bool)
    if tested.any():
        members = np.flatnonzero(tested)
        share = None if fwer is None else fwer / 2.0 * len(members) / (~alone).sum()
        family = _tested(gains, gains.gains[:, members], fdr, share, level)
        table.loc[tested, shared[:-1]] = family[shared[:-1]].to_numpy()
        table.loc[tested, "found"] = family["found"].to_numpy()
    place = by_group.index.get_indexer(pd.Index(table["group"]))
    return table.iloc[np.lexsort((-table["gain"].to_numpy(), place))]


def interaction_table(
    gains: FeatureGains, feature: str, by: Any, *, bins: int = 2, level: float = LEVEL
) -> pd.DataFrame:
    """The gain of a feature or group by strata of another: "A matters only where B is high".

    With the gains `d_n` of N rows, N_s of them in stratum s (by weight) with mean m_s and the rest
    with m_r, columns:

    - `rows`, in s; `gain`, m_s; `standard_error`, by rows, units or folds as in :func:`group_table`
      of the values `m_s + 𝟙[n ∈ s] (d_n − m_s) N / N_s √((C − 1) C_s / (C (C_s − 1)))`, C the
      number of units (else of rows), C_s of those with rows in s.
    - `difference`, m_s − m_r, and its `difference_error`, of the differences of such values.
    - `lower`, `upper`, `difference_lower`, `difference_upper`: t-intervals over rows, given the
      fits, of the smaller part's degrees of freedom, each at `level` by itself: not adjusted for
      the number of strata, nor for a choice of `feature` and `by` from these rows.

    Args:
        feature: name of a mask entry or of a group.
        by: values of the same rows, `(N,)`: levels, each a stratum, or numbers, which are cut at
            quantiles into `bins`. Rows without a value and strata of one row are left out.

    Raises:
        ValueError: no such feature; values of another number of rows; fewer than two strata.
    """
    columns = dict(zip(gains.entry_names, gains.gains.T, strict=True))
    if gains.groups is not None and gains.of_groups is not None:
        columns |= dict(zip(gains.groups.names, gains.of_groups.T, strict=True))
    one_of(columns, "feature", feature)
    inside = pd.get_dummies(strata_of(by, len(gains.gains), bins))
    inside = inside.loc[:, inside.sum() > 1]
    seen = inside.any(axis=1).to_numpy()
    if inside.shape[1] < 2:
        raise ValueError("by must have two strata of two rows or more")
    gains, own = gains.where(torch.tensor(seen)), inside.to_numpy()[seen]
    values = columns[feature].detach().double().cpu().numpy()[seen, None]
    parts = np.hstack([own, ~own])
    weighted = parts * gains.counts[:, None]
    sizes = weighted.sum(0)
    mean = (values * weighted).sum(0) / sizes
    unit = np.arange(len(own)) if gains.unit is None else gains.unit.cpu().numpy()
    units = np.array([len(np.unique(unit[part])) for part in parts.T])
    corrected = (1 - 1 / len(np.unique(unit))) / (1 - 1 / np.maximum(units, 2))
    scale = len(own) / sizes * np.sqrt(corrected)
    here, elsewhere = np.hsplit(mean + parts * (values - mean) * scale, 2)
    each = np.hstack([here, here - elsewhere])
    free = np.tile(np.minimum(*np.split(units, 2)), 2) - 1
    gain, error = _mean_and_error(each, gains)
    error = np.where(free > 0, error, np.nan)
    half = t.isf((1.0 - fraction("level", level)) / 2.0, free) * error
    found = np.stack([gain, error, gain - half, gain + half], 1)
    table = pd.DataFrame(np.hstack(np.split(found, 2)), inside.columns, INTERACTION)
    table.insert(0, "rows", own.sum(0))
    return table.rename_axis("stratum")


def _tested(
    gains: FeatureGains,
    given: object,
    fdr: float | None,
    fwer: float | None,
    level: float,
    mixed: bool = False,
) -> pd.DataFrame:
    """Mean, interval, p and whether found of each column of gains, `(N, K)`, as one family; of the
    better of two predictors if `mixed`."""
    most = (1.0 - fraction("level", level)) / 2.0
    values = np.asarray(given.detach().cpu() if hasattr(given, "detach") else given, np.float64)
    rows, count = values.shape
    if rows < 2:
        raise ValueError(f"a spread over rows needs two rows or more; there are {rows}")
    known = ~np.isnan(values).all(0)
    if not known.all():
        # What is not known is not tested.
        table = pd.DataFrame(columns=["gain", "lower", "upper", "p", "found"], dtype=np.float64)
        if known.any():
            table = _tested(gains, values[:, known], fdr, fwer, level, mixed)
        table = table.set_axis(np.flatnonzero(known)).reindex(range(count))
        return table.assign(found=table["found"].eq(True))
    if not np.isfinite(values).all():
        raise ValueError("gains must be finite; they have NaN or infinite values")
    free = rows - 1 if gains.unit is None else len(gains.unit.unique()) - 1
    each = [values, np.logaddexp(values, 0.0) - math.log(2.0)][: 1 + mixed]
    mean, error = map(np.stack, zip(*(_mean_and_error(v, gains) for v in each), strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        # A feature that changes nothing has 0/0.
        score = np.where((mean == 0) & (error == 0), 0.0, mean / error)
    gain, p = mean.max(0), t.sf(score, free).min(0)
    tested = np.where(rows * gain > LEAST_FOUND, p, 1.0)
    alpha = most
    if fwer is not None:
        alpha = min(fraction("fwer", fwer) / count, most)
    elif fdr is not None:
        steps = np.minimum(fraction("fdr", fdr) * np.arange(1, count + 1) / count, most)
        passed = np.flatnonzero(np.sort(tested) <= steps)
        alpha = steps[passed[-1] if len(passed) else 0]
    half = t.isf(alpha, free) * error
    ends = {"lower": (mean - half).max(0), "upper": (mean + half).max(0)}
    return pd.DataFrame({"gain": gain, **ends, "p": p, "found": tested <= alpha})


def _mean_and_error(
    values: NDArray[np.float64], gains: FeatureGains
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The weighted mean of each column of values of rows, `(N, K)`, and its standard error."""
    counts = gains.counts
    mean = np.average(values, axis=0, weights=counts)
    unit = np.arange(len(values)) if gains.unit is None else gains.unit.cpu().numpy()
    names, unit = np.unique(unit, return_inverse=True)
    if (count := len(names)) < 2:
        raise ValueError("errors by groups of rows need two groups or more; there is one")
    sums = np.zeros((count, values.shape[1]))
    np.add.at(sums, unit, counts[:, None] * (values - mean))
    variance = np.square(sums).sum(0) * count / (count - 1) / len(values) ** 2
    if gains.part is not None:
        own = [gains.part.cpu().numpy() == fold for fold in gains.part.unique().tolist()]
        means = np.stack([np.average(values[n], axis=0, weights=counts[n]) for n in own])
        if len(means) > 1:
            variance = np.maximum(variance, means.var(0, ddof=1) / len(means))
    return mean, np.sqrt(variance)
