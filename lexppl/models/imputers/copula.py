"""Hidden features drawn given the kept ones, under a Gaussian copula of few factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from pyro.distributions.torch_distribution import TorchDistribution
from pyro.distributions.util import broadcast_shape
from torch import Tensor

from lexppl.argument_checks import int_between, shaped
from lexppl.distributions.gradients import carries_gradient
from lexppl.models.grouping import are_indicators
from lexppl.models.imputers.imputer import (
    HiddenFeatures,
    Imputer,
    TensorOrShape,
    check_training_rows,
)
from lexppl.threads import own_random_state

FACTORS = (1, 2, 4, 8)  # Numbers of factors that are tried, fewer than there are columns
PARTS, ERRORS = 3, 2.0
"""Parts of the rows for their likelihood, and standard errors by which more factors must raise it.
A share of what is raised would be no rule: a pattern may be faint beside what columns have in
common."""
LEAST_NOISE = 1e-4  # Least share of a column's variance that is its own
ORDERED_ROWS = 2000  # Most rows of which the values are kept


class CopulaImputer(Imputer):
    """Hidden features drawn given the kept ones, under a Gaussian copula of q factors.

    A row has C columns: numbers, and columns of levels, of which an indicator of each level is a
    feature. Column c is the quantile function of its margin at a normal score,

        x_c = F_c⁻¹(Φ(u_c)),    u = Λ f + ψ^{1/2} ε,    f ~ N(0, I_q),    ψ_c = 1 − Σ_j Λ_cj²,

    with F_c the empirical distribution of the training rows: a draw is a value that the column has.
    Levels are in the order in which the first principal component of the numbers rises. Given the
    scores of kept columns S,

        f | u_S ~ N(A⁻¹ b, A⁻¹),    A = I + Σ_{c∈S} Λ_c Λ_cᵀ / ψ_c,    b = Σ_{c∈S} Λ_c u_c / ψ_c,

    and hidden columns are independent given f. The score of a value that several rows have, as of a
    level, is drawn uniformly from its share of (0, 1): exact for numbers without ties, an
    approximation for levels. Draws have no density, and no gradient in the mask: a mask with one is
    refused.

    Args:
        ordered: values of each column, sorted, `(N, C)`; of levels their numbers, in the order of
            the levels' scores.
        loadings: Λ, `(C, q)`.
        shares: lower and upper end of each level's share of (0, 1), column after column, `(M, 2)`.
        columns: the features of each column: one of numbers, and of levels one for each, which are
            neighbours.
        levels: of each column how many levels it has, 0 of numbers.

    Raises:
        ValueError: shapes that do not fit; when called, a mask with a gradient.

    Source: Murray et al. 2013, "Bayesian Gaussian copula factor models for mixed data", JASA; Zhao
    & Udell 2020, "Missing value imputation for mixed data via Gaussian copula", KDD.

    Example:
        >>> x = torch.randn(500, 1, generator=torch.Generator().manual_seed(0)) @ torch.ones(1, 3)
        >>> imputer = CopulaImputer.fit(x, factors=1)
        >>> draws = imputer(x[:200], torch.tensor([1.0, 1.0, 0.0])).sample()[:, 2]
        >>> float(torch.corrcoef(torch.stack([draws, x[:200, 0]]))[0, 1]) > 0.8
        True
    """

    ordered: Tensor
    loadings: Tensor
    shares: Tensor

    def __init__(
        self,
        ordered: TensorOrShape,
        loadings: TensorOrShape,
        shares: TensorOrShape,
        columns: Sequence[Sequence[int]],
        levels: Sequence[int],
    ) -> None:
        super().__init__()
        self._register("ordered", ordered)
        self._register("loadings", loadings)
        self._register("shares", shares)
        self.columns = tuple(tuple(column) for column in columns)
        self.levels = tuple(levels)
        self.event_shape: torch.Size = torch.Size([sum(map(len, self.columns))])
        (count,) = shaped("levels", self.levels, (len(self.columns),), note="one of each column")
        shaped("ordered", self.ordered, ("N", count))
        shaped("loadings", self.loadings, (count, "q"))
        shaped("shares", self.shares, (sum(self.levels), 2), note="as levels has it")
        for column, number in zip(self.columns, self.levels, strict=True):
            if len(column) not in (1, number) or column != tuple(range(column[0], column[-1] + 1)):
                raise ValueError(
                    "columns must be features beside each other, one or as many as there are "
                    f"levels; a column of {number} levels has {column}"
                )

    @classmethod
    def fit(
        cls,
        x: Tensor,
        groups: Sequence[int] | None = None,
        factors: int | None = None,
        seed: int = 0,
    ) -> CopulaImputer:
        """The factors of the rows' normal scores, by maximum likelihood.

        Args:
            x: training rows, `(N, D)`, N at least 2, finite.
            groups: the entry of each feature; those of one entry are the levels of a column where
                each row has one of them, as 1, and the others are 0.
            factors: q; if None 0 where columns do not depend, and else of 1, 2, 4 and 8 the first
                after which twice as many do not raise the likelihood of held-out parts of the rows
                by two standard errors.
            seed: of the scores of equal values.

        Raises:
            TypeError, ValueError: x that is no finite table of floats; more factors than columns.
        """
        check_training_rows(x)
        shaped("x", x, "N D")
        columns = indicator_columns(x, range(x.shape[1]) if groups is None else groups)
        if factors is not None:
            int_between("factors", factors, 0, len(columns) - 1, note="fewer than columns")
        levels = [len(column) if len(column) > 1 else 0 for column in columns]
        generator = np.random.default_rng(seed)
        chosen = torch.from_numpy(generator.permutation(len(x))[:ORDERED_ROWS])
        rows = x[chosen.to(x.device)]
        values = _values(rows, columns)
        ordered, shares = _tables(values, levels)
        plain = cls(ordered, x.new_zeros(len(columns), 0), shares, columns, levels)
        with own_random_state():
            torch.manual_seed(seed)
            scores = plain.scores(rows).cpu().double().numpy()
        scores = (scores - scores.mean(0)) / (scores.std(0) + 1e-12)
        if factors is None:
            # Of a row that stands there several times once: its copies would judge it.
            once = np.unique(rows.cpu().numpy(), axis=0, return_index=True)[1]
            factors = _factors(scores[generator.permutation(once)])
        loadings = _loadings(scores, factors)
        return cls(ordered, torch.from_numpy(loadings).to(x), shares, columns, levels)

    @property
    def factors(self) -> int:
        """Number of factors, q."""
        return self.loadings.shape[1]

    def scores(self, x: Tensor) -> Tensor:
        """Normal scores of rows, `(…, B, C)`, drawn where several rows have a value."""
        values = _values(x, self.columns)
        count, place = len(self.ordered), 0
        flat = torch.cat([column.reshape(-1) for column in values.unbind(-1)])
        flat = flat.unflatten(0, (len(self.columns), -1))
        ordered = self.ordered.mT.contiguous()
        if flat.shape[1] == 1:
            # Of single rows under vmap, for which searchsorted would go through them in Python.
            ends = [(ordered < flat).sum(1, keepdim=True), (ordered <= flat).sum(1, keepdim=True)]
        else:
            ends = [torch.searchsorted(ordered, flat, right=right) for right in (False, True)]
        lower, upper = (end.to(x).mT.reshape(values.shape) / count for end in ends)
        for c, levels in enumerate(self.levels):
            if levels:
                share = self.shares[place : place + levels][values[..., c].long()]
                place += levels
                lower[..., c], upper[..., c] = share[..., 0], share[..., 1]
        drawn = lower + torch.rand_like(values) * (upper - lower)
        return torch.special.ndtri(drawn.clamp(0.5 / count, 1.0 - 0.5 / count))

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """Hidden columns given the kept ones, batch shape `(…, B)`."""
        if carries_gradient(keep):
            raise ValueError(
                "a CopulaImputer draws hidden features given the kept ones, with no gradient in "
                "the mask: use an estimator of the score, such as LeaveOneOut(), with masks of 0 "
                "and 1, or another imputer, such as MarginalImputer"
            )
        return _GivenKept(self, x, keep)

    def decoded(self, scores: Tensor) -> Tensor:
        """Rows in the units of the features, `(…, D)`, from normal scores `(…, C)`."""
        count = len(self.ordered)
        places = (torch.special.ndtr(scores) * count).long().clamp(0, count - 1)
        values = self.ordered[places, torch.arange(len(self.columns), device=scores.device)]
        parts = {}
        for c, column in enumerate(self.columns):
            value = values[..., c : c + 1]
            if len(column) > 1:
                levels = torch.arange(len(column), device=scores.device)
                value = (value == levels).to(values.dtype)
            parts[column[0]] = value
        return torch.cat([parts[first] for first in sorted(parts)], -1)


class _GivenKept(HiddenFeatures):
    """What each column of rows would be, were it hidden, given the kept ones."""

    has_rsample = False
    no_density = (
        "the margins of a CopulaImputer are the values of training rows, which have no density; "
        "objectives that propose x_imputed from the model do not need it, others can use a "
        "ConditionalGaussianImputer"
    )

    def __init__(self, imputer: CopulaImputer, x: Tensor, keep: Tensor) -> None:
        self.imputer = imputer
        event = imputer.event_shape
        features = keep.expand(*keep.shape[:-1], *event).unbind(-1)
        mask = torch.stack([features[column[0]] for column in imputer.columns], -1)
        mask = (mask if mask.dtype == torch.bool else mask > 0.5).to(x.dtype)
        loadings = imputer.loadings
        noise = (1.0 - loadings.square().sum(-1)).clamp(min=LEAST_NOISE)
        weighted = loadings / noise[:, None]
        outer = (loadings[:, :, None] * weighted[:, None, :]).flatten(1)
        q = imputer.factors
        precision = (mask @ outer).unflatten(-1, (q, q)) + torch.eye(
            q, dtype=x.dtype, device=x.device
        )
        self._noise = noise
        self._cholesky = torch.linalg.cholesky_ex(precision).L
        self._mean = (mask * imputer.scores(x)) @ weighted
        shape = torch.Size(broadcast_shape(x.shape[:-1], mask.shape[:-1]))
        super().__init__(shape, event, validate_args=False)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            shape = (*sample_shape, *self.batch_shape)
            mean = self._mean
            factor = self._cholesky
            kind: dict[str, Any] = {"dtype": mean.dtype, "device": mean.device}
            drawn = torch.randn((*shape, self.imputer.factors, 1), **kind)
            halfway = torch.linalg.solve_triangular(factor, mean[..., None], upper=False)
            factors = torch.linalg.solve_triangular(factor.mT, halfway + drawn, upper=True)[..., 0]
            noise = self._noise.sqrt() * torch.randn((*shape, len(self._noise)), **kind)
            return self.imputer.decoded(factors @ self.imputer.loadings.mT + noise)


def indicator_columns(x: Tensor, groups: Sequence[int]) -> list[tuple[int, ...]]:
    """The features of each column of a table: the indicators of a column's levels together."""
    columns: list[tuple[int, ...]] = []
    for _, entry in groupby(range(len(groups)), key=lambda feature: groups[feature]):
        block = tuple(entry)
        together = len(block) > 1 and are_indicators(x[:, list(block)])
        columns += [block] if together else [(feature,) for feature in block]
    return columns


