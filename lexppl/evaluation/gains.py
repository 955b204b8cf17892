"""What features are worth for the prediction of y, in nats, row by row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.folds import Folds, judged
from lexppl.evaluation.refits.evalx import EvalX
from lexppl.evaluation.refits.hidden_entries import hard_draws
from lexppl.explanation.names import entry_names as names_of
from lexppl.inference.training.result import FitResult


@dataclass(frozen=True, eq=False)
class FeatureGains:
    """The gains of :func:`feature_gains`, in nats.

    Args:
        gains: of each row and mask entry, `(N, G)` in double precision.
        entry_names: of the G mask entries.
        of_groups: of each row and group, `(N, K)`; None where each entry is by itself.
        groups: the K groups; None where each entry is by itself.
        part: the fold of each row, `(N,)`; None of rows that are held out from all fits.
        errors: of each row how wrong its prediction is, with everything that is kept and without
            each group, `(N, 1 + K)`: 1 for another label than its own (a black box's likeliest one)
            and 0 for it, or how far the mean is from a response; None where it is not known.
        unit: the group that each row belongs to, such as a patient, whose rows count as one in
            errors, `(N,)`; None of independent rows.
    """

    gains: Tensor
    entry_names: tuple[str, ...]
    of_groups: Tensor | None = None
    groups: FeatureGroups | None = None
    part: Tensor | None = None
    unit: Tensor | None = None
    errors: Tensor | None = None

    def where(self, rows: Tensor) -> FeatureGains:
        """The gains of some rows, by their places or a mask: what a feature is worth there.

        Example:
            >>> age = torch.tensor([20.0, 70.0, 80.0])
            >>> each = FeatureGains(torch.tensor([[0.0], [0.4], [0.6]]), ("dose",))
            >>> each.where(age > 50).gains.mean(0)
            tensor([0.5000])
        """
        by_row = ("gains", "of_groups", "part", "unit", "errors")
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
) -> FeatureGains:
    r"""What each feature, and each group of features, is worth for the prediction of y:

        gain_{n,S} = log p(y_n | x_n, z) − log p(y_n | x_n, z without S),
        p(y | x, z) = 1/L Σ_l p(y | x_{z_l}),    z_l ~ q(z | x_n),

    with the masks z of an explainer, or everything kept, and p(y | x_S) by a predictor of random
    masks (:func:`lexppl.evaluation.fit_evalx`), which has learned y from any part of x and needs no
    values in the place of hidden ones: it stays right where features depend on each other. With
    everything kept the mean over rows is the conditional mutual information I(y; x_S | rest), where
    the predictor is that of the law.

    Of a group S of features it is what is lost without all of them. Of a member j of S it is what
    is lost without j where the rest of S is known, in the draws that keep any of S: of two copies
    of a feature each is worth nothing, and their group is.

    The rows must be held out: on rows that a predictor has learned from, whatever identifies a row
    gains. With `folds` each row is judged by the replicate that has not seen it.

    Args:
        judge: fitted to other rows, or of folds.
        x: held-out rows, `(N, *event)`.
        y: labels or responses `(N,)`, or a black box's probabilities `(N, C)`, of which it is the
            expectation Σ_c y_c gain(c).
        masks: draws of 1 for kept and 0 for hidden, `(L, N, G)`; everything is kept if None.
        groups: of the G entries; each by itself if None.
        folds: of the rows, each held out by one replicate of the judge.
        imputations: K of a judge whose imputer draws.
        seed: of the imputations; global random state is left alone.
        entry_names: names of the G entries; if None those of the judge's fit.

    Raises:
        ValueError: groups of other entries; folds of another number of replicates; rows unlike
            those of the fit; masks of another shape or that are not hard.
        FloatingPointError: a log-likelihood that is NaN or −∞.

    Source:
        Williamson, Gilbert, Simon, Carone. A general framework for inference on algorithm-agnostic
        variable importance. JASA 2023. Jethani et al. 2021, eq. 8 (the predictor).

    Example:
        >>> from lexppl.evaluation import fit_evalx, gain_table
        >>> x = torch.randn(800, 2, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> judge = fit_evalx((x[:400], y[:400]), hidden=(8,), epochs=20, batch_size=50,
        ...     learning_rate=1e-2, progress=False)
        >>> gains = feature_gains(judge, x[400:], y[400:])
        >>> gains.gains.shape, gain_table(gains)["found"].to_dict()
        (torch.Size([400, 2]), {'x1': True, 'x2': False})
    """
    judge.result.check(x, y)
    entries = judge.entries
    names = tuple(map(str, names_of(judge.result, entries, entry_names)))
    members = FeatureGroups.alone(names).members if groups is None else groups.members
    if sum(map(len, members)) != entries:
        raise ValueError(
            f"groups must be of the judge's {entries} mask entries; they are of "
            f"{sum(map(len, members))}"
        )
    # Whatever is by row has the rows first, for folds to divide.
    kept = x.new_ones(1, len(x), entries) if masks is None else hard_draws(x, masks, entries)
    kept = kept.movedim(1, 0)
    found = judged(
        folds,
        partial(_gains, entries=entries, members=members, imputations=imputations),
        judge.result,
        x,
        y,
        kept,
        seed=seed,
    )[0]
    single, together, errors = found.split([entries, len(members), 1 + len(members)], -1)
    part = None if folds is None else folds.part
    if groups is None:
        return FeatureGains(single, names, part=part, errors=errors)
    return FeatureGains(single, names, together, groups, part, errors=errors)


def _gains(
    result: FitResult,
    x: Tensor,
    y: Tensor,
    masks: Tensor,
    *,
    entries: int,
    members: Sequence[tuple[int, ...]],
    imputations: int,
    seed: int,
) -> Tensor:
    """Gains of the entries and of the groups, and errors with everything and without each group,
    `(1, N, G + K + 1 + K)`, of masks `(N, L, G)`."""
    judges = [EvalX(result.subset([number]), entries) for number in range(result.replicates)]
    drawn = masks.movedim(0, 1)

    def judged_by(given: Tensor) -> Tensor:
        """Log-likelihood of the predictive distribution, the mixture of all masks and judges, and
        its error, `(N, 2)`."""
        drawing: dict[str, Any] = {"masks": given, "imputations": imputations, "seed": seed}
        label = y.argmax(-1) if y.dim() == 2 else y
        if y.dim() == 2:
            # Of each class the mixture's: an expectation of each draw would be another mean.
            mean = torch.cat([j.predict(x, **drawing) for j in judges]).double().mean(0)
            each = _expected_log(y, mean)[None]
        else:
            found = [j.outcomes(x, y, **drawing) for j in judges]
            mean, each = (torch.cat(parts).double() for parts in zip(*found, strict=True))
            mean = mean.mean(0)
        if not bool(each.isfinite().all()):
            raise FloatingPointError(
                f"log p(y | x) is NaN or infinite in {int((~each.isfinite()).any(0).sum())} of "
                f"{len(x)} rows, so that a gain has no value there; look for a y outside the "
                "support of its distribution"
            )
        wrong = (mean.argmax(-1) != label) if mean.dim() == 2 else (mean - label).abs()
        return torch.stack([each.logsumexp(0) - math.log(len(each)), wrong.double()], -1)

    def without(given: Tensor, some: Sequence[int]) -> Tensor:
        hidden = given.clone()
        hidden[..., list(some)] = 0.0
        return judged_by(hidden)

    full, single, together = judged_by(drawn), {}, []
    for group in members:
        together.append(without(drawn, group))
        if len(group) == 1:
            single[group[0]] = (full - together[-1])[:, 0]
            continue
        filled = drawn.clone()
        places = list(group)
        filled[..., places] = drawn[..., places].amax(-1, keepdim=True).expand(-1, -1, len(group))
        whole = judged_by(filled)
        single |= {entry: (whole - without(filled, [entry]))[:, 0] for entry in group}
    each_group = torch.stack(together, -1)
    gains = [torch.stack([single[g] for g in range(entries)], -1), full[:, :1] - each_group[:, 0]]
    return torch.cat([*gains, full[:, 1:], each_group[:, 1]], -1)[None]


def _expected_log(y: Tensor, predicted: Tensor) -> Tensor:
    """Σ_c y_c log p_c of probabilities y under predicted ones, `(N, C)`."""
    if predicted.shape[-2:] != y.shape:
        raise ValueError(
            f"y of shape {tuple(y.shape)} must hold the probabilities of the judge's classes; its "
            f"predictions have shape {tuple(predicted.shape[-2:])}"
        )
    return torch.xlogy(y.to(predicted), predicted).sum(-1)
