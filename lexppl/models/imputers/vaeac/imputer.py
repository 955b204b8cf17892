"""Hidden features drawn by a fitted VAEAC."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor, nn
from torch.distributions import constraints

from lexppl.models.imputers.imputer import Imputer
from lexppl.models.imputers.mixture.discretized_logistic import STEPS
from lexppl.models.imputers.vaeac.features import (
    feature_distribution,
    latent_distribution,
    least_scale_of,
)
from lexppl.models.imputers.vaeac.program import seen_of

__all__ = ["LatentFeatures", "VAEACImputer"]

NUMBERS_AT_ONCE = 2**19
"""Most features that a network is given at once; its hidden layers hold a multiple of it."""


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
        least_scale: as the program's.

    Raises:
        ValueError: as :class:`VAEAC`.

    Source: Ivanov, Figurnov, Vetrov. ICLR 2019; an imputer of Senetaire et al. 2023, appendix B.

    Example:
        >>> from lexppl.models import MLP, TableDecoder
        >>> prior, proposal = MLP(6, 4, (8,), seed=0), MLP(6, 4, (8,), seed=2)
        >>> imputer = VAEACImputer(prior, TableDecoder(2, 3, (8,), seed=1), proposal, (3,))
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
        least_scale: float | None = None,
    ) -> None:
        super().__init__()
        self.least_scale = least_scale_of(features, least_scale)
        self.features = features
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
            program.least_scale,
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
            batch = torch.broadcast_shapes(keep.shape[:-event], x.shape[:1])
            rows = [t.expand(*batch, *self._event_shape).flatten(0, -event - 1) for t in (x, keep)]
            seen = seen_of(*rows)
            outputs = _in_parts(self.prior, seen)
        return LatentFeatures(
            self, seen.reshape(*batch, *seen.shape[1:]), outputs.reshape(*batch, -1)
        )

    def decode(self, h: Tensor, seen: Tensor) -> Any:
        """The distribution of each feature, `(N, *event)`, given latent variables `(N, H)`."""
        return feature_distribution(self.decoder(h, seen), self.features, self.least_scale)

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


class LatentFeatures(TorchDistribution):
    """The features of rows by a latent variable, in draws without gradients.

    Args:
        imputer: whose networks they are.
        seen: what is seen of the rows, `(…, B, 2D)` or `(…, B, 2 channels, H, W)`.
        outputs: of the prior's network, `(…, B, 2H)`.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012
    has_rsample = True

    def __init__(self, imputer: VAEACImputer, seen: Tensor, outputs: Tensor) -> None:
        self._imputer, self._seen, self._outputs = imputer, seen, outputs
        event = imputer._event_shape
        super().__init__(outputs.shape[:-1], event, validate_args=False)

    def expand(
        self, batch_shape: torch.Size, _instance: LatentFeatures | None = None
    ) -> LatentFeatures:
        """The same distribution over more dimensions; the prior's network is not run again."""
        new = self._get_checked_instance(LatentFeatures, _instance)
        new._imputer, new._seen, new._outputs = self._imputer, self._seen, self._outputs
        super(LatentFeatures, new).__init__(
            torch.Size(batch_shape), self.event_shape, validate_args=False
        )
        return new

    @property
    def support(self) -> constraints.Constraint:
        """The reals, entry by entry."""
        return constraints.independent(constraints.real, len(self.event_shape))

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

    def log_prob_hidden(self, value: Tensor, hidden: Tensor) -> Tensor:
        """Not defined: the density is an integral.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "the density of a VAEAC is an integral over its latent variable; use the imputer's "
            "log_likelihood_bound(x, keep, draws)"
        )

    def log_prob(self, value: Tensor) -> Tensor:
        """Not defined, as :meth:`log_prob_hidden`.

        Raises:
            NotImplementedError: always.
        """
        return self.log_prob_hidden(value, torch.ones_like(value, dtype=torch.bool))


def _in_parts(network: nn.Module, rows: Tensor) -> Tensor:
    size = max(1, NUMBERS_AT_ONCE // rows[0].numel())
    return torch.cat([network(some) for some in rows.split(size)])
