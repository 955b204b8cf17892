"""Which way the prediction moves with a feature that is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from lexppl.evaluation.forced_runs import ForcedRuns, Run
from lexppl.evaluation.prediction import outcome
from lexppl.explanation.draws import RESPONSE, label_values
from lexppl.explanation.names import entry_names as names_of
from lexppl.explanation.reading.feature_values import FeatureValues, column_values
from lexppl.inference.objective.program import ParticleTrace
from lexppl.inference.training.result import FitResult

Array = NDArray[np.float64]

LEAST_KEPT = 3.0
"""Rows that must keep a feature, or its level, for a direction."""
LEAST_EFFECT = 1e-6
"""Differences of effects below which there is no direction: rounding has one."""


@dataclass(frozen=True, eq=False)
class FeatureEffects:
    """The effects of :func:`feature_effects`.

    Args:
        effects: `(R, N, G, C)` in double precision: of each replicate, row, mask entry and label
            the change of the log-odds, in nats; C is 1 where the response is no label, and the
            change is one of its mean. 0 where no draw keeps the entry.
        kept: share of the draws that keep the entry, `(R, N, G)`.
        entry_names: of the G mask entries.
        class_names: of the C labels, or None where the response is no label.
    """

    effects: Tensor
    kept: Tensor
    entry_names: tuple[str, ...]
    class_names: tuple[str, ...] | None


def feature_effects(
    result: FitResult,
    x: Any,
    *,
    masks: int = 8,
    imputations: int = 1,
    seed: int = 0,
    entry_names: Sequence[str] | None = None,
) -> FeatureEffects:
    r"""What keeping each feature does to the prediction, row by row and label by label:

        effect_{n,g,c} = E_{z ~ q(z|x_n), z_g = 1} [ logit p̂(c | x_n, z)
                                                    − logit p̂(c | x_n, z without g) ],
        p̂(c | x, z) = 1/K Σ_k p(c | x̃_k),    x̃_k ~ p(x̃ | x, z),

    over the draws that keep g, each run again without it on the same random numbers. Of a response
    that is no label the mean E[y | x̃] stands in place of the log-odds. No y is needed: this is
    about the prediction, where :func:`feature_gains` is about what it is worth.

    Of log-odds that are linear in the features, `Σ_g β_g x_g`, the effect is
    `β_g (x_g − E[x̃_g])`: its sign is that of β for values above what the imputer puts in their
    place, and it grows with x at the rate β. :func:`direction_table` reads both from the rows.

    Args:
        result: of :func:`lexppl.inference.fit`; its first mask site is read, which must select.
        x: rows, `(N, *event)`: a tensor, or an array.
        masks: L draws a row.
        imputations: K.
        seed: of the draws. Global random state is left alone.
        entry_names: names of the G entries; if None those of the fit.

    Raises:
        ValueError: as :func:`feature_gains`; a program without a response `y`.
        FloatingPointError: log-odds that are NaN or infinite, as of a predictor that rules a label
            out.

    Example:
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
        >>> result = fit(lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,)),
        ...     (x, (x[:, 0] > 0).long()), epochs=1, progress=False)
        >>> feature_effects(result, x).effects.shape
        torch.Size([1, 100, 3, 2])
    """
    runs = ForcedRuns(result, x, masks=masks, imputations=imputations, seed=seed, what="effects")
    entries, classes = runs.mask.entries, runs.class_names()
    parts = runs.each(_predicted, lambda run, _: _effects(run, entries))
    return FeatureEffects(
        torch.stack([torch.cat([effect for effect, _ in chunks]) for chunks in parts]),
        torch.stack([torch.cat([kept for _, kept in chunks]) for chunks in parts]),
        tuple(map(str, names_of(result, entries, entry_names))),
        classes,
    )


def direction_table(
    effects: FeatureEffects | FitResult, values: Mapping[str, FeatureValues] | pd.DataFrame
) -> pd.DataFrame:
    r"""Which way the prediction moves with each feature's value, over the rows that keep it.

    With `w_n` the share of draws that keep the feature in row n, mean over replicates, and `e_n`
    the effect of its draws that keep it, over all replicates:

    - a feature of numbers `v_n` has a line a label, with

          direction = Σ w (r − r̄)(s − s̄) / √(Σ w (r − r̄)² Σ w (s − s̄)²),
          slope     = sd(v) Σ w (v − v̄)(e − ē) / Σ w (v − v̄)²,

      where r and s are the ranks of v and of e among the rows that keep the feature, means are
      weighted by w, and sd(v) is over all N rows. `direction` is Spearman's correlation, −1 … 1:
      near 1 the prediction of the label rises wherever the value does, near −1 it falls, near 0
      it does neither throughout. `slope` is how much: nats of log-odds for a standard deviation
      of the feature (of a response, its own units).
    - a feature of levels has a line a label and level, with `effect`, `Σ w e / Σ w` over the rows
      of that level: how much knowing it moves the log-odds, against a value that is imputed.

    `spread` is the standard deviation over replicates of slope or effect, NaN with one. `kept` is
    `Σ w`, a number of rows; below three there is none (NaN), and there is no direction (NaN) in
    effects that are all the same but for 1e-6.

    It describes the explainer's prediction, not a cause, and given the other features that the row
    keeps.

    Args:
        effects: of :func:`feature_effects`; or a fit, whose effects are computed for the rows of a
            data frame of its inputs, in their order and encoding.
        values: of the features, for the same N rows, a data frame or by name; features that have
            none are left out.

    Returns:
        columns `feature`, `class`, `level`, `direction`, `slope`, `effect`, `spread`, `kept`.

    Raises:
        ValueError: values of another number of rows.

    Example:
        >>> each = torch.tensor([0.2, 0.4, 0.6, 0.8]).double()[None, :, None, None]
        >>> found = FeatureEffects(each, torch.ones(1, 4, 1), ("dose",), None)
        >>> dose = FeatureValues("dose", np.array([1.0, 2.0, 3.0, 4.0]))
        >>> table = direction_table(found, {"dose": dose})
        >>> table[["feature", "direction", "slope", "kept"]].round(3)
          feature  direction  slope  kept
        0    dose        1.0  0.224   4.0
    """
    if isinstance(values, pd.DataFrame):
        by_name = {str(name): column_values(column) for name, column in values.items()}
        if isinstance(effects, FitResult):
            named = effects.entry_names or getattr(effects.model, "grouping", None)
            names = None if named else list(by_name)
            effects = feature_effects(effects, values.to_numpy(), entry_names=names)
        return direction_table(effects, by_name)
    if isinstance(effects, FitResult):
        raise TypeError("values must be a data frame of the fit's inputs where effects is a fit")
    each = effects.effects.detach().double().cpu().numpy()
    kept = effects.kept.detach().double().cpu().numpy()
    lines: list[dict[str, Any]] = []
    for g, name in enumerate(effects.entry_names):
        known = values.get(name)
        if known is None:
            continue
        if len(known) != each.shape[1]:
            raise ValueError(
                f"values of {name!r} must be of {each.shape[1]} rows; there are {len(known)}"
            )
        for c, label in enumerate(effects.class_names or ("",)):
            about = _of_numbers if known.levels is None else _of_levels
            lines += [
                {"feature": name, "class": label, **line}
                for line in about(known, each[:, :, g, c], kept[:, :, g])
            ]
    columns = ["feature", "class", "level", "direction", "slope", "effect", "spread", "kept"]
    return pd.DataFrame(lines, columns=columns)


def _effects(run: Run, entries: int) -> tuple[Tensor, Tensor]:
    """Effects `(B, G, C)`, and the shares of draws that keep each entry `(B, G)`."""
    drawn, with_all = run(None)
    keeps = (torch.cat(drawn) == 1).double()
    effects = []
    for g in range(entries):
        hide = torch.arange(entries, device=keeps.device) == g
        change = with_all - run([masks.masked_fill(hide, 0) for masks in drawn])[1]
        weight = keeps[..., g, None]
        effects.append((weight * change).sum(0) / weight.sum(0).clamp(min=1.0))
    return torch.stack(effects, 1), keeps.mean(0)


def _predicted(run: ParticleTrace, draws: int) -> Tensor:
    """Log-odds of each label, or the mean of another response, `(l, B, C or 1)`."""
    distribution = run.sites[RESPONSE].distribution
    labels = label_values(distribution)
    if labels is None:
        value = outcome(run).double().mean(0).unsqueeze(-1)
    else:
        each = torch.as_tensor(distribution.log_prob(distribution.enumerate_support(expand=False)))
        shape = tuple(each.shape[1:])
        particles = each.double().reshape(len(labels), *(1,) * (3 - len(shape)), *shape)
        value = _log_odds(particles).movedim(0, -1)
    if not bool(value.isfinite().all()):
        raise FloatingPointError(
            "the log-odds of some rows are NaN or infinite: the predictor rules a label out"
        )
    return value.expand(draws, *value.shape[1:])


def _log_odds(each: Tensor) -> Tensor:
    """`log Σ_k p_k(c) − log Σ_k (1 − p_k(c))` of `log p_k(c)`, `(C, K, L, B)`, as `(C, L, B)`."""
    by_label = torch.logsumexp(each, 1)
    others = [
        torch.logsumexp(torch.cat([by_label[:c], by_label[c + 1 :]]), 0)
        for c in range(len(by_label))
    ]
    return by_label - torch.stack(others)


def _of_numbers(values: FeatureValues, each: Array, kept: Array) -> list[dict[str, Any]]:
    v, (effect, weight) = values.numbers, _pooled(each, kept)
    line: dict[str, Any] = {"kept": weight.sum(), "direction": np.nan, "slope": np.nan}
    seen = (weight > 0) & np.isfinite(v)
    if weight[seen].sum() >= LEAST_KEPT:
        ranks = rankdata(v[seen]), rankdata(effect[seen])
        if np.ptp(effect[seen]) > LEAST_EFFECT:
            line["direction"] = _correlation(*ranks, weight[seen])
        slopes = [_slope(v, effect, weight)]
        slopes += [_slope(v, one, share) for one, share in zip(each, kept, strict=True)]
        line["slope"] = slopes[0]
        line["spread"] = np.std(slopes[1:], ddof=1) if len(each) > 1 else np.nan
    return [line]


def _of_levels(values: FeatureValues, each: Array, kept: Array) -> list[dict[str, Any]]:
    lines = []
    for index, level in enumerate(values.levels or ()):
        of_level = values.numbers == index
        effect, weight = _pooled(each[:, of_level], kept[:, of_level])
        line: dict[str, Any] = {"level": level, "kept": weight.sum(), "effect": np.nan}
        if weight.sum() >= LEAST_KEPT:
            line["effect"] = np.average(effect, weights=weight)
            known = [
                np.average(one[of_level], weights=share[of_level])
                for one, share in zip(each, kept, strict=True)
                if share[of_level].sum() > 0
            ]
            line["spread"] = np.std(known, ddof=1) if len(known) > 1 else np.nan
        lines.append(line)
    return lines


def _pooled(each: Array, kept: Array) -> tuple[Array, Array]:
    """Effects over the draws of all replicates that keep the feature, `(N,)`, and their share."""
    share = kept.mean(0)
    total = (each * kept).mean(0)
    return np.divide(total, share, out=np.zeros_like(total), where=share > 0), share


def _correlation(a: Array, b: Array, weight: Array) -> float:
    spread = np.cov(a, b, aweights=weight, ddof=0)
    size = spread[0, 0] * spread[1, 1]
    return float(spread[0, 1] / np.sqrt(size)) if size > 0 else np.nan


def _slope(v: Array, effect: Array, weight: Array) -> float:
    """Change of the effect for a standard deviation of v."""
    seen = (weight > 0) & np.isfinite(v)
    if not seen.any():
        return np.nan
    spread = np.cov(v[seen], effect[seen], aweights=weight[seen], ddof=0)
    return float(np.nanstd(v) * spread[0, 1] / spread[0, 0]) if spread[0, 0] else np.nan
