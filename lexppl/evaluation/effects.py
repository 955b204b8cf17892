"""What features do to a prediction, by runs with forced masks: effects, and rows as revealed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from lexppl.argument_checks import int_at_least, int_between, one_of, shaped
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.explanation.explained_rows import known_sites
from lexppl.explanation.names import entry_names as names_of
from lexppl.explanation.names import named_rows
from lexppl.explanation.program_sites import sites_of
from lexppl.explanation.reading.feature_values import FeatureValues, column_values
from lexppl.explanation.reading.masks import KINDS
from lexppl.explanation.row_draws import RESPONSE, label_values
from lexppl.explanation.sampler import outcome
from lexppl.inference.contexts import keep_parameters_local, seed_generators
from lexppl.inference.objective.program import ParticleTrace
from lexppl.inference.objective.site import Site
from lexppl.inference.predictive import FittedProgram, drawing, row_chunks, rows_at_once
from lexppl.inference.training.result import FitResult

Read = Callable[[ParticleTrace, int], Tensor]  # From a run of l masks to values `(l, B, …)`

Run = Callable[[Sequence[Tensor] | None], tuple[list[Tensor], Tensor]]
"""From masks, one `(l, B, G)` for each run of a chunk of B rows, or None to draw them, to the masks
and the values of all runs, `(L, B, …)`."""


class ForcedRuns:
    """A fit and rows on which its first mask site, which must select, is forced."""

    def __init__(
        self, result: FitResult, x: object, *, masks: int, imputations: int, seed: int, what: str
    ) -> None:
        int_at_least("masks", masks)
        int_at_least("imputations", imputations)
        int_at_least("seed", seed, 0)
        self.rows = named_rows(result, x, None)
        keep_parameters_local(*result.models, *result.guides)
        known = known_sites(result, self.rows.x)
        with drawing(seed, self.rows.x.device):
            constant = known is not None and known[0].are_constant
            self.sites = known[0] if known and constant else sites_of(result.model, self.rows.x[:1])
        self.mask = self.sites.masks[0]
        if self.mask.kind not in (None, "selection"):
            raise ValueError(
                f"{what} are of selections, masks of 0 and 1; the site {self.mask.name!r} holds a "
                f"{KINDS[str(self.mask.kind)].label}, which is not kept or hidden"
            )
        self._result, self._masks, self._imputations = result, masks, imputations
        self._seed = seed

    def each(self, read: Read, work: Callable[[Run, slice], Sequence[Tensor]]) -> list[Tensor]:
        """Tensors `(R, N, …)` that `work` makes of a chunk of rows and its runs, by replicate."""
        x, count = self.rows.x, self._masks * self._imputations
        chunk = rows_at_once(x, count, None, self.sites.widest, self.sites.layers)
        generator = torch.Generator().manual_seed(self._seed)

        def seed() -> int:
            return int(torch.randint(2**62, (), generator=generator))

        by_replicate = []
        for model, guide in zip(self._result.models, self._result.guides, strict=True):
            with drawing(seed(), x.device):
                program = FittedProgram(model, guide, self.rows.arguments(slice(0, 1)), self._masks)
                chunks = row_chunks(len(x), chunk)
                runs = ((partial(self._run, program, rows, seed(), read), rows) for rows in chunks)
                by_chunk = zip(*(work(run, rows) for run, rows in runs), strict=True)
                by_replicate.append([torch.cat(parts) for parts in by_chunk])
        return [torch.stack(replicates) for replicates in zip(*by_replicate, strict=True)]

    def class_names(self) -> tuple[str, ...] | None:
        """Names of the response's labels; None where it is no label."""
        if self.sites.response is None:
            raise ValueError("the program has no response 'y' whose prediction could be read")
        labels, names = self.sites.response.labels, self._result.class_names
        if labels is None:
            return None
        named = names is not None and len(names) == len(labels)
        return tuple(map(str, names if named and names is not None else labels))

    def _run(
        self,
        program: FittedProgram,
        rows: slice,
        seed: int,
        read: Read,
        forced: Sequence[Tensor] | None,
    ) -> tuple[list[Tensor], Tensor]:
        """What is drawn before the mask is from one seed and what is drawn after it from another: a
        forced mask draws nothing, and the numbers that follow must be the same."""
        masks: list[Tensor] = []
        values: list[Tensor] = []

        def draw(site: Site) -> Tensor | None:
            if site.name != self.mask.name:
                return None
            value: Tensor = site.distribution.sample() if forced is None else forced[len(masks)]
            seed_generators(seed + 2 * len(masks) + 1)
            return value

        runs = program.runs(self.rows.arguments(rows), self._imputations, draw=draw)
        while True:
            seed_generators(seed + 2 * len(masks))
            run_and_draws = next(runs, None)
            if run_and_draws is None:
                break
            mask = torch.as_tensor(run_and_draws[0].sites[self.mask.name].value)
            values.append(read(run_and_draws[0], len(mask)))
            masks.append(mask)
        if forced is None and not all(bool(((m == 1) | (m == 0)).all()) for m in masks):
            raise ValueError(f"gains are of masks of 0 and 1; {self.mask.name!r} has other values")
        return masks, torch.cat(values)


