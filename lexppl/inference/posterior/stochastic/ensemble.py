"""Deep ensembles of a program with priors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.inference.nested_iwae import NestedIWAE
from lexppl.inference.posterior.global_draws import GlobalDraws, SamplerRecord
from lexppl.inference.posterior.stochastic.log_posterior import LogPosterior
from lexppl.inference.posterior.stochastic.run import check_bound, stepping
from lexppl.inference.posterior.stochastic.scaled_start import ScaledStart, climbing_steps


@dataclass(frozen=True, kw_only=True, eq=False)
class Ensemble:
    """A deep ensemble: R maxima a posteriori, each climbed to from a draw of the prior.

    Each member maximises `log p(θ) + log |dθ/du| + Σ_n ℒ_n` in unconstrained globals u. They stand
    as draws of one chain. They differ where the posterior has several modes, as that of a network
    has; about one mode they do not, and their spread then says nothing of how wide it is.

    Of a program without priors, `fit(replicates=R)` is a deep ensemble, and
    `fit(…).as_draws()` has its networks as draws.

    Args:
        members: R.
        climb: steps of Adam of each, and three times half as many once scales are known.
        batch_size: B, of each member's own rows; None for a tenth of the rows, at least 100.
        objective: the bound ℒ; None to choose, as for :class:`SGHMC`.

    Raises:
        ValueError, TypeError: a number outside its range.

    Example:
        >>> Ensemble(members=5).climb
        1000

    Reference:
        Lakshminarayanan, Pritzel, Blundell. Simple and scalable predictive uncertainty estimation
        using deep ensembles. NeurIPS 2017.
    """

    members: int = 10
    climb: int = 1000
    batch_size: int | None = None
    objective: NestedIWAE | None = None

    def __post_init__(self) -> None:
        int_at_least("members", self.members, 2)
        int_at_least("climb", self.climb)
        check_bound(self.batch_size, self.objective)

    def run(
        self, model: Any, rows: tuple[Tensor, ...], *, seed: int, progress: bool
    ) -> GlobalDraws:
        """Climb; see :class:`lexppl.inference.posterior.global_draws.PosteriorInference`.

        Raises:
            ValueError, TypeError: rows fewer than a batch, a program without global latents or with
                discrete ones.
        """
        target = LogPosterior.of(model, rows, seed, self.batch_size, self.objective)
        total = climbing_steps(self.climb)
        with stepping(target, seed, total, progress) as bar:
            start = ScaledStart.find(target, self.members, self.climb, bar)
        samples = target.sites.samples(start.unscaled(start.vectors).unsqueeze(0))
        record = SamplerRecord("deep ensemble", are_chains=False, note=target.note)
        return GlobalDraws(samples, record, target.model)
