"""XTab's synthetic sets: ten features, a switch, and a set with a known order of importance."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.data.dataset import Dataset
from lexppl.data.listing import listed
from lexppl.data.synthetic import AdditiveBranch, Branch, ProductBranch

FEATURES = 10
SWITCH_CENTRE = 3.0
RANKED_SHARES = (0.45, 0.35, 0.20)
RANKED_FEATURES = (5, 0, 1)
RANKED_CENTRES = (-10.0, 10.0, 0.0)


def _sine(x: Tensor) -> Tensor:
    return -100.0 * torch.sin(2.0 * x)


def _twice_absolute(x: Tensor) -> Tensor:
    return 2.0 * x.abs()


def _itself(x: Tensor) -> Tensor:
    return x


def _exponential_of_minus(x: Tensor) -> Tensor:
    return torch.exp(-x)


_orange = partial(AdditiveBranch, terms=(torch.square,) * 4, constant=-4.0)
_additive = partial(
    AdditiveBranch,
    terms=(_sine, _twice_absolute, _itself, _exponential_of_minus),
    constant=0.0,
)
_BRANCHES: Mapping[str, tuple[Branch, ...]] = MappingProxyType(
    {
        "XOR": (ProductBranch("xor", (0, 1)),),
        "Orange": (_orange("orange", (0, 1, 2, 3)),),
        "Additive": (_additive("additive", (0, 1, 2, 3)),),
        "Switch": (_orange("orange", (0, 1, 2, 3)), _additive("additive", (4, 5, 6, 7))),
        "SynRank": tuple(
            AdditiveBranch(f"f{feature + 1}", (feature,), (_itself,), 0.0)
            for feature in RANKED_FEATURES
        ),
    }
)


def ranked_names() -> tuple[str, ...]:
    """Return the names of XTab's sets.

    >>> ranked_names()
    ('XOR', 'Orange', 'Additive', 'Switch', 'SynRank')
    """
    return tuple(_BRANCHES)


def ranked_set(
    name: str,
    rows: int = 10_000,
    seed: int = 0,
    *,
    likeliest: bool = False,
    dtype: torch.dtype | None = None,
) -> Dataset:
    """Draw one of XTab's sets, with its truth mask.

    Ten features, ``x_d ~ N(0, 1)`` but where said, and ``P(y=1|x) = 1/(1+g(x))``:

    - XOR: ``g = exp(f1 f2)``. Orange: ``g = exp(f1² + f2² + f3² + f4² − 4)``.
    - Additive: ``g = exp(−100 sin(2 f1) + 2|f2| + f3 + e^{−f4})``.
    - Switch: f10 from ``½N(3,1) + ½N(−3,1)``; rows of the first take Orange, the others Additive on
      f5 … f8. Each row's four features and f10 are relevant; f9 never is.
    - SynRank: the first 45 % of the rows have f6 around −10 and ``g = exp(f6)``, the next 35 % f1
      around 10 and ``g = exp(f1)``, the last 20 % ``g = exp(f2)``: the order of importance is
      f6 > f1 > f2.

    Args:
        name: one of :func:`ranked_names`.
        rows: ``N >= 10``.
        seed: of the draw, which leaves global random state alone.
        likeliest: make y the likelier label in place of a draw. The accuracies that XTab reports
            (.97 on Switch, .995 on SynRank) are above the best that drawn labels admit.
        dtype: of the features; torch's default where ``None``.

    Raises:
        ValueError: an unknown name, fewer rows than 10.

    Source: Uçar & Hajiramezanali 2022, § 4.1 and app. A.

    Example:
        >>> data = ranked_set("SynRank", rows=100)
        >>> data.truth.sum(0)
        tensor([35., 20.,  0.,  0.,  0., 45.,  0.,  0.,  0.,  0.])
    """
    if name not in _BRANCHES:
        raise ValueError(f"there is no set {name!r}; there are {listed(ranked_names(), most=5)}")
    rows = int_at_least("rows", rows, 10)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, FEATURES, dtype=torch.float64, generator=generator)
    uniform = torch.rand(rows, dtype=torch.float64, generator=generator)
    branch = torch.zeros(rows, dtype=torch.long)
    if name == "Switch":
        branch = torch.randint(2, (rows,), generator=generator)
        x[:, 9] += torch.where(branch == 0, SWITCH_CENTRE, -SWITCH_CENTRE)
    if name == "SynRank":
        ends = [round(rows * share) for share in RANKED_SHARES[:2]]
        branch[ends[0] : sum(ends)], branch[sum(ends) :] = 1, 2
        for number, (feature, centre) in enumerate(
            zip(RANKED_FEATURES, RANKED_CENTRES, strict=True)
        ):
            x[:, feature] += centre * (branch == number)
    branches = _BRANCHES[name]
    log_g = torch.stack([b.log_f(x) for b in branches], -1)
    probability = torch.sigmoid(-log_g.gather(-1, branch.unsqueeze(-1)).squeeze(-1))
    relevant = torch.zeros(len(branches), FEATURES, dtype=torch.float64)
    for row, one in zip(relevant, branches, strict=True):
        row[list(one.features)] = 1.0
    if name == "Switch":
        relevant[:, 9] = 1.0
    names = tuple(f"f{d + 1}" for d in range(FEATURES))
    kind = dtype or torch.get_default_dtype()
    return Dataset(
        x=x.to(kind),
        y=(probability > (0.5 if likeliest else uniform)).long(),
        feature_names=names,
        groups=tuple(range(FEATURES)),
        entry_names=names,
        target_name="y",
        class_names=("0", "1"),
        truth=relevant[branch].to(kind),
        name=name,
        is_part=True,
    )