Array = NDArray[np.float64]

LEAST_KEPT = 3.0  # Rows that must keep a feature, or its level, for a direction
LEAST_EFFECT = 1e-6  # Differences of effects below which there is no direction: rounding has one


@dataclass(frozen=True, eq=False)
class FeatureEffects:
    """Changes of the log-odds of each label in nats, or of a response's mean (C = 1), `(R, N, G,
    C)`, 0 where no draw keeps the entry, and the share of draws that do, `kept` `(R, N, G)`."""

    effects: Tensor
    kept: Tensor
    entry_names: tuple[str, ...]
    class_names: tuple[str, ...] | None

    def of(self, feature: str) -> Array:
        """Effects of one feature over the draws of all replicates that keep it, `(N, C)`; NaN in
        rows where no draw does."""
        one_of(self.entry_names, "feature", feature)
        g = self.entry_names.index(feature)
        effects, shares = (v.detach().double().cpu().numpy() for v in (self.effects, self.kept))
        effect, share = _pooled(effects[:, :, g], shares[:, :, g, None])
        return np.where(share > 0, effect, np.nan)


def feature_effects(
    result: FitResult,
    x: Any,
    *,
    masks: int = 8,
    imputations: int = 1,
    seed: int = 0,
    entry_names: Sequence[str] | None = None,
) -> FeatureEffects:
    """What keeping each feature does to the prediction, row by row and label by label:

        effect_{n,g,c} = E_{z ~ q(z|x_n), z_g = 1} [ logit p̂(c | x_n, z)
                                                    − logit p̂(c | x_n, z without g) ],
        p̂(c | x, z) = 1/K Σ_k p(c | x̃_k),    x̃_k ~ p(x̃ | x, z),

    over the draws that keep g, each run again without it on the same random numbers; of a response
    that is no label with the mean E[y | x̃] in place of the log-odds. Of log-odds `Σ_g β_g x_g` the
    effect is `β_g (x_g − E[x̃_g])`: :func:`direction_table` reads sign and rate.

    Args:
        result: of :func:`lexppl.inference.fit`; its first mask site is read, which must select.
        x: rows, `(N, *event)`: a tensor, or an array.
        masks, imputations: L and K.
        entry_names: names of the G entries; if None those of the fit.

    Raises:
        ValueError: rows unlike those of the fit; a program without a response `y`.
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
    effects, shares = runs.each(_predicted, lambda run, _: _effects(run, entries))
    names = tuple(map(str, names_of(result, entries, entry_names)))
    return FeatureEffects(effects, shares, names, classes)


def direction_table(
    effects: FeatureEffects | FitResult, values: Mapping[str, FeatureValues] | pd.DataFrame
) -> pd.DataFrame:
    """Which way the prediction moves with each feature's value, over the rows that keep it.

    With `w_n` the share of draws that keep the feature in row n, mean over replicates, and `e_n`
    the effect of its draws that keep it, over all replicates:

    - a feature of numbers `v_n` has a line a label, with

          direction = Σ w (r − r̄)(s − s̄) / √(Σ w (r − r̄)² Σ w (s − s̄)²),
          slope     = sd(v) Σ w (v − v̄)(e − ē) / Σ w (v − v̄)²,

      r and s the ranks of v and of e among the rows that keep the feature, means weighted by w, and
      sd(v) over all N rows. `direction` is Spearman's correlation, −1 … 1; `slope` is in nats of
      log-odds (of a response, its own units) for a standard deviation of the feature.
    - a feature of levels has a line a label and level, with `effect`, `Σ w e / Σ w` over its rows.

    `spread` is the standard deviation of slope or effect over the replicates that keep the feature,
    NaN with one. `kept` is `Σ w`, a number of rows; below three all is NaN, and so is the direction
    of effects that are all the same but for 1e-6. It describes the explainer's prediction, not a
    cause.

    Args:
        effects: of :func:`feature_effects`; or a fit, whose effects are computed for the rows of a
            data frame of its inputs, in their order and encoding.
        values: of the features, for the same N rows, a data frame or by name; features that have
            none are left out.

    Example:
        >>> each = torch.tensor([0.2, 0.4, 0.6, 0.8]).double()[None, :, None, None]
        >>> found = FeatureEffects(each, torch.ones(1, 4, 1), ("dose",), None)
        >>> dose = FeatureValues("dose", np.array([1.0, 2.0, 3.0, 4.0]))
        >>> direction_table(found, {"dose": dose})[["direction", "slope", "kept"]].round(3)
           direction  slope  kept
        0        1.0  0.224   4.0
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
    by_replicate = effects.effects.detach().double().cpu().numpy()
    shares = effects.kept.detach().double().cpu().numpy()
    lines: list[dict[str, Any]] = []
    for g, name in enumerate(effects.entry_names):
        known = values.get(name)
        if known is None:
            continue
        shaped(f"values of {name!r}", known.numbers, by_replicate.shape[1:2])
        for c, label in enumerate(effects.class_names or ("",)):
            about = _of_numbers if known.levels is None else _of_levels
            lines += [
                {"feature": name, "class": label, **line}
                for line in about(known, by_replicate[:, :, g, c], shares[:, :, g])
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
        log_p = torch.as_tensor(distribution.log_prob(distribution.enumerate_support(expand=False)))
        shape = tuple(log_p.shape[1:])
        particles = log_p.double().reshape(len(labels), *(1,) * (3 - len(shape)), *shape)
        value = _log_odds(particles).movedim(0, -1)
    if not bool(value.isfinite().all()):
        raise FloatingPointError("some log-odds are not finite: the predictor rules a label out")
    return value.expand(draws, *value.shape[1:])


def _log_odds(log_p: Tensor) -> Tensor:
    """`log Σ_k p_k(c) − log Σ_k (1 − p_k(c))` of `log p_k(c)`, `(C, K, L, B)`, as `(C, L, B)`."""
    by_label = torch.logsumexp(log_p, 1)
    others = [
        torch.logsumexp(torch.cat([by_label[:c], by_label[c + 1 :]]), 0)
        for c in range(len(by_label))
    ]
    return by_label - torch.stack(others)


def _of_numbers(values: FeatureValues, effects: Array, shares: Array) -> list[dict[str, Any]]:
    v, (effect, weight) = values.numbers, _pooled(effects, shares)
    line: dict[str, Any] = {"kept": weight.sum(), "direction": np.nan, "slope": np.nan}
    seen = (weight > 0) & np.isfinite(v)
    if weight[seen].sum() >= LEAST_KEPT:
        ranks = rankdata(v[seen]), rankdata(effect[seen])
        if np.ptp(v[seen]) > 0 and np.ptp(effect[seen]) > LEAST_EFFECT:
            line["direction"] = _correlation(*ranks, weight[seen])
        slopes = [_slope(v, *of) for of in ((effect, weight), *zip(effects, shares, strict=True))]
        line["slope"] = slopes[0]
        known = [slope for slope in slopes[1:] if np.isfinite(slope)]
        line["spread"] = np.std(known, ddof=1) if len(known) > 1 else np.nan
    return [line]


def _of_levels(values: FeatureValues, effects: Array, shares: Array) -> list[dict[str, Any]]:
    lines = []
    for index, level in enumerate(values.levels or ()):
        of_level = values.numbers == index
        effect, weight = _pooled(effects[:, of_level], shares[:, of_level])
        line: dict[str, Any] = {"level": level, "kept": weight.sum(), "effect": np.nan}
        if weight.sum() >= LEAST_KEPT:
            line["effect"] = np.average(effect, weights=weight)
            known = [
                np.average(of_replicate[of_level], weights=share[of_level])
                for of_replicate, share in zip(effects, shares, strict=True)
                if share[of_level].sum() > 0
            ]
            line["spread"] = np.std(known, ddof=1) if len(known) > 1 else np.nan
        lines.append(line)
    return lines


def _pooled(effects: Array, shares: Array) -> tuple[Array, Array]:
    """Effects over the draws of all replicates that keep the feature, `(N,)`, and their share."""
    share = shares.mean(0)
    total = (effects * shares).mean(0)
    return np.divide(total, share, out=np.zeros_like(total), where=share > 0), share


def _correlation(a: Array, b: Array, weight: Array) -> float:
    spread = np.cov(a, b, aweights=weight, ddof=0)
    size = spread[0, 0] * spread[1, 1]
    return float(spread[0, 1] / np.sqrt(size)) if size > 0 else np.nan


def _slope(v: Array, effect: Array, weight: Array) -> float:
    seen = (weight > 0) & np.isfinite(v)
    # Of one value alone the variance is 0, or what rounding makes of it.
    if not seen.any() or np.ptp(v[seen]) == 0:
        return np.nan
    v = v / np.abs(v[np.isfinite(v)]).max()  # As squares of 1e200 are infinite.
    spread = np.cov(v[seen], effect[seen], aweights=weight[seen], ddof=0)
    return float(np.nanstd(v) * spread[0, 1] / spread[0, 0])


@dataclass(frozen=True, eq=False)
class RowSteps:
    """A prediction as a sum of steps from `base` (NaN if not given) over `hidden`, with every
    feature hidden, to `predicted`, of a `label` (None of a response). `table` by `feature`, as
    revealed: `step`; `total`; `spread`, sd over replicates, NaN with one; `kept`, the share of
    draws that keep it."""

    table: pd.DataFrame
    base: float
    hidden: float
    predicted: float
    label: str | None

    @property
    def first_step(self) -> float:
        """What the explainer adds with every feature hidden, `hidden − base`."""
        return self.hidden - self.base

    def bars(self, features: int) -> pd.DataFrame:
        """Bars of a waterfall, the features of least steps in one: `start`, `step`, and `is_level`
        for the base rate and the prediction. Features that no draw keeps, whose step is 0, have
        none."""
        table = self.table[self.table["kept"] != 0.0]
        order = table["step"].abs().sort_values(ascending=False, kind="stable")
        shown = table.index.isin(order.index[:features])
        if not np.isnan(self.base):
            first = "base rate" if self.label is not None else "mean"
            lines = [(first, self.base, 0.0, True)]
            lines.append(("all hidden", self.base, self.first_step, False))
        else:
            lines = [("all hidden", self.hidden, 0.0, True)]
        reached = self.hidden
        for name, step in table["step"][shown].items():
            lines.append((str(name), reached, float(step), False))
            reached += float(step)
        if not shown.all():
            rest = float(table["step"][~shown].sum())
            lines.append((f"{int((~shown).sum())} more", reached, rest, False))
        lines.append(("prediction", self.predicted, 0.0, True))
        return pd.DataFrame(lines, columns=["of", "start", "step", "is_level"]).set_index("of")

    def in_units(self, scale: float, mean: float) -> RowSteps:
        """Steps of a standardised response in its own units, or in those of its curve."""
        table = self.table.assign(**{n: self.table[n] * scale for n in ("step", "spread", "total")})
        table["total"] += mean
        ends = {n: getattr(self, n) * scale + mean for n in ("base", "hidden", "predicted")}
        return replace(self, table=table, **ends)


@dataclass(frozen=True, eq=False)
class RevealedPredictions:
    """The predictions of :func:`revealed_predictions`.

    Args:
        predictions: with the first j entries revealed, j = 0 … G: probabilities
            `(R, N, G + 1, C)`, or means `(R, N, G + 1)`.
        order: the entries in the order in which they are revealed one by one, `(N, G)`, or the
            first of them; the others are revealed together, last.
        kept: share of the draws that keep each entry, mean over replicates, `(N, G)`.
        entry_names, class_names: of the G mask entries and C labels, None of responses.
    """

    predictions: Tensor
    order: Tensor
    kept: Tensor
    entry_names: tuple[str, ...]
    class_names: tuple[str, ...] | None

    @property
    def predicted(self) -> Tensor:
        """The explainer's predictions, mean over replicates: `(N, C)`, or `(N,)`."""
        return self.predictions[:, :, -1].mean(0)

    def steps(self, row: int, label: int | None = None, base: Any = None) -> RowSteps:
        """One row's prediction as a sum of steps, `v_G = base + (v_0 − base) + Σ_j (v_j −
        v_{j−1})`: v_j is the log of the label's probability (mean over replicates) with the first j
        features revealed, in nats; of a response its mean.

        Args:
            row: its place among the rows, from 0.
            label: the label c, by its place; the likeliest one if None.
            base: what is predicted without x: the labels' frequencies `(C,)`, or the mean response.

        Raises:
            ValueError: no such row or label; a base of another shape, or of frequency 0.
        """
        replicates, rows, _ = self.predictions.shape[:3]
        place = int_between("row", row, 0, rows - 1, note="the rows that were revealed")
        predictions = self.predictions[:, place].numpy()
        known = None if base is None else np.asarray(base, dtype=np.float64)
        named, start = None, math.nan
        if self.class_names is not None:
            count = len(self.class_names)
            if known is not None and (known.shape != (count,) or not bool((known > 0).all())):
                raise ValueError(f"base must be {count} frequencies above 0; it is {base}")
            likeliest = int(predictions[:, -1].mean(0).argmax())
            chosen = likeliest if label is None else int_between("label", label, 0, count - 1)
            predictions, named = predictions[..., chosen], self.class_names[chosen]
            start = math.nan if known is None else math.log(known[chosen])
            with np.errstate(divide="ignore"):
                predictions, values = np.log(predictions), np.log(predictions.mean(0))
        else:
            values, start = predictions.mean(0), math.nan if known is None else float(known)
        steps = np.diff(predictions)
        order = self.order[place].numpy()
        names = [self.entry_names[g] for g in order]
        shares = self.kept[place].numpy()[order]
        if (others := len(self.entry_names) - len(order)) > 0:
            names, shares = [*names, f"{others} more"], np.append(shares, np.nan)
        table = pd.DataFrame(
            {
                "step": np.diff(values),
                "total": values[1:],
                "spread": steps.std(0, ddof=1) if replicates > 1 else np.nan,
                "kept": shares,
            },
            index=pd.Index(names, name="feature"),
        )
        return RowSteps(table, start, float(values[0]), float(values[-1]), named)


def revealed_predictions(
    result: FitResult,
    x: Any,
    *,
    masks: int = 50,
    imputations: int = 1,
    seed: int = 0,
    entry_names: Sequence[str] | None = None,
    groups: FeatureGroups | None = None,
    most: int | None = None,
) -> RevealedPredictions:
    """How the prediction of a row comes about, as its features are revealed one after another:

        p_j(y | x) = 1/(LK) Σ_{l,k} p(y | x̃_{l,k}),    x̃_{l,k} ~ p(x̃ | x, z_l ∧ o_j),

    by L draws `z_l ~ p(z | x)` on the same random numbers, where `o_j` has the first j entries of
    the row's order: p_0 has every feature hidden, p_G is the explainer's own (:func:`predictive`).
    The order is that of the selection probability in this row, mean over replicates, the most kept
    first; of two features that inform of the same, the first has the step.

    Args:
        result: of :func:`lexppl.inference.fit`; its first mask site is read, which must select.
        x: rows, `(N, *event)`: a tensor, or an array.
        masks, imputations: L and K.
        entry_names: names of the G entries; if None those of the fit.
        groups: of entries that are revealed together, in place of the entries: a draw keeps a group
            where it keeps a member.
        most: how many are revealed one by one, and the others together; all of them if None.

    Example:
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
        >>> result = fit(lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,)),
        ...     (x, (x[:, 0] > 0).long()), epochs=1, progress=False)
        >>> steps = revealed_predictions(result, x[:2]).steps(0, base=[0.5, 0.5])
        >>> total = steps.base + steps.first_step + steps.table["step"].sum()
        >>> bool(abs(total - steps.predicted) < 1e-12)
        True
    """
    what = "predictions by feature"
    runs = ForcedRuns(result, x, masks=masks, imputations=imputations, seed=seed, what=what)
    entries, classes = runs.mask.entries, runs.class_names()
    names = tuple(map(str, names_of(result, entries, entry_names)))
    together = FeatureGroups.alone(names) if groups is None else groups
    owner = torch.from_numpy(together.of_entries()).to(runs.rows.x.device)
    shaped("groups, by mask entry,", owner, (entries,))

    def kept_shares(run: Run, _: slice) -> list[Tensor]:
        """Share of the draws that keep a member of each group, `(B, K)`."""
        drawn = torch.cat(run(None)[0]).double()
        return [torch.stack([drawn[..., list(g)].amax(-1).mean(0) for g in together.members], -1)]

    shares = runs.each(_outcomes, kept_shares)[0].mean(0)
    order = shares.argsort(dim=-1, descending=True, stable=True)
    count = order.shape[-1]
    one_by_one = count if most is None or most >= count - 1 else int_at_least("most", most)

    def revealed(run: Run, rows: slice) -> list[Tensor]:
        """Predictions `(B, K + 1, …)` with the first groups of the order; after some with all."""
        drawn, _ = run(None)
        place = order[rows].argsort(-1)[:, owner]
        stages = []
        for j in (*range(one_by_one + 1), *[count] * (one_by_one < count)):
            seen = (place < j).to(drawn[0].dtype)
            stages.append(run([masks * seen for masks in drawn])[1].mean(0))
        return [torch.stack(stages, 1)]

    predictions, first = runs.each(_outcomes, revealed)[0].cpu(), order[:, :one_by_one].cpu()
    return RevealedPredictions(predictions, first, shares.cpu(), together.names, classes)


def _outcomes(run: ParticleTrace, draws: int) -> Tensor:
    """Probabilities `(l, B, C)` or means `(l, B)` of each mask."""
    value = outcome(run).double().mean(0)
    return value.expand(draws, *value.shape[1:])
