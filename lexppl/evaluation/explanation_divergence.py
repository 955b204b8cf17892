"""How far the Dirichlet explanations of two models are apart, and how surely."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Dirichlet

from lexppl.inference.contexts import seeded
from lexppl.inference.training.result import FitResult
from lexppl.systems import importance_divergence

FEWEST = 3
"""Replicates: with one left out, two must be left that differ."""


@dataclass(frozen=True)
class ExplanationDivergence:
    """A divergence with its error over replicates, in nats: see :func:`explanation_divergence`.

    Args:
        nats: the mean over pairs of a replicate of each result.
        error: its standard error.
        noise: the same between different replicates of one result, the mean of both results'.
        excess: nats − noise, 0 on average where both explain the same model by the same rows.
        excess_error: its standard error.
    """

    nats: float
    error: float
    noise: float
    excess: float
    excess_error: float


def explanation_divergence(
    result: FitResult, other: FitResult, x: Tensor | None = None
) -> ExplanationDivergence:
    r"""How far the explanations of two models are apart, over replicates of both,

    .. math:: D = \frac{1}{RR'} \sum_{r,s} \mathrm{KL}(\mathrm{Dir}(α_r) ‖ \mathrm{Dir}(α'_s)),
              \qquad
              V = \tfrac12 \Big( \frac{\sum_{r≠s} \mathrm{KL}(α_r ‖ α_s)}{R(R-1)}
              + \frac{\sum_{r≠s} \mathrm{KL}(α'_r ‖ α'_s)}{R'(R'-1)} \Big),

    each KL in closed form. Two fits of one model are not 0 apart: V is how far seeds and rows alone
    put them, and D − V what the models add. Standard errors are the jackknife's over replicates of
    both. Give replicates that differ in what the statement is about: seeds alone
    (`fit(…, replicates=8)`), or rows too (`row_weights="dirichlet"`).

    Args:
        result: Q-FIT's explanation of the constrained model, R ≥ 3 replicates.
        other: of the unconstrained one, R' ≥ 3.
        x: rows `(N, D)`, over which a local explanation's KL is averaged; None for global ones.

    Returns:
        ExplanationDivergence: D, V and D − V, in nats.

    Raises:
        TypeError: an explanation that is no Dirichlet distribution.
        ValueError: fewer than three replicates; entries of other numbers; x left out where
            explanations are by row.

    Source: Adamczewski et al., § 4.3 (fairness and privacy); Efron & Stein (1981), "The jackknife
    estimate of variance".

    Example:
        >>> from lexppl.inference import fit
        >>> from lexppl.models.predictor import table_predictor
        >>> from lexppl.systems import q_fit
        >>> rows = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
        >>> data = (rows, (rows[:, 0] > 0).long())
        >>> system = q_fit(2, table_predictor(2, 2, (4,)), scope="global")
        >>> result = fit(system, data, epochs=2, replicates=3, progress=False)
        >>> abs(explanation_divergence(result, result).excess) < 1.0
        True
    """
    first, second = concentrations(result, x), concentrations(other, x)
    for name, alpha in (("result", first), ("other", second)):
        if len(alpha) < FEWEST:
            raise ValueError(
                f"{name} has {len(alpha)} replicate(s); give {FEWEST} or more: fit(replicates=8)"
            )
    between, within, others = _pairs(first, second), _pairs(first, first), _pairs(second, second)

    def statistics(pairs: Tensor, own: Tensor, own_of_other: Tensor) -> Tensor:
        """D and D − V of pairs of replicates, `(2,)`."""
        return torch.stack([pairs.mean(), pairs.mean() - _noise(own, own_of_other)])

    rows = [[i for i in range(len(first)) if i != out] for out in range(len(first))]
    columns = [[j for j in range(len(second)) if j != out] for out in range(len(second))]
    by_first = [statistics(between[kept], within[kept][:, kept], others) for kept in rows]
    by_second = [statistics(between[:, kept], within, others[kept][:, kept]) for kept in columns]
    errors = (_jackknife(torch.stack(by_first)) + _jackknife(torch.stack(by_second))).sqrt()
    nats, excess = statistics(between, within, others).tolist()
    noise = float(_noise(within, others))
    return ExplanationDivergence(nats, float(errors[0]), noise, excess, float(errors[1]))


@torch.no_grad()
def concentrations(result: FitResult, x: Tensor | None = None) -> Tensor:
    """α of each replicate: `(R, G)` of a global explanation, `(R, N, G)` of a local one at x.

    Args:
        result: a fit of :func:`lexppl.systems.q_fit`.
        x: rows `(N, D)`; read by local explanations alone.

    Raises:
        TypeError, ValueError: as :func:`explanation_divergence`.
    """
    found = []
    for model, guide in zip(result.models, result.guides, strict=True):
        distribution: Any = getattr(guide, "distribution", None)
        if distribution is None and hasattr(model, "selector"):
            if x is None:
                raise ValueError(
                    "an explanation by row needs x, the rows over which its divergence is averaged"
                )
            result.check(x)
            with seeded(0):
                distribution = model.selector(x)
        if not isinstance(distribution, Dirichlet):
            raise TypeError(
                "the divergence is of Dirichlet explanations, such as q_fit's; the result of "
                f"{type(model).__name__} states {type(distribution).__name__}"
            )
        found.append(distribution.concentration.double())
    return torch.stack(found)


def _pairs(first: Tensor, second: Tensor) -> Tensor:
    """KL of each pair of replicates, `(R, R')`, the mean over rows where there are rows."""
    nats = importance_divergence(first[:, None], second[None])
    return nats if nats.dim() == 2 else nats.mean(-1)


def _noise(*own: Tensor) -> Tensor:
    """Mean KL between different replicates of one result, averaged over the results."""
    each = [pairs.sum() / (len(pairs) * (len(pairs) - 1)) for pairs in own]
    return torch.stack(each).mean()


def _jackknife(values: Tensor) -> Tensor:
    """The variance of estimates from their values `(R, …)` without one replicate each."""
    count = len(values)
    return (count - 1) / count * (values - values.mean(0)).square().sum(0)
