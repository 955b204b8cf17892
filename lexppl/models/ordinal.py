"""The likelihood of ordered labels: the cumulative logit."""

from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from lexppl.argument_checks import int_at_least
from lexppl.models.likelihoods import Likelihood, count_and_first


class OrdinalLikelihood(Likelihood):
    r"""Labels 0 … C−1 that have an order, from one output f and C − 1 cutpoints that are learned:

        P(y ≤ c) = σ(κ_c − f),    κ_0 < κ_1 < … < κ_{C−2},

    the proportional-odds model (McCullagh 1980): a feature that raises f moves y up by the same
    odds at every cutpoint. It is Pyro's `OrderedLogistic` with each probability in logs, which
    stay finite where the difference of two sigmoids is 0; a categorical distribution, so that all
    that is of labels is of these too.

    Cutpoints are `κ_c = κ_0 + Σ_{i≤c} exp η_i`, and start as they are of C labels as frequent as
    each other at `f = 0`, `κ_c = log (c + 1)/(C − c − 1)`.

    Args:
        classes: C.

    Raises:
        ValueError: fewer than two classes.

    Example:
        >>> OrdinalLikelihood(4)(torch.zeros(1, 1)).probs.detach()
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
        >>> OrdinalLikelihood(3).check_responses(torch.tensor([0, 3, 1]))
        Traceback (most recent call last):
        ...
        ValueError: y must hold the ordered labels 0 to 2; 1 of 3 are none, the first in row 1: 3
    """

    discrete = True
    first: Tensor
    log_steps: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = int_at_least("classes", classes, 2)
        self.first = nn.Parameter(torch.empty(()))
        self.log_steps = nn.Parameter(torch.empty(self.classes - 2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Put the cutpoints back to those of labels as frequent as each other."""
        reached = torch.arange(1, self.classes, dtype=torch.float64) / self.classes
        cutpoints = reached.logit()
        with torch.no_grad():
            self.first.copy_(cutpoints[0])
            self.log_steps.copy_(cutpoints.diff().log())

    def config(self) -> dict[str, Any]:
        return {"classes": self.classes}

    @property
    def cutpoints(self) -> Tensor:
        """κ, `(C − 1,)`, rising."""
        steps = torch.cat([self.first.reshape(1), self.log_steps.exp()])
        return steps.cumsum(0)

    def check_responses(self, y: Tensor) -> None:
        """Refuse labels outside 0 … C−1.

        Args:
            y: labels `(N,)`, or a black box's probabilities `(N, C)`.

        Raises:
            ValueError: such labels, or another number of classes.
        """
        if y.dim() != 1:
            if y.dim() != 2 or y.shape[1] != self.classes:
                raise ValueError(
                    f"y must hold ordered labels, shape (N,), or probabilities of {self.classes} "
                    f"labels, shape (N, {self.classes}); it has shape {tuple(y.shape)}"
                )
            super().check_responses(y)
            return
        wrong = (y < 0) | (y >= self.classes) | (y != y.round())
        if found := count_and_first(wrong):
            count, row = found
            raise ValueError(
                f"y must hold the ordered labels 0 to {self.classes - 1}; {count} of {len(y)} are "
                f"none, the first in row {row}: {float(y[row]):g}"
            )

    def forward(self, outputs: Tensor) -> TorchDistribution:
        # P(y = c) = σ(b) − σ(a) = σ(b) σ(−a) (1 − e^{a−b}), with a < b the cutpoints minus f.
        above = self.cutpoints - outputs
        upper, lower = logsigmoid(above), logsigmoid(-above)
        between = (-(-self.log_steps.exp()).expm1()).log()
        inner = upper[..., 1:] + lower[..., :-1] + between
        logits = torch.cat([upper[..., :1], inner, lower[..., -1:]], -1)
        return dist.Categorical(logits=logits)
