"""Entries that a mask cannot keep: padding, values that are missing in x, entries left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor, nn
from torch.distributions import Independent

from lexppl.argument_checks import shaped
from lexppl.configured import Configured
from lexppl.distributions import ChainMask, KSubset
from lexppl.effects import MASK_KIND

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
    return k if there is None else there.sum(-1).clamp(max=k).clamp(min=1)


def can_be_kept(logits: Tensor) -> Tensor:
    """Whether logits are those of an entry that can be kept."""
    return logits > NEVER / 2


class MarkedRows(nn.Module):
    """Rows of F features of which some are markers, 1 where the features that they mark are
    missing; `markers` has the place of each feature's marker, −1 for one that is never missing, its
    own for a marker."""

    value_places: Tensor
    marker_places: Tensor
    marked: Tensor

    def __init__(self, markers: Sequence[int]) -> None:
        super().__init__()
        places = [int(place) for place in markers]
        wrong = [p for p in places if p < -1 or p >= len(places) or (p >= 0 and places[p] != p)]
        if wrong:
            raise ValueError(
                f"markers must be −1 or the place of a feature that marks itself; they are {places}"
            )
        values = [place for place, marker in enumerate(places) if marker != place]
        if not values:
            raise ValueError(f"each of the {len(places)} features is a marker; none is a value")
        self.markers = tuple(places)
        marks = [places[place] for place in values]
        self.register_buffer("value_places", torch.tensor(values), persistent=False)
        self.register_buffer(
            "marker_places", torch.tensor([max(m, 0) for m in marks]), persistent=False
        )
        self.register_buffer("marked", torch.tensor([m >= 0 for m in marks]), persistent=False)

    @property
    def features(self) -> int:
        """D, the values among the F features."""
        return len(self.value_places)

    def values(self, x: Tensor) -> Tensor:
        """The values `(…, D)` of rows `(…, F)`, with what stands in for the missing ones."""
        shaped("x", x, ("…", len(self.markers)))
        return x.index_select(-1, self.value_places)

    def observed(self, x: Tensor) -> Tensor:
        """1 where a value is there and 0 where it is missing, `(…, D)`, in the type of x."""
        # Markers are facts: a gradient of x is none of theirs.
        markers = x.detach().index_select(-1, self.marker_places)
        return 1.0 - markers * self.marked.to(x.dtype)

    def with_gaps(self, x: Tensor) -> Tensor:
        """The values of rows `(N, F)` with NaN where they are missing, `(N, D)`."""
        return torch.where(self.observed(x) == 1.0, self.values(x), torch.nan)


class HiddenByNature(Configured, MarkedRows):
    """An imputer of rows with missing values, which count as hidden whatever the mask keeps.

    With `o_d = 1` where value d of the row is there and 0 where it is missing,

        x̃ ~ p_ι(x̃ | x, z ⊙ o),

    so that a missing value is drawn as one that the mask hides; the mask cannot keep it. A
    program's `E_{x̃}[Φ(y | f(x̃))]` marginalises it in a fit, in its validation and in prediction:
    right where values are missing at random given what is kept; else give the program a feature
    that says it (`missing_indicator` of :func:`lexppl.data.read_table`). What stands in for a
    missing value in x is never seen; it must be finite, so that no NaN meets a gradient.

    Args:
        imputer: of the D values, `(B, D)`.
        markers: of the F features of x, as :attr:`lexppl.data.TableEncoding.markers` has them.

    Raises:
        ValueError: markers that are none; from a call, rows of other features.

    Example:
        >>> from lexppl.models import ConstantImputer
        >>> imputer = HiddenByNature(ConstantImputer(-1.0), markers=[-1, 2, 2])
        >>> x = torch.tensor([[5.0, 0.0, 1.0], [5.0, 7.0, 0.0]])
        >>> imputer(x, torch.tensor([1.0, 1.0])).sample()
        tensor([[ 5., -1.],
                [ 5.,  7.]])
    """

    def __init__(self, imputer: nn.Module, markers: Sequence[int]) -> None:
        super().__init__(markers)
        self.imputer = imputer

    @property
    def leaves_gaps(self) -> bool:
        """Whether hidden features become NaN."""
        return bool(getattr(self.imputer, "leaves_gaps", False))

    def forward(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """The distribution of the imputed values of rows with their markers `(B, F)`, batch shape
        `(…, B)` and event shape `(D,)`; `keep` is of the values, `(…, B, D)` or broadcastable to
        it."""
        observed = self.observed(x)
        there = observed == 1.0 if keep.dtype == torch.bool else observed
        return self.imputer(self.values(x), keep * there)


class GapsFromMarkers(Configured, MarkedRows):
    """A predictor that reads gaps, of the D values, for rows with markers: those that it is fitted
    to become values with NaN; it predicts from values as `HiddenByNature(GapImputer(), …)` gives
    them."""

    reads_gaps, event_dim = True, 1

    def __init__(self, predictor: nn.Module, markers: Sequence[int]) -> None:
        super().__init__(markers)
        self.predictor = predictor

    @property
    def likelihood(self) -> Any:
        """That of the predictor."""
        return self.predictor.likelihood

    def forward(self, x: Tensor) -> TorchDistribution:
        """The distribution of y given values with gaps, `(…, D)`."""
        return self.predictor(x)

    def fit_rows(self, x: Tensor, y: Tensor, seed: int = 0, weights: Tensor | None = None) -> None:
        """Fit the predictor to rows with markers, `(N, F)`; the rest is as it has it."""
        self.predictor.fit_rows(self.with_gaps(x), y, seed, weights)  # type: ignore[operator]


class ObservedSelector(Configured, MarkedRows):
    """`z ~ p_γ(z | x)` given `z_g = 0` for every g of which all values are missing, of a selector
    of independent entries, a k-subset or a chain. A row with fewer entries than k keeps what it
    has; one that has none keeps one in name. The network sees the values alone, with what stands in
    for them."""

    entry: Tensor

    def __init__(self, selector: nn.Module, groups: Sequence[int], markers: Sequence[int]) -> None:
        super().__init__(markers)
        self.selector = selector
        self.groups = tuple(int(group) for group in groups)
        shaped("groups", self.groups, (self.features,))
        of_entry = torch.zeros(len(self.groups), max(self.groups) + 1)
        of_entry[torch.arange(len(self.groups)), torch.tensor(self.groups)] = 1.0
        self.register_buffer("entry", of_entry, persistent=False)
        _copy_kind(selector, self)

    def missing(self, x: Tensor) -> Tensor:
        """Whether all values of an entry are missing, `(B, G)`."""
        return (self.observed(x) @ self.entry.to(x.dtype)) < 0.5

    def forward(self, x: Tensor) -> TorchDistribution:
        return restricted(self.selector(self.values(x)), self.missing(x))


class LimitedSelector(Configured, nn.Module):
    """`z ~ p_γ(z | x)` given `z_g = 0`, in every row, of every entry g that is left out; of a
    selector of independent entries, a k-subset or a chain.

    Args:
        selector: of masks `(B, G)`.
        left_out: of the G entries.

    Example:
        >>> from lexppl.models import BernoulliSelector
        >>> selector = LimitedSelector(BernoulliSelector(nn.Linear(3, 2)), [True, False])
        >>> selector(torch.zeros(1, 3)).mean[:, 0]
        tensor([0.], grad_fn=<SelectBackward0>)
    """

    left_out: Tensor

    def __init__(self, selector: nn.Module, left_out: Sequence[bool]) -> None:
        super().__init__()
        self.selector = selector
        self.register_buffer("left_out", torch.tensor([bool(entry) for entry in left_out]))
        _copy_kind(selector, self)

    def forward(self, x: Tensor) -> TorchDistribution:
        return restricted(self.selector(x), self.left_out.expand(len(x), -1))


def _copy_kind(selector: nn.Module, limited: nn.Module) -> None:
    """Give a selector the kind of masks of the selector within, for its description."""
    kind = getattr(selector, MASK_KIND, None)
    if kind is not None:
        setattr(limited, MASK_KIND, kind)


def restricted(distribution: TorchDistribution, missing: Tensor) -> TorchDistribution:
    """A distribution of masks, `(B,)` + `(G,)`, given that the entries `missing`, `(B, G)`, are not
    kept."""
    base = distribution.base_dist if isinstance(distribution, Independent) else distribution
    if isinstance(base, dist.Bernoulli):
        return dist.Bernoulli(logits=torch.where(missing, NEVER, base.logits)).to_event(1)
    if isinstance(base, KSubset):
        there = (~missing).sum(-1)
        k = there.clamp(max=base.k).clamp(min=1)
        return KSubset(torch.where(missing, NEVER, base.logits), k)
    if isinstance(base, ChainMask):
        return ChainMask(torch.where(missing, NEVER, base.logits), base.coupling)
    raise TypeError(
        "missing values are known to masks of independent entries (BernoulliSelector), of k "
        f"entries (KSubsetSelector) and of a chain (ChainSelector); the selector's are "
        f"{type(base).__name__}"
    )
