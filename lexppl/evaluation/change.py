"""How two models differ beyond what two fits of one do: answers, and Dirichlet explanations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import false_discovery_control, spearmanr, t
from torch import Tensor
from torch.distributions import Dirichlet

from lexppl.argument_checks import fraction, refuse_not_finite, shaped
from lexppl.data import Dataset
from lexppl.evaluation.column_sets import held_out_scores
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.folds import Folds
from lexppl.evaluation.importance import FDR, FOLDS, named_entries
from lexppl.inference.contexts import seeded
from lexppl.inference.training.result import FitResult
from lexppl.models import CategoricalLikelihood, NormalLikelihood
from lexppl.models.black_box import black_box
from lexppl.systems.q_fit import importance_divergence

Array = NDArray[np.float64]

FEWEST_REFITS = 5
FEWEST_REPLICATES = 3  # Replicates: with one left out, two must be left that differ
POOLED = 4
"""Degrees of freedom that the variance over all groups has beside a group's own, of R − 1."""
LEAST_PROBABILITY = 1e-3  # Of an answer; log-odds are of probabilities from here to 1 less this
LEAST = 0.01  # Of `∛f`: a first or last below a millionth of a nat is rounding
USUAL = 0.95  # Share of the rows in which two refits differ by less than what counts as changed


@dataclass(frozen=True, eq=False)
class Change:
    """How far the answers of two models differ, and by which of G groups, of
    :func:`explain_change`.

    Args:
        names: of the groups.
        first, last: of the difference between b and a, of each row, `(N, G)`.
        of_refits: `first` and `last` of the differences between R refits, `(2, R, G)`.
        size: of each row, `½ Σ_c w_c d_c²`, `(N,)`.
        sizes_of_refits: the same of the refits' differences, `(R, N)`.
        direction: rank correlation of a group of one column with the difference of a response or of
            the log-odds of the last of two labels, `(G,)`; NaN of others.
    """

    names: tuple[str, ...]
    first: Array
    last: Array
    of_refits: Array
    size: Array
    sizes_of_refits: Array
    direction: Array

    @property
    def share_of_rows(self) -> float:
        """Share of the rows whose predictions differ by more than those of 95 % of the rows differ
        between refits; NaN without refits."""
        if not len(self.sizes_of_refits):
            return float("nan")
        return float((self.size > np.quantile(self.sizes_of_refits, USUAL)).mean())

    def table(self, fdr: float = FDR) -> pd.DataFrame:
        """The groups, those that the difference depends on most first.

        Columns `first`, `last`, `direction`; with refits `first_of_refits`, `last_of_refits`, means
        of theirs, `p`, and `found` by Benjamini and Hochberg's procedure at `fdr`. A first or last
        f has the larger of two one-sided p: that its mean over rows is not above 0, by Student's
        t; and that it is a refit's. Of the latter `g = ∛f`, which is near to normal (Wilson and
        Hilferty), with mean m and variance s² over R refits and s̄² the mean of s² over groups:
        `(g − m) / √((1 + 1/R) (4 s̄² + (R − 1) s²) / (R + 3))` has Student's t of R + 3 degrees of
        freedom. Then `p = min(1, 2 min(p_first, p_last))`.

        Args:
            fdr: false discovery rate, in (0, 1).

        Raises:
            ValueError: a rate outside (0, 1).
        """
        rate, rows = fraction("fdr", fdr), np.stack([self.first, self.last])
        value = rows.mean(1)
        columns = {"first": value[0], "last": value[1], "direction": self.direction}
        if refits := self.of_refits.shape[1]:
            columns["first_of_refits"], columns["last_of_refits"] = self.of_refits.mean(1)
            roots = np.cbrt(self.of_refits)
            variance, free = roots.var(1, ddof=1), POOLED + refits - 1
            pooled = POOLED * variance.mean(1, keepdims=True) + (refits - 1) * variance
            error = np.maximum(np.sqrt((1.0 + 1.0 / refits) * pooled / free), LEAST)
            beyond = t.sf((np.cbrt(value) - roots.mean(1)) / error, free)
            of_rows = np.maximum(rows.std(1, ddof=1) / np.sqrt(len(self.size)), 1e-12)
            above = t.sf(value / of_rows, len(self.size) - 1)
            p = np.minimum(1.0, 2.0 * np.maximum(beyond, above).min(0))
            columns["p"], columns["found"] = p, false_discovery_control(p) <= rate
        table = pd.DataFrame(columns, index=pd.Index(self.names, name="group"))
        return table.iloc[np.argsort(-value.max(0), kind="stable")]

    def sentence(self, fdr: float = FDR) -> str:
        """The groups that are found, and the share of the rows that changed, in words."""
        if not len(self.sizes_of_refits):
            return (
                "Two fits of one model differ too, and without refits of the first nothing shows "
                f"by how much: give {FEWEST_REFITS} or more, of rows drawn with replacement."
            )
        table = self.table(fdr)
        groups = list(table.index[table["found"]])
        if not groups:
            return "The models differ by no column more than two refits of the first do."
        return (
            f"The difference depends on {', '.join(groups)} more than that of two refits does. In "
            f"{100 * self.share_of_rows:.0f} of 100 rows it is larger than in 95 of 100 between "
            "refits."
        )


