"""One row's prediction, as its features are revealed one after another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least, int_between
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.forced_runs import ForcedRuns, Run
from lexppl.evaluation.prediction import outcome
from lexppl.explanation.names import entry_names as names_of
from lexppl.inference.objective.program import ParticleTrace
from lexppl.inference.training.result import FitResult


@dataclass(frozen=True, eq=False)
class RowSteps:
    """A prediction as a sum: what it is with every feature hidden, and what each feature adds.

    Args:
        table: indexed by `feature`, in the order in which they are revealed: `step`, what it adds;
            `total`, where that leads; `spread`, the standard deviation of the step over
            replicates, NaN with one; `kept`, the share of draws that keep the feature.
        base: where it starts: log p(c) of the base rate, or the mean response; NaN if not given.
        hidden: with every feature hidden.
        predicted: the explainer's prediction, the last total.
        label: the label c whose log-probability this is, None of a response.
    """

    table: pd.DataFrame
    base: float
    hidden: float
    predicted: float
    label: str | None

    @property
    def first_step(self) -> float:
        """What the explainer adds with every feature hidden, `hidden − base`."""
        return self.hidden - self.base

    def in_units(self, scale: float, mean: float) -> RowSteps:
        """Steps of a standardised response in its own units."""
        own = self.table
        table = own.assign(
            step=own["step"] * scale,
            spread=own["spread"] * scale,
            total=own["total"] * scale + mean,
        )
        ends = {n: getattr(self, n) * scale + mean for n in ("base", "hidden", "predicted")}
        return replace(self, table=table, **ends)


@dataclass(frozen=True, eq=False)
class RevealedPredictions:
    """The predictions of :func:`revealed_predictions`.

    Args:
        predictions: in double precision, of each replicate and row with the first j entries
            revealed, j = 0 … G: probabilities `(R, N, G + 1, C)`, or means `(R, N, G + 1)`.
        order: the entries in the order in which they are revealed one by one, `(N, G)`, or the
            first of them; the others are revealed together, last.
        kept: share of the draws that keep each entry, mean over replicates, `(N, G)`.
        entry_names: of the G mask entries.
        class_names: of the C labels, None of responses.
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
        """One row's prediction as a sum of steps, which adds up exactly:

            v_G = base + (v_0 − base) + Σ_j (v_j − v_{j−1}),

        with `v_j` the log of the label's probability (mean over replicates) with the first j
        features revealed, in nats; of a response its mean.

        Args:
            row: its place among the rows, from 0.
            label: the label c, by its place; the likeliest one if None.
            base: what is predicted without x: the labels' frequencies `(C,)`, or the mean
                response; None if it is not wanted.

        Raises:
            ValueError: no such row or label; a base of another shape, or of frequency 0.
        """
        replicates, rows, _ = self.predictions.shape[:3]
        place = int_between("row", row, 0, rows - 1, note="the rows that were revealed")
        each = self.predictions[:, place].numpy()
        known = None if base is None else np.asarray(base, dtype=np.float64)
        named, start = None, math.nan
        if self.class_names is not None:
            count = len(self.class_names)
            if known is not None and (known.shape != (count,) or not bool((known > 0).all())):
                raise ValueError(f"base must be {count} frequencies above 0; it is {base}")
            likeliest = int(each[:, -1].mean(0).argmax())
            chosen = likeliest if label is None else int_between("label", label, 0, count - 1)
            each, named = each[..., chosen], self.class_names[chosen]
            start = math.nan if known is None else math.log(known[chosen])
            with np.errstate(divide="ignore"):
                each, values = np.log(each), np.log(each.mean(0))
        else:
            values, start = each.mean(0), math.nan if known is None else float(known)
        steps = np.diff(each)
        order = self.order[place].numpy()
        names = [self.entry_names[g] for g in order]
        kept = self.kept[place].numpy()[order]
        if (others := len(self.entry_names) - len(order)) > 0:
            names, kept = [*names, f"{others} more"], np.append(kept, np.nan)
        table = pd.DataFrame(
            {
                "step": np.diff(values),
                "total": values[1:],
                "spread": steps.std(0, ddof=1) if replicates > 1 else np.nan,
                "kept": kept,
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
    r"""How the prediction of a row comes about, as its features are revealed one after another:

        p_j(y | x) = 1/(LK) Σ_{l,k} p(y | x̃_{l,k}),    x̃_{l,k} ~ p(x̃ | x, z_l ∧ o_j),

    by L draws `z_l ~ p(z | x)`, where `o_j` has the first j entries of the row's order. p_0 is the
    prediction with every feature hidden, p_G the explainer's own (:func:`predictive`), and all of
    them are on the same random numbers: a feature that no draw keeps changes nothing.

    **The order** is that of the selection probability in this row, mean over replicates, the most
    kept first, as they come where they are equal. A step depends on what was revealed before: of
    two features that say the same, the first has it.

    Args:
        result: of :func:`lexppl.inference.fit`; its first mask site is read, which must select.
        x: rows, `(N, *event)`: a tensor, or an array.
        masks: L.
        imputations: K.
        seed: of the draws. Global random state is left alone.
        entry_names: names of the G entries; if None those of the fit.
        groups: of entries that are revealed together, in place of the entries: a draw keeps a group
            where it keeps a member.
        most: how many are revealed one by one, and the others together; all of them if None.

    Raises:
        ValueError: as :func:`feature_effects`; groups of other entries.

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
    if len(owner) != entries:
        raise ValueError(f"groups must be of the {entries} mask entries; they are of {len(owner)}")

    def kept_shares(run: Run, _: slice) -> Tensor:
        """Share of the draws that keep a member of each group, `(B, K)`."""
        drawn = torch.cat(run(None)[0]).double()
        members = together.members
        return torch.stack([drawn[..., list(g)].amax(-1).mean(0) for g in members], -1)

    shares = runs.each(_outcomes, kept_shares)
    kept = torch.stack([torch.cat(chunks) for chunks in shares]).mean(0)
    order = kept.argsort(dim=-1, descending=True, stable=True)
    count = order.shape[-1]
    one_by_one = count if most is None or most >= count - 1 else int_at_least("most", most)

    def revealed(run: Run, rows: slice) -> Tensor:
        """Predictions `(B, K + 1, …)` with the first groups of the order; after some of them with
        all."""
        drawn, _ = run(None)
        place = order[rows].argsort(-1)[:, owner]
        stages = []
        for j in (*range(one_by_one + 1), *[count] * (one_by_one < count)):
            seen = (place < j).to(drawn[0].dtype)
            stages.append(run([masks * seen for masks in drawn])[1].mean(0))
        return torch.stack(stages, 1)

    parts = runs.each(_outcomes, revealed)
    predictions = torch.stack([torch.cat(chunks) for chunks in parts]).cpu()
    first = order[:, :one_by_one].cpu()
    return RevealedPredictions(predictions, first, kept.cpu(), together.names, classes)


def _outcomes(run: ParticleTrace, draws: int) -> Tensor:
    """Probabilities `(l, B, C)` or means `(l, B)` of each mask."""
    value = outcome(run).double().mean(0)
    return value.expand(draws, *value.shape[1:])
