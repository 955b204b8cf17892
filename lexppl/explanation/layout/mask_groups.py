"""In which groups of a posterior the masks stand."""

import xarray as xr

from lexppl.arviz_compatibility import Posterior, group_names, group_of
from lexppl.explanation.layout.drawn_means import MEAN_OF

GIVEN_X, GIVEN_XY = "prior", "posterior"
"""The groups of masks given x alone, and of masks given x and y."""


def masks_of(posterior: Posterior, given_y: bool = False) -> xr.Dataset:
    """The group with the masks of an explanation: draws of p(z | x), whether y was given or not.

    Files written when all masks stood under `posterior` are read as well; their masks are given y
    where y was given (:func:`are_given_y`).

    Args:
        posterior: what :func:`lexppl.explain` returned.
        given_y: the draws of p(z | x, y) in their place.

    Raises:
        TypeError: neither an `InferenceData` nor a `DataTree`.
        ValueError: no masks, or none that were given y.

    Example:
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> masks = xr.Dataset({"mask": (("chain", "draw", "row", "feature"), [[[[1, 0]]]])})
        >>> list(masks_of(posterior_of({"prior": masks}, {})))
        ['mask']
        >>> masks_of(posterior_of({"posterior": masks}, {}))["mask"].shape
        (1, 1, 1, 2)
    """
    if given_y and not _weighted(posterior):
        raise ValueError("the posterior has no masks given y: give y to explain()")
    for name in (GIVEN_XY,) if given_y else (GIVEN_X, GIVEN_XY):
        if _has_masks(posterior, name):
            return group_of(posterior, name)
    raise ValueError(
        f"the posterior has no masks in a group {GIVEN_X!r} or {GIVEN_XY!r}; it has "
        f"{list(group_names(posterior))}. Give one that explain() made"
    )


def are_given_y(posterior: Posterior) -> bool:
    """Whether the masks that :func:`masks_of` reads were drawn given y, as they may be in files
    written before."""
    return not _has_masks(posterior, GIVEN_X) and _weighted(posterior)


def _weighted(posterior: Posterior) -> bool:
    """Whether y was given."""
    if _has_masks(posterior, GIVEN_X):
        return _has_masks(posterior, GIVEN_XY)
    names = group_names(posterior)
    return "sample_stats" in names and "weight_ess" in group_of(posterior, "sample_stats")


def _has_masks(posterior: Posterior, name: str) -> bool:
    """Masks have rows; a group of their importance alone is read too."""
    if name not in group_names(posterior):
        return False
    group = group_of(posterior, name)
    if any("row" in v.dims and MEAN_OF not in v.attrs for v in group.data_vars.values()):
        return True
    alone = name == GIVEN_X or GIVEN_X not in group_names(posterior)
    return alone and "importance" in group
