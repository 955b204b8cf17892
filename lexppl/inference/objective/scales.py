"""The scale that stands outside the log of some sites, and scales that no term of the bound has."""

from collections.abc import Sequence

import torch
from pyro.infer.util import is_validation_enabled
from torch import Tensor

from lexppl.effects import IMPUTATION_DIM, LABEL_DIM, LABEL_PLATE, MASK_DIM
from lexppl.inference.objective import grammar
from lexppl.inference.objective.site import Site, same_numbers


def common_scale(sites: Sequence[Site]) -> float | Tensor:
    """The scale outside the log of some sites: `N/B`, a row's weight, a label's probability."""
    for site in sites:
        _refuse_scale_within(site)
    labelled = [site for site in sites if LABEL_PLATE in site.plate_names]
    plain = [site for site in sites if LABEL_PLATE not in site.plate_names]
    for alike in (labelled, plain):
        for site in alike[1:]:
            if not same_numbers(site.scale, alike[0].scale):
                raise ValueError(
                    "sites within the particle plates must share one scale, which stands outside "
                    f"the log; {alike[0].name!r} has {_words(alike[0].scale)} and {site.name!r} "
                    f"has {_words(site.scale)}. Scale them alike, or {grammar.NO_COMMON_LOG}"
                )
    scale = (labelled or plain)[0].scale
    if labelled and plain and is_validation_enabled():
        whole = torch.as_tensor(scale).sum(LABEL_DIM, keepdim=True)
        if not same_numbers(whole, torch.as_tensor(plain[0].scale).to(whole), exact=False):
            raise ValueError(
                f"the scales of {labelled[0].name!r} over its labels must add up to that of "
                f"{plain[0].name!r}, with which it shares a log"
            )
    return scale


def refuse_unread_scales(drawn: Sequence[Site], terms: Sequence[Site]) -> None:
    """Refuse the scale of a latent that is proposed from the model, and so has no term for it."""
    read: list[float | Tensor] = [1.0]
    for term in terms:
        scale = torch.as_tensor(term.scale)
        by_label = LABEL_PLATE in term.plate_names and scale.dim() >= -LABEL_DIM
        read.append(scale.sum(LABEL_DIM, keepdim=True) if by_label else term.scale)
    weighted = {term.name for term in terms}
    for site in drawn:
        if site.name not in weighted and not any(
            same_numbers(site.scale, s, exact=False) for s in read
        ):
            raise ValueError(
                f"the scale of site {site.name!r}, {_words(site.scale)}, is in no term of the "
                f"bound: no guide draws it, and it cancels. Scale it as {terms[0].name!r} is, or "
                "not at all"
            )


def _refuse_scale_within(site: Site) -> None:
    for plate in site.inner:
        if plate.full_size not in (None, plate.size):
            grammar.matched(
                grammar.SUBSAMPLE, grammar.WITHIN, f"the plate {plate.name!r} of site {site.name!r}"
            )
    if not isinstance(site.scale, Tensor):
        return
    within = [MASK_DIM, IMPUTATION_DIM, *(p.dim for p in site.inner if p.vectorized)]
    varies = [d for d in within if site.scale.dim() >= -d and site.scale.shape[d] > 1]
    if varies:
        raise ValueError(
            f"the scale of site {site.name!r} differs within its log, at dims {varies}; a scale "
            f"stands outside the log. For a power of the likelihood write pyro.factor, or "
            f"{grammar.NO_COMMON_LOG}"
        )


def _words(scale: float | Tensor) -> str:
    if not isinstance(scale, Tensor):
        return str(scale)
    return f"a tensor of shape {tuple(scale.shape)} from {float(scale.min()):g}"
