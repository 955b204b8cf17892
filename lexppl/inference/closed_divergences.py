"""KL divergences of global latents in closed form, where they are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor
from torch.distributions import kl_divergence

if TYPE_CHECKING:
    from lexppl.inference.program import Site


def closed_divergences(sites: Mapping[str, Site], guided: Mapping[str, Site]) -> dict[str, Tensor]:
    """`KL(q ‖ p)` of each latent outside the particle plates, scaled and summed, in nats.

    In place of `log q − log p` at a draw it has the same expectation and less noise. It has where
    guide and model sample these latents in the same order, so that what p depends on was drawn
    before; where the order differs, or no closed form is registered, a latent is left out.

    Args:
        sites: of the model's run, by name.
        guided: of the guide's.
    """
    shared = [
        n for n, q in guided.items() if n in sites and not (q.in_particles or sites[n].in_particles)
    ]
    if shared != [name for name in sites if name in set(shared)]:
        return {}
    found: dict[str, Tensor] = {}
    for name in shared:
        p, q = sites[name], guided[name]
        plain = all(m is None or m is True for m in (p.mask, q.mask))
        if not plain or isinstance(p.scale, Tensor) or p.scale != q.scale:
            continue
        try:
            found[name] = (p.scale * kl_divergence(q.law, p.law)).sum()
        except NotImplementedError:
            continue
    return found
