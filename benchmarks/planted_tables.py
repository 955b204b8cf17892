"""Tables of a known law: which columns matter, by how many nats, and the law of y given x.

A *unit* is what can be found or missed: a column that y depends on given all others, or a set of
copies of one, any of which counts. Every other column is null: y is independent of it given the
units. `KINDS` has the tables by name, and `true_gains` what each unit is worth,

    E[log p(y | x) − log p(y | x without the unit)],

by Monte Carlo over x and the law of the unit given the other columns.
"""

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_softmax, logsumexp, softmax
from scipy.stats import norm

Columns = dict[str, NDArray]
Unit = tuple[str, ...]
TARGET = "outcome"
LABELS = ("no", "yes", "maybe")
WORDS = ("product", "city", "band")
"""Columns of codes that stand in a table as words."""
CORRELATION = 0.8
BENT_NOISE = 0.5
BANDS = (-1.2, -0.4, 0.4, 1.2)
LEAST_GAIN = 0.03
"""Nats from which a unit should be found, where labels are as even as a coin's."""
REDRAWS, MASK_REDRAWS = 200, 20
VALUE_ROWS, VALUE_REDRAWS = 40_000, 100


@dataclass(frozen=True)
class Kind:
    """A law of tables.

    Args:
        columns: draws so many rows of x, each column independent of the others but for `given`.
        output: logits `(N, C)` of the labels, or means `(N,)`.
        units: what y depends on.
        given: by a unit, a draw of its columns given all the others; the margin where absent.
        partner: by a column of `given`, the null column that it depends on; of a copy, the copy.
        spread: the response's standard deviation given x; None for labels.
        sizes: numbers of rows at which the table is of use.
        about: one line.
    """

    columns: Callable[[np.random.Generator, int], Columns]
    output: Callable[[Columns], NDArray]
    units: tuple[Unit, ...]
    about: str
    given: Mapping[Unit, Callable[[np.random.Generator, Columns], Columns]] = field(
        default_factory=dict
    )
    partner: Mapping[str, str] = field(default_factory=dict)
    spread: float | None = None
    sizes: tuple[int, ...] = (300, 2_000, 20_000)

    def log_likelihood(self, x: Columns, y: NDArray) -> NDArray:
        """log p(y | x) of each row; y are codes of labels, or responses."""
        if self.spread is not None:
            return norm.logpdf(y, self.output(x), self.spread)
        return log_softmax(self.output(x), -1)[np.arange(len(y)), y]

    def drawn(self, draw: np.random.Generator, x: Columns) -> NDArray:
        """y given x."""
        output = self.output(x)
        if self.spread is not None:
            return draw.normal(output, self.spread)
        return (output + draw.gumbel(size=output.shape)).argmax(-1)


@dataclass(frozen=True, eq=False)
class PlantedTable:
    """Rows of a kind.

    Args:
        frame: as a user would have it, the target last.
        log_likelihood: log p(y | x) of each row by the law itself, `(N,)`.
        x, y: as the law takes them.
    """

    frame: pd.DataFrame
    log_likelihood: NDArray
    x: Columns
    y: NDArray

    def take(self, rows: NDArray) -> "PlantedTable":
        """Some rows."""
        x = {name: values[rows] for name, values in self.x.items()}
        frame = self.frame.iloc[rows].reset_index(drop=True)
        return PlantedTable(frame, self.log_likelihood[rows], x, self.y[rows])


def planted(name: str, rows: int, seed: int, *, new: int | None = None) -> PlantedTable:
    """A table, or rows that it could have had.

    Args:
        name: of :data:`KINDS`.
        rows: of the table.
        seed: of the table.
        new: so many new rows of the same law instead, their row numbers from those of the table.
    """
    kind = KINDS[name]
    x, y = _drawn(name, rows, seed, new)
    frame = pd.DataFrame({name: _cells(name, values) for name, values in x.items()})
    frame[TARGET] = y if kind.spread is not None else np.array(LABELS)[y]
    return PlantedTable(frame, kind.log_likelihood(x, y), x, y)


