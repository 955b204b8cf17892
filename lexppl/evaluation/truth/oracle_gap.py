"""Nats between a fitted explainer and the data's own distribution, split by the part to blame."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lexppl.evaluation.prediction import check_binary, mean_weight
from lexppl.inference.predictive import FittedProgram, drawing, row_chunks, rows_at_once
from lexppl.inference.training.result import FitResult


class LabelOracle(Protocol):
    """The data's own distribution of a binary label given part of the features."""

    def probability(self, x: Tensor, masks: Tensor) -> Tensor:
        """`P(y = 1 | x_S)`, `(…, N)`, under masks `(…, N, D)`."""
        ...


@dataclass(frozen=True)
class OracleGap:
    """Where the nats go, a row: `total = selection + prediction`.

    Args:
        explainer: held-out log-likelihood of the explainer, `1/N Σ_n log p(y_n | x_n)`.
        oracle_truth: that of the data's distribution given the truly relevant features.
        oracle_own: that of the data's distribution given what the explainer's own masks keep.
        total: `oracle_truth − explainer`.
        selection: `oracle_truth − oracle_own`, lost by keeping other features than the true ones,
            whatever the predictor.
        prediction: `oracle_own − explainer`, lost by the predictor (and the imputer) on the
            features that were kept. Below 0 where the explainer does better than the distribution
            on the same masks: its choice of features then has information on y that they lack.
        standard_error: of `total`, over the rows.
    """

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
    r"""Split the nats between an explainer and the data's own distribution into two.

    With the explainer's mask draws `z_l ~ p(z|x)`, its predictive `p_θ(y|x)`, the truth mask `t`
    and the data's distribution `p(y|x_S)`, mean over rows of

        explainer     log p_θ(y | x)
        oracle_own    log 1/L Σ_l p(y | x_{z_l})
        oracle_truth  log p(y | x_t).

    The first two should come from the same draws (:func:`oracle_gaps` sees to it), so that their
    errors of order 1/L are alike.

    Args:
        masks: draws of 0 and 1 from the explainer's distribution given x alone, `(L, N, D)`, or
            `(N, D)`. Draws from p(z | x, y) have seen the label and would flatter it.
        oracle: the data's distribution, such as :class:`lexppl.evaluation.truth.oracle.Oracle`.
        x: held-out rows, `(N, D)`.
        y: their labels 0 and 1, `(N,)`.
        truth: the truly relevant features, `(N, D)`, such as `data.truth`.
        log_likelihood: the explainer's `log p_θ(y | x)` of each row in nats, `(N,)`, such as one
            replicate's of :func:`lexppl.evaluation.prediction.predictive_log_likelihood`.

    Raises:
        ValueError: shapes that do not fit, no rows or draws, values other than 0 and 1, a
            log-likelihood that is NaN.

    Example:
        >>> from lexppl.data import synthetic
        >>> from lexppl.evaluation.truth.oracle import Oracle
        >>> data, oracle = synthetic("S1", rows=500, seed=0), Oracle("S1")
        >>> blind = torch.full((500,), 0.5).log()
        >>> gap = oracle_gap(data.truth, oracle, data.x, data.y, truth=data.truth,
        ...     log_likelihood=blind)
        >>> gap.selection, round(gap.total, 3), round(gap.prediction, 3)
        (0.0, 0.177, 0.177)
    """
    if x.dim() != 2:
        raise ValueError(f"x must have shape (N, D); it has {tuple(x.shape)}")
    check_binary("masks", masks, tuple(x.shape), draws=True)
    check_binary("truth", truth, tuple(x.shape))
    check_binary("y", y, (len(x),))
    if log_likelihood.shape != (len(x),) or bool(log_likelihood.isnan().any()):
        raise ValueError(
            f"log_likelihood must be nats, one value a row without NaN, shape ({len(x)},); it has "
            f"{tuple(log_likelihood.shape)}"
        )
    draws = masks.reshape(-1, *masks.shape[-2:])
    exact = x.double()

    def log_likely(rows: slice, kept: Tensor) -> Tensor:
        # In float64: a probability near 1 leaves digits for its other.
        one = oracle.probability(exact[rows], kept.double())
        return torch.where(y[rows] == 1, one, 1.0 - one).log()

    own, best = [], []
    for rows in row_chunks(len(x), rows_at_once(x, len(draws))):
        each = log_likely(rows, draws[:, rows])
        own.append(torch.logsumexp(each, 0) - math.log(len(draws)))
        best.append(log_likely(rows, truth[rows]))
    parts = {
        "explainer": log_likelihood.double(),
        "oracle_truth": torch.cat(best),
        "oracle_own": torch.cat(own),
    }
    parts["total"] = parts["oracle_truth"] - parts["explainer"]
    parts["selection"] = parts["oracle_truth"] - parts["oracle_own"]
    parts["prediction"] = parts["oracle_own"] - parts["explainer"]
    means = {name: float(values.mean()) for name, values in parts.items()}
    error = float(parts["total"].std()) / math.sqrt(len(x)) if len(x) > 1 else math.nan
    return OracleGap(**means, standard_error=error)


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
    """:func:`oracle_gap` of each replicate of a fit, with masks drawn here.

    Args:
        result: of :func:`lexppl.inference.fit`.
        oracle: the data's distribution.
        x: held-out rows, `(N, D)`.
        y: their labels 0 and 1, `(N,)`.
        truth: the truly relevant features, `(N, D)`.
        masks: L draws a row; the same ones give the explainer's log-likelihood and the oracle's.
        imputations: K.
        seed: of the draws.
        site: name of the program's mask.

    Raises:
        ValueError: as :func:`oracle_gap`; rows unlike those of the fit, a program without the
            site.

    Example:
        >>> from lexppl.data import synthetic
        >>> from lexppl.evaluation.truth.oracle import Oracle
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> data = synthetic("S1", rows=200, seed=0)
        >>> result = fit(lex(11, classes=2, k=5, hidden=(8,)), data, epochs=1, progress=False)
        >>> (gap,) = oracle_gaps(result, Oracle("S1"), data.x, data.y, truth=data.truth, masks=10)
        >>> abs(gap.total - gap.selection - gap.prediction) < 1e-9
        True
    """
    result.check(x, y)
    chunk = rows_at_once(x, masks * imputations)
    gaps = []
    for model in result.models:
        drawn, likelihoods = [], []
        with drawing(seed, x.device):
            program = FittedProgram(model, None, (x[:1], y[:1]), masks)
            for rows, labels in zip(x.split(chunk), y.split(chunk), strict=True):
                ((run, _),) = program.runs((rows, labels), imputations)
                if site not in run.sites:
                    raise ValueError(
                        f"the program has no mask site {site!r}; it has {list(run.sites)}"
                    )
                drawn.append(torch.as_tensor(run.sites[site].value))
                likelihoods.append(mean_weight(run))
        found, likelihood = torch.cat(drawn, 1), torch.cat(likelihoods)
        gaps.append(oracle_gap(found, oracle, x, y, truth=truth, log_likelihood=likelihood))
    return tuple(gaps)
