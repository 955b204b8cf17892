"""Rows under masks: their own, and those of other rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lexppl.evaluation.refits.hidden_entries import hard_draws, mask_entries
from lexppl.models import Grouping

# Of the masks that are dealt, drawn whatever their odds: none is left out for good.
_EVEN = 0.1
# Odds are of few rows where they are large.
_LARGEST = 50.0


@dataclass(frozen=True)
class MaskedRows:
    """Flat rows `(N, D)` with y, mask draws `(L, N, G)`, these by feature, and C of labels or
    None."""

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
        if y.shape != (len(x),):
            raise ValueError(f"y must have shape ({len(x)},); it has {tuple(y.shape)}")
        draws = hard_draws(x, masks, mask_entries(x, grouping))
        if not bool(x.isfinite().all()) or not bool(y.isfinite().all()):
            raise ValueError("x and y must be finite; they have NaN or infinite values")
        keep = draws if grouping is None else grouping(draws)
        classes = None if y.is_floating_point() else int(y.max()) + 1
        if classes is not None and (int(y.min()) < 0 or len(y.unique()) < 2):
            raise ValueError(
                f"y must hold labels 0 … C−1 of at least two kinds, not {y.unique()[:5].tolist()}"
            )
        return cls(x.flatten(1), y, draws, keep.flatten(2), classes)

    @property
    def draws(self) -> int:
        """L."""
        return len(self.masks)

    @property
    def outcome(self) -> tuple[int, ...]:
        """The shape of a prediction for a row."""
        return () if self.classes is None else (self.classes,)

    def packed(self, index: Tensor, selected: bool) -> Tensor:
        """Rows with their own masks, draw after draw, `(L · N, D + G + 1)`."""
        x = self.x[index].repeat(self.draws, 1)
        masks, keep = self.masks[:, index].flatten(0, 1), self.keep[:, index].flatten(0, 1)
        return kept_rows(x, masks, keep, selected)

    def dealt(self, index: Tensor, copies: int, generator: torch.Generator) -> Dealt:
        """Rows with the masks of other rows of `index`, each mask dealt as often."""
        own = index.repeat(copies)
        shuffled = [torch.randperm(len(index), generator=generator) for _ in range(copies)]
        other = index[torch.cat(shuffled).to(index.device)]
        draw = torch.randint(self.draws, (len(own),), generator=generator).to(index.device)
        rows = kept_rows(self.x[own], self.masks[draw, other], self.keep[draw, other], False)
        return Dealt(rows, own)


@dataclass(frozen=True)
class Dealt:
    """Rows with masks that know nothing of them, as :func:`kept_rows`, and which row each is,
    `(M,)`."""

    rows: Tensor
    of: Tensor

    def likely(self, odds: Tensor, count: int, generator: torch.Generator) -> Dealt:
        """So many of them by odds of `rows`, at even steps, so that each counts as its odds, to
        within one."""
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
