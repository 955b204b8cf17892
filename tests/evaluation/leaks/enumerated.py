"""The encode-meter of a law of finitely many points, as a reference."""

import torch
from torch import Tensor


def enumerated_encode_meter(
    weights: Tensor, points: Tensor, labels: Tensor, masks: Tensor, selection: Tensor
) -> Tensor:
    r"""The encode-meter of a law of finitely many points, summed exactly, in nats.

        M = Σ_v Σ_x p(x) q(v | x) KL( p(y | x_v, E = v) ‖ p(y | x_v) )

    Args:
        weights: `p(x)` of the points, `(M,)`.
        points: x, `(M, D)`.
        labels: `p(y | x)`, `(M, C)`.
        masks: the masks v, 0 and 1, `(V, D)`.
        selection: `q(v | x)`, `(M, V)`.

    """
    joint = weights.double()[:, None] * labels.double()
    total = joint.new_zeros(())
    for mask, chosen in zip(masks, selection.double().T, strict=True):
        _, group = torch.unique(points * mask, dim=0, return_inverse=True)
        groups = int(group.max()) + 1
        plain = joint.new_zeros(groups, joint.shape[1]).index_add_(0, group, joint)
        told = torch.zeros_like(plain).index_add_(0, group, joint * chosen[:, None])
        mass = told.sum(1, keepdim=True)
        p, q = told / mass, plain / plain.sum(1, keepdim=True)
        each = torch.where((told > 0) & (mass > 0), told * (p / q).log(), 0.0)
        total = total + each.sum()
    return total