def _drawn(name: str, rows: int, seed: int, new: int | None = None) -> tuple[Columns, NDArray]:
    kind = KINDS[name]
    draw = np.random.default_rng([zlib.crc32(name.encode()), rows, seed, new is not None])
    x = kind.columns(draw, rows if new is None else new)
    if "row number" in x:
        x["row number"] = np.arange(rows) if new is None else draw.integers(0, rows, new)
    return x, kind.drawn(draw, x)


def gains_by_law(name: str, rows: int, seed: int) -> dict[Unit, NDArray]:
    """log p(y | x) − log p(y | x without the unit) of each row of a table, `(N,)`, by the law."""
    kind = KINDS[name]
    x, y = _drawn(name, rows, seed)
    draw = np.random.default_rng([zlib.crc32(name.encode()), rows, seed, 2])
    return {unit: _change(kind, unit, draw, x, y) for unit in kind.units}


def gains_by_law_at(
    name: str, table: PlantedTable, masks: NDArray, names: list[str], groups: list[list[str]]
) -> list[float]:
    """The mean over rows of log p(y | x_z) − log p(y | x_z without a group), by the law.

    Args:
        table: n rows.
        masks: draws of what an explainer keeps of these rows, `(L, n, G)`; p is the mean over them.
        names: of the G columns.
        groups: of columns.
    """

    def likelihood(kept: NDArray) -> NDArray:
        return _law_of_masks(name, table, dict(zip(names, kept, strict=True)))

    kept = np.moveaxis(masks > 0, -1, 0)
    full, lost = likelihood(kept), []
    for group in groups:
        without = kept & ~np.isin(names, group)[:, None, None]
        lost.append(float((full - likelihood(without)).mean()))
    return lost


def first_and_last_by_law(name: str, columns: Unit) -> tuple[float, float]:
    """V(columns) − V(∅) and V(all) − V(all others), V(S) = E[log p(y | x_S)], by the law; columns
    that neither matter nor depend on such ones are worth 0."""
    units = {column for unit in KINDS[name].units for column in unit}
    known = frozenset(units | set(KINDS[name].partner.values()))
    own = known & set(columns)
    if not own:
        return 0.0, 0.0
    first = _gain_by_law(name, own, frozenset())
    return first, 0.0 if units.isdisjoint(own) else _gain_by_law(name, known, known - own)


@cache
def _gain_by_law(name: str, known: frozenset[str], less: frozenset[str]) -> float:
    """E log p(y | x_known) / p(y | x_less), the mean over rows of x of that over y: labels given
    x_known, or responses given x.

    Of R redraws of relative variance s² the log of the mean density is s² / 2 R too low, and its
    product with the mean as much too high.
    """
    (p, of_p), (q, of_q) = _densities_by_law(name, known), _densities_by_law(name, less)
    if labels := KINDS[name].spread is None:
        q, of_q = (q.mean(0), 0.0 * of_q) if not less else (q, of_q)
    weight = p if labels else _nodes()[1]
    ratio = np.log(p / q) - (of_p if labels else -of_p) - of_q
    return float((weight * ratio).sum(-1).mean())


def _nodes() -> tuple[NDArray, NDArray]:
    """Nodes and weights of a standard normal."""
    node, weight = np.polynomial.hermite_e.hermegauss(9)
    return node, weight / weight.sum()


