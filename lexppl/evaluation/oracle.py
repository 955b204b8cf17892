"""The oracle: p(y | x_S) under a known distribution of labels, and how far a fit is from it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.special import expit
from torch import Tensor

from lexppl.argument_checks import check_binary, int_between, refuse_not_finite, shaped
from lexppl.data.synthetic import AdditiveBranch, ProductBranch, SyntheticSet, synthetic_set
from lexppl.explanation.sampler import log_likelihood, read_runs
from lexppl.inference.objective.program import ParticleTrace
from lexppl.inference.predictive import row_chunks, rows_at_once
from lexppl.inference.training.result import FitResult

# Standard normal mass beyond is 2e-19, below the rounding of the sums.
_REACH = 9.0
_SPACING = 0.04
_NODES_PER_PANEL = 16
_TOLERANCE = 1e-10
_MOST_PANELS = 2**13
# Elements of a block of quadrature, and rows × masks of a block of `best`.
_BLOCK = 2**21

Float64Array = NDArray[np.float64]


@dataclass(frozen=True)
class BayesScores:
    """The mean ``log p(y | x)`` of the data's distribution, and the share of likelier labels."""

    log_likelihood: float
    accuracy: float


class Oracle:
    """Exact ``p(y | x_S)`` of a synthetic set, for each of the ``2^11`` masks ``S``.

    The features are independent ``N(0, 1)``, so the hidden ones are integrated out of
    ``P(y=1|x) = σ(−h(x))``, ``h = log f``, branch by branch:

    - ``h = x_i x_j``: ½ by symmetry unless both are kept;
    - ``h = c + Σ_j t_j(x_j)``: ``p_H(s) = E σ(−(s + Σ_{j∈H} t_j(X_j)))`` with ``H`` the hidden
      features and ``s = c + Σ_{j∉H} t_j(x_j)``, tabulated over ``s`` for each of the ``2^4`` sets
      ``H`` by Gauss–Legendre quadrature (to 1e-10), and read by cubic splines of its log-odds;
    - a hidden control feature: the mean of both branches.

    Against independent quadrature the error of ``p`` is below 1e-8 (measured: 1e-10). Kept
    values beyond ±9 standard deviations are extrapolated.

    Args:
        distribution: a :class:`SyntheticSet`, or its name (with the constant ``"l2x-code"``).

    Example:
        >>> from lexppl.data import synthetic
        >>> oracle, data = Oracle("S3"), synthetic("S3", rows=10_000, seed=0)
        >>> scores = oracle.full(data.x, data.y)
        >>> round(scores.log_likelihood, 3), round(scores.accuracy, 3)
        (-0.384, 0.827)
    """

    def __init__(self, distribution: SyntheticSet | str) -> None:
        self.distribution = (
            synthetic_set(distribution) if isinstance(distribution, str) else distribution
        )
        self._branches = tuple(_marginal_branch(branch) for branch in self.distribution.branches)

    def probability(self, x: Tensor, masks: Tensor) -> Tensor:
        """``p(y = 1 | x_S)``, shape ``(…, N)``, of features ``(N, D)`` and masks ``(…, N, D)``.

        Raises:
            ValueError: shapes that do not fit, NaN or infinite features, values of ``masks``
                other than 0 and 1.
        """
        log_one, _ = self._log_probabilities(x, masks)
        return log_one.exp().to(x.dtype)

    def log_likelihood(self, x: Tensor, y: Tensor, masks: Tensor) -> Tensor:
        """The mean over mask draws of ``log p(y | x_S)`` in nats, shape ``(N,)``: under the truth
        mask the reference for a fitted explainer, though no strict bound (see :meth:`best`).

        Args:
            x, y: features, shape ``(N, D)``, and labels 0 and 1, ``(N,)``.
            masks: 1 for kept and 0 for hidden, shape ``(…, N, D)``.
        """
        log_one, log_zero = self._log_probabilities(x, masks)
        check_binary("y", y, (len(x),))
        chosen = torch.where(y == 1, log_one, log_zero)
        return chosen.reshape(-1, len(x)).mean(0).to(x.dtype)

    def full(self, x: Tensor, y: Tensor) -> BayesScores:
        """The log-likelihood and accuracy of ``p(y | x)``, every feature kept."""
        log_one, log_zero = self._log_probabilities(x, torch.ones_like(x))
        check_binary("y", y, (len(x),))
        return BayesScores(
            log_likelihood=float(torch.where(y == 1, log_one, log_zero).mean()),
            accuracy=float(((log_one > log_zero) == (y == 1)).to(torch.float64).mean()),
        )

    def best(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The mask of size ``k`` that serves ``p(y | x_S)`` best, for each row: the masks, shape
        ``(N, D)``, and their expected log-likelihood in nats, ``(N,)``.

        Maximises ``Σ_y p(y|x) log p(y|x_S)`` over the masks with ``|S| = k``: the largest value
        that *any* explainer with masks of size ``k`` can expect when the oracle (or a perfect
        EVAL-X) is its judge. A predictor that was trained along with the masks can pass it, as the
        choice of features can encode the label. The maximising masks are no truth about relevance.

        Args:
            x: features, shape ``(N, D)``.
            k: number of kept features, ``0 <= k <= D``.

        Example:
            >>> masks, value = Oracle("Syn1").best(torch.tensor([[1.0, 2.0] + 9 * [0.5]]), k=2)
            >>> masks[0, :3], value
            (tensor([1., 1., 0.]), tensor([-0.3653]))
        """
        k = int_between("k", k, 0, self.distribution.n_features, note="the features")
        log_yes, log_no = self._log_probabilities(x, torch.ones_like(x))
        subsets = list(itertools.combinations(range(self.distribution.n_features), k))
        candidates = x.new_zeros(len(subsets), self.distribution.n_features)
        for row, subset in enumerate(subsets):
            candidates[row, list(subset)] = 1
        value = torch.full_like(log_yes, -torch.inf)
        choice = torch.zeros_like(log_yes, dtype=torch.long)
        block = max(1, _BLOCK // len(x))
        for start in range(0, len(candidates), block):
            part = candidates[start : start + block]
            log_one, log_zero = self._log_probabilities(
                x, part[:, None, :].expand(len(part), *x.shape)
            )
            expected, index = (log_yes.exp() * log_one + log_no.exp() * log_zero).max(0)
            choice = torch.where(expected > value, start + index, choice)
            value = torch.maximum(value, expected)
        return candidates[choice], value.to(x.dtype)

    def _log_probabilities(self, x: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``log p(y=1|x_S)`` and ``log p(y=0|x_S)``, float64, shape ``(…, N)``."""
        features = self.distribution.n_features
        shaped("x", x, ("N", features), filled=True)
        check_binary("masks", masks, tuple(x.shape), draws=True)
        refuse_not_finite("x", x)
        known = masks == 1
        exact = x.to(torch.float64)
        log_odds = torch.stack([branch(exact, known) for branch in self._branches])
        log_one = torch.nn.functional.logsigmoid(log_odds)
        log_zero = torch.nn.functional.logsigmoid(-log_odds)
        if self.distribution.control is None:
            return log_one[0], log_zero[0]
        second = self.distribution.branch_index(exact).to(torch.float64)
        share = torch.where(known[..., self.distribution.control], second, 0.5)
        weights = torch.stack([1 - share, share]).log()
        return (log_one + weights).logsumexp(0), (log_zero + weights).logsumexp(0)


def _marginal_branch(branch: object) -> Callable[[Tensor, Tensor], Tensor]:
    """From rows and what is kept of them to the log-odds of ``y = 1``."""
    if isinstance(branch, AdditiveBranch):
        return _MarginalSum(branch)
    if not isinstance(branch, ProductBranch):
        raise TypeError(f"branches are ProductBranch or AdditiveBranch; {type(branch).__name__}")
    product: ProductBranch = branch

    def log_odds(x: Tensor, known: Tensor) -> Tensor:
        # 0 unless both are kept, as σ(−v X) of a symmetric X has the mean ½.
        both = known[..., list(product.features)].all(-1)
        return torch.where(both, -product.log_f(x), 0.0)

    return log_odds


class _MarginalSum:
    """Log-odds of ``y = 1`` of an additive branch, by one spline for each set of hidden features:
    bit ``j`` of its number says that the branch's feature ``j`` is hidden."""

    def __init__(self, branch: AdditiveBranch) -> None:
        self.branch = branch
        nodes = torch.linspace(-_REACH, _REACH, 2049, dtype=torch.float64)
        lowest = sum(float(term(nodes).min()) for term in branch.terms)
        start = branch.constant + lowest - 1
        # Beyond this end σ(−(s + t)) = e^{−(s + t)} to float64, so log p has slope −1 in s.
        intervals = math.ceil((40 - lowest - start) / _SPACING)
        grid: Float64Array = start + _SPACING * np.arange(intervals + 1.0)
        # What varies fastest is integrated first, over the sigmoid itself, and smooths the rest.
        features = range(len(branch.terms))
        order = sorted(features, key=lambda j: -_steepness(branch.terms[j]))
        splines: dict[tuple[Callable[[Tensor], Tensor], ...], CubicSpline] = {
            (): CubicSpline(grid, -grid)
        }
        self._splines = []
        for pattern in range(2 ** len(branch.terms)):
            hidden = tuple(branch.terms[j] for j in order if pattern >> j & 1)
            for size in range(1, len(hidden) + 1):
                if hidden[:size] not in splines:
                    log_odds = _integrate(splines[hidden[: size - 1]], hidden[size - 1], grid)
                    splines[hidden[:size]] = CubicSpline(grid, log_odds)
            self._splines.append(splines[hidden])

    def __call__(self, x: Tensor, known: Tensor) -> Tensor:
        known = known[..., list(self.branch.features)]
        terms = torch.where(known, self.branch.term_values(x), 0.0)
        position = (self.branch.constant + terms.sum(-1)).cpu().numpy()
        codes = 2 ** torch.arange(known.shape[-1], device=known.device)
        pattern = ((~known).long() * codes).sum(-1).cpu().numpy()
        log_odds = np.empty_like(position)
        for number in np.unique(pattern):
            chosen = pattern == number
            log_odds[chosen] = _continued(self._splines[number], position[chosen])
        return torch.from_numpy(log_odds).to(x.device)


def _steepness(term: Callable[[Tensor], Tensor]) -> float:
    nodes = torch.linspace(-2, 2, 4001, dtype=torch.float64)
    return float(term(nodes).diff().abs().max())


def _integrate(
    inner: CubicSpline, term: Callable[[Tensor], Tensor], grid: Float64Array
) -> Float64Array:
    """The log-odds of ``E σ(ℓ(s + t(X)))``, ``X ~ N(0, 1)``, at each ``s`` of the grid."""
    panels = 16
    probe = grid[:: max(1, len(grid) // 101)]
    coarse = _expected_log_odds(inner, term, probe, panels)
    while panels < _MOST_PANELS:
        panels *= 2
        fine = _expected_log_odds(inner, term, probe, panels)
        change = np.abs(expit(fine) - expit(coarse)).max()
        if change < _TOLERANCE:
            return _expected_log_odds(inner, term, grid, panels // 2)
        coarse = fine
    raise RuntimeError(
        f"the quadrature of {term} has not converged with {panels} panels: it moves by {change:.1e}"
    )


def _expected_log_odds(
    inner: CubicSpline, term: Callable[[Tensor], Tensor], at: Float64Array, panels: int
) -> Float64Array:
    nodes, weights = _normal_quadrature(panels)
    log_weights = torch.from_numpy(weights)
    shift = term(torch.from_numpy(nodes)).numpy()
    result = np.empty_like(at)
    block = max(1, _BLOCK // len(nodes))
    for start in range(0, len(at), block):
        log_odds = torch.from_numpy(_continued(inner, at[start : start + block, None] + shift))
        log_one = torch.nn.functional.logsigmoid(log_odds) + log_weights
        log_zero = log_one - log_odds
        result[start : start + block] = log_one.logsumexp(-1) - log_zero.logsumexp(-1)
    return result


def _continued(spline: CubicSpline, at: Float64Array) -> Float64Array:
    low, high = spline.x[0], spline.x[-1]
    if at.min() >= low and at.max() <= high:
        return spline(at)
    inside = np.clip(at, low, high)
    slope = np.where(at > high, spline(high, 1), spline(low, 1))
    return spline(inside) + slope * (at - inside)


def _normal_quadrature(panels: int) -> tuple[Float64Array, Float64Array]:
    """Return nodes and log weights for N(0, 1): Gauss–Legendre on equal panels, one edge at 0."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES_PER_PANEL)
    edges = np.linspace(-_REACH, _REACH, panels + 1)
    half = _REACH / panels
    centres = edges[:-1, None] + half
    places = (centres + half * nodes).ravel()
    log_weights = (
        np.tile(np.log(half * weights), panels) - places**2 / 2 - math.log(2 * math.pi) / 2
    )
    return places, log_weights


class LabelOracle(Protocol):
    """The data's own distribution of a binary label given part of the features."""

    def probability(self, x: Tensor, masks: Tensor) -> Tensor:
        """`P(y = 1 | x_S)`, `(…, N)`, under masks `(…, N, D)`."""
        ...


@dataclass(frozen=True)
class OracleGap:
    """Where the nats go, a row: `total = oracle_truth − explainer`, with `standard_error` over the
    rows, is `selection = oracle_truth − oracle_own` (other features than the true ones are kept)
    and `prediction = oracle_own − explainer`; below 0 where the choice of features informs of y."""

    explainer: float
    oracle_truth: float
    oracle_own: float
    total: float
    selection: float
    prediction: float
    standard_error: float


def oracle_gap(
    masks: Tensor,
    oracle: LabelOracle,
    x: Tensor,
    y: Tensor,
    *,
    truth: Tensor,
    log_likelihood: Tensor,
) -> OracleGap:
    """Split the nats between an explainer and the data's own distribution, means over rows of

        explainer     log p_θ(y | x)
        oracle_own    log 1/L Σ_l p(y | x_{z_l})
        oracle_truth  log p(y | x_t),

    `z_l ~ p(z|x)` the explainer's mask draws `(L, N, D)`, t the truth `(N, D)`.
    """
    shape = shaped("x", x, "N D")
    check_binary("masks", masks, shape, draws=True)
    check_binary("truth", truth, shape)
    check_binary("y", y, (len(x),))
    if log_likelihood.shape != (len(x),) or bool(log_likelihood.isnan().any()):
        raise ValueError(
            f"log_likelihood must be nats, one value a row without NaN, shape ({len(x)},); it has "
            f"{tuple(log_likelihood.shape)}"
        )
    draws = masks.reshape(-1, *masks.shape[-2:])
    exact = x.double()

    def log_likely(rows: slice, mask: Tensor) -> Tensor:
        # In float64: a probability near 1 leaves digits for its other.
        p_yes = oracle.probability(exact[rows], mask.double())
        return torch.where(y[rows] == 1, p_yes, 1.0 - p_yes).log()

    by_mask_draws, best = [], []
    for rows in row_chunks(len(x), rows_at_once(x, len(draws))):
        of_draws = log_likely(rows, draws[:, rows])
        by_mask_draws.append(torch.logsumexp(of_draws, 0) - math.log(len(draws)))
        best.append(log_likely(rows, truth[rows]))
    explainer, best_of, own_of = log_likelihood.double(), torch.cat(best), torch.cat(by_mask_draws)
    total = best_of - explainer
    error = float(total.std()) / math.sqrt(len(x)) if len(x) > 1 else math.nan
    return OracleGap(
        explainer=float(explainer.mean()),
        oracle_truth=float(best_of.mean()),
        oracle_own=float(own_of.mean()),
        total=float(total.mean()),
        selection=float((best_of - own_of).mean()),
        prediction=float((own_of - explainer).mean()),
        standard_error=error,
    )


def oracle_gaps(
    result: FitResult,
    oracle: LabelOracle,
    x: Tensor,
    y: Tensor,
    *,
    truth: Tensor,
    masks: int = 100,
    imputations: int = 1,
    seed: int = 0,
    site: str = "mask",
) -> tuple[OracleGap, ...]:
    """:func:`oracle_gap` of each replicate of a fit, both parts from the same L draws of masks."""
    result.check(x, y)

    def read(runs: Iterator[ParticleTrace], _: slice) -> dict[str, Tensor]:
        (run,) = runs
        if site not in run.sites:
            raise ValueError(f"the program has no site {site!r}; it has {list(run.sites)}")
        drawn = torch.as_tensor(run.sites[site].value).movedim(0, 1)
        return {"masks": drawn, "likelihood": log_likelihood([run])}

    alone = replace(result, guides=[None] * result.replicates)
    values = read_runs(alone, (x, y), read, masks, imputations, seed)
    return tuple(
        oracle_gap(drawn.movedim(1, 0), oracle, x, y, truth=truth, log_likelihood=likelihood)
        for drawn, likelihood in zip(values["masks"], values["likelihood"], strict=True)
    )
