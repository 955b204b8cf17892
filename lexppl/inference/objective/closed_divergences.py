"""KL divergences of global latents in closed form, where the guide asks for it."""

from collections.abc import Mapping

from torch import Tensor
from torch.distributions import kl_divergence

from lexppl.inference.objective.site import Site

CLOSED_KL = "closed_kl"
"""The key of a guide site's `infer` that asks for it."""


def closed_divergences(sites: Mapping[str, Site], guided: Mapping[str, Site]) -> dict[str, Tensor]:
    """`KL(q ‖ p)` of each global latent whose guide site says `infer={"closed_kl": True}`.

    It takes the place of `log q − log p` at a draw: the same expectation, and less noise while the
    guide is far from the posterior (at the posterior itself the draw's own terms have none).

    Args:
        sites: of the model's run, by name.
        guided: of the guide's.

    Returns:
        by site, scaled and summed, in nats.

    Raises:
        ValueError: a latent within the particle plates, no registered closed form, scales or masks
            that differ, or a guide whose global latents are in another order than the model's (p
            must depend on none that q draws later).
    """
    closed = [name for name, q in guided.items() if q.infer.get(CLOSED_KL, False)]
    if not closed:
        return {}
    shared = [name for name, q in guided.items() if name in sites and not q.in_particles]
    if shared != [name for name in sites if name in set(shared)]:
        raise ValueError(
            f"closed_kl needs the guide's global latents, {shared}, in the model's order"
        )
    found: dict[str, Tensor] = {}
    for name in closed:
        if name not in shared:
            raise ValueError(
                f"closed_kl is for latents outside mask_particles(); {name!r} is inside, where "
                "penalty() with a KL does it"
            )
        p, q = sites[name], guided[name]
        plain = all(m is None or m is True for m in (p.mask, q.mask))
        if not plain or isinstance(p.scale, Tensor) or p.scale != q.scale:
            raise ValueError(f"closed_kl needs one scale and no mask for {name!r} in both programs")
        try:
            found[name] = (p.scale * kl_divergence(q.distribution, p.distribution)).sum()
        except NotImplementedError as error:
            raise ValueError(
                f"no closed form is registered for KL({type(q.distribution).__name__} ‖ "
                f"{type(p.distribution).__name__}) of {name!r}; leave out closed_kl"
            ) from error
    return found
