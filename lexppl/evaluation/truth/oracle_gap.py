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
    """Split the nats between an explainer and the data's own distribution into two, means over rows
    of

        explainer     log p_θ(y | x)
        oracle_own    log 1/L Σ_l p(y | x_{z_l})
        oracle_truth  log p(y | x_t),

    `z_l ~ p(z|x)` the explainer's mask draws `(L, N, D)`, t the truth `(N, D)`.
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
    """:func:`oracle_gap` of each replicate of a fit, both parts from the same L draws of masks."""
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
