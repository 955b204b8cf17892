"""The plain score function, with an optional baseline."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from lexppl.inference.estimators.base import SampledEstimator
from lexppl.inference.estimators.target import Target, penalty_per_draw, per_draw, score_of
from lexppl.inference.program import Run, Site, no_gradient

Baseline = Callable[..., Tensor]


class LearnedConstant(nn.Module):
    """A baseline that follows the mean of the bound, as a moving average does, by least squares.

    Example:
        >>> LearnedConstant()(torch.zeros(3, 2))
        tensor([0., 0., 0.], grad_fn=<ExpandBackward0>)
    """

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(()))

    def reset_parameters(self) -> None:
        """Start from zero again."""
        nn.init.zeros_(self.value)

    def forward(self, x: Tensor, *_: Tensor) -> Tensor:
        return self.value.expand(len(x))


@dataclass(frozen=True)
class ScoreFunction(SampledEstimator):
    """Unbiased score-function gradient (REINFORCE, Williams 1992):

        ∇ log q(z_l) · (ℒ − b(x)).

    Args:
        baseline: `b`, a number, or a module called with the program's arguments that gives
            `(B,)` nats a row. INVASE's is the log-likelihood of a predictor that sees all of x
            (Yoon et al. 2018, eq. 5). A baseline must not depend on the masks.
        learn_baseline: also fit the baseline to the bound by least squares (it must then be among
            the modules that the term learns). Leave it False for one that is learned otherwise.

    Example:
        >>> ScoreFunction(baseline=-0.5).unbiased
        True
    """

    baseline: float | Baseline = 0.0
    learn_baseline: bool = False
    unbiased: ClassVar[bool] = True

    def surrogate(self, site: Site, run: Run, target: Target) -> Tensor | float:
        log_q = score_of(site)
        if log_q is None:
            return 0.0
        baseline = self.baseline(*run.arguments) if callable(self.baseline) else self.baseline
        with torch.no_grad():
            bound = target.bounds(run).unsqueeze(-2)
        level = baseline.detach() if isinstance(baseline, Tensor) else baseline
        benefit = (bound - level).expand(*bound.shape[:-2], int(target.masks), bound.shape[-1])
        signal = per_draw(benefit, run, target) - penalty_per_draw(run, target)
        term = (no_gradient(log_q) * signal.detach()).sum()
        if self.learn_baseline and isinstance(baseline, Tensor):
            misfit = 0.5 * (bound - baseline).square() * run.scale / target.samples
            term = term - no_gradient(misfit.sum())
        return term
