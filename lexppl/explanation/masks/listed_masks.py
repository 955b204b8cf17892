"""Every mask of a program: p(z | x, y) with no mask drawn."""

from torch import Tensor

from lexppl.inference.objective.listed_latents import (
    ListedLatents,
    is_point,
    refuse_missing,
    refuse_shared_by_logs,
)
from lexppl.inference.objective.program import ParticleTrace

MOST_MASKS = 2**12
INSTEAD = (
    "in place of proposals=math.inf give proposals=4, by which masks are drawn and resampled by "
    "importance"
)


class ListedMasks(ListedLatents):
    """The M joint values of a row's masks, and of the other discrete latents beside them (a regime
    that chooses between masks, the states of a hidden chain), in place of proposals.

    With them

        p(z | x, y) = p(z | x) p(y | x, z) / Σ_z' p(z' | x) p(y | x, z')

    is exact, where p(y | x, z) is, which it is not where hidden features are drawn: it is then a
    mean over K imputations.

    Args:
        run: one run of the program given y.
        joint: whether all rows are observed in one.

    Raises:
        ValueError: rows observed in one; latents of imputations, or ones whose values cannot be
            listed; more than 4,096 joint values.
    """

    def __init__(self, run: ParticleTrace, joint: bool) -> None:
        if joint:
            raise ValueError(
                "proposals=math.inf lists the masks of a row, and the program observes all rows in "
                f"one, with masks of their own each: {INSTEAD}"
            )
        latents = [
            site
            for site in run.sites.values()
            if site.in_particles and not (site.observed or is_point(site.distribution))
        ]
        others = [site.name for site in latents if site.in_imputations]
        if others:
            raise ValueError(
                f"proposals=math.inf lists the values of {[s.name for s in latents if s.is_mask]}, "
                f"and {others} are random given them: p(y | x, z) would be approximated by K "
                "imputations, and not exact. Impute by a function of the mask, such as "
                f"ConstantImputer(); or {INSTEAD}"
            )
        refuse_shared_by_logs(run, latents)
        super().__init__(run, latents, most=MOST_MASKS, instead=INSTEAD)

    def log_prior(self, run: ParticleTrace) -> Tensor:
        """log p(z | x) of a run's latents, `(M, B)`.

        Raises:
            ValueError: values are missing.
        """
        log_prior = super().log_prior(run)
        refuse_missing(log_prior, self.names)
        return log_prior
