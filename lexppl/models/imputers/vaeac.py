"""VAEAC: hidden features by a latent variable; its program, its guide and the fitted imputer."""

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
from torch.nn.functional import softplus

from lexppl.configured import Configured
from lexppl.models.imputers.imputed import HiddenFeatures
from lexppl.models.imputers.imputer import Imputer
from lexppl.models.imputers.logistics import STEPS, DiscretizedLogistic

LEAST_SCALES: Mapping[str, float] = MappingProxyType({"normal": 0.01, "pixels": 0.5 / STEPS})
"""Of the kinds of features, the least scale of their distribution."""

NUMBERS_AT_ONCE = 2**19
"""Most features that a network is given at once; its hidden layers hold a multiple of it."""


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

    Raises:
        ValueError: features that are none of these.

    Source: Ivanov, Figurnov, Vetrov. Variational autoencoder with arbitrary conditioning. ICLR
    2019, eq. 4-6, without the prior's regulariser (eq. 7), which is next to flat.

    Example:
        >>> from lexppl.models import MLP
        >>> from lexppl.models.imputers.vaeac_networks import TableDecoder
        >>> program = VAEAC(MLP(6, 4, (8,), seed=0), TableDecoder(2, 3, (8,)))
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
    ) -> None:
        super().__init__()
        self.prior, self.decoder = prior, decoder
        self.grouping, self.features = grouping, known_kind(features)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        with pyro.plate("data", len(x), dim=-1):
            keep = _masks(x, self.grouping)
            seen = seen_of(x, keep)
            h = pyro.sample("h", latent_distribution(self.prior(seen)))
            each = feature_distribution(self.decoder(h, seen), self.features)
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


def latent_distribution(outputs: Tensor) -> Any:
    """A normal distribution of the latent variable: means, and scales `softplus + 1e-3`.

    Args:
        outputs: of a network, `(…, 2H)`.

    Example:
        >>> latent_distribution(torch.zeros(5, 6)).event_shape
        torch.Size([3])
    """
    mean, raw = outputs.chunk(2, -1)
    return dist.Normal(mean, softplus(raw) + 1e-3, validate_args=False).to_event(1)


def feature_distribution(outputs: Tensor, kind: str) -> Any:
    """Independent features, without an event dimension.

    Args:
        outputs: of a decoder, `(N, 2D)` or `(N, 2 channels, H, W)`.
        kind: "normal", or "pixels" for discretised logistics.

    Example:
        >>> feature_distribution(torch.zeros(5, 2, 4, 4), "pixels").batch_shape
        torch.Size([5, 1, 4, 4])
    """
    location, raw = outputs.chunk(2, 1)
    scale = softplus(raw) + LEAST_SCALES[kind]
    if kind == "normal":
        return dist.Normal(location, scale, validate_args=False)
    return DiscretizedLogistic(location, scale, validate_args=False)


def known_kind(features: str) -> str:
    """The kind of the features, of those there are.

    Raises:
        ValueError: a kind that is none.

    Example:
        >>> known_kind("normal")
        'normal'
    """
    if features not in LEAST_SCALES:
        raise ValueError(f"features must be one of {list(LEAST_SCALES)}; it is {features!r}")
    return features


