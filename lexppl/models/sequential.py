"""An explainer whose masks are drawn entry by entry, so that they cannot leak."""

from __future__ import annotations

from typing import Any

import pyro
import torch
from torch import Tensor, nn

from lexppl.argument_checks import fraction, int_at_least, int_between
from lexppl.configured import Configured
from lexppl.distributions import SequentialMask
from lexppl.distributions.sequential_mask import ChosenMask
from lexppl.effects import fit_progress
from lexppl.models.grouping import Grouping
from lexppl.models.lex import LEX

EXPLORE_UNTIL, EXPLORE_DECAY = 0.05, 0.995
"""Share of a fit in which all is explored; factor of exploration in each epoch, of 1,000."""


class StepPolicy(Configured, nn.Module):
    """A network of `[x ⊙ z, z]`, `(…, D + G)`, to G logits of the next entry and one of the
    stop."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, kept: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        flat = kept.flatten(mask.dim() - 1)
        outputs = self.network(torch.cat([flat, mask.to(flat.dtype)], -1))
        return outputs[..., :-1], outputs[..., -1]


class SequentialSelector(Configured, nn.Module):
    """From x to a :class:`SequentialMask` of at most `most` of G entries, which explores while it
    trains: at progress t of a fit a share of choices, and of stops, is random, 1 up to t = .05 and
    then `max(.995^{1000 (t − .05)}, least)` with the least shares `explore` and `explore_stop`."""

    def __init__(
        self,
        policy: nn.Module,
        entries: int,
        most: int | None = None,
        explore: float | None = None,
        explore_stop: float | None = None,
        grouping: Grouping | None = None,
    ) -> None:
        super().__init__()
        self.policy = policy
        self.entries = int_at_least("entries", entries)
        self.most = entries if most is None else int_between("most", most, 1, entries)
        shares = {"explore": explore, "explore_stop": explore_stop}
        for name, share in shares.items():
            if share is not None:
                fraction(name, share, zero=True, one=True)
        self.explore, self.explore_stop = explore, explore_stop
        self.grouping = grouping

    def forward(self, x: Tensor) -> SequentialMask:
        wanted = None if self.grouping is None else self.grouping.features
        if wanted is not None and x[0].numel() != wanted:
            raise ValueError(
                f"the grouping carries masks to {wanted} features; x has rows of {x[0].numel()}"
            )
        return SequentialMask(
            self.policy,
            x,
            self.entries,
            self.most,
            self.grouping,
            explore=self._now(self.explore),
            explore_stop=self._now(self.explore_stop),
            event_dim=x.dim() - 1,
        )

    def _now(self, least: float | None) -> float:
        if least is None or not self.training:
            return 0.0
        since = fit_progress() - EXPLORE_UNTIL
        return 1.0 if since <= 0.0 else max(float(EXPLORE_DECAY ** (1000.0 * since)), least)


class SequentialLEX(LEX):
    """LEX with masks chosen step by step: `j_1 … j_k ~ p_γ(· | x)` of a :class:`SequentialMask`.
    Sites: `steps` `(L, B)` + `(T, G)`, the latent; `mask`, what it keeps; else as :class:`LEX`."""

    def _sample_masks(self, distribution: Any) -> tuple[Any, Tensor]:
        chosen = ChosenMask(pyro.sample("steps", distribution))
        mask: Tensor = pyro.sample("mask", chosen, infer=self._mask_options())
        return chosen, mask
