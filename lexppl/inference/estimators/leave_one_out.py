"""Score function with the other particles as its baseline."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from lexppl.argument_checks import fraction
from lexppl.effects import fit_reaches, fold_shift
from lexppl.inference.estimators.base import Estimate, SampledEstimator
from lexppl.inference.estimators.label_averaging import averaged_advantage, refuse_imputations
from lexppl.inference.estimators.leaving_one_out import imputation_score, mask_score
from lexppl.inference.objective.bound import BoundSpec, BoundTerms
from lexppl.inference.objective.site import Site

Labels = Literal["observed", "averaged"]
"""Whose gain a mask is judged by: the observed label's, or that expected of the predictor's own."""


@dataclass(frozen=True)
class LeaveOneOut(SampledEstimator):
    """Score-function gradient; each draw is judged against the others of its row. Unbiased.

    For the bound `ℒ = log 1/L Σ_l w_l` (VIMCO, Mnih & Rezende 2016, eq. 7) the term of draw `l` is

        ∇ log q(z_l) · (ℒ − ℒ_{−l}),    ℒ_{−l} = log 1/L (Σ_{j≠l} w_j + ŵ_l),
        ŵ_l = exp(1/(L−1) Σ_{j≠l} log w_j),

    and for the average `1/S Σ_s log w_s` of single-mask bounds (RLOO, Kool et al. 2019)

        ∇ log q(z_s) · (log w_s − 1/(S−1) Σ_{j≠s} log w_j) / S.

    Penalties are averages, and take the second form. Latents that are drawn anew for each
    imputation are scored in the same way, among all the imputations of a row. Any distribution with
    a `log_prob` will do; a reparameterised distribution needs no score, and gets none.

    **Averaged labels.** A label is one noisy draw of what a mask is worth. With `labels="averaged"`
    the advantage above is replaced by its expectation over labels,

        ∇ log q(z_l) · Σ_y p̄(y|x) (ℒ(y) − ℒ_{−l}(y)),    ℒ(y) = log 1/L Σ_l p(y | x̃_l),

    under the predictor's own p̄(y|x), with nothing hidden (in a cross-fitted fit that of the
    predictor that has not learned from the row). Nothing else changes: not the bound's value, nor
    the gradient that goes through the weights, which stay those of the observed label. Of what only
    the masks' distribution depends on (the selector) it is the unbiased gradient of

        Σ_n Σ_y p̄(y|x_n) E_q[ℒ_n(y)]  −  c_R Σ_n E_q[R]  +  β Σ_n H(q(z|x_n)),

    p̄ being held as it is, in place of the bound at the observed labels; of all else (the
    predictor) the gradient of the observed bound, as without it. What is selected is then what the
    *predictor* uses, be it true or memorised: right where the predictor is what is explained, and
    where rows are many; where they are few a column that it memorises by is kept. It costs one more
    run of the program at a single mask. Latents outside the particle plates are judged by the
    observed labels.

    Args:
        labels: "observed", or "averaged".
        labels_from: share of the fit, in [0, 1), from which labels are averaged: before, the
            predictor has little to say of them. Outside `fit`, and under `labels="observed"`, it
            does not matter.

    Raises:
        ValueError: a site drawn only once, with nothing to leave it out of: `L·S = 1` for a mask.
            Under averaged labels: a program without exactly one label that can be listed in each
            log, with a guide that covers latents of the particle plates, or with masks of other
            than zeros and ones; labels of another name, a share outside [0, 1).

    Example:
        >>> LeaveOneOut().unbiased, LeaveOneOut(labels="averaged").unbiased
        (True, False)
    """

    labels: Labels = "observed"
    labels_from: float = 0.2

    def __post_init__(self) -> None:
        if self.labels not in get_args(Labels):
            raise ValueError(f"labels must be one of {get_args(Labels)}; they are {self.labels!r}")
        fraction("labels_from", self.labels_from, of="the fit", zero=True)

    @property
    def unbiased(self) -> bool:  # type: ignore[override]
        return self.labels == "observed"

    @property
    def settled(self) -> float:
        return 0.0 if self.labels == "observed" else self.labels_from

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

    def score_terms(self, sites: Sequence[Site], estimate: Estimate) -> Tensor | float:
        if self.labels == "observed" or not self._averages_now(estimate.terms.spec):
            return super().score_terms(sites, estimate)
        refuse_imputations(sites)
        advantages = [averaged_advantage(estimate.program, estimate.terms)]
        found = [mask_score(site, estimate.terms, advantages) for site in sites]
        return sum(found[1:], found[0])

    def _averages_now(self, spec: BoundSpec) -> bool:
        # A term of a shift s ≥ 1 moves the predictors, and the score does not.
        scored = torch.is_grad_enabled() and not spec.random_masks and not fold_shift()
        return scored and fit_reaches(self.labels_from)
