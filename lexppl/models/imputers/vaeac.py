"""VAEAC: hidden features by a latent variable; networks, program, guide and the fitted imputer."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistribution
from pyro.distributions.util import broadcast_shape
from pyro.nn import PyroModule
from torch import Tensor, nn
from torch.nn.functional import interpolate, silu, softplus

from lexppl.argument_checks import int_at_least, one_of
from lexppl.configured import Configured
from lexppl.models.imputers.imputer import HiddenFeatures, Imputer
from lexppl.models.imputers.logistics import STEPS, DiscretizedLogistic
from lexppl.models.networks import MLP

POOLED = 4  # Height and width to which an image's features are pooled before the latent variable


class TableDecoder(Configured, nn.Module):
    """From a latent variable `(N, H)` and what is seen of rows `(N, 2D)` to `(N, 2D)`."""

    def __init__(self, latent: int, features: int, hidden: Sequence[int] = (200, 200)) -> None:
        super().__init__()
        self.latent, self.features = latent, features
        self.hidden = tuple(hidden)
        self.network = MLP(latent + 2 * features, 2 * features, hidden, "silu")

    def forward(self, h: Tensor, seen: Tensor) -> Tensor:
        return self.network(torch.cat([h, seen], -1))


class ImageEncoder(Configured, nn.Module):
    """Convolutions that halve the image, then a linear layer on what is pooled to 4 × 4:
    `(N, channels, H, W)` to `(N, outputs)`."""

    def __init__(self, channels: int, outputs: int, widths: Sequence[int] = (32, 64)) -> None:
        super().__init__()
        self.channels, self.outputs = int_at_least("channels", channels), outputs
        self.widths = tuple(int_at_least("a width of widths", width) for width in widths)
        before = [channels, *self.widths]
        self.layers = nn.ModuleList(
            nn.Conv2d(a, b, 3, stride=2, padding=1)
            for a, b in zip(before, self.widths, strict=False)
        )
        self.last = nn.Linear(before[-1] * POOLED**2, outputs)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = silu(layer(x))
        return self.last(nn.functional.adaptive_avg_pool2d(x, POOLED).flatten(1))


class ImageDecoder(Configured, nn.Module):
    """From a latent variable `(N, H)`, enlarged from a coarse image, and what is seen of images
    `(N, 2 channels, H, W)` to `(N, 2 channels, H, W)`."""

    def __init__(self, latent: int, channels: int, width: int = 32) -> None:
        super().__init__()
        self.latent, self.channels = latent, channels
        self.width = int_at_least("width", width)
        self.first = nn.Linear(latent, width * POOLED**2)
        self.coarse = nn.Conv2d(width, width, 3, padding=1)
        self.seen = nn.Conv2d(2 * channels, width, 3, padding=1)
        self.joined = nn.Conv2d(2 * width, width, 3, padding=1)
        self.last = nn.Conv2d(width, 2 * channels, 3, padding=1)

    def forward(self, h: Tensor, seen: Tensor) -> Tensor:
        image = silu(self.first(h)).reshape(len(h), self.width, POOLED, POOLED)
        height, width = seen.shape[-2:]
        image = interpolate(image, (-(-height // 2), -(-width // 2)), mode="nearest")
        image = interpolate(silu(self.coarse(image)), (height, width), mode="nearest")
        joined = silu(self.joined(torch.cat([image, silu(self.seen(seen))], 1)))
        return self.last(joined)


LEAST_SCALES: Mapping[str, float] = MappingProxyType({"normal": 0.01, "pixels": 0.5 / STEPS})
"""Of the kinds of features, the least scale of their distribution."""

NUMBERS_AT_ONCE = 2**19
"""Most features that a network is given at once; its hidden layers hold a multiple of it."""


class VAEAC(Configured, PyroModule):
    """A variational autoencoder with arbitrary conditioning, as a program of rows:

        share ~ Uniform(0, 1)                 of the entries, kept
        z_g ~ Bernoulli(share)                mask entries
        h ~ p(h | x ⊙ z, z)                   the prior: a network's normal distribution
        x_d ~ p(x_d | h, x ⊙ z, z)            hidden features only, independent of each other

    Its guide :class:`VAEACProposal`, q(h | x, z), draws masks alike; the bound is, over masks,

        E_q[Σ_{d hidden} log p(x_d | h, x ⊙ z, z)] − KL(q(h | x, z) ‖ p(h | x ⊙ z, z)).

    It is fitted by `fit(VAEAC(…), (x,), guide=VAEACProposal(…), objective=TraceMeanField_ELBO())`,
    which :func:`lexppl.systems.fit_vaeac` does with networks of its own, and becomes a
    :class:`lexppl.models.VAEACImputer`.

    Args:
        prior: network from what is seen, `(N, 2D)` or `(N, 2 channels, H, W)`, the features with 0
            for hidden ones and the mask, to `(N, 2H)`.
        decoder: network from `(N, H)` and what is seen to as many outputs as are seen.
        grouping: from G mask entries to the features; one for each feature, or pixel, if None.
        features: "normal", or "pixels" for discretised logistics of values in [0, 1].

    Raises:
        ValueError: features that are none of these.

    Source: Ivanov, Figurnov, Vetrov. Variational autoencoder with arbitrary conditioning. ICLR
    2019, eq. 4-6, without the prior's regulariser (eq. 7).

    Example:
        >>> from lexppl.models.imputers.vaeac import TableDecoder
        >>> program = VAEAC(nn.Linear(6, 4), TableDecoder(2, 3, (8,)))
        >>> pyro.poutine.trace(program).get_trace(torch.zeros(5, 3)).nodes["h"]["value"].shape
        torch.Size([5, 2])
    """

    def __init__(
        self,
        prior: nn.Module,
        decoder: nn.Module,
        grouping: nn.Module | None = None,
        features: str = "normal",
    ) -> None:
        super().__init__()
        self.prior, self.decoder = prior, decoder
        self.grouping, self.features = grouping, known_kind(features)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        with pyro.plate("data", len(x), dim=-1):
            keep = _masks(x, self.grouping)
            seen = seen_of(x, keep)
            h = pyro.sample("h", latent_distribution(self.prior(seen)))
            features = feature_distribution(self.decoder(h, seen), self.features)
            hidden = dist.Independent(features.mask(keep == 0), x.ndim - 1)
            return pyro.sample("x_hidden", hidden, obs=x)


class VAEACProposal(Configured, PyroModule):
    """The guide of a :class:`VAEAC`, q(h | x, z), which sees the whole row.

    Args:
        proposal: network from all features and the mask, as the prior's, to `(N, 2H)`.
        grouping: as the program's.
    """

    def __init__(self, proposal: nn.Module, grouping: nn.Module | None = None) -> None:
        super().__init__()
        self.proposal, self.grouping = proposal, grouping

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        with pyro.plate("data", len(x), dim=-1):
            keep = _masks(x, self.grouping)
            outputs = self.proposal(torch.cat([x, keep], 1))
            return pyro.sample("h", latent_distribution(outputs))


def seen_of(x: Tensor, keep: Tensor) -> Tensor:
    """The features with 0 for hidden ones, and the mask: `(N, 2D)` or `(N, 2 channels, H, W)`."""
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
    return (mask if grouping is None else grouping(mask)).expand(x.shape)


def _uniform(low: Tensor) -> TorchDistribution:
    return dist.Uniform(low, low + 1, validate_args=False)


def latent_distribution(outputs: Tensor) -> TorchDistribution:
    """A normal distribution of means and scales `softplus + 1e-3`, of outputs `(…, 2H)`."""
    mean, raw = outputs.chunk(2, -1)
    return dist.Normal(mean, softplus(raw) + 1e-3, validate_args=False).to_event(1)


def feature_distribution(outputs: Tensor, kind: str) -> TorchDistribution:
    """Independent features of a decoder's outputs `(N, 2D)` or `(N, 2 channels, H, W)`."""
    location, raw = outputs.chunk(2, 1)
    scale = softplus(raw) + LEAST_SCALES[kind]
    if kind == "normal":
        return dist.Normal(location, scale, validate_args=False)
    return DiscretizedLogistic(location, scale, validate_args=False)


