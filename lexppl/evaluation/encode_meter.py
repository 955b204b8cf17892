"""The encode-meter: nats about y in the choice of features beyond their values; STRIPE-X."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import t
from torch import Tensor, nn

from lexppl.argument_checks import finite_float, int_at_least, refuse_not_finite, shaped
from lexppl.configured import Configured
from lexppl.data.stratification import stratified_parts
from lexppl.evaluation.evalx import fit_predictor, hard_draws, mask_entries
from lexppl.evaluation.prediction import predictive, rare_rows
from lexppl.inference import FitResult
from lexppl.inference.objective.objective import Linear, WarmUp
from lexppl.models import MLP, Grouping
from lexppl.models.networks import ScaledOutput

# Of the masks that are dealt, drawn whatever their odds: none is left out for good.
_EVEN = 0.1
# Odds are of few rows where they are large.
_LARGEST = 50.0


@dataclass(frozen=True)
class MaskedRows:
    """Flat rows `(N, D)`, y, mask draws `(L, N, G)` and by feature, and C of labels or None."""

    x: Tensor
    y: Tensor
    masks: Tensor
    keep: Tensor
    classes: int | None

    @classmethod
    def of(cls, x: Tensor, y: Tensor, masks: Tensor, grouping: Grouping | None) -> MaskedRows:
        """Checked rows."""
        if not isinstance(y, Tensor) or y.dtype == torch.bool or y.is_complex():
            raise TypeError("y must be a tensor of labels (integers) or responses (floating), (N,)")
        shaped("y", y, (len(x),))
        draws = hard_draws(x, masks, mask_entries(x, grouping))
        refuse_not_finite("x", x)
        refuse_not_finite("y", y)
        keep = draws if grouping is None else grouping(draws)
        classes = None if y.is_floating_point() else int(y.max()) + 1
        if classes is not None and (int(y.min()) < 0 or len(y.unique()) < 2):
            raise ValueError(f"y must hold labels 0 … C−1, C ≥ 2, not {y.unique()[:5].tolist()}")
        return cls(x.flatten(1), y, draws, keep.flatten(2), classes)

    @property
    def draws(self) -> int:
        """Number of masks a row, L."""
        return len(self.masks)

    @property
    def outcome(self) -> tuple[int, ...]:
        """Shape of a row's prediction: `(C,)` of labels, `()` of a response."""
        return () if self.classes is None else (self.classes,)

    def packed(self, index: Tensor, selected: bool) -> Tensor:
        """Rows with their own masks, draw after draw, `(L · N, D + G + 1)`."""
        x = self.x[index].repeat(self.draws, 1)
        masks, keep = self.masks[:, index].flatten(0, 1), self.keep[:, index].flatten(0, 1)
        return kept_rows(x, masks, keep, selected)

    def dealt(self, index: Tensor, copies: int, generator: torch.Generator) -> Dealt:
        """Rows with the masks of other rows of `index`, each mask dealt as often."""
        places = index.repeat(copies)
        shuffled = [torch.randperm(len(index), generator=generator) for _ in range(copies)]
        other = index[torch.cat(shuffled).to(index.device)]
        draw = torch.randint(self.draws, (len(places),), generator=generator).to(index.device)
        rows = kept_rows(self.x[places], self.masks[draw, other], self.keep[draw, other], False)
        return Dealt(rows, places)


@dataclass(frozen=True)
class Dealt:
    """Rows with masks that know nothing of them, as :func:`kept_rows`, and whose each is,
    `(M,)`."""

    rows: Tensor
    of: Tensor

    def likely(self, odds: Tensor, count: int, generator: torch.Generator) -> Dealt:
        """So many of them by odds of `rows`, at even steps: each counts as its odds, to within
        one."""
        share = odds.clamp(max=_LARGEST).cpu().double()
        share = (1.0 - _EVEN) * share / share.sum() + _EVEN / len(share)
        order = self.of.cpu().argsort(stable=True)
        ends = share[order].cumsum(0)
        steps = torch.arange(count) + torch.rand((), dtype=torch.float64, generator=generator)
        places = torch.searchsorted(ends, steps / count * ends[-1])
        chosen = order[places.clamp(max=len(order) - 1)].to(self.of.device)
        return Dealt(self.rows[chosen], self.of[chosen])


