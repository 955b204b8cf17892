"""Every mask of a program: p(z | x, y) with no mask drawn."""

from typing import Any

import pyro.distributions as dist
from torch import Tensor

from lexppl.distributions import mask_support
from lexppl.explanation.masks.program_sites import ProgramSites
from lexppl.inference.objective.program import ParticleTrace
from lexppl.inference.objective.site import Site

MOST_MASKS = 2**12
INSTEAD = "give proposals=4, by which masks are drawn and resampled by importance"


class ListedMasks:
    """The M masks that a program's one mask site can draw, in place of proposals.

    With them

        p(z | x, y) = p(z | x) p(y | x, z) / Σ_z' p(z' | x) p(y | x, z')

    is exact, where p(y | x, z) is, which it is not where hidden features are drawn: it is then a
    mean over K imputations.

    Args:
        run: one run of the program given y.
        sites: of the program.
        joint: whether all rows are observed in one.

    Raises:
        ValueError: rows observed in one, several mask sites, other random sites within the mask
            plate, masks that cannot be listed, or more than 4,096 of them.
    """

    def __init__(self, run: ParticleTrace, sites: ProgramSites, joint: bool) -> None:
        if joint:
            raise ValueError(
                "proposals=math.inf lists the masks of a row, and the program observes all rows in "
                f"one, with masks of their own each; {INSTEAD}"
            )
        self.name = sites.masks[0].name
        random = [
            site.name
            for site in run.sites.values()
            if site.in_particles and not site.observed and not _is_given(site)
        ]
        others = [name for name in random if name != self.name]
        if others:
            raise ValueError(
                f"proposals=math.inf lists the masks {self.name!r}, and {others} are random given "
                "them: p(y | x, z) would be approximated by K imputations, and not exact. Impute "
                f"by a function of the mask, such as ConstantImputer(), or {INSTEAD}"
            )
        try:
            masks = mask_support(run.sites[self.name].distribution, limit=MOST_MASKS)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"proposals=math.inf lists at most {MOST_MASKS} masks, and site {self.name!r}: "
                f"{error}. Here {INSTEAD}"
            ) from None
        self._masks = masks.reshape(len(masks), 1, -1)

    def __len__(self) -> int:
        """M."""
        return len(self._masks)

    def give(self, site: Site) -> Tensor | None:
        """The value of a site of a run with M masks: every mask, of the mask site."""
        if site.name != self.name:
            return None
        shape = (*site.distribution.batch_shape, *site.distribution.event_shape)
        return self._masks.expand(shape)

    def log_prior(self, run: ParticleTrace) -> Tensor:
        """log p(z | x) of a run's masks, `(M, B)`."""
        return run.sites[self.name].score()


def _is_given(site: Site) -> bool:
    """Whether a site has no randomness: a `Delta`, or a `pyro.deterministic`."""
    distribution: Any = site.distribution
    # Of an imputation only what is hidden can be random.
    for inner in ("hidden_distribution", "base_dist"):
        while hasattr(distribution, inner):
            distribution = getattr(distribution, inner)
    return site.is_deterministic or isinstance(distribution, dist.Delta)