def explain_change(
    a: Any,
    b: Any,
    x: Dataset | Tensor,
    *,
    refits: Sequence[Any] = (),
    groups: FeatureGroups | None = None,
    seed: int = 0,
) -> Change:
    """Which columns the difference between the answers of two models depends on, in nats:

        first_A = V(A) − V(∅),   last_A = V(all) − V(all without A),
        V(S) = −½ Σ_c E[w_c (d_c − E[d_c | x_S])²].

    Of probabilities `d_c` is the difference of the log-odds of label c (of two labels, of the
    second) and `w_c = m (1 − m)` with m the mean of both probabilities: to the second order
    `½ w_c d_c²` is the divergence of one answer from the other. Of responses d is their difference
    and `w` one over the variance of a's. A column that both models read alike has first and last 0.
    E[d | x_S] is of a linear model and boosted trees that have not learned from the row, as in
    :func:`lexppl.evaluation.importance`, without its networks.

    Two fits of one model differ too, and in the columns that they read. So that difference is the
    null: each refit is compared with the next one, and the last with the first, on the same rows.
    Refits must vary in what may differ between a and b without a change: the seed, and the rows
    where the two were fitted on different ones (rows drawn with replacement, or half of them).

    Args:
        a, b: models, or their answers for the rows of x: probabilities `(N, C)` or responses
            `(N,)`. A model is what :func:`lexppl.models.black_box` takes, and is asked for x as it
            is; of a model of a data frame give `model.predict_proba(frame)`.
        x: rows that neither model was fitted on, `(N, D)`, or a table with names and mask entries.
        refits: of a, five or more, as models or answers; without them nothing is found.
        groups: of the entries; each by itself if None.
        seed: of folds and fits.

    Raises:
        ValueError: answers of different shapes, that are not finite or no probabilities; one to
            four refits; groups of other entries.

    Example:
        >>> draw = torch.Generator().manual_seed(0)
        >>> x = torch.randn(200, 2, generator=draw)
        >>> noise = 0.05 * torch.randn(7, 2, generator=draw)
        >>> def answers(weights): return x @ weights
        >>> a, b, *refits = [answers(torch.tensor([1.0, 0.0]) + shift) for shift in noise]
        >>> change = explain_change(a, b + x[:, 1], x, refits=refits)
        >>> change.table()["found"].to_dict()
        {'x2': True, 'x1': False}
    """
    rows = x.x if isinstance(x, Dataset) else x
    shaped("x", rows, "N D", filled=True)
    refuse_not_finite("x", rows)
    names, entries, groups = named_entries(x, groups)
    check_refits(refits)
    first = _answers("a", a, rows)
    others = [_answers("b", b, rows, first)]
    others += [_answers(f"refits[{r}]", refit, rows, first) for r, refit in enumerate(refits)]
    scale = float(first.var()) if first.dim() == 1 else None
    if scale == 0.0:
        raise ValueError("a gives the same response for every row: nothing can be in its units")
    every = tuple(range(len(names)))
    members = [tuple(sorted(group)) for group in groups.members]
    rest = [tuple(e for e in every if e not in group) for group in members]
    sets = list(dict.fromkeys([(), every, *members, *rest]))
    pairs = [(first, others[0])]
    pairs += [(others[1 + r], others[1 + (r + 1) % len(refits)]) for r in range(len(refits))]
    gains = np.zeros((len(pairs), 2, len(rows), len(members)))
    sizes = np.zeros((len(pairs), len(rows)))
    for number, pair in enumerate(pairs):
        for difference, weight in _differences(*pair, scale):
            sizes[number] += weight * difference**2 / 2.0
            if np.ptp(difference) == 0.0:
                continue
            response = torch.from_numpy(difference)
            errors = held_out_scores(
                rows,
                response,
                entries,
                sets,
                Folds.of(response, FOLDS, seed),
                networks=[False] * len(sets),
                likelihood=NormalLikelihood(),
                weight=weight / weight.mean(),
                seed=seed,
            )[1]
            loss = dict(zip(sets, weight * errors**2 / 2.0, strict=True))
            gains[number, 0] += np.stack([loss[()] - loss[group] for group in members], -1)
            gains[number, 1] += np.stack([loss[left] - loss[every] for left in rest], -1)
    direction = np.full(len(members), np.nan)
    of_entry = [np.flatnonzero(np.asarray(entries) == e) for e in every]
    (difference, _), *more = _differences(*pairs[0], scale)
    for place, group in enumerate(members):
        features = np.concatenate([of_entry[e] for e in group])
        if len(features) == 1 and not more and np.ptp(difference) > 0.0:
            direction[place] = spearmanr(rows[:, features[0]].cpu().numpy(), difference)[0]
    (of_first, of_last), of_refits = gains[0], gains[1:].mean(2).swapaxes(0, 1)
    return Change(groups.names, of_first, of_last, of_refits, sizes[0], sizes[1:], direction)