def known_kind(features: str) -> str:
    """The kind of the features, of those there are."""
    return str(one_of(LEAST_SCALES, "features", features))


class VAEACImputer(Imputer):
    """Hidden features by a variational autoencoder with arbitrary conditioning:

        h ~ p(h | x ⊙ z, z),    x̃_d ~ p(x_d | h, x ⊙ z, z)   for each hidden d.

    It is fitted beforehand (:func:`lexppl.systems.fit_vaeac`) and does not learn. A fractional
    `keep` goes into the networks as it is, and interpolates, with the gradient `x − u`, which is
    small where networks see what is kept: give an explainer of relaxed masks hard ones
    (`straight_through=True`), or an estimator of the score. There is no `log_prob`, which
    :meth:`log_likelihood_bound` bounds from below, and no mean.

    Args:
        prior, decoder, proposal: the networks of a :class:`VAEAC` and its guide; copied.
        event_shape: of a row, `(D,)` or `(channels, H, W)`.
        features: "normal" or "pixels", as the program's.

    Raises:
        ValueError: as :class:`VAEAC`.

    Source: Ivanov, Figurnov, Vetrov. ICLR 2019; an imputer of Senetaire et al. 2023, appendix B.

    Example:
        >>> from lexppl.models.imputers.vaeac import TableDecoder
        >>> imputer = VAEACImputer(nn.Linear(6, 4), TableDecoder(2, 3, (8,)), nn.Linear(6, 4), (3,))
        >>> imputer(torch.ones(5, 3), torch.tensor([1.0, 0.0, 1.0])).sample()[:, ::2].unique()
        tensor([1.])
    """

    def __init__(
        self,
        prior: nn.Module,
        decoder: nn.Module,
        proposal: nn.Module,
        event_shape: Sequence[int],
        features: str = "normal",
    ) -> None:
        super().__init__()
        self.features = known_kind(features)
        self.event_shape: torch.Size = torch.Size(event_shape)
        self.prior, self.decoder, self.proposal = (
            copy.deepcopy(network).requires_grad_(False) for network in (prior, decoder, proposal)
        )

    @classmethod
    def of(cls, result: Any, replicate: int = 0) -> VAEACImputer:
        """The imputer of a :func:`lexppl.fit` of a :class:`VAEAC` with its
        :class:`VAEACProposal`."""
        program, guide = result.models[replicate], result.guides[replicate]
        return cls(
            program.prior, program.decoder, guide.proposal, result.event_shape, program.features
        )

    @property
    def step(self) -> float | None:
        """The width of the steps of pixels, whose density is a probability over it."""
        return 1 / STEPS if self.features == "pixels" else None

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().config() | {"event_shape": list(self.event_shape)}

    def train(self, mode: bool = True) -> VAEACImputer:
        """The imputer itself, which stays in evaluation mode."""
        super().train(False)
        return self

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """Features by a latent variable, batch shape `(…, B)`."""
        event = len(self.event_shape)
        with torch.no_grad():
            keep = keep.to(x.dtype)
            batch = torch.Size(broadcast_shape(keep.shape[:-event], x.shape[:1]))
            rows = [t.expand(*batch, *self.event_shape).flatten(0, -event - 1) for t in (x, keep)]
            seen = seen_of(*rows)
            outputs = _in_parts(self.prior, seen)
        return LatentFeatures(
            self, seen.reshape(*batch, *seen.shape[1:]), outputs.reshape(*batch, -1)
        )

    def decode(self, h: Tensor, seen: Tensor) -> TorchDistribution:
        """The distribution of each feature, `(N, *event)`, given latent variables `(N, H)`."""
        return feature_distribution(self.decoder(h, seen), self.features)

    def log_likelihood_bound(self, x: Tensor, keep: Tensor, draws: int) -> Tensor:
        """A lower bound, on average, of log p(x_H | x_S), by m draws of the proposal, in nats,
        `(B,)`; of pixels the log of a probability:

            log (1/m) Σ_i p(h_i | x ⊙ z, z) Π_{d ∈ H} p(x_d | h_i, x ⊙ z, z) / q(h_i | x, z).

        Args:
            x: rows, `(B, *event)`.
            keep: boolean, of the same shape.
            draws: m; the bound grows with it.
        """
        self._check_input(x, keep)
        keep = keep.expand(x.shape).to(x.dtype)
        with torch.no_grad():
            seen = seen_of(x, keep)
            prior = latent_distribution(_in_parts(self.prior, seen))
            proposal = latent_distribution(_in_parts(self.proposal, torch.cat([x, keep], 1)))
            weights = []
            for _ in range(draws):
                h = proposal.sample()
                entries = self.decode(h, seen).log_prob(x)
                hidden = torch.where(keep == 0, entries, 0).flatten(1).sum(-1)
                weights.append(prior.log_prob(h) - proposal.log_prob(h) + hidden)
            return torch.stack(weights).logsumexp(0) - math.log(draws)


