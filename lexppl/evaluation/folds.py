"""Rows of which each is held out once: every replicate of a fit leaves out a part of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.arviz_compatibility import Posterior, group_names, group_of, like
from lexppl.data.stratification import fold_of_rows
from lexppl.explanation import explain
from lexppl.explanation.reading.masks import with_fold_means
from lexppl.explanation.reading.modes import HELD_OUT_BY
from lexppl.inference.training.result import FitResult

Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class Folds:
    """N rows in R parts, of which replicate r of a fit has not learned from part r.

    With :attr:`weights` replicate r gives weight 0 to the rows of part r, so that each row is held
    out by one replicate. What is estimated from rows, each by that replicate, is cross-validated:
    it rests on all N rows, and speaks of fits to N (R − 1) / R of them.

    Args:
        part: of each row, 0 … R − 1, `(N,)`.
        count: R ≥ 2.

    Source: Chernozhukov et al. Double/debiased machine learning. Econometrics Journal 2018, § 3.
        Bayle et al. Cross-validation confidence intervals for test error. NeurIPS 2020.

    Example:
        >>> from lexppl.evaluation import predictive_log_likelihood
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> x = torch.randn(90, 2, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> folds = Folds.of(y, 3)
        >>> system = lex(2, classes=2, hidden=(4,), predictor_hidden=(4,))
        >>> result = fit(system, (x, y), valid=None, row_weights=folds.weights, epochs=2,
        ...     progress=False)
        >>> folds.values(predictive_log_likelihood, result, x, y).shape
        torch.Size([1, 90])
    """

    part: Tensor
    count: int

    def __post_init__(self) -> None:
        int_at_least("count", self.count, 2)
        outside = (self.part < 0) | (self.part >= self.count)
        if self.part.dim() != 1 or self.part.is_floating_point() or bool(outside.any()):
            raise ValueError(
                f"part must hold whole numbers from 0 to {self.count - 1}, (N,); it has shape "
                f"{tuple(self.part.shape)} and type {self.part.dtype}"
            )

    @classmethod
    def of(cls, y: Tensor, count: int, seed: int = 0) -> Self:
        """Rows dealt at random into `count` parts, each with its share of every label."""
        int_at_least("count", count, 2)
        if len(y) < count:
            raise ValueError(f"{count} folds need as many rows; there are {len(y)}")
        is_label = y.dim() == 1 and not y.is_floating_point()
        strata = y.cpu().numpy() if is_label else np.zeros(len(y), np.int64)
        return cls(torch.from_numpy(fold_of_rows(strata, count, seed)).to(y.device), count)

    @property
    def weights(self) -> Tensor:
        """How often each row counts in each replicate, 0 or 1, `(R, N)`: `fit(row_weights=)`."""
        replicate = torch.arange(self.count, device=self.part.device)[:, None]
        return (self.part != replicate).float()

    def take(self, rows: Any) -> Self:
        """The same of some rows, by their places."""
        return replace(self, part=self.part[rows])

    def rows(self, number: int) -> Tensor:
        """The places of the rows of a part."""
        return torch.nonzero(self.part == number)[:, 0]

    def each(self, result: FitResult) -> Iterator[tuple[FitResult, Tensor]]:
        """Each replicate by itself, and the places of the rows that it holds out, if any."""
        if result.replicates != self.count:
            raise ValueError(f"{self.count} folds need as many replicates, not {result.replicates}")
        for number in range(self.count):
            if len(rows := self.rows(number)):
                yield result.subset([number]), rows

    def posterior(
        self,
        result: FitResult,
        x: Any,
        y: Any = None,
        *,
        coords: Mapping[str, Sequence[Any]] | None = None,
        explain: Callable[..., Posterior] = explain,
        **settings: Any,
    ) -> Posterior:
        """The posterior of the rows' masks, each by the replicate that holds it out, in one chain.

        In `sample_stats`, E[z | x] of every replicate stands beside it, dims (fold, row, feature),
        as `fold_selection_probability`, for the intervals of
        :func:`lexppl.explanation.selection_table`: of all N rows, also of those that it has learned
        from, so that replicates are compared on the same rows.

        Args:
            result: of R replicates.
            x, y, coords, settings: of N rows, as in :func:`lexppl.explain`.
            explain: what draws the posterior of each part.
        """

        def explained(fitted: FitResult, x: Any, y: Any, names: Any, **how: Any) -> Posterior:
            named = {**(coords or {}), "row": names}
            posterior = explain(fitted, x, y, coords=named, **how)
            of_x = partial(explain, result, x, coords=named)
            try:
                every = of_x(**{**how, "draws": 0})
            except ValueError:
                # The masks' distribution states no mean: it is that of as many draws.
                draws = group_of(posterior, "predictions").sizes["draw"]
                every = of_x(**{**how, "draws": draws})
            return with_fold_means(posterior, every)

        names = list((coords or {}).get("row", range(len(x))))
        posterior = self.values(explained, result, x, y, names, **{"seed": 0, **settings})
        groups = {name: group_of(posterior, name) for name in group_names(posterior)}
        held = {HELD_OUT_BY: ("row", self.part.cpu().numpy())}
        groups["sample_stats"] = groups["sample_stats"].assign(held)
        return like(posterior, groups)

    def values(
        self, function: Callable[..., Found], result: FitResult, *rows: Any, **settings: Any
    ) -> Found:
        """What a function finds of each row, in their order, by the replicate that holds it out.

        Args:
            function: of a fit and rows, such as
                :func:`~lexppl.evaluation.predictive_log_likelihood` or :func:`lexppl.explain`.
            result: of R replicates.
            rows: its arguments by row, each with N entries, or None.
            settings: its other arguments. A `seed` is one further for each part.

        Raises:
            ValueError: a fit of another number of replicates; another number of rows; values of
                all rows together, such as latents that rows share.
        """
        for column in rows:
            if column is not None and len(column) != len(self.part):
                raise ValueError(f"folds of {len(self.part)} rows; there are {len(column)}")
        values, places = [], []
        for number, (fitted, place) in enumerate(self.each(result)):
            if "seed" in settings:
                settings = {**settings, "seed": settings["seed"] + (number > 0)}
            taken = [None if column is None else _taken(column, place) for column in rows]
            values.append(function(fitted, *taken, **settings))
            places.append(place)
        return _joined(values, torch.cat(places).argsort())


def judged(
    folds: Folds | None,
    function: Callable[..., Found],
    result: FitResult,
    *rows: Any,
    **settings: Any,
) -> Found:
    """:meth:`Folds.values`, or without folds what a function finds by each replicate."""
    if folds is None:
        return function(result, *rows, **settings)
    return folds.values(function, result, *rows, **settings)


def _taken(column: Any, places: Tensor) -> Any:
    if isinstance(column, Tensor):
        return column[places.to(column.device)]
    return [column[place] for place in places.tolist()]


def _joined(parts: Sequence[Any], order: Tensor) -> Any:
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, Tensor):
        return torch.cat(list(parts), 1)[:, order.to(first.device)]
    if is_dataclass(type(first)):
        changed = {
            field.name: _joined([getattr(part, field.name) for part in parts], order)
            for field in fields(first)
            if isinstance(getattr(first, field.name), Tensor)
        }
        return replace(first, **changed)
    names = group_names(first)
    groups = {name: _group([group_of(p, name) for p in parts], name, order) for name in names}
    return like(first, groups)


def _group(parts: Sequence[xr.Dataset], name: str, order: Tensor) -> xr.Dataset:
    by_row = [key for key, values in parts[0].items() if "row" in values.dims]
    joined = parts[0][by_row]
    if by_row:
        joined = xr.concat([part[by_row] for part in parts], "row", data_vars="minimal")
        joined = joined.isel(row=order.cpu().numpy())
    shares = np.array([part.sizes.get("row", 1) for part in parts], dtype=np.float64)
    for key, values in parts[0].drop_vars(by_row).items():
        of_key = [part[key] for part in parts]
        if "importance" in str(key) or str(key).endswith("_mean_over_rows"):
            mean = sum(share * v for share, v in zip(shares / shares.sum(), of_key, strict=True))
            joined[key] = mean.assign_attrs(values.attrs)
        elif all(v.identical(values) for v in of_key):
            joined[key] = values
        else:
            raise ValueError(f"{key!r} of {name!r} is of all rows: explain with all replicates")
    return joined[list(parts[0])].assign_attrs(parts[0].attrs)
