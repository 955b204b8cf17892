"""XTab's synthetic sets: ten features, a switch, and a set with a known order of importance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least, quoted
from lexppl.data.dataset import Dataset
from lexppl.data.synthetic import AdditiveBranch, Branch, ProductBranch

FEATURES = 10
SWITCH_CENTRE = 3.0
RANKED_SHARES = (0.45, 0.35, 0.20)
RANKED_FEATURES = (5, 0, 1)
RANKED_CENTRES = (-10.0, 10.0, 0.0)


def _sine(x: Tensor) -> Tensor:
    return -100.0 * torch.sin(2.0 * x)


def _slow_sine(x: Tensor) -> Tensor:
    return -100.0 * torch.sin(0.2 * x)


def _absolute(x: Tensor) -> Tensor:
    return x.abs()


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


_additive_of_the_code = partial(
    AdditiveBranch,
    terms=(_slow_sine, _absolute, _itself, _exponential_of_minus),
    constant=-2.4,
)
CONSTANTS: Mapping[str, Callable[..., Branch]] = MappingProxyType(
    {"l2x-paper": _additive, "q-fit-code": _additive_of_the_code}
)
"""Makers of the additive branch, by where its constants stand."""


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
    constant: str | None = None,
    copied: bool = False,
    dtype: torch.dtype | None = None,
) -> Dataset:
    """Draw one of XTab's sets, with its truth mask.

    Ten features, ``x_d ~ N(0, 1)`` unless stated, and ``P(y=1|x) = 1/(1+g(x))``:

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
        constant: of Additive and of its rows in Switch: "l2x-paper" as above, or "q-fit-code",
            ``g = exp(−100 sin(0.2 f1) + |f2| + f3 + e^{−f4} − 2.4)``, which L2X's generator has.
            The second where ``copied``, else the first.
        copied: Switch as L2X's generator makes it, and not as its paper says. It means to swap
            f1 … f4 with f5 … f8 in the Additive rows, and as both sides are views of one array,
            f5 … f8 become **copies** of f1 … f4 there: either four explain those rows. The truth
            mask keeps f5 … f8.
        dtype: of the features; torch's default where ``None``.

    Raises:
        ValueError: an unknown name or constant, fewer rows than 10, copies in another set than
            Switch, a constant of a set without one.

    Source: Uçar & Hajiramezanali 2022, § 4.1 and app. A.

    Example:
        >>> data = ranked_set("SynRank", rows=100)
        >>> data.truth.sum(0)
        tensor([35., 20.,  0.,  0.,  0., 45.,  0.,  0.,  0.,  0.])
    """
    if name not in _BRANCHES:
        raise ValueError(f"there is no set {name!r}; there are {quoted(ranked_names(), most=5)}")
    if copied and name != "Switch":
        raise ValueError(f"copied=True is Switch as L2X's generator makes it; {name} has no copies")
    if constant is not None and name not in ("Additive", "Switch"):
        raise ValueError(f"constant is of Additive and Switch; {name} has none: leave it out")
    if constant not in (None, *CONSTANTS):
        raise ValueError(f"constant must be {quoted(tuple(CONSTANTS))}; it is {constant!r}")
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
    branches = _branches(name, constant or ("q-fit-code" if copied else "l2x-paper"))
    if copied:
        x[:, 4:8] = torch.where(branch.unsqueeze(-1) == 1, x[:, :4], x[:, 4:8])
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


def _branches(name: str, constant: str) -> tuple[Branch, ...]:
    """The set's branches, the additive one with these constants."""
    return tuple(
        CONSTANTS[constant](branch.name, branch.features) if branch.name == "additive" else branch
        for branch in _BRANCHES[name]
    )