def check_refits(refits: Sequence[Any]) -> None:
    """Refuse one to four refits, whose variance is not known well enough."""
    if 0 < len(refits) < FEWEST_REFITS:
        raise ValueError(f"refits must be none, or {FEWEST_REFITS} or more, not {len(refits)}")


def _differences(a: Tensor, b: Tensor, scale: float | None) -> list[tuple[Array, Array]]:
    """d_c and w_c of each row, for each label (of two, the second), or of responses."""
    if scale is not None:
        return [((b - a).numpy(), np.full(len(a), 1.0 / scale))]
    labels = range(1, 2) if a.shape[1] == 2 else range(a.shape[1])
    inside = [p.clamp(LEAST_PROBABILITY, 1.0 - LEAST_PROBABILITY) for p in (a, b)]
    difference = (inside[1].logit() - inside[0].logit()).numpy()
    mean = ((inside[0] + inside[1]) / 2.0).numpy()
    return [(difference[:, c], mean[:, c] * (1.0 - mean[:, c])) for c in labels]


def _answers(name: str, source: Any, x: Tensor, like: Tensor | None = None) -> Tensor:
    """Answers of a model or as given, float64, checked."""
    held = isinstance(source, Tensor | np.ndarray)
    values = torch.as_tensor(source) if held else black_box(source).targets(x)
    values = values.detach().cpu().double()
    expected = [(len(x), "C"), (len(x),)] if like is None else [like.shape]
    note = "probabilities or responses for the rows of x" if like is None else "as a answers"
    shaped(f"answers of {name}", values, *expected, note=note)
    refuse_not_finite(name, values)
    if values.dim() == 2:
        CategoricalLikelihood().check_responses(values)
    return values


@dataclass(frozen=True)
class ExplanationDivergence:
    """A divergence in nats with its `error`, that between replicates of one result, `noise`, and
    `excess = nats − noise`, 0 on average for one model and data, with its `excess_error`."""

    nats: float
    error: float
    noise: float
    excess: float
    excess_error: float


