"""Synthetic data sets with known relevant features: Syn1 to Syn6, and survival times."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from lexppl.argument_checks import finite_float, fraction, int_at_least, one_of, shaped
from lexppl.choices.data_sets import ALIASES, SYNTHETIC
from lexppl.data.dataset import Dataset

Constant = Literal["l2x-code", "l2x-paper", "q-fit-code"]


@dataclass(frozen=True)
class ProductBranch:
    """``f(x) = exp(x_i x_j)`` of two features."""

    name: str
    features: tuple[int, int]

    def log_f(self, x: Tensor) -> Tensor:
        """``log f(x) = x_i x_j``, shape ``(…,)``."""
        first, second = self.features
        return x[..., first] * x[..., second]


@dataclass(frozen=True)
class AdditiveBranch:
    """``f(x) = exp(constant + Σ_j t_j(x_j))``, one term a feature.

    >>> import torch
    >>> branch = AdditiveBranch("f", features=(0, 2), terms=(torch.square, torch.abs), constant=-1)
    >>> branch.log_f(torch.tensor([2.0, 5.0, -3.0]))
    tensor(6.)
    """

    name: str
    features: tuple[int, ...]
    terms: tuple[Callable[[Tensor], Tensor], ...]
    constant: float

    def term_values(self, x: Tensor) -> Tensor:
        """Terms ``t_j(x_j)`` of the features of the branch, shape ``(…, features)``."""
        pairs = zip(self.features, self.terms, strict=True)
        return torch.stack([term(x[..., feature]) for feature, term in pairs], dim=-1)

    def log_f(self, x: Tensor) -> Tensor:
        """``log f(x) = constant + Σ_j t_j(x_j)``, shape ``(…,)``."""
        return self.constant + self.term_values(x).sum(-1)


# One way in which the features make the label: ``P(y = 1 | x) = 1 / (1 + f(x))``.
Branch = ProductBranch | AdditiveBranch


@dataclass(frozen=True)
class SyntheticSet:
    """The distribution of a synthetic set: ``x_d ~ N(0, 1)`` of ``D`` features, each a mask entry,
    and ``P(y=1|x) = 1/(1+f(x))``.

    With a control feature, ``f`` is the first branch's where that feature is below 0 and the
    second branch's elsewhere; both the branch's features and the control are then relevant.

    Args:
        branches: one, or two with ``control``.
        control: index of the control feature, ``None`` for one branch.

    Source: Chen et al. 2018 (L2X), § 4.1; Yoon et al. 2018 (INVASE), § 4.1.

    Example:
        >>> import torch
        >>> synthetic_set("S3").probability(torch.zeros(1, 11))  # x11 = 0 takes f_C = exp(1 - 2.4)
        tensor([0.8022])
    """

    name: str
    branches: tuple[Branch, ...]
    control: int | None
    n_features: int = 11

    def branch_index(self, x: Tensor) -> Tensor:
        """The branch that each row takes, shape ``(…,)``, long."""
        if self.control is None:
            return torch.zeros(x.shape[:-1], dtype=torch.long, device=x.device)
        return (x[..., self.control] >= 0).long()

    def log_f(self, x: Tensor) -> Tensor:
        """``log f(x)``, minus the log-odds of ``y = 1``, shape ``(…,)``."""
        shaped("x", x, ("…", self.n_features))
        values = torch.stack([branch.log_f(x) for branch in self.branches], dim=-1)
        return values.gather(-1, self.branch_index(x).unsqueeze(-1)).squeeze(-1)

    def probability(self, x: Tensor) -> Tensor:
        """``P(y = 1 | x)``, shape ``(…,)``, for ``x`` of shape ``(…, D)``."""
        return torch.sigmoid(-self.log_f(x))

    def truth(self, x: Tensor) -> Tensor:
        """The mask of the relevant features, shape ``(…, D)``, 0 and 1 in ``x``'s type."""
        shaped("x", x, ("…", self.n_features))
        relevant = x.new_zeros(len(self.branches), self.n_features)
        for row, branch in zip(relevant, self.branches, strict=True):
            row[list(branch.features)] = 1
        if self.control is not None:
            relevant[:, self.control] = 1
        return relevant[self.branch_index(x)]


def _sine(x: Tensor, amplitude: float, frequency: float) -> Tensor:
    return amplitude * torch.sin(frequency * x)


def _absolute(x: Tensor, factor: float) -> Tensor:
    return factor * x.abs()


def _exponential_of_minus(x: Tensor) -> Tensor:
    return torch.exp(-x)


def _nonlinear_additive(
    amplitude: float, frequency: float, factor: float, constant: float
) -> AdditiveBranch:
    """``f_C = exp(amplitude sin(frequency x7) + factor |x8| + x9 + e^{−x10} + constant)``."""
    sine = partial(_sine, amplitude=amplitude, frequency=frequency)
    terms = (sine, partial(_absolute, factor=factor), torch.positive, _exponential_of_minus)
    return AdditiveBranch("f_C", (6, 7, 8, 9), terms, constant)


_INTERACTION = ProductBranch("f_A", features=(0, 1))

