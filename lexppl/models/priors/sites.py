"""Selectors of several sites that differ, and have something in common."""

import pyro.distributions as dist
import torch
from pyro.infer.util import is_validation_enabled
from pyro.nn import PyroModule, PyroSample
from torch import Tensor, nn

from lexppl.argument_checks import finite_float, int_at_least, int_between
from lexppl.configured import Configured


class SiteOffsets(Configured, PyroModule):
    r"""A selector's network with offsets of sites (hospitals, schools, batches), partially pooled:

    .. math:: \tau \sim \mathrm{HalfNormal}(s), \quad \epsilon_{jg} \sim \mathcal N(0, 1), \qquad
        f_{\text{all}}(x_n)_g + \tau \, \epsilon_{j(n), g} .

    The offsets, in log-odds, say how the sites differ in what matters there; τ near 0 says that
    they do not. Non-centred, so that few rows a site do no harm to a sampler. The site's number is
    a column of x, which the network is not given; where the predictor is not to see it either, a
    :class:`lexppl.models.Grouping` leaves it to an entry of its own.

    Sites: `spread` () and `effect` `(J, G)`, in no plate: one value for all rows.

    Args:
        network: from the other columns `(B, D − 1)` to logits `(B, G)`.
        sites: J.
        outputs: G.
        column: which column of x has the sites' numbers 0, …, J − 1.
        scale: s of τ, in log-odds, above 0.

    Raises:
        ValueError: numbers out of range; when used, rows without that column, or with other numbers
            of sites (looked at where Pyro validates, as in the first step of a fit).

    References:
        Gelman & Hill (2007), "Data analysis using regression and multilevel/hierarchical models",
        ch. 13. Papaspiliopoulos, Roberts & Sköld (2007), "A general framework for the
        parametrization of hierarchical models", Statistical Science 22, for the non-centred form.

    Example:
        >>> from lexppl.models import MLP
        >>> network = SiteOffsets(MLP(2, 3, (4,), seed=0), sites=5, outputs=3, column=0)
        >>> with torch.random.fork_rng():
        ...     network(torch.tensor([[0.0, 1.0, 2.0], [4.0, 1.0, 2.0]])).shape
        torch.Size([2, 3])
    """

    def __init__(
        self, network: nn.Module, sites: int, outputs: int, column: int = 0, scale: float = 1.0
    ) -> None:
        super().__init__()
        self.network = network
        self.sites = int_at_least("sites", sites)
        self.outputs = int_at_least("outputs", outputs)
        self.column = int_at_least("column", column, 0)
        self.scale = finite_float("scale", scale, above=0.0)
        self.register_buffer("_one", torch.ones(()))
        self.spread = PyroSample(_spread)
        self.effect = PyroSample(_effect)

    def forward(self, x: Tensor) -> Tensor:
        int_between("column", self.column, 0, x.shape[-1] - 1, note="the columns of x")
        site = x[..., self.column]
        if is_validation_enabled() and not bool(
            ((site == site.round()) & (site >= 0) & (site < self.sites)).all()
        ):
            raise ValueError(
                f"column {self.column} must hold the numbers 0 to {self.sites - 1} of the sites; "
                f"it runs from {float(site.min())} to {float(site.max())}"
            )
        others = torch.cat([x[..., : self.column], x[..., self.column + 1 :]], -1)
        # A product in place of an index runs for replicates at once.
        is_site = site.unsqueeze(-1) == torch.arange(self.sites, device=x.device)
        logits: Tensor = self.network(others)
        return logits + self.spread * (is_site.to(x.dtype) @ self.effect)


def _spread(network: SiteOffsets) -> dist.TorchDistribution:
    return dist.HalfNormal(network.scale * network._one)


def _effect(network: SiteOffsets) -> dist.TorchDistribution:
    one = dist.Normal(torch.zeros_like(network._one), network._one)
    return one.expand([network.sites, network.outputs]).to_event(2)
