"""What columns are worth for the prediction of y: alone, and beyond all others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import chi2, t
from torch import Tensor

from lexppl.argument_checks import fraction, one_of, refuse_not_finite, shaped
from lexppl.data import Dataset
from lexppl.data.stratification import fold_of_groups
from lexppl.evaluation.column_sets import held_out_scores
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.folds import Folds
from lexppl.explanation.reading.feature_values import strata_of
from lexppl.explanation.reading.modes import LEAST, weights
from lexppl.models import CategoricalLikelihood, Likelihood

Array = NDArray[np.float64]

FOLDS, FDR, LEVEL = 5, 0.1, 0.95
LEAST_FOUND = 1.0  # Nats of all rows together, the price of a parameter by Akaike's criterion
PARAMETER = 0.5
"""Variance of the log-likelihood of all rows by a parameter that says nothing, ½ χ² of one degree
of freedom, in squared nats: fits that ignore a column in all folds still have an error."""
BY_CHANCE = 0.05
"""Probability of a variance by folds that counts, where folds differ by their rows alone."""
SHOWN = 0.2
"""p of a group, by itself, up to which masks may keep it."""
NEARLY, SIZE = 0.25, 0.05
"""Share of what a group says alone that a member may lack to stand in for it, and the p of what it
says beyond the others up to which it is no stand-in."""
TREES_OF_MEMBER, MOST_PREDICTED = 10, 8
"""By which a member of a group is predicted from the others; the largest group in which it is: 64
columns of four groups took twice the time."""
MOST_SLOPE = 3.0  # By which log-likelihood ratios must be multiplied to be calibrated
NAMES = ("first", "last")
INTERACTION = ["gain", "standard_error", "lower", "upper", "difference"]
INTERACTION += ["difference_error", "difference_lower", "difference_upper"]


@dataclass(frozen=True, eq=False)
class Importance:
    """First and last of K groups and of G mask entries by row, of :func:`importance`, in nats.

    Args:
        names, groups: of the entries, and the groups of them.
        first, last: of each row, of each group and then each entry, `(N, K + G)`; NaN of what was
            not measured.
        full, none: log p(y | x) and log p(y) of each row, `(N,)`.
        errors: of each row with all columns and without each group, `(N, 1 + K)`: 1 for another
            label than the likeliest one and else 0, or the distance of a response from its mean.
        unit, weight, fold: group of each row, such as a patient, how often it counts, of mean 1,
            and the fold whose predictors have not learned from it, `(N,)`.
    """

    names: tuple[str, ...]
    groups: FeatureGroups
    first: Array
    last: Array
    full: Array
    none: Array
    errors: Array
    unit: NDArray[np.int64]
    weight: Array
    fold: NDArray[np.int64]

    @property
    def gains(self) -> Array:
        """`last` of each row and entry, `(N, G)`."""
        return self.last[:, len(self.groups.names) :]

    def group_table(
        self, fdr: float = FDR, *, fwer: float | None = None, level: float | None = LEVEL
    ) -> pd.DataFrame:
        """The groups, those that are worth most first, with intervals and what is found.

        `members`, how many; `error` and `error_without`, means of :attr:`errors`; of `first` and
        `last` alike, with C units and q the quantile of Student's t of C − 1 degrees of freedom:

        - `first`: the mean over rows, weighted; `first_error`: √V / N, with
          `V = (2 s / (1 + s))² (C / (C − 1) Σ_c (Σ_{n in c} w_n (d_n − first))² + ½)`. The factor
          is for the fits. Predictions with a share λ of an effect, as few rows allow, vary between
          tables (2 − λ) times as much as between rows; s = (2 − λ) / λ is the root above 0 of
          `Σ_n w_n exp(−s d_n) = N`, 1 where p(y | x_S) is calibrated, here from 1 to 3. V is larger
          by what the variance by F folds, `F / (F − 1) Σ_f (Σ_{n in f} w_n (d_n − first))²`, is
          above the .95 quantile of χ² / (F − 1) times that by rows: the fits of a fold may differ
          by chance in a minimum that they reach.
        - `first_lower`, `first_upper`: `first − q √V / N`, and `first + (q² / 2 + √(q⁴ / 4 + q² V))
          / N`. The variance of a log-likelihood ratio grows with its mean as 2 · mean, so that an
          effect that this table happens to miss has a small V; the upper end has that of an effect
          of its own size (a score interval), with half the slope, as the estimate is skewed.
        - `first_p`: one-sided, that it is not above 0, with the same factor; 1 unless all rows gain
          a nat together. `last_p` is the smaller of this and that of `log((1 + exp d_n) / 2) − c`,
          the gain of the even mixture of both predictions, which is nearer to significance where an
          effect is small. It exceeds `d_n / 2` by `log cosh(d_n / 2)`, which two fits gain by being
          averaged even where A says nothing: c is the mean of that for the group or entry of which
          it is least.

        Then `p = min(1, 2 min(first_p, last_p))`, and `found` by Benjamini and Hochberg's procedure
        at `fdr`, or `p ≤ fwer / K`.

        Args:
            fdr: false discovery rate, in (0, 1).
            fwer: family-wise error rate in its place.
            level: of each interval by itself, in (0, 1); None for that of Benjamini and Yekutieli,
                1 − fdr · k / K where k of K are found (of none, k = 1), or 1 − fwer / K.

        Raises:
            ValueError: a rate or level outside (0, 1).
        """
        count = len(self.groups.names)
        table = self._tested(range(count), fdr, fwer, level)
        table.insert(0, "members", list(map(len, self.groups.members)))
        errors = np.average(self.errors, axis=0, weights=self.weight)
        table["error"], table["error_without"] = errors[0], errors[1:]
        table.index = pd.Index(self.groups.names, name="group")
        most = table[list(NAMES)].max(axis=1).to_numpy()
        return table.iloc[np.argsort(-most, kind="stable")]

    def feature_table(
        self, fdr: float = FDR, *, fwer: float | None = None, level: float | None = LEVEL
    ) -> pd.DataFrame:
        """The entries, by their groups, with the `group` of each in place of its size.

        An entry that is a group by itself has the group's line. Members of groups of several are
        tested where their group is found, as one family, by `last` alone (`p = last_p`): whatever
        stands in for a member has its `first`. Members of other groups are not found.

        Args:
            fdr, fwer, level: as in :meth:`group_table`; members have half of `fwer`.
        """
        half = None if fwer is None or not self.groups.several else fwer / 2.0
        by_group = self.group_table(fdr, fwer=fwer if half is None else half, level=level)
        count, owner = len(self.groups.names), self.groups.of_entries()
        of_group = by_group.loc[[self.groups.names[k] for k in owner]]
        table = of_group.drop(columns=["members", "error", "error_without"])
        table.index = pd.Index(self.names, name="feature")
        several = of_group["members"].to_numpy() > 1
        is_found = of_group["found"].to_numpy(dtype=bool)
        for tested in (several & is_found, several & ~is_found):
            if tested.any():
                share = None if half is None else half * tested.sum() / several.sum()
                places = count + np.flatnonzero(tested)
                family = self._tested(places, fdr, share, level, by=("last",))
                family["found"] &= is_found[tested]
                table.loc[tested] = family.set_axis(table.index[tested])
        table.insert(0, "group", of_group.index.to_numpy())
        rank = by_group.index.get_indexer(of_group.index)
        return table.iloc[np.lexsort((-table["last"].to_numpy(), rank))]

    def stand_ins(self) -> dict[str, dict[str, float]]:
        """Near-copies: by group of several the members that stand in for each other, with weights.

        These are the members m that say alone nearly all that their group A says alone,
        `first_A − first_m` plus two standard errors being below a quarter of `first_A`, and beyond
        all others nothing that shows (`last_p` above .05). Two or more of them have the weights of
        :func:`lexppl.explanation.reading.modes.modes_of`, with δ_m the difference of `first_m` from
        the largest `first` of them, by the same rows: copies have even weights.
        """
        copies: dict[str, dict[str, float]] = {}
        for k, name in enumerate(self.groups.names):
            if len(members := np.array(self.groups.members[k])) < 2:
                continue
            places = len(self.groups.names) + members
            alone = self.first[:, places]
            less, error = self._mean_and_error(self.first[:, [k]] - alone, 0.0)
            enough = less + 2.0 * error < NEARLY * self._mean_and_error(self.first[:, [k]])[0]
            enough &= self._tested(places, FDR, None, LEVEL)["last_p"].to_numpy() > SIZE
            if enough.sum() > 1:
                near = alone[:, enough]
                best = near[:, [less[enough].argmin()]]
                behind, error = self._mean_and_error(best - near, 0.0)
                weight = weights(np.ones(len(behind)), behind / np.hypot(error, LEAST))
                named = zip(members[enough], weight.tolist(), strict=True)
                of_group = {self.names[place]: share for place, share in named if share > 0.0}
                copies |= {name: of_group} if len(of_group) > 1 else {}
        return copies

    def shown_outside(self, level: float = SHOWN) -> NDArray[np.bool_]:
        """Whether the rows outside each of F folds show that an entry's group is worth anything,
        `(F, G)`: `p ≤ level` of :meth:`group_table` by these rows; true of what was not measured.

        Predictors of these rows have learned from the fold's own, its judgement apart.
        """
        owner, shown = list(self.groups.of_entries()), []
        for fold in range(self.fold.max() + 1):
            rows = np.flatnonzero(self.fold != fold)
            names = ("first", "last", "full", "none", "errors", "unit", "weight", "fold")
            outside = replace(self, **{name: getattr(self, name)[rows] for name in names})
            p = outside._tested(range(len(self.groups.names)), FDR, None, LEVEL)["p"].to_numpy()
            shown.append((np.isnan(p) | (p <= level))[owner])
        return np.stack(shown)

    def _tested(
        self,
        places: Sequence[int] | NDArray[np.int64],
        fdr: float,
        fwer: float | None,
        level: float | None,
        by: Sequence[str] = NAMES,
    ) -> pd.DataFrame:
        """Groups or entries as one family, by the smallest p of some of the names."""
        count, rows, free = len(places), len(self.weight), len(np.unique(self.unit)) - 1
        every: dict[str, tuple[Array, Array, Array]] = {}
        for name, values in zip(NAMES, (self.first, self.last), strict=True):
            gained = values[:, places]
            factor = self._fit_factor(gained)
            mean, error = self._mean_and_error(gained)
            error = factor * error
            p = t.sf(mean / error, free)
            if name == "last":
                even, even_error = self._mean_and_error(self._mixture_gains()[:, places])
                p = np.minimum(p, t.sf(even / (factor * even_error), free))
            p = np.where(np.isnan(mean), np.nan, np.where(rows * mean > LEAST_FOUND, p, 1.0))
            every[name] = mean, error, p
        smallest = np.min([every[name][2] for name in by], 0)
        p = np.minimum(1.0, len(by) * smallest)
        tested = np.nan_to_num(p, nan=1.0)
        steps = fraction("fdr", fdr) * np.arange(1, count + 1) / count
        if fwer is not None:
            steps = np.full(count, fraction("fwer", fwer) / count)
        passed = np.flatnonzero(np.sort(tested) <= steps)
        alpha = steps[passed[-1] if len(passed) else 0]
        outside = alpha if level is None else 1.0 - fraction("level", level)
        q, table = t.isf(outside / 2.0, free), {}
        for name, (mean, error, of_name) in every.items():
            shift = q**2 / (2.0 * rows)
            table[name], table[f"{name}_error"] = mean, error
            table[f"{name}_lower"] = mean - q * error
            table[f"{name}_upper"] = mean + shift + np.hypot(shift, q * error)
            table[f"{name}_p"] = of_name
        return pd.DataFrame({**table, "p": p, "found": tested <= alpha})

    def _mixture_gains(self) -> Array:
        """Of each row, group and entry what the even mixture of the predictions with and without it
        gains on the one without, less what averaging two fits gains, `(N, K + G)`."""
        with np.errstate(invalid="ignore"):  # NaN of what was not measured
            mixture = np.logaddexp(self.last, 0.0) - math.log(2.0)
        averaged = np.average(mixture - self.last / 2.0, axis=0, weights=self.weight)
        return np.asarray(mixture - np.nanmin(averaged))

    def _fit_factor(self, values: Array) -> Array:
        """How much more values of rows `(N, M)` vary between tables than between rows, `(M,)`."""
        low, high = np.ones(values.shape[1]), np.full(values.shape[1], MOST_SLOPE)
        for _ in range(12):
            slope = (low + high) / 2.0
            above = np.average(np.exp(-slope * values), axis=0, weights=self.weight) < 1.0
            low, high = np.where(above, slope, low), np.where(above, high, slope)
        return 2.0 * low / (1.0 + low)

    def _mean_and_error(self, values: Array, least: float = PARAMETER) -> tuple[Array, Array]:
        """The weighted mean of each column of values of rows, `(N, M)`, and its standard error."""
        mean, squares = _mean_and_squares(values, self.unit, self.weight)
        if (free := len(np.unique(self.fold)) - 1) > 0:
            by_fold = _mean_and_squares(values, self.fold, self.weight)[1]
            squares += np.maximum(by_fold - chi2.isf(BY_CHANCE, free) / free * squares, 0.0)
        return mean, np.sqrt(squares + least) / len(values)


def _mean_and_squares(values: Array, unit: NDArray[np.int64], weight: Array) -> tuple[Array, Array]:
    """The weighted mean of each column of values of rows, `(N, M)`, and the variance of its N-fold
    by C units: `C / (C − 1) Σ_c (Σ_{n in c} w_n (v_n − mean))²`."""
    mean = np.average(values, axis=0, weights=weight)
    sums = pd.DataFrame(weight[:, None] * (values - mean)).groupby(unit).sum().to_numpy()
    return mean, np.square(sums).sum(0) * len(sums) / (len(sums) - 1)


def interaction_table(
    gains: Importance, feature: str, by: Any, *, bins: int = 2, level: float = LEVEL
) -> pd.DataFrame:
    """The gain, `last`, of a feature or group by strata of another: "A matters only where B is
    high".

    With `last` `d_n` of N rows, N_s of them in stratum s (by weight) with mean m_s and the rest
    with m_r, columns:

    - `rows`, in s; `gain`, m_s; `standard_error`, by C units (else rows), C_s of those with rows in
      s, of the values `m_s + 𝟙[n ∈ s] (d_n − m_s) N / N_s √((C − 1) C_s / (C (C_s − 1)))`.
    - `difference`, m_s − m_r, and its `difference_error`, of the differences of such values.
    - `lower`, `upper`, `difference_lower`, `difference_upper`: t-intervals over rows, given the
      fits, of the smaller part's degrees of freedom, each at `level` by itself: not adjusted for
      the number of strata, nor for a choice of `feature` and `by` from these rows.

    Args:
        gains: of :func:`importance`.
        feature: name of a mask entry or of a group.
        by: values of the same rows, `(N,)`: levels, each a stratum, or numbers, which are cut at
            quantiles into `bins`. Rows without a value and strata of one row are left out.

    Raises:
        ValueError: no such feature; values of another number of rows; fewer than two strata.
    """
    columns = dict(zip((*gains.groups.names, *gains.names), gains.last.T, strict=True))
    one_of(columns, "feature", feature)
    inside = pd.get_dummies(strata_of(by, len(gains.last), bins))
    inside = inside.loc[:, inside.sum() > 1]
    seen = inside.any(axis=1).to_numpy()
    if inside.shape[1] < 2:
        raise ValueError("by must have two strata of two rows or more")
    in_stratum, unit, values = (
        inside.to_numpy()[seen],
        gains.unit[seen],
        columns[feature][seen, None],
    )
    weight = gains.weight[seen] / gains.weight[seen].mean()
    parts = np.hstack([in_stratum, ~in_stratum])
    weighted = parts * weight[:, None]
    sizes = weighted.sum(0)
    mean = (values * weighted).sum(0) / sizes
    units = np.array([len(np.unique(unit[part])) for part in parts.T])
    corrected = (1 - 1 / len(np.unique(unit))) / (1 - 1 / np.maximum(units, 2))
    scale = len(in_stratum) / sizes * np.sqrt(corrected)
    strata_values, rest_values = np.hsplit(mean + parts * (values - mean) * scale, 2)
    free = np.tile(np.minimum(*np.split(units, 2)), 2) - 1
    gain, squares = _mean_and_squares(
        np.hstack([strata_values, strata_values - rest_values]), unit, weight
    )
    error = np.where(free > 0, np.sqrt(squares) / len(in_stratum), np.nan)
    half = t.isf((1.0 - fraction("level", level)) / 2.0, free) * error
    means_and_ends = np.stack([gain, error, gain - half, gain + half], 1)
    table = pd.DataFrame(np.hstack(np.split(means_and_ends, 2)), inside.columns, INTERACTION)
    table.insert(0, "rows", in_stratum.sum(0))
    return table.rename_axis("stratum")


def importance(
    data: Dataset | tuple[Tensor, Tensor],
    *,
    groups: FeatureGroups | None = None,
    measured: Sequence[str] | None = None,
    folds: Folds | None = None,
    outputs: Tensor | None = None,
    likelihood: Likelihood | None = None,
    unit: Tensor | None = None,
    weight: Tensor | None = None,
    seed: int = 0,
) -> Importance:
    """What each group of columns, and each column, is worth for the prediction of y, in nats.

    Use it to rank columns by what they are worth for the target on new rows, with intervals and
    tests; no explainer is needed. `group_table()` of the result has the ranking.

    Example:
        >>> import torch
        >>> x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
        >>> importance((x, (x[:, 0] > 0).long())).group_table()["found"].to_dict()
        {'x1': True, 'x2': False}

    There are two numbers,

        first_A = V(A) − V(∅),    last_A = V(all) − V(all without A),    V(S) = E[log p(y | x_S)].

    First is what A says alone, last what it says beyond everything else. No mask and no explainer
    enters. Of columns that are independent and act each for itself they are nearly equal; a pure
    interaction has first 0 and last above 0; copies have first above 0 and last 0.

    Each V(S) is the mean over rows of log p(y | x_S) by predictors of the columns of S that have
    not learned from the row: the base rate, a linear model, boosted trees and networks that pay for
    the columns which they read, their outputs averaged by weights that make the rows of all other
    folds likeliest, the same for sets that are compared.

    Of a member m of a group of two to eight both sets have, beside their columns, the prediction of
    m by the other members, of trees. It says nothing that they do not say, so that V is the same;
    but few rows are learned from more easily by some columns than by others of the same
    information, as by the square of a column where its size counts, which would seem to say
    something beyond it.

    There are two estimands. What the intervals cover is the mean of such an analysis over tables
    of this size. The law's own value, with the law's own p(y | x_S), is larger by what so many rows
    cannot teach: `last` above all comes to it from below as rows grow in number.

    Args:
        data: a table, or `(x, y)`: x `(N, D)`, y labels or responses `(N,)`, or a black box's
            probabilities `(N, C)`, of which gains are expectations `Σ_c y_c gain(c)`.
        groups: of the G mask entries; each by itself if None.
        measured: names of the groups that are measured, where all would take too long; the others
            are NaN, count in the number of tests, and are not found. All if None.
        folds: each row is judged by predictors of the other folds; five at random, of whole units,
            if None.
        outputs: of a black box, in place of the y of data.
        likelihood: a :class:`lexppl.models.PoissonLikelihood` or another one of counts, for a
            negative binomial of a dispersion found by held-out rows; of other responses the family,
            normal or Student's t, is of :func:`lexppl.models.response_likelihood` if None.
        unit: group of each row, such as a patient, whose rows stay in one fold and count as one in
            errors, `(N,)`.
        weight: how often each row counts, above 0, `(N,)`; only the ratios count.
        seed: of folds and fits.

    Raises:
        ValueError: data that is not finite, of one label or without variation; groups, folds,
            units or weights of other entries or rows.

    Source: Williamson, Gilbert, Simon, Carone. A general framework for inference on
        algorithm-agnostic variable importance. JASA 2023. Lei et al. Distribution-free predictive
        inference for regression. JASA 2018, § 6.
    """
    x, y = (data.x, data.y) if isinstance(data, Dataset) else data
    y = y if outputs is None else outputs
    counts = _checked_weights(x, y, likelihood, weight)
    names, entries, groups = named_entries(data if isinstance(data, Dataset) else x, groups)
    units = np.arange(len(x)) if unit is None else np.unique(unit.cpu(), return_inverse=True)[1]
    if len(units) != len(x) or units.max() < 1:
        raise ValueError(
            f"unit must have two groups or more of the {len(x)} rows; it has {len(units)} rows and "
            f"{len(np.unique(units))}"
        )
    if folds is None and unit is None:
        folds = Folds.of(y, FOLDS, seed)
    elif folds is None:
        label = y.dim() == 1 and not y.is_floating_point()
        strata = y.cpu().numpy() if label else np.zeros(len(y), np.int64)
        folds = Folds(torch.from_numpy(fold_of_groups(strata, units, FOLDS, seed)), FOLDS)
    part = folds.part.cpu().numpy()
    if len(part) != len(x) or len(np.unique(units * folds.count + part)) > units.max() + 1:
        raise ValueError(
            f"folds must be of the {len(x)} rows of data, those of a unit in one; they are of "
            f"{len(part)}"
        )
    every = tuple(range(len(names)))
    alone = [*(tuple(sorted(group)) for group in groups.members), *((e,) for e in every)]
    if measured is not None:
        for name in measured:
            one_of(dict.fromkeys(groups.names), "measured", name)
        chosen = {
            e for g, of in zip(groups.names, alone, strict=False) if g in measured for e in of
        }
        alone = [columns if chosen.issuperset(columns) else () for columns in alone]
    rest = [tuple(e for e in every if e not in columns) for columns in alone]
    whole = [every] * len(rest)
    beside = [set(groups.members[k]) - {e} for e, k in enumerate(groups.of_entries())]
    several = [e for e in every if 0 < len(beside[e]) < MOST_PREDICTED]
    several = [e for e in several if alone[len(groups.names) + e]]
    if several:
        others = [beside[e] for e in several]
        features, owners = _predicted_members(x, np.asarray(entries), several, others, part, seed)
        x, entries = torch.cat([x.cpu().double(), features], 1), [*entries, *owners]
        for new, member in enumerate(several, len(names)):
            for with_new in (rest, whole):
                with_new[len(groups.names) + member] += (new,)
    sets = list(dict.fromkeys([(), every, *alone, *rest, *whole]))
    # A single column that is compared with none needs no network beside trees.
    networks = [len(columns) > 1 or columns in rest for columns in sets]
    log_likelihoods, errors = held_out_scores(
        x,
        y,
        entries,
        sets,
        folds,
        networks=networks,
        likelihood=likelihood,
        weight=counts,
        seed=seed,
    )
    of_set = dict(zip(sets, log_likelihoods, strict=True))
    error_of_set = dict(zip(sets, errors, strict=True))
    unknown = np.where([bool(columns) for columns in alone], 0.0, np.nan)
    first = np.stack([of_set[columns] - of_set[()] for columns in alone], 1) + unknown
    last = np.stack([of_set[a] - of_set[b] for a, b in zip(whole, rest, strict=True)], 1) + unknown
    wrong = np.stack(
        [error_of_set[every], *(error_of_set[s] for s in rest[: len(groups.names)])], 1
    )
    wrong[:, 1:] += unknown[: len(groups.names)]
    both = of_set[every], of_set[()]
    return Importance(
        tuple(map(str, names)), groups, first, last, *both, wrong, units, counts, part
    )


def _predicted_members(
    x: Tensor,
    entries: NDArray[np.int64],
    members: Sequence[int],
    others: Sequence[set[int]],
    part: NDArray[np.int64],
    seed: int,
) -> tuple[Tensor, NDArray[np.int64]]:
    """The features of members of groups, predicted outside each fold from the others of the group,
    and the new entry of each such feature, counted on from the last."""
    from sklearn.ensemble import ExtraTreesRegressor  # noqa: PLC0415 - slow to import
    from sklearn.model_selection import PredefinedSplit, cross_val_predict  # noqa: PLC0415 - slow

    values, columns, owners = x.detach().cpu().numpy(), [], []
    for new, (member, rest) in enumerate(zip(members, others, strict=True), entries.max() + 1):
        own, read = entries == member, np.isin(entries, list(rest))
        trees = ExtraTreesRegressor(TREES_OF_MEMBER, min_samples_leaf=5, random_state=seed)
        given, target = values[:, read], values[:, own].squeeze()
        predicted = cross_val_predict(trees, given, target, cv=PredefinedSplit(part))
        columns.append(torch.from_numpy(predicted.astype(np.float64).reshape(len(values), -1)))
        owners.append(np.full(own.sum(), new))
    return torch.cat(columns, 1), np.concatenate(owners)


def named_entries(
    x: Dataset | Tensor, groups: FeatureGroups | None
) -> tuple[Sequence[str], Sequence[int], FeatureGroups]:
    """Names of the mask entries of a table or of features `(N, D)`, the entry of each feature, and
    the groups of entries, each by itself if None; groups of other entries are refused."""
    if isinstance(x, Dataset):
        names, entries = x.entry_names, x.groups
    else:
        entries = tuple(range(x.shape[1]))
        names = tuple(f"x{d + 1}" for d in entries)
    groups = FeatureGroups.alone(names) if groups is None else groups
    if (of := sum(map(len, groups.members))) != len(names):
        raise ValueError(f"groups must be of {len(names)} entries, not {of}")
    return names, entries, groups


def _checked_weights(
    x: Tensor, y: Tensor, likelihood: Likelihood | None, weight: Tensor | None
) -> Array:
    """The weights of the rows, of mean 1; data that no importance can be of is refused."""
    if x.dim() != 2 or len(x) < 2:
        raise ValueError(f"x must have shape (N, D), of two rows or more; it has {tuple(x.shape)}")
    refuse_not_finite("x", x)
    refuse_not_finite("y", y)
    shaped("y", y, (len(x),), (len(x), "C"), note="labels or responses, or probabilities")
    if weight is not None:
        shaped("weight", weight, (len(x),))
    if bool((y == y[:1]).all()):
        raise ValueError(f"y must vary over rows; it is {y[:1].tolist()[0]} in all of them")
    if y.dim() == 2:
        CategoricalLikelihood().check_responses(y)
    elif likelihood is None and not y.is_floating_point() and int(y.min()) < 0:
        raise ValueError(f"labels must be 0 … C−1; the least is {int(y.min())}")
    counts = np.ones(len(x)) if weight is None else weight.detach().cpu().double().numpy()
    if not 0.0 < counts.min() <= counts.max() < math.inf:
        raise ValueError("weight must be finite numbers above 0, one for each row")
    return np.asarray(counts / counts.mean())
