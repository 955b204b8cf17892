"""How far the Dirichlet explanations of two models are apart, and how surely."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Dirichlet

from lexppl.inference.contexts import seeded
from lexppl.inference.training.result import FitResult
from lexppl.systems.q_fit import importance_divergence

FEWEST = 3  # Replicates: with one left out, two must be left that differ


@dataclass(frozen=True)
class ExplanationDivergence:
    """A divergence in nats with its `error`, that between replicates of one result, `noise`, and
    `excess = nats − noise`, 0 on average for one model and data, with its `excess_error`."""

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

    each KL in closed form. V is how far seeds and rows alone put two fits of one model apart, and
    D − V what the models add. Standard errors are the jackknife's over replicates of both, which
    must differ in what the statement is about: seeds, or rows too (`row_weights="dirichlet"`).

    Args:
        result, other: Q-FIT's explanations of both models, of R and R' ≥ 3 replicates.
        x: rows `(N, D)`, over which a local explanation's KL is averaged; None for global ones.

    Raises:
        TypeError: an explanation that is no Dirichlet distribution.
        ValueError: fewer than three replicates; entries of other numbers; x left out where
            explanations are by row.

    Source: Adamczewski et al., § 4.3; Efron & Stein (1981), "The jackknife estimate of variance".

    Example:
        >>> from lexppl.inference import fit
        >>> from lexppl.models.predictor import table_predictor
        >>> from lexppl.systems import q_fit
        >>> rows = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
        >>> system = q_fit(2, table_predictor(2, 2, (4,)), scope="global")
        >>> data = (rows, (rows[:, 0] > 0).long())
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
    pairs = ((first, second), (first, first), (second, second))
    # KL of each pair of replicates, the mean over rows where there are rows.
    between, own, own_of_other = (
        nats if nats.dim() == 2 else nats.mean(-1)
        for nats in (importance_divergence(a[:, None], b[None]) for a, b in pairs)
    )

    def statistics(rows: list[int], columns: list[int]) -> Tensor:
        """D, V and D − V of some replicates of both."""
        kept = own[rows][:, rows], own_of_other[columns][:, columns]
        each = [one.sum() / (len(one) * (len(one) - 1)) for one in kept]
        nats, noise = between[rows][:, columns].mean(), torch.stack(each).mean()
        return torch.stack([nats, noise, nats - noise])

    every, others = list(range(len(first))), list(range(len(second)))
    variance = torch.zeros(3, dtype=torch.float64)
    for count, left_out in (
        (len(first), [statistics([i for i in every if i != out], others) for out in every]),
        (len(second), [statistics(every, [j for j in others if j != out]) for out in others]),
    ):
        values = torch.stack(left_out)
        variance += (count - 1) / count * (values - values.mean(0)).square().sum(0).cpu()
    (nats, noise, excess), errors = statistics(every, others).tolist(), variance.sqrt().tolist()
    return ExplanationDivergence(nats, errors[0], noise, excess, errors[2])


@torch.no_grad()
def concentrations(result: FitResult, x: Tensor | None = None) -> Tensor:
    """α of each replicate: `(R, G)` of a global explanation, `(R, N, G)` of a local one at x."""
    found = []
    for model, guide in zip(result.models, result.guides, strict=True):
        distribution: Any = getattr(guide, "distribution", None)
        if distribution is None and hasattr(model, "selector"):
            if x is None:
                raise ValueError("an explanation by row needs x, the rows to average over")
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