def kept_rows(x: Tensor, masks: Tensor, keep: Tensor, selected: bool) -> Tensor:
    """`[x ⊙ v, v, s]`, `(M, D + G + 1)`, of x `(M, D)`, v `(M, G)` and v by feature."""
    flag = x.new_full((len(x), 1), float(selected))
    return torch.cat([torch.where(keep == 1, x, 0.0), masks, flag], -1)


LEVEL = 0.95
LEAST = 0.01  # Nats within which networks find a gap of nothing; the interval does not know of them
FOLDS = 4
ROWS_A_FOLD = 10
ONE_IN = 6  # Of the rows that a fold's networks learn from, so many choose the epoch
CANDIDATES = 8
"""Masks of other rows that each row is dealt, of which the likeliest are learned from."""
TRAINING: Mapping[str, Any] = {
    "epochs": 20,
    "batch_size": 1000,
    "learning_rate": WarmUp(Linear(4e-3, 0.0, begin=0.2), 0.05),
    "weight_decay": 1e-4,
    "progress": False,
}


@dataclass(frozen=True, eq=False)
class EncodeMeter:
    """Information about y in the choice of features beyond their values, in nats a row: `value`,
    its 95 % interval over rows and refits, which networks' common errors are not in (below .01 is
    nothing), the means of both log-probabilities, `kept` and `kept_and_chosen`, and the gap
    `by_row`, `(N,)`."""

    value: float
    lower: float
    upper: float
    kept: float
    kept_and_chosen: float
    by_row: Tensor

    @property
    def tells(self) -> bool:
        """Whether the choice of features informs of y: the whole interval is above 0, and the value
        above .01 nats (masks of S1–S3 that inform of nothing had .003 with an interval above 0;
        honest masks of a switch reached .03 of 400 rows)."""
        return self.lower > 0.0 and self.value > LEAST


def encode_meter(
    x: Tensor,
    y: Tensor,
    masks: Tensor,
    *,
    grouping: Grouping | None = None,
    folds: int = FOLDS,
    copies: int = 2,
    replicates: int = 2,
    hidden: Sequence[int] = (100, 100),
    seed: int = 0,
    **fit_arguments: Any,
) -> EncodeMeter:
    """Information about y in the choice of features beyond their values, with an interval:

        M = E_{x, y} E_{v ~ q(· | x)} [ log p(y | x_v, E = v) − log p(y | x_v) ]
          = E_x E_v KL( p(y | x_v, E = v) ‖ p(y | x_v) )  ≥  0,

    `p(y | x_v)` the law of y given the values at the places v in all rows, chosen for them or not,
    `p(y | x_v, E = v)` that in the rows for which v is chosen. Masks that hold every relevant
    feature have M = 0, random masks too.

    Both laws are one network's, `f(x_v, v) ± δ(x_v, v)`, fitted by maximum likelihood to rows with
    their own masks (plus) and with masks of other rows (minus), which know nothing of x; `δ` starts
    at 0. The masks of other rows are drawn by the odds, in a network of `(x_v, v)` alone, of a
    mask's being its row's own. Each row is judged by networks that learned from other folds, the
    replicates' predictions averaged in probability. Of responses each law is normal about its
    network's mean, with the variance of its own residuals here: `M = ½ log(σ₀² / σ₁²)`.

    Args:
        x: rows, `(N, *event)`, **that the explainer was not fitted on**: on its own training rows
            it may know y by heart.
        y: labels (of an integer type) or responses (floating), `(N,)`.
        masks: the explainer's draws of 1 for kept and 0 for hidden, `(L, N, G)`, or `(N, G)`, from
            its law given x alone, not y.
        grouping: which features an entry keeps; one entry a feature if None.
        folds: F ≥ 2.
        copies: masks of other rows that are learned from, a row.
        replicates: R networks a fold; with one the interval is over rows alone.
        hidden: widths of the hidden layers.
        fit_arguments: epochs (20), batch_size (1000), learning_rate (falling from 4e-3 to 0),
            weight_decay (1e-4), progress (False), as in :func:`lexppl.inference.fit`.

    Raises:
        ValueError: shapes that do not fit, soft masks, NaN, labels of one kind, fewer rows than ten
            a fold, or too few with another label than the commonest.
        TypeError: y that holds neither labels nor responses.

    Source: Puli, Nguyen, Ranganath. Explanations that reveal all through the definition of
        encoding. NeurIPS 2024.

    Example:
        >>> x = torch.randn(600, 4, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> leaking = torch.zeros(600, 4)
        >>> leaking[:, 2], leaking[:, 3] = y.float(), 1.0 - y.float()  # idle features, by x1
        >>> meter = encode_meter(x, y, leaking, hidden=(16,), folds=2, replicates=1, epochs=15,
        ...     batch_size=50, learning_rate=1e-2)
        >>> meter.tells, meter.value > 0.4
        (True, True)
    """
    folds, copies = int_at_least("folds", folds, 2), int_at_least("copies", copies)
    replicates = int_at_least("replicates", replicates)
    rows = MaskedRows.of(x, y, masks, grouping)
    check_meter_rows(y, folds)
    options = {**TRAINING, **fit_arguments}
    shape = (replicates, 2, rows.draws, len(x))
    predicted = rows.x.new_zeros((*shape, *rows.outcome), dtype=torch.float64)
    blocks = _parts(y, [1.0 / folds] * folds, seed)
    for fold, held in enumerate(blocks):
        rest = torch.cat([*blocks[:fold], *blocks[fold + 1 :]])
        result = _fitted(rows, rest, copies, replicates, hidden, seed + fold, options)
        for selected in (0, 1):
            outcomes = predictive(result, rows.packed(held, bool(selected)), masks=1).double()
            predicted[:, selected, :, held] = outcomes.reshape(
                replicates, rows.draws, len(held), *rows.outcome
            )
    return _meter(predicted, y, rows, blocks)


