"""A VAEAC as a Pyro program and its guide."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule
from torch import Tensor, nn

from lexppl.configured import Configured
from lexppl.models.imputers.vaeac.features import (
    feature_distribution,
    latent_distribution,
    least_scale_of,
)

__all__ = ["VAEAC", "VAEACProposal", "seen_of"]


class VAEAC(Configured, PyroModule):
    r"""A variational autoencoder with arbitrary conditioning, as a program of rows:

        share ~ Uniform(0, 1)                 of the entries, kept
        z_g ~ Bernoulli(share)                mask entries, 1 where uniform noise is below share
        h ~ p(h | x ⊙ z, z)                   the prior: a network's normal distribution
        x_d ~ p(x_d | h, x ⊙ z, z)            hidden features only, independent of each other

    Its guide is :class:`VAEACProposal`, q(h | x, z), which draws masks by the same law, so that
    they cancel; the bound is, on average over masks,

        E_q[Σ_{d hidden} log p(x_d | h, x ⊙ z, z)] − KL(q(h | x, z) ‖ p(h | x ⊙ z, z)).

    An ordinary program of :func:`lexppl.fit`:

        fit(VAEAC(…), (x,), guide=VAEACProposal(…), objective=TraceMeanField_ELBO())

    and :func:`lexppl.systems.fit_vaeac` does that with networks of its own. What is fitted becomes
    an imputer by :class:`lexppl.models.VAEACImputer`.

    Args:
        prior: network from what is seen, `(N, 2D)` or `(N, 2 channels, H, W)`, the features with 0
            for hidden ones and the mask, to `(N, 2H)`.
        decoder: network from `(N, H)` and what is seen to as many outputs as are seen.
        grouping: from G mask entries to the features; one for each feature, or pixel, if None.
        features: "normal", or "pixels" for discretised logistics of values in [0, 1].
        least_scale: of the features' distribution; by its kind if None: 0.01, or half a step.

    Raises:
        ValueError: features that are none of these, a scale that is not above 0.

    Source: Ivanov, Figurnov, Vetrov. Variational autoencoder with arbitrary conditioning. ICLR
    2019, eq. 4-6, without the prior's regulariser (eq. 7), which is next to flat.

    Example:
        >>> from lexppl.models import MLP, TableDecoder
        >>> program = VAEAC(MLP(6, 4, (8,), seed=0), TableDecoder(2, 3, (8,), seed=1))
        >>> trace = pyro.poutine.trace(program).get_trace(torch.zeros(5, 3))
        >>> trace.nodes["h"]["value"].shape
        torch.Size([5, 2])
    """

    def __init__(
        self,
        prior: nn.Module,
        decoder: nn.Module,
        grouping: nn.Module | None = None,
        features: str = "normal",
        least_scale: float | None = None,
    ) -> None:
        super().__init__()
        self.least_scale = least_scale_of(features, least_scale)
        self.prior, self.decoder = prior, decoder
        self.grouping, self.features = grouping, features

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        with pyro.plate("data", len(x), dim=-1):
            keep = _masks(x, self.grouping)
            seen = seen_of(x, keep)
            h = pyro.sample("h", latent_distribution(self.prior(seen)))
            each = feature_distribution(self.decoder(h, seen), self.features, self.least_scale)
            hidden = dist.Independent(each.mask(keep == 0), x.ndim - 1)
            value: Tensor = pyro.sample("x_hidden", hidden, obs=x)
            return value


class VAEACProposal(Configured, PyroModule):
    """The guide of a :class:`VAEAC`, q(h | x, z), which sees the whole row.

    Args:
        proposal: network from all features and the mask, as the prior's, to `(N, 2H)`.
        grouping: as the program's.

    Example:
        >>> from lexppl.models import MLP
        >>> VAEACProposal(MLP(6, 4, (8,), seed=0))(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """

    def __init__(self, proposal: nn.Module, grouping: nn.Module | None = None) -> None:
        super().__init__()
        self.proposal, self.grouping = proposal, grouping

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        with pyro.plate("data", len(x), dim=-1):
            keep = _masks(x, self.grouping)
            outputs = self.proposal(torch.cat([x, keep], 1))
            h: Tensor = pyro.sample("h", latent_distribution(outputs))
            return h


def seen_of(x: Tensor, keep: Tensor) -> Tensor:
    """The features with 0 for hidden ones, and the mask beside them: `(N, 2D)` or
    `(N, 2 channels, H, W)`.

    Example:
        >>> seen_of(torch.tensor([[5.0, 6.0]]), torch.tensor([[1.0, 0.0]]))
        tensor([[5., 0., 1., 0.]])
    """
    return torch.cat([x * keep, keep], 1)


def _masks(x: Tensor, grouping: nn.Module | None) -> Tensor:
    """Masks of rows, drawn alike by the program and its guide: of the shape of `x`."""
    share = pyro.sample("share", _uniform(x.new_zeros(len(x))))
    if grouping is not None:
        shape: tuple[int, ...] = (int(grouping.entries),)  # type: ignore[arg-type]
    else:
        # All channels of a pixel share its entry.
        shape = (1, *x.shape[2:]) if x.ndim > 2 else tuple(x.shape[1:])
    # By uniform noise, which is reparameterised, as Pyro's mean-field objective asks of guides.
    noise = pyro.sample("noise", _uniform(x.new_zeros(len(x), *shape)).to_event(len(shape)))
    mask = (noise < share.reshape(-1, *(1 for _ in shape))).to(x.dtype)
    carried: Any = mask if grouping is None else grouping(mask)
    return carried.expand(x.shape)


def _uniform(low: Tensor) -> Any:
    return dist.Uniform(low, low + 1, validate_args=False)
