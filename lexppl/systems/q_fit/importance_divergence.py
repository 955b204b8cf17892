"""How far apart the Dirichlet explanations of two models are."""

import pyro.distributions as dist
from torch import Tensor
from torch.distributions import kl_divergence


def importance_divergence(alpha: Tensor, other: Tensor, kind: str = "forward") -> Tensor:
    """How far apart two models' explanations are, by row, in nats: `(…, G)` to `(…,)`.

        forward:  KL(Dir(α) ‖ Dir(α'))        backward:  KL(Dir(α') ‖ Dir(α))
        bregman:  F(α) − F(α') − ⟨∇F(α'), α − α'⟩,  F(α) = Σ_g log Γ(α_g) − log Γ(Σ_g α_g),

    the last the Bregman divergence of the log-partition, which for this family is
    `KL(Dir(α') ‖ Dir(α))` again: it is computed on its own, as a check of both.

    Args:
        alpha: concentrations of the first model's explanations.
        other: of the second's.
        kind: "forward", "backward" or "bregman".

    Raises:
        ValueError: another kind, concentrations that are not positive, other sizes.

    Source: Adamczewski et al., § 4.3 (fairness and privacy).

    Example:
        >>> import torch
        >>> importance_divergence(torch.ones(3), torch.ones(3))
        tensor(0.)
    """
    for name, value in (("alpha", alpha), ("other", other)):
        if value.dim() < 1 or not bool((value > 0).all() and value.isfinite().all()):
            raise ValueError(f"{name} must hold positive concentrations, shape (…, G)")
    if alpha.shape[-1] != other.shape[-1]:
        raise ValueError(
            f"the explanations have {alpha.shape[-1]} and {other.shape[-1]} entries; they must "
            "have as many"
        )
    if kind == "forward":
        return kl_divergence(dist.Dirichlet(alpha), dist.Dirichlet(other))
    if kind == "backward":
        return kl_divergence(dist.Dirichlet(other), dist.Dirichlet(alpha))
    if kind == "bregman":
        slope = other.digamma() - other.sum(-1, keepdim=True).digamma()
        gap = ((alpha - other) * slope).sum(-1)
        return _log_partition(alpha) - _log_partition(other) - gap
    raise ValueError(f"kind must be 'forward', 'backward' or 'bregman'; it is {kind!r}")


def _log_partition(alpha: Tensor) -> Tensor:
    return alpha.lgamma().sum(-1) - alpha.sum(-1).lgamma()