def _values(x: Tensor, columns: Sequence[Sequence[int]]) -> Tensor:
    """Numbers, and the numbers of levels, `(…, B, C)`."""
    values = [
        x[..., column[0] : column[-1] + 1].argmax(-1).to(x.dtype)
        if len(column) > 1
        else x[..., column[0]]
        for column in columns
    ]
    return torch.stack(values, -1)


def _tables(values: Tensor, levels: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Sorted values, `(N, C)`, and the ends of the levels' shares, `(M, 2)`; levels are in the
    order of the mean, in rows that have one, of the numbers' ranks' first principal component."""
    numbers = [c for c, count in enumerate(levels) if not count]
    component = torch.zeros(len(values), dtype=torch.double)
    if numbers:
        ranks = values[:, numbers].cpu().double().argsort(0).argsort(0).double()
        ranks = (ranks - ranks.mean(0)) / (ranks.std(0) + 1e-12)
        component = torch.linalg.svd(ranks, full_matrices=False).U[:, 0]
    ordered, shares = [], [values.new_zeros(0, 2)]
    for c, count in enumerate(levels):
        if not count:
            ordered.append(values[:, c].sort().values)
            continue
        level = values[:, c].long().cpu()
        counts = torch.bincount(level, minlength=count)
        summed = torch.zeros(count, dtype=torch.double).index_add_(0, level, component)
        order = (summed / counts.clamp(min=1)).argsort(stable=True)
        counts = counts[order]
        ordered.append(order.repeat_interleave(counts).to(values))
        upper = counts.cumsum(0).to(values) / len(values)
        ends = torch.stack([upper - counts.to(values) / len(values), upper], -1)
        shares.append(ends[order.argsort().to(ends.device)])
    return torch.stack(ordered, -1), torch.cat(shares)


def _loadings(scores: np.ndarray, factors: int) -> np.ndarray:
    """Λ of standardised scores, `(C, q)`, by maximum likelihood."""
    from sklearn.decomposition import FactorAnalysis  # noqa: PLC0415

    if not factors:
        return np.zeros((scores.shape[1], 0))
    model = FactorAnalysis(factors, svd_method="lapack").fit(scores)
    loadings = model.components_.T
    spread = np.sqrt(np.square(loadings).sum(1) + model.noise_variance_)
    loadings = loadings / spread[:, None]
    most = np.sqrt((1.0 - LEAST_NOISE) / np.square(loadings).sum(1).clip(1e-12)).clip(max=1.0)
    return np.asarray(loadings * most[:, None])


def _factors(scores: np.ndarray) -> int:
    """The number of factors q, by the likelihood of held-out parts of the rows, which are taken in
    their order."""
    from sklearn.decomposition import FactorAnalysis  # noqa: PLC0415

    rows, columns = scores.shape
    parts = np.arange(rows) % PARTS
    factors, best = 0, -0.5 * (np.square(scores) + math.log(2.0 * math.pi)).sum(1)
    for count in (q for q in FACTORS if q < columns and rows > 2 * PARTS):
        log_likelihood = np.empty(rows)
        for part in range(PARTS):
            model = FactorAnalysis(count, svd_method="lapack").fit(scores[parts != part])
            log_likelihood[parts == part] = model.score_samples(scores[parts == part])
        raised = log_likelihood - best
        if raised.mean() <= ERRORS * raised.std(ddof=1) / math.sqrt(rows):
            break
        factors, best = count, log_likelihood
    return factors
