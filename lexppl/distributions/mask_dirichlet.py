"""A Dirichlet distribution whose draws hold at small concentrations and in replicates."""

from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor


class MaskDirichlet(dist.Dirichlet):
    r"""Dirichlet(α) over the shares of G entries, drawn in logarithms.

    .. math:: f = \mathrm{softmax}(\log \gamma + \log u / \alpha), \qquad
              \gamma_g \sim \Gamma(\alpha_g + 1), \; u_g \sim U(0, 1),

    since :math:`\gamma u^{1/\alpha} \sim \Gamma(\alpha)`. torch's own draws divide Gamma variates
    that underflow together where all α are small (a prior of 0.01), and cannot be vectorised by
    `torch.func.vmap`. Draws are reparameterised; density, moments, entropy and KL are torch's.

    Args:
        concentration: α > 0, ``(*batch, G)``.

    Source: Marsaglia and Tsang (2000), "A simple method for generating Gamma variables", § 6.

    Example:
        >>> draws = MaskDirichlet(torch.full((3,), 0.01)).rsample((1000,))
        >>> bool(draws.isfinite().all()), bool(((draws.sum(-1) - 1).abs() < 1e-5).all())
        (True, True)
    """

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(MaskDirichlet, _instance)
        return super().expand(batch_shape, new)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Reparameterised draws, ``sample_shape + batch_shape + (G,)``."""
        # Draws fill memory in its order: those of a seed shall not depend on the layout.
        concentration = self.concentration.contiguous().expand(self._extended_shape(sample_shape))
        tiny = torch.finfo(concentration.dtype).tiny
        gamma = torch._standard_gamma(concentration + 1.0).clamp(min=tiny)
        uniform = torch.rand_like(concentration).clamp(min=tiny)
        return torch.softmax(gamma.log() + uniform.log() / concentration, -1)