@cache
def _densities_by_law(name: str, kept: frozenset[str]) -> tuple[NDArray, NDArray]:
    """p(y | x_kept) of each label, or at nodes of a response given x, `(N, C)`, by redraws of what
    is not kept; and half the relative variance of this mean."""
    kind, draw = KINDS[name], np.random.default_rng(zlib.crc32(name.encode()))
    x = kind.columns(draw, VALUE_ROWS)
    output, seen = kind.output(x), {column: np.array(column in kept) for column in x}
    node, _ = _nodes()
    sums = squares = np.zeros(1)
    for _ in range(VALUE_REDRAWS):
        again = kind.output(_redrawn(kind, draw, x, seen))
        if kind.spread is None:
            density = softmax(again, -1)
        else:
            away = (output - again)[:, None] / kind.spread
            density = norm.pdf(node + away) / kind.spread
        sums, squares = sums + density, squares + density**2
    mean = sums / VALUE_REDRAWS
    return mean, (squares / VALUE_REDRAWS / mean**2 - 1.0) / (2.0 * (VALUE_REDRAWS - 1))


def _redrawn(
    kind: Kind, draw: np.random.Generator, x: Columns, kept: Mapping[str, NDArray]
) -> Columns:
    """x with what y depends on drawn again, given the rest, where it is not kept."""
    filled, fresh = dict(x), kind.columns(draw, len(next(iter(x.values()))))
    for column in {column for unit in kind.units for column in unit}:
        drawn, partner = fresh[column], kind.partner.get(column)
        if partner is not None and (kept[partner] & ~kept[column]).any():
            given = kind.given.get((column,))
            again = x[partner] if given is None else given(draw, x)[column]
            drawn = np.where(kept[partner], again, drawn)
        filled[column] = np.where(kept[column], x[column], drawn)
    return filled


def _law_of_masks(
    name: str, table: PlantedTable, kept: Mapping[str, NDArray], draws: int = MASK_REDRAWS
) -> NDArray:
    """log p(y | x_z) of rows, by so many draws of what masks `(L, n)` by column hide."""
    kind = KINDS[name]
    shape = (draws, *next(iter(kept.values())).shape)
    draw = np.random.default_rng(zlib.crc32(name.encode()))
    x = {c: np.broadcast_to(v, shape).reshape(-1) for c, v in table.x.items()}
    kept = {c: np.broadcast_to(v, shape).reshape(-1) for c, v in kept.items()}
    filled = _redrawn(kind, draw, x, kept)
    each = kind.log_likelihood(filled, np.broadcast_to(table.y, shape).reshape(-1)).reshape(shape)
    return logsumexp(each, (0, 1)) - math.log(shape[0] * shape[1])


def _cells(name: str, values: NDArray) -> NDArray:
    return np.char.add(f"{name} ", values.astype(str)) if name in WORDS else values


def true_gains(name: str) -> dict[Unit, float]:
    """What each unit is worth beyond all other columns, in nats a row."""
    return {unit: first_and_last_by_law(name, unit)[1] for unit in KINDS[name].units}


def _change(kind: Kind, unit: Unit, draw: np.random.Generator, x: Columns, y: NDArray) -> NDArray:
    """What the law's log p(y | x) loses without a unit, which is drawn again."""
    again = kind.given.get(unit, partial(_from_the_margin, kind, unit))
    each = [kind.log_likelihood({**x, **again(draw, x)}, y) for _ in range(REDRAWS)]
    return kind.log_likelihood(x, y) - logsumexp(each, 0) + math.log(REDRAWS)


def _from_the_margin(kind: Kind, unit: Unit, draw: np.random.Generator, x: Columns) -> Columns:
    fresh = kind.columns(draw, len(next(iter(x.values()))))
    return {name: fresh[name] for name in unit}


@cache
def least_gain(name: str) -> float:
    """Nats from which a unit of the kind should be found: :data:`LEAST_GAIN`, or the same share of
    the labels' entropy where that is below log 2."""
    kind = KINDS[name]
    if kind.spread is not None:
        return LEAST_GAIN
    x = kind.columns(np.random.default_rng(0), 100_000)
    share = np.exp(log_softmax(kind.output(x), -1)).mean(0)
    return LEAST_GAIN * min(1.0, float(-(share * np.log(share)).sum()) / math.log(2.0))


