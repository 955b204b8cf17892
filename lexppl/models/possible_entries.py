"""Entries that a mask can keep: those of a text's words, and not those of its padding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

NEVER = -1000.0
"""Log-odds of an entry that cannot be kept: a probability of exactly 0 in every type, with finite
logarithms and gradients."""


def possible_entries(network: nn.Module, x: Tensor) -> Tensor | None:
    """Which entries a mask can keep, `(B, G)`, by the network's `possible_entries(x)`; None:
    all."""
    method = getattr(network, "possible_entries", None)
    return None if method is None else method(x)


def possible_logits(network: nn.Module, x: Tensor) -> Tensor:
    """A network's logits `(B, G)`, :data:`NEVER` for entries that cannot be kept."""
    return among_possible(network, x, network(x))


def among_possible(network: nn.Module, x: Tensor, logits: Tensor) -> Tensor:
    """Logits `(B, G)`, and :data:`NEVER` for entries of x that cannot be kept."""
    there = possible_entries(network, x)
    return logits if there is None else torch.where(there, logits, NEVER)


def possible_size(network: nn.Module, x: Tensor, k: int) -> int | Tensor:
    """k where all entries can be kept, else by row `(B,)`, from 1 to the entries that there are."""
    there = possible_entries(network, x)
    if there is None:
        return k
    return there.sum(-1).clamp(max=k).clamp(min=1)


def can_be_kept(logits: Tensor) -> Tensor:
    """Whether logits are those of an entry that can be kept."""
    return logits > NEVER / 2