def stripe_x(log_likelihood: float, meter: EncodeMeter | float, weight: float = 10.0) -> float:
    """STRIPE-X, in nats: EVAL-X's score of an explanation, less a multiple of its encode-meter,

        STRIPE-X(E) = E log p(y | x_v)  −  α M(E).

    Args:
        log_likelihood: EVAL-X's, :attr:`lexppl.evaluation.EvalXScores.log_likelihood`, of the same
            masks.
        meter: of :func:`encode_meter`. One below 0 counts as 0.
        weight: α ≥ 0.

    Source: Puli, Nguyen, Ranganath (NeurIPS 2024).

    Example:
        >>> round(stripe_x(-0.5, 0.02), 3), stripe_x(-0.5, -0.001)
        (-0.7, -0.5)
    """
    weight = finite_float("weight", weight, least=0.0)
    score = finite_float("log_likelihood", log_likelihood)
    value = finite_float("meter", meter.value if isinstance(meter, EncodeMeter) else meter)
    return score - weight * max(value, 0.0)


def check_meter_rows(y: Tensor, folds: int = FOLDS, name: str = "y") -> None:
    """Refuse fewer rows than ten a fold, or so few rare labels that some networks see none."""
    if len(y) < ROWS_A_FOLD * folds:
        raise ValueError(f"folds={folds} needs {ROWS_A_FOLD * folds} rows; {name} has {len(y)}")
    rare, least = rare_rows(y), math.ceil(ONE_IN * folds / (folds - 1))
    if rare is not None and rare < least:
        raise ValueError(f"folds={folds} needs {least} rows of rarer labels; {name} has {rare}")


def _parts(y: Tensor, fractions: Sequence[float], seed: int) -> list[Tensor]:
    """Places of the rows of each part, which have their share of rarer labels."""
    strata = torch.zeros(len(y)) if y.is_floating_point() else y != y.mode().values
    divided = stratified_parts(strata.cpu().numpy().astype(np.int64), fractions, seed)
    return [torch.from_numpy(part).to(y.device) for part in divided]