def _people(draw: np.random.Generator, rows: int) -> Columns:
    """Numbers, categories, counts and a boolean; 66 cities and a row number that mean nothing."""
    return {
        "age": draw.normal(45, 12, rows),
        "income": draw.lognormal(10, 0.5, rows),
        "product": draw.integers(0, 4, rows),
        "member": draw.integers(0, 2, rows) == 1,
        "city": draw.integers(0, 66, rows),
        "row number": draw.integers(0, rows, rows),
        "visits": draw.poisson(3, rows),
        **{f"noise {place}": draw.normal(size=rows) for place in range(1, 5)},
    }


def _terms(x: Columns) -> tuple[NDArray, NDArray, NDArray]:
    age = 1.2 * (x["age"] - 45) / 12 * np.where(x["product"] < 2, 1.0, -0.3)
    income = 0.8 * (np.log(x["income"]) - 10) / 0.5 * x["member"]
    return age, income, 1.0 * (x["product"] == 3)


def _score(x: Columns) -> NDArray:
    return sum(_terms(x))


def _two_labels(logit: NDArray) -> NDArray:
    return np.stack([np.zeros_like(logit), logit], -1)


@cache
def _offset(share: float) -> float:
    """What makes a share of the labels positive where logits are twice the score."""
    score = 2.0 * _score(_people(np.random.default_rng(0), 200_000))
    return float(brentq(lambda c: (1.0 / (1.0 + np.exp(-score - c))).mean() - share, -20.0, 5.0))


def _rare(share: float, x: Columns) -> NDArray:
    return _two_labels(2.0 * _score(x) + _offset(share))


def _three_labels(x: Columns) -> NDArray:
    age, income, product = _terms(x)
    return np.stack([np.zeros_like(age), age + product, 2.0 * income], -1)


def _alike(draw: np.random.Generator, rows: int) -> Columns:
    """Nulls correlated .8 with true columns, and independent of y given them."""
    true = {name: draw.normal(size=rows) for name in ("a", "b")}
    rest = math.sqrt(1.0 - CORRELATION**2)
    like = {
        f"like {name}": CORRELATION * values + rest * draw.normal(size=rows)
        for name, values in true.items()
    }
    return {**true, **like, **_others(draw, rows)}


def _given_its_like(name: str, draw: np.random.Generator, x: Columns) -> Columns:
    like = x[f"like {name}"]
    return {name: draw.normal(CORRELATION * like, math.sqrt(1.0 - CORRELATION**2))}


def _bent(draw: np.random.Generator, rows: int) -> Columns:
    """A null that is the square of a true column, and noise."""
    a = draw.normal(size=rows)
    bent = a**2 + BENT_NOISE * draw.normal(size=rows)
    return {"a": a, "bent a": bent, "b": draw.normal(size=rows), **_others(draw, rows)}