_ORANGE_SKIN = AdditiveBranch(
    "f_B", features=(2, 3, 4, 5), terms=(torch.square,) * 4, constant=-4.0
)

_NONLINEAR_ADDITIVE: Mapping[str, AdditiveBranch] = MappingProxyType(
    {
        "l2x-code": _nonlinear_additive(-10.0, 0.2, 1.0, -2.4),
        "l2x-paper": _nonlinear_additive(-100.0, 2.0, 2.0, 0.0),
        "q-fit-code": _nonlinear_additive(-100.0, 0.2, 1.0, -2.4),
    }
)


def synthetic_set(name: str, constant: Constant = "l2x-code") -> SyntheticSet:
    """The distribution of a synthetic set.

    With ``x_1 … x_11`` the features, ``P(y=1|x) = 1/(1+f(x))`` and

    - ``f_A = exp(x1 x2)``,
    - ``f_B = exp(x3² + x4² + x5² + x6² − 4)``,
    - ``f_C = exp(−10 sin(0.2 x7) + |x8| + x9 + e^{−x10} − 2.4)`` in the released code of INVASE
      and REAL-X (``constant="l2x-code"``), or
      ``f_C = exp(−100 sin(2 x7) + 2|x8| + x9 + e^{−x10})`` as the L2X and Q-FIT papers print it
      (``constant="l2x-paper"``), or
      ``f_C = exp(−100 sin(0.2 x7) + |x8| + x9 + e^{−x10} − 2.4)`` in L2X's own generator, which
      Q-FIT has for the Syn3 of its table alone (``constant="q-fit-code"``; see ``likeliest`` of
      :func:`synthetic`),

    Syn1, Syn2, Syn3 are ``f_A``, ``f_B``, ``f_C``. Syn4 (S1), Syn5 (S2), Syn6 (S3) take
    ``f_A``, ``f_A``, ``f_B`` where ``x11 < 0``, else ``f_B``, ``f_C``, ``f_C``.

    Raises:
        ValueError: an unknown name or constant.

    Example:
        >>> synthetic_set("Syn1").branches
        (ProductBranch(name='f_A', features=(0, 1)),)
    """
    full_name = ALIASES.get(name, name)
    one_of((*SYNTHETIC, *ALIASES), "name of a synthetic set", name)
    one_of(get_args(Constant), "constant", constant)
    branches: Mapping[str, Branch] = {
        "A": _INTERACTION,
        "B": _ORANGE_SKIN,
        "C": _NONLINEAR_ADDITIVE[constant],
    }
    chosen = tuple(branches[letter] for letter in SYNTHETIC[full_name])
    return SyntheticSet(name=full_name, branches=chosen, control=10 if len(chosen) == 2 else None)


def synthetic(
    name: str | SyntheticSet,
    rows: int = 10_000,
    seed: int = 0,
    constant: Constant = "l2x-code",
    dtype: torch.dtype | None = None,
    *,
    likeliest: bool = False,
) -> Dataset:
    """Draw a synthetic data set with its truth mask.

    Args:
        name: one of :func:`synthetic_names`, see :func:`synthetic_set` for the formulas; or a
            :class:`SyntheticSet` of your own.
        rows: ``N >= 1``.
        seed: of the draw, which leaves global random state alone; the same one gives the same rows.
        constant: which ``f_C``, of a set that is named.
        dtype: of the features; torch's default where ``None``. The rows are drawn in float64 and
            rounded, so that every type has the same ones.
        likeliest: make y the likelier label in place of a draw. Q-FIT's table has Syn1, Syn2 and
            Syn3 so, the last with ``constant="q-fit-code"``, and draws the labels of Syn4 to Syn6.
            (Its first three have ten features, the relevant ones first.)

    Raises:
        ValueError: an unknown name or constant, fewer rows than 1.

    Example:
        >>> data = synthetic("S3", rows=1000, seed=0)
        >>> data.x.shape, data.y.shape, data.truth.shape
        (torch.Size([1000, 11]), torch.Size([1000]), torch.Size([1000, 11]))
    """
    distribution = name if isinstance(name, SyntheticSet) else synthetic_set(name, constant)
    rows = int_at_least("rows", rows)
    generator = torch.Generator().manual_seed(seed)
    exact = torch.randn(rows, distribution.n_features, dtype=torch.float64, generator=generator)
    uniform = torch.rand(rows, dtype=torch.float64, generator=generator)
    x = exact.to(dtype or torch.get_default_dtype())
    y = ((0.5 if likeliest else uniform) < distribution.probability(exact)).long()
    named = distribution.name if isinstance(name, SyntheticSet) else name
    return drawn_dataset(x, y, distribution.truth(x), name=named)


def drawn_dataset(x: Tensor, y: Tensor, truth: Tensor, **options: Any) -> Dataset:
    """Rows ``(N, D)`` that were drawn, whose features x1 … xD are each a mask entry."""
    names = tuple(f"x{d + 1}" for d in range(x.shape[1]))
    labels: dict[str, Any] = {"target_name": "y", "class_names": ("0", "1"), "is_part": True}
    groups = tuple(range(len(names)))
    return Dataset(x, y, names, groups, names, truth=truth, **labels | options)