class VAEACImputer(Imputer):
    """Hidden features by a variational autoencoder with arbitrary conditioning:

        h ~ p(h | x ⊙ z, z),    x̃_d ~ p(x_d | h, x ⊙ z, z)   for each hidden d.

    It is fitted beforehand (:func:`lexppl.systems.fit_vaeac`) and does not learn: its networks get
    no gradient, and draws have none in `x` or in the mask but that of the interpolation, `x − u`.
    A fractional `keep` goes into the networks as it is, and interpolates; entries that are wholly
    kept are drawn too, where a gradient in the mask wants what would stand against them, by
    networks that see them. That makes `x − u` small there: give an explainer of relaxed masks hard
    ones (`straight_through=True`), or an estimator of the score.

    The density of hidden features is an integral over h. It is bounded from below by
    :meth:`log_likelihood_bound`; there is no `log_prob`, nor a mean in closed form.

    Args:
        prior, decoder, proposal: the networks of a :class:`VAEAC` and its guide; copied.
        event_shape: of a row, `(D,)` or `(channels, H, W)`.
        features: "normal" or "pixels", as the program's.

    Raises:
        ValueError: as :class:`VAEAC`.

    Source: Ivanov, Figurnov, Vetrov. ICLR 2019; an imputer of Senetaire et al. 2023, appendix B.

    Example:
        >>> from lexppl.models import MLP
        >>> from lexppl.models.imputers.vaeac_networks import TableDecoder
        >>> prior, proposal = MLP(6, 4, (8,), seed=0), MLP(6, 4, (8,), seed=2)
        >>> imputer = VAEACImputer(prior, TableDecoder(2, 3, (8,)), proposal, (3,))
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
        self._event_shape = torch.Size(event_shape)
        self.prior, self.decoder, self.proposal = (
            copy.deepcopy(network).requires_grad_(False) for network in (prior, decoder, proposal)
        )

    @classmethod
    def of(cls, result: Any, replicate: int = 0) -> VAEACImputer:
        """The imputer of a fit of a :class:`VAEAC` with its :class:`VAEACProposal`.

        Args:
            result: of :func:`lexppl.fit`.
            replicate: which one's.
        """
        program, guide = result.models[replicate], result.guides[replicate]
        return cls(
            program.prior,
            program.decoder,
            guide.proposal,
            result.event_shape,
            program.features,
        )

    @property
    def event_shape(self) -> torch.Size | None:
        """The shape of one row."""
        return self._event_shape

    @property
    def step(self) -> float | None:
        """The width of the steps of pixels, whose density is a probability over it."""
        return 1 / STEPS if self.features == "pixels" else None

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().config() | {"event_shape": list(self._event_shape)}

    def train(self, mode: bool = True) -> VAEACImputer:
        """Stay in evaluation mode."""
        super().train(False)
        return self

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """Features by a latent variable, batch shape `(…, B)`."""
        event = len(self._event_shape)
        with torch.no_grad():
            keep = keep.to(x.dtype)
            batch = torch.Size(broadcast_shape(keep.shape[:-event], x.shape[:1]))
            rows = [t.expand(*batch, *self._event_shape).flatten(0, -event - 1) for t in (x, keep)]
            seen = seen_of(*rows)
            outputs = _in_parts(self.prior, seen)
        return LatentFeatures(
            self, seen.reshape(*batch, *seen.shape[1:]), outputs.reshape(*batch, -1)
        )

    def decode(self, h: Tensor, seen: Tensor) -> Any:
        """The distribution of each feature, `(N, *event)`, given latent variables `(N, H)`."""
        return feature_distribution(self.decoder(h, seen), self.features)

    def log_likelihood_bound(self, x: Tensor, keep: Tensor, draws: int) -> Tensor:
        r"""A lower bound, on average, of log p(x_H | x_S), by draws of the proposal:

            log (1/m) Σ_i p(h_i | x ⊙ z, z) Π_{d ∈ H} p(x_d | h_i, x ⊙ z, z) / q(h_i | x, z).

        Args:
            x: rows, `(B, *event)`.
            keep: boolean, of the same shape.
            draws: m; the bound grows with it.

        Returns:
            shape `(B,)`, in nats; of pixels the log of a probability.
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
                each = self.decode(h, seen).log_prob(x)
                hidden = torch.where(keep == 0, each, 0).flatten(1).sum(-1)
                weights.append(prior.log_prob(h) - proposal.log_prob(h) + hidden)
            return torch.stack(weights).logsumexp(0) - math.log(draws)


class LatentFeatures(HiddenFeatures):
    """The features of rows by a latent variable, in draws without gradients.

    Args:
        imputer: whose networks they are.
        seen: what is seen of the rows, `(…, B, 2D)` or `(…, B, 2 channels, H, W)`.
        outputs: of the prior's network, `(…, B, 2H)`.
    """

    no_density = (
        "the density of a VAEAC is an integral over its latent variable; use the imputer's "
        "log_likelihood_bound(x, keep, draws)"
    )

    def __init__(self, imputer: VAEACImputer, seen: Tensor, outputs: Tensor) -> None:
        self._imputer, self._seen, self._outputs = imputer, seen, outputs
        event = imputer._event_shape
        super().__init__(outputs.shape[:-1], event, validate_args=False)

    @torch.no_grad()
    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws of shape `(*sample_shape, …, B, *event)`, without gradients."""
        shape = torch.Size(sample_shape) + self.batch_shape
        prior = latent_distribution(self._outputs).base_dist
        mean = prior.loc
        noise = torch.randn(*shape, mean.shape[-1], dtype=mean.dtype, device=mean.device)
        h = (mean + prior.scale * noise).reshape(-1, mean.shape[-1])
        own = self._seen.shape[self._outputs.ndim - 1 :]
        seen = self._seen.expand(*shape, *own).reshape(-1, *own)
        size = max(1, NUMBERS_AT_ONCE // own.numel())
        parts = [
            self._imputer.decode(latent, some).sample()
            for latent, some in zip(h.split(size), seen.split(size), strict=True)
        ]
        return torch.cat(parts).reshape(shape + self.event_shape)


def _in_parts(network: nn.Module, rows: Tensor) -> Tensor:
    size = max(1, NUMBERS_AT_ONCE // rows[0].numel())
    return torch.cat([network(some) for some in rows.split(size)])
