"""Score function with the other particles as its baseline."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from lexppl.inference.estimators.base import SampledEstimator
from lexppl.inference.estimators.leaving_one_out import imputation_score, mask_score
from lexppl.inference.objective.bound import BoundSpec, BoundTerms
from lexppl.inference.objective.site import Site


@dataclass(frozen=True)
class LeaveOneOut(SampledEstimator):
    """Unbiased score-function gradient; each draw is judged against the others of its row.

    For the bound `ℒ = log 1/L Σ_l w_l` (VIMCO, Mnih & Rezende 2016, eq. 7) the term of draw `l` is

        ∇ log q(z_l) · (ℒ − ℒ_{−l}),    ℒ_{−l} = log 1/L (Σ_{j≠l} w_j + ŵ_l),
        ŵ_l = exp(1/(L−1) Σ_{j≠l} log w_j),

    and for the average `1/S Σ_s log w_s` of single-mask bounds (RLOO, Kool et al. 2019)

        ∇ log q(z_s) · (log w_s − 1/(S−1) Σ_{j≠s} log w_j) / S.

    Penalties are averages, and take the second form. Latents that are drawn anew for each
    imputation are scored in the same way, among all the imputations of a row. Any distribution with
    a `log_prob` will do; a reparameterised distribution needs no score, and gets none.

    Raises:
        ValueError: a site drawn only once, with nothing to leave it out of: `L·S = 1` for a mask.

    Example:
        >>> LeaveOneOut().unbiased
        True
    """

    unbiased: ClassVar[bool] = True

    def check(self, site: Site, spec: BoundSpec) -> None:
        if site.is_mask and spec.particles < 2:
            raise ValueError(
                f"LeaveOneOut needs at least 2 draws of {site.name!r} for each row, and masks=1, "
                "samples=1 gives one; set masks=2 or more (a tighter bound), or samples=2 or more "
                "(the same bound, averaged)"
            )

    def score_term(self, site: Site, terms: BoundTerms) -> Tensor | float:
        score = imputation_score if site.in_imputations else mask_score
        return score(site, terms)