def explanation_divergence(
    result: FitResult, other: FitResult, x: Tensor | None = None
) -> ExplanationDivergence:
    r"""How far the explanations of two models are apart, over replicates of both,

    .. math:: D = \frac{1}{RR'} \sum_{r,s} \mathrm{KL}(\mathrm{Dir}(α_r) ‖ \mathrm{Dir}(α'_s)),
              \qquad
              V = \tfrac12 \Big( \frac{\sum_{r≠s} \mathrm{KL}(α_r ‖ α_s)}{R(R-1)}
              + \frac{\sum_{r≠s} \mathrm{KL}(α'_r ‖ α'_s)}{R'(R'-1)} \Big),

    each KL in closed form. V is how far seeds and rows alone put two fits of one model apart, and
    D − V what the models add. Standard errors are the jackknife's over replicates of both, which
    must differ in what the statement is about: seeds, or rows too (`row_weights="dirichlet"`).

    Args:
        result, other: Q-FIT's explanations of both models, of R and R' ≥ 3 replicates.
        x: rows `(N, D)`, over which a local explanation's KL is averaged; None for global ones.

    Raises:
        TypeError: an explanation that is no Dirichlet distribution.
        ValueError: fewer than three replicates; entries of other numbers; x left out where
            explanations are by row.

    Source: Adamczewski et al., § 4.3; Efron & Stein (1981), "The jackknife estimate of variance".

    Example:
        >>> from lexppl.inference import fit
        >>> from lexppl.models.predictor import table_predictor
        >>> from lexppl.systems import q_fit
        >>> rows = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
        >>> system = q_fit(2, table_predictor(2, 2, (4,)), scope="global")
        >>> data = (rows, (rows[:, 0] > 0).long())
        >>> result = fit(system, data, epochs=2, replicates=3, progress=False)
        >>> abs(explanation_divergence(result, result).excess) < 1.0
        True
    """
    first, second = concentrations(result, x), concentrations(other, x)
    for name, alpha in (("result", first), ("other", second)):
        if len(alpha) < FEWEST_REPLICATES:
            raise ValueError(
                f"{name} has {len(alpha)} replicate(s); give {FEWEST_REPLICATES} or more: "
                "fit(replicates=8)"
            )
    pairs = ((first, second), (first, first), (second, second))
    # KL of each pair of replicates, the mean over rows where there are rows.
    between, within_result, within_other = (
        nats if nats.dim() == 2 else nats.mean(-1)
        for nats in (importance_divergence(a[:, None], b[None]) for a, b in pairs)
    )

    def statistics(rows: list[int], columns: list[int]) -> Tensor:
        """D, V and D − V of some replicates of both."""
        parts = within_result[rows][:, rows], within_other[columns][:, columns]
        means = [nats_of.sum() / (len(nats_of) * (len(nats_of) - 1)) for nats_of in parts]
        nats, noise = between[rows][:, columns].mean(), torch.stack(means).mean()
        return torch.stack([nats, noise, nats - noise])

    every, others = list(range(len(first))), list(range(len(second)))
    variance = torch.zeros(3, dtype=torch.float64)
    for count, left_out in (
        (len(first), [statistics([i for i in every if i != out], others) for out in every]),
        (len(second), [statistics(every, [j for j in others if j != out]) for out in others]),
    ):
        values = torch.stack(left_out)
        variance += (count - 1) / count * (values - values.mean(0)).square().sum(0).cpu()
    (nats, noise, excess), errors = statistics(every, others).tolist(), variance.sqrt().tolist()
    return ExplanationDivergence(nats, errors[0], noise, excess, errors[2])


@torch.no_grad()
def concentrations(result: FitResult, x: Tensor | None = None) -> Tensor:
    """α of each replicate: `(R, G)` of a global explanation, `(R, N, G)` of a local one at x."""
    values = []
    for model, guide in zip(result.models, result.guides, strict=True):
        distribution: Any = getattr(guide, "distribution", None)
        if distribution is None and hasattr(model, "selector"):
            if x is None:
                raise ValueError("an explanation by row needs x, the rows to average over")
            result.check(x)
            with seeded(0):
                distribution = model.selector(x)
        if not isinstance(distribution, Dirichlet):
            raise TypeError(
                "the divergence is of Dirichlet explanations, such as q_fit's; the result of "
                f"{type(model).__name__} states {type(distribution).__name__}"
            )
        values.append(distribution.concentration.double())
    return torch.stack(values)