# Of the simulated set: the switch, the features before it and after it.
CONTROL, BEFORE, AFTER = 6, (0, 1), (2, 3)
SIMULATED_FEATURES = 10
QUADRATURE = 200_000  # Rows on which the end of censoring is set


@dataclass(frozen=True)
class SimulatedSurvival:
    r"""Survival times with known relevant features, which a switch chooses.

    Ten features `x_d ~ N(0, 1)`, and a Weibull hazard

        h(t | x) = a/b · (t/b)^{a−1} · exp η(x),
        η(x) = s (x1 − x2) where x7 < 0, else s (x3 + x4),

    so that `T = b (E e^{−η})^{1/a}` with E exponential. x7 and the features of its side are
    relevant. Censoring is uniform from 0 to the time that leaves the wanted share censored.

    Args:
        shape: a of the Weibull; rising hazards above 1.
        scale: b, the unit of time.
        strength: s, of each relevant feature.
        censored: share of the rows that are, on average.

    Raises:
        ValueError: a number that is not positive, a share outside [0, 1).

    Example:
        >>> SimulatedSurvival().truth(torch.zeros(1, 10))
        tensor([[0., 0., 1., 1., 0., 0., 1., 0., 0., 0.]])
    """

    shape: float = 1.0
    scale: float = 1.0
    strength: float = 1.5
    censored: float = 0.3

    def __post_init__(self) -> None:
        for name in ("shape", "scale", "strength"):
            finite_float(name, getattr(self, name), above=0.0)
        fraction("censored", self.censored, of="the rows", zero=True)

    def log_hazard(self, x: Tensor) -> Tensor:
        """η(x), `(…,)`, for x `(…, 10)`."""
        before = x[..., BEFORE[0]] - x[..., BEFORE[1]]
        after = x[..., AFTER[0]] + x[..., AFTER[1]]
        return self.strength * torch.where(x[..., CONTROL] < 0, before, after)

    def truth(self, x: Tensor) -> Tensor:
        """The mask of the relevant features, `(…, 10)`."""
        relevant = x.new_zeros(2, SIMULATED_FEATURES)
        for row, features in enumerate((BEFORE, AFTER)):
            relevant[row, [*features, CONTROL]] = 1
        return relevant[(x[..., CONTROL] >= 0).long()]

    def survival(self, x: Tensor, time: Tensor) -> Tensor:
        """Survival probability `P(T > t | x) = exp(−(t/b)^a e^η)`."""
        return (-((time / self.scale) ** self.shape) * self.log_hazard(x).exp()).exp()

    def end_of_censoring(self) -> float:
        """The c of censoring times uniform on (0, c): it leaves `E[min(T, c)]/c` of the rows
        censored, as a row with an event at T is so with probability `min(T, c)/c`."""
        generator = torch.Generator().manual_seed(0)
        times = self._times(QUADRATURE, generator)[1].sort().values
        if self.censored == 0.0:
            return float("inf")
        reached = times.cumsum(0)
        left = len(times) - torch.arange(1, len(times) + 1)
        share = (reached + left * times) / (len(times) * times)
        return float(times[(share > self.censored).sum().clamp(max=len(times) - 1)])

    def _times(self, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        x = torch.randn(rows, SIMULATED_FEATURES, dtype=torch.float64, generator=generator)
        waited = torch.empty(rows, dtype=torch.float64).exponential_(generator=generator)
        relative = (waited * (-self.log_hazard(x)).exp()) ** (1.0 / self.shape)
        return x, self.scale * relative


def synthetic_survival(
    rows: int = 2000,
    seed: int = 0,
    *,
    distribution: SimulatedSurvival | None = None,
    dtype: torch.dtype | None = None,
) -> Dataset:
    """Draw a set of survival times with its truth masks; y is `(N, 2)`, times and events.

    Args:
        rows: N, at least 1.
        seed: of the draw, which leaves global random state alone.
        distribution: whose formulas; :class:`SimulatedSurvival` with its defaults if None.
        dtype: of features and times; torch's default where ``None``.

    Example:
        >>> data = synthetic_survival(rows=500, seed=0)
        >>> data.x.shape, data.y.shape, data.truth.sum(1).unique()
        (torch.Size([500, 10]), torch.Size([500, 2]), tensor([3.]))
    """
    law = distribution or SimulatedSurvival()
    generator = torch.Generator().manual_seed(seed)
    exact, times = law._times(int_at_least("rows", rows), generator)
    end = law.end_of_censoring()
    censoring = torch.rand(rows, dtype=torch.float64, generator=generator) * end
    if end == float("inf"):
        censoring = torch.full_like(times, end)
    x = exact.to(dtype or torch.get_default_dtype())
    y = torch.stack([torch.minimum(times, censoring), (times <= censoring).double()], 1)
    named: dict[str, Any] = {"target_name": "time", "class_names": None}
    return drawn_dataset(x, y.to(x.dtype), law.truth(x), name="simulated survival", **named)