class LatentFeatures(HiddenFeatures):
    """The features of rows by a latent variable, in draws without gradients, of what is `seen` of
    them and the prior network's `outputs` `(…, B, 2H)`."""

    no_density = (
        "the density of a VAEAC is an integral over its latent variable; use the imputer's "
        "log_likelihood_bound(x, keep, draws)"
    )

    def __init__(self, imputer: VAEACImputer, seen: Tensor, outputs: Tensor) -> None:
        self._imputer, self._seen, self._outputs = imputer, seen, outputs
        event = imputer.event_shape
        super().__init__(outputs.shape[:-1], event, validate_args=False)

    @torch.no_grad()
    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws `(*sample_shape, …, B, *event)`, without gradients."""
        shape = torch.Size(sample_shape) + self.batch_shape
        prior = latent_distribution(self._outputs).base_dist
        mean = prior.loc
        noise = torch.randn(*shape, mean.shape[-1], dtype=mean.dtype, device=mean.device)
        h = (mean + prior.scale * noise).reshape(-1, mean.shape[-1])
        row = self._seen.shape[self._outputs.ndim - 1 :]
        seen = self._seen.expand(*shape, *row).reshape(-1, *row)
        size = max(1, NUMBERS_AT_ONCE // row.numel())
        parts = [
            self._imputer.decode(latent, seen_part).sample()
            for latent, seen_part in zip(h.split(size), seen.split(size), strict=True)
        ]
        return torch.cat(parts).reshape(shape + self.event_shape)


def _in_parts(network: nn.Module, rows: Tensor) -> Tensor:
    size = max(1, NUMBERS_AT_ONCE // rows[0].numel())
    return torch.cat([network(part) for part in rows.split(size)])