def _fitted(
    rows: MaskedRows,
    index: Tensor,
    copies: int,
    replicates: int,
    hidden: Sequence[int],
    seed: int,
    options: Mapping[str, Any],
) -> FitResult:
    generator = torch.Generator().manual_seed(seed)
    shares = (1.0 - 1.0 / ONE_IN, 1.0 / ONE_IN)
    parts = [index[part] for part in _parts(rows.y[index], shares, seed)]
    candidates = [rows.dealt(part, CANDIDATES, generator) for part in parts]
    chosen = []
    for part, dealt in zip(parts, candidates, strict=True):
        # Rows with masks, and whether each was selected for its row: as many of both kinds.
        selected = rows.packed(part, False)
        count = min(len(selected), len(dealt.rows))
        y = torch.tensor([1, 0], device=selected.device).repeat_interleave(count)
        chosen.append((torch.cat([selected[:count], dealt.rows[:count]]), y))
    of_judge = {**options, "replicates": 1}
    judge = fit_predictor(chosen[0], valid=chosen[1], hidden=hidden, seed=seed, **of_judge)
    joined, weights = [], []
    for part, dealt in zip(parts, candidates, strict=True):
        p = judge.predict(dealt.rows)[:, 1].double().clamp(1e-6, 1.0 - 1e-6)
        likely = dealt.likely(p / (1.0 - p), copies * len(part), generator)
        both = torch.cat([rows.packed(part, True), likely.rows])
        y = torch.cat([rows.y[part].repeat(rows.draws), rows.y[likely.of]])
        # The two kinds count alike, however many there are of each.
        sizes = torch.tensor([rows.draws * len(part), len(likely.of)], device=both.device)
        joined.append((both, y))
        weights.append((len(both) / (2.0 * sizes.to(both.dtype))).repeat_interleave(sizes))
    outputs = 1 if rows.classes is None else rows.classes
    entries = rows.masks.shape[2]
    network: nn.Module = DifferenceNetwork(rows.x.shape[1], entries, outputs, hidden, seed)
    if rows.classes is None:
        y = rows.y.double()
        network = ScaledOutput(network, float(y.mean()), float(y.std()) or 1.0)
    return fit_predictor(
        joined[0],
        valid=joined[1],
        network=network.to(rows.x.device, rows.x.dtype),
        replicates=replicates,
        seed=seed,
        **{**options, "sample_weight": tuple(weights)},
    ).result


class DifferenceNetwork(Configured, nn.Module):
    """`f(x_v, v) ± δ(x_v, v)` of rows `[x ⊙ v, v, s]`, minus where s is 0; δ starts at 0."""

    def __init__(
        self,
        features: int,
        entries: int,
        outputs: int,
        hidden: Sequence[int] = (200, 200),
        seed: int | None = None,
    ) -> None:
        super().__init__()
        seen = features + entries
        self.common = MLP(seen, outputs, hidden, seed=seed)
        other = None if seed is None else seed + 1
        self.difference = MLP(seen, hidden[-1], hidden[:-1], seed=other)
        self.last = _FromZero(hidden[-1], outputs)

    def forward(self, rows: Tensor) -> Tensor:
        seen, selected = rows[..., :-1], rows[..., -1:]
        difference = self.last(nn.functional.relu(self.difference(seen)))
        return self.common(seen) + (2.0 * selected - 1.0) * difference


class _FromZero(nn.Linear):
    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


def _meter(predicted: Tensor, y: Tensor, rows: MaskedRows, blocks: Sequence[Tensor]) -> EncodeMeter:
    count = len(predicted)
    whole = _log_likelihoods(predicted.mean(0), y, rows)
    by_row = (whole[1] - whole[0]).mean(0)
    value = float(by_row.mean())
    half = float(t.ppf((1 + LEVEL) / 2, len(y) - 1)) * float(by_row.std()) / math.sqrt(len(y))
    if count > 1:
        others = [
            _log_likelihoods(predicted[torch.arange(count) != r].mean(0), y, rows)
            for r in range(count)
        ]
        pseudo = torch.stack([count * by_row - (count - 1) * (o[1] - o[0]).mean(0) for o in others])
        # The folds' networks are others each: their errors add up in quadrature.
        shares = [float(pseudo[:, block].sum(1).std()) / len(y) for block in blocks]
        error = math.sqrt(sum(share**2 for share in shares) / count)
        freedom = len(blocks) * (count - 1)
        half = math.hypot(half, float(t.ppf((1 + LEVEL) / 2, freedom)) * error)
    return EncodeMeter(
        value, value - half, value + half, float(whole[0].mean()), float(whole[1].mean()), by_row
    )


def _log_likelihoods(predicted: Tensor, y: Tensor, rows: MaskedRows) -> Tensor:
    """`(2, L, N)` in nats, without and with the choice, of probabilities `(2, L, N, C)` or means
    `(2, L, N)`."""
    if rows.classes is not None:
        chosen = predicted.gather(-1, y.expand(predicted.shape[:-1])[..., None].long()).squeeze(-1)
        return chosen.clamp_min(torch.finfo(torch.float32).tiny).log()
    square = (predicted - y.double()).square()
    variance = square.mean((1, 2), keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    return -0.5 * (square / variance + (2.0 * math.pi * variance).log())
