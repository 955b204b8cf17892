"""The divergence of a selector's law from a prior over features, as a penalty."""

import math
from typing import Any

from pyro.distributions import Dirichlet, TorchDistribution
from torch import Tensor
from torch.distributions import kl_divergence

from lexppl.argument_checks import finite_float
from lexppl.distributions import MaxConcrete, TopEntries
from lexppl.models.penalties import Penalty


class KLPenalty(Penalty):
    r"""`λ · KL(q(z | x) ‖ r(z))`, in nats a row, in closed form.

    - `MaxConcrete`: each of its k draws picks a feature by `p = softmax(logits)`, and r is uniform
      over the G features: `log G − H(p)` (VIBI, Bang et al. 2019, eq. 7). `TopEntries`, its law
      after training, is charged the same.
    - `Dirichlet(α)`: r is `Dirichlet(α₀, …, α₀)` (Q-FIT, Adamczewski et al., eq. 4).

    Args:
        weight: λ; β in VIBI, 1 in Q-FIT.
        concentration: α₀ > 0 of the Dirichlet prior; not read by the other laws.

    Raises:
        ValueError: a weight below 0, a concentration that is not positive.
        TypeError: a law without a closed form here.

    Example:
        >>> import torch
        >>> law = MaxConcrete(0.5, torch.zeros(1, 4), k=2)
        >>> KLPenalty(1.0)(law, law.rsample())
        tensor([0.])
    """

    def __init__(self, weight: float = 1.0, concentration: float = 1.0) -> None:
        super().__init__(weight)
        self.concentration = finite_float("concentration", concentration, above=0.0)

    def config(self) -> dict[str, Any]:
        return {"weight": self.weight, "concentration": self.concentration}

    def forward(self, law: TorchDistribution, mask: Tensor, *rows: Tensor) -> Tensor:
        if isinstance(law, Dirichlet):
            prior = Dirichlet(law.concentration.new_full(law.event_shape, self.concentration))
            return self.weight * kl_divergence(law, prior.expand(law.batch_shape))
        if isinstance(law, MaxConcrete | TopEntries):
            log_p = law.logits.log_softmax(-1)
            return self.weight * ((log_p.exp() * log_p).sum(-1) + math.log(log_p.shape[-1]))
        raise TypeError(
            "KLPenalty knows MaxConcrete, TopEntries and Dirichlet laws; it was given "
            f"{type(law).__name__}"
        )
