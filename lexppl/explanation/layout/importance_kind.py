"""What a mask's values say: how often a feature is kept, its share, its strength, or its effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import xarray as xr
from torch.distributions import constraints

from lexppl.arviz_compatibility import Posterior, group_of
from lexppl.effects import MASK_KIND, MASK_KINDS
from lexppl.explanation.layout.mask_groups import BY_GUIDE, masks_of
from lexppl.inference.objective.site import Site


@dataclass(frozen=True)
class ImportanceKind:
    """How a mask's mean is to be read: its variable in `sample_stats`, its label on an axis, its
    meaning in a sentence, and the largest value there can be, or None."""

    name: str
    variable: str
    label: str
    meaning: str
    most: float | None


PROBABILITY = ImportanceKind(
    "probability",
    "selection_probability",
    "selection probability",
    "the probability that a row keeps the feature",
    1.0,
)
SHARE = ImportanceKind(
    "share",
    "mask_mean",
    "share of importance",
    "the feature's share of the importance, which adds up to 1 in each row",
    1.0,
)
STRENGTH = ImportanceKind(
    "strength",
    "mask_mean",
    "mask value",
    "the mask's value at the feature, from 0, hidden, to 1, kept",
    1.0,
)
ATTRIBUTION = ImportanceKind(
    "attribution",
    "attribution",
    "size of the attribution",
    "the size of the feature's contribution to the prediction, whatever its sign",
    None,
)

KINDS: Mapping[str, ImportanceKind] = MappingProxyType(
    {
        "selection": PROBABILITY,
        "share": SHARE,
        "strength": STRENGTH,
        "attribution": ATTRIBUTION,
    }
)
"""By what a program says of its mask, `infer={"mask_kind": …}`."""

GIVEN_Y = "_given_y"
"""After the name of E[z | x], that of E[z | x, y]."""

ROUNDING = 1e-4
STATED = "mean of the distribution p(z | x)"
GUIDED = "mean of the guide's distribution q(z | x)"
"""What a posterior's means say of themselves where they are exact."""


def stated_kind(site: Site) -> str | None:
    """What a program states of a mask: by `infer={"mask_kind": …}`, else by its distribution's
    support; None where neither does."""
    stated = site.infer.get(MASK_KIND)
    if stated is not None:
        if stated not in MASK_KINDS:
            raise ValueError(
                f"mask_kind of site {site.name!r} must be one of {MASK_KINDS}; it is {stated!r}"
            )
        return str(stated)
    try:
        support = site.distribution.support
    except (NotImplementedError, AttributeError):
        return None
    if getattr(support, "is_discrete", False):
        return "selection"
    base = getattr(support, "base_constraint", support)
    if base is constraints.simplex:
        return "share"
    return "strength" if base is constraints.unit_interval else None


def importance_kind(mask: xr.DataArray) -> ImportanceKind:
    """The kind of a mask: by its attribute `kind`, else by its draws `(chain, draw, row, feature)`:
    zeros and ones are selections, values in [0, 1] shares where they add up to 1, else strengths;
    anything else is an attribution."""
    if mask.attrs.get("kind") in KINDS:
        return KINDS[mask.attrs["kind"]]
    values = np.asarray(mask.values)
    if values.size == 0 or bool(((values == 0) | (values == 1)).all()):
        return PROBABILITY
    if values.min() < -ROUNDING or values.max() > 1 + ROUNDING:
        return ATTRIBUTION
    sums = values.sum(-1, dtype=np.float64)
    return SHARE if bool((np.abs(sums - 1.0) < ROUNDING).all()) else STRENGTH


def kind_of(posterior: Posterior) -> ImportanceKind:
    """The kind of the masks that an explanation ranks, of several sites the first."""
    return importance_kind(masks_of(posterior)[mask_means(posterior, by_row=False).attrs["site"]])


def variable_of(kind: str | None) -> str:
    """What the mean of a row's mask is called, by what its program says of the mask."""
    return STRENGTH.variable if kind is None else KINDS[kind].variable


def mask_means(posterior: Posterior, by_row: bool = True) -> xr.DataArray:
    """E[z | x] of each row, (chain, row, feature), of the first mask site: `selection_probability`,
    `mask_mean` or `attribution`; the guide's where it draws the masks given x; of a mask that rows
    share, (chain, feature) or (chain, group, feature), and E[z | x, y] where y was given.

    Args:
        posterior: what :func:`lexppl.explain` returned.
        by_row: refuse masks that rows share.

    Raises:
        TypeError, ValueError: not a posterior of :func:`lexppl.explain`, or masks that rows share.
    """
    stats = group_of(posterior, "sample_stats")
    plain = dict.fromkeys(k.variable for k in KINDS.values())
    names = [name for name in plain if name in stats]
    for name in names[:1]:
        own = f"{stats[name].attrs['site']}{BY_GUIDE}_"
        names = [f"{own}{one}" for one in plain if f"{own}{one}" in stats] + names
    if not names:
        raise ValueError(
            "the posterior has no sample_stats 'selection_probability', 'mask_mean' or "
            "'attribution'; give one that explain() made"
        )
    given_y = f"{names[0]}{GIVEN_Y}"
    found = stats[names[0]]
    if by_row and "row" not in found.dims:
        raise ValueError(
            f"the mask {found.attrs['site']!r} is not a row's: rows share it, and there is no mean "
            "of each; selection_table and plot_importance show it"
        )
    return stats[given_y] if "row" not in found.dims and given_y in stats else found