def _given_its_square(draw: np.random.Generator, x: Columns) -> Columns:
    grid, found = np.linspace(-4.0, 4.0, 201), []
    for squares in np.array_split(x["bent a"], max(1, len(x["bent a"]) // 10_000)):  # 64 MB each
        log_p = -0.5 * (grid**2 + ((squares[:, None] - grid**2) / BENT_NOISE) ** 2)
        up_to = np.exp(log_p - log_p.max(1, keepdims=True)).cumsum(1)
        below = up_to < up_to[:, -1:] * draw.random((len(squares), 1))
        found.append(grid[below.sum(1)])
    return {"a": np.concatenate(found)}


def _distance_and_product(x: Columns) -> NDArray:
    return _two_labels(
        2.5 * (np.abs(x["a"]) - 0.8) - 1.5 * x["b"] + 1.8 * (x["product"] == 3) - 0.4
    )


def _banded(draw: np.random.Generator, rows: int) -> Columns:
    """A null that is a category of a true column."""
    a = draw.normal(size=rows)
    band = np.searchsorted(BANDS, a)
    return {"a": a, "band": band, "b": draw.normal(size=rows), **_others(draw, rows)}


def _given_its_band(draw: np.random.Generator, x: Columns) -> Columns:
    ends = norm.cdf([-np.inf, *BANDS, np.inf])
    lower, upper = ends[x["band"]], ends[x["band"] + 1]
    return {"a": norm.ppf(draw.uniform(lower, upper).clip(1e-12, 1 - 1e-12))}


def _twice(draw: np.random.Generator, rows: int) -> Columns:
    a = draw.normal(size=rows)
    return {"a": a, "a again": a, "b": draw.normal(size=rows), **_others(draw, rows)}


def _others(draw: np.random.Generator, rows: int) -> Columns:
    return {
        "product": draw.integers(0, 4, rows),
        "city": draw.integers(0, 66, rows),
        "visits": draw.poisson(3, rows),
        **{f"noise {place}": draw.normal(size=rows) for place in range(1, 4)},
    }


def _two_and_product(x: Columns) -> NDArray:
    return _two_labels(1.8 * x["a"] - 1.5 * x["b"] + 1.8 * (x["product"] == 3) - 0.4)


def _switched(draw: np.random.Generator, rows: int) -> Columns:
    return {
        "member": draw.integers(0, 2, rows) == 1,
        **{name: draw.normal(size=rows) for name in ("a", "b", "c")},
        **_others(draw, rows),
    }


def _switch(x: Columns) -> NDArray:
    return _two_labels(np.where(x["member"], 1.8 * x["a"], 1.8 * x["b"] * np.sign(x["c"])))


PEOPLE = (("age",), ("income",), ("product",), ("member",))
KINDS: Mapping[str, Kind] = {
    "mixed": Kind(
        _people,
        lambda x: _two_labels(_score(x) - 0.3),
        PEOPLE,
        "numbers, categories, a boolean, counts; half the labels are positive",
    ),
    "2 % positives": Kind(
        _people, partial(_rare, 0.02), PEOPLE, "the same columns", sizes=(2_000, 20_000)
    ),
    "1 % positives": Kind(
        _people, partial(_rare, 0.01), PEOPLE, "the same columns", sizes=(20_000,)
    ),
    "nothing": Kind(
        _people,
        lambda x: _two_labels(np.zeros(len(x["age"]))),
        (),
        "the same columns, and labels that depend on none of them",
    ),
    "correlated": Kind(
        _alike,
        _two_and_product,
        (("a",), ("b",), ("product",)),
        "two nulls correlated .8 with true columns",
        given={(name,): partial(_given_its_like, name) for name in ("a", "b")},
        partner={"a": "like a", "b": "like b"},
    ),
    "bent": Kind(
        _bent,
        _distance_and_product,
        (("a",), ("b",), ("product",)),
        "a null that is the square of a true column, with noise",
        given={("a",): _given_its_square},
        partner={"a": "bent a"},
    ),
    "banded": Kind(
        _banded,
        _two_and_product,
        (("a",), ("b",), ("product",)),
        "a null that is a category of a true column",
        given={("a",): _given_its_band},
        partner={"a": "band"},
    ),
    "duplicated": Kind(
        _twice,
        _two_and_product,
        (("a", "a again"), ("b",), ("product",)),
        "a true column stands there twice; either copy counts",
        partner={"a": "a again"},
    ),
    "switch": Kind(
        _switched,
        _switch,
        (("member",), ("a",), ("b",), ("c",)),
        "a boolean says whether a matters, or b by the sign of c",
    ),
    "three classes": Kind(_people, _three_labels, PEOPLE, "the first columns, three labels"),
    "regression": Kind(
        _people, _score, PEOPLE, "the first columns, a response with noise of 1", spread=1.0
    ),
}
