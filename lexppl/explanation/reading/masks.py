"""The masks of a posterior: where they stand, their kind, their means, and groups of features.

| group | what its draws are |
|---|---|
| `predictions` | z and y of each row given x alone, θ from its posterior: y is not looked at |
| `posterior` | θ given the data; with y z given x and y, where no θ stands beside them |
| `posterior_of_rows` | z given x and y of each row, where θ stands in `posterior` |
| `posterior_predictive` | new responses given x and y |
| `prior`, `prior_predictive` | θ from its prior, z and y given x and that θ |

θ are the latents that all rows share.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import xarray as xr

from lexppl.arviz_compatibility import Posterior, group_names, group_of, like

GIVEN_X, GIVEN_XY, OF_ROWS = "predictions", "posterior", "posterior_of_rows"
NEW_Y = "posterior_predictive"
PRIOR, PRIOR_Y = "prior", "prior_predictive"
CONSTANTS = "constant_data"
RESPONSES = ("y", "y_probability")  # Variables of responses, beside which masks may stand
# What is drawn beside z given x, z given x and y, and from the prior: z from the guide.
GUIDE = "guide"
BY_GUIDE = "_by_guide"  # After the name of a mask site, that of what the guide draws in its place
# The attribute of E[z | x, θ_d] by which it differs from masks, and its value.
MEAN_OF, EACH_DRAW = "mean_of", "p(z | x, θ)"


def masks_of(posterior: Posterior, given_y: bool = False) -> xr.Dataset:
    """The group with the masks of an explanation, draws of p(z | x), or of p(z | x, y)."""
    for name in (GIVEN_XY, OF_ROWS) if given_y else (GIVEN_X,):
        if _has_masks(posterior, name):
            return group_of(posterior, name)
    if given_y:
        raise ValueError("the posterior has no masks given y: give y to explain()")
    raise ValueError(
        f"the posterior has no masks in a group {GIVEN_X!r}; it has "
        f"{list(group_names(posterior))}. Give one that explain() made"
    )


def responses_of(posterior: Posterior) -> xr.Dataset:
    """The group with `y` and `y_probability` given x alone; an empty one without a response."""
    if GIVEN_X in group_names(posterior):
        group = group_of(posterior, GIVEN_X)
        if any(variable in group for variable in RESPONSES):
            return group
    return xr.Dataset()


def constants_name(posterior: Posterior) -> str:
    """The group of the rows x: `constant_data`, or `predictions_constant_data` without y."""
    predicted = f"{GIVEN_X}_{CONSTANTS}"
    return predicted if predicted in group_names(posterior) else CONSTANTS


def means_over_rows(posterior: Posterior, site: str) -> xr.DataArray | None:
    """The mean over rows of E[z | x, θ_d], (chain, draw, feature); None where no θ was drawn."""
    if GIVEN_XY not in group_names(posterior):
        return None
    for name, values in group_of(posterior, GIVEN_XY).items():
        is_mean = values.attrs.get(MEAN_OF) == EACH_DRAW and values.attrs.get("site") == site
        if is_mean and str(name).endswith("_over_rows"):
            return values
    return None


def _has_masks(posterior: Posterior, name: str) -> bool:
    """Whether a group has masks: by row, by their kind, or given x by their importance."""
    if name not in group_names(posterior):
        return False
    group = group_of(posterior, name)
    return (name == GIVEN_X and "importance" in group) or any(
        ("row" in values.dims and MEAN_OF not in values.attrs and variable not in RESPONSES)
        or "kind" in values.attrs
        for variable, values in group.data_vars.items()
    )


MARKOV_CHAINS, INDEPENDENT_DRAWS = "Markov chains", "sets of independent draws"
# What the attribute `chains` begins with where latents that rows share were sampled.
SAMPLED = (MARKOV_CHAINS, INDEPENDENT_DRAWS)


def chains_are(posterior: Posterior) -> str:
    """What the chains of a posterior are, in words, by its attribute `chains`."""
    return str(masks_of(posterior).attrs.get("chains", ""))


@dataclass(frozen=True)
class ImportanceKind:
    """How a mask's mean is to be read: its variable in `sample_stats`, its label on an axis, its
    meaning in a sentence, and the largest value there can be, or None."""

    name: str
    variable: str
    label: str
    meaning: str
    most: float | None = 1.0

    @property
    def signed_label(self) -> str:
        """The label of values with their signs."""
        return self.name if self is ATTRIBUTION else self.label

    def end(self, values: Any) -> float:
        """Where a scale of values ends: at 1 for probabilities, else at the largest size."""
        return 1.0 if self is PROBABILITY else max(float(np.abs(values).max(initial=0.0)), 1e-9)


PROBABILITY = ImportanceKind(
    "probability",
    "selection_probability",
    "selection probability",
    "the probability that a row keeps the feature",
)

SHARE = ImportanceKind(
    "share",
    "mask_mean",
    "share of importance",
    "the feature's share of the importance, which adds up to 1 in each row",
)

STRENGTH = ImportanceKind(
    "strength",
    "mask_mean",
    "mask value",
    "the mask's value at the feature, from 0, hidden, to 1, kept",
)

ATTRIBUTION = ImportanceKind(
    "attribution",
    "attribution",
    "size of the attribution",
    "the size of the feature's contribution to the prediction, whatever its sign",
    None,
)

# By what a program says of its mask, `infer={"mask_kind": …}`.
KINDS: Mapping[str, ImportanceKind] = MappingProxyType(
    {"selection": PROBABILITY} | {kind.name: kind for kind in (SHARE, STRENGTH, ATTRIBUTION)}
)
GIVEN_Y = "_given_y"  # After the name of E[z | x], that of E[z | x, y]
ROUNDING = 1e-4
STATED = "mean of the distribution p(z | x)"
AVERAGED = f"{STATED}, averaged over draws of other latents that it depends on"
# What a posterior's means say of themselves where they are exact.
GUIDED = "mean of the guide's distribution q(z | x)"


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
        prefix = f"{stats[name].attrs['site']}{BY_GUIDE}_"
        names = [f"{prefix}{kind}" for kind in plain if f"{prefix}{kind}" in stats] + names
    if not names:
        raise ValueError(
            "the posterior has no sample_stats 'selection_probability', 'mask_mean' or "
            "'attribution'; give one that explain() made"
        )
    given_y = f"{names[0]}{GIVEN_Y}"
    means = stats[names[0]]
    if by_row and "row" not in means.dims:
        raise ValueError(
            f"the mask {means.attrs['site']!r} is not a row's: rows share it, and there is no mean "
            "of each; selection_table and plot_importance show it"
        )
    return stats[given_y] if "row" not in means.dims and given_y in stats else means


FOLD = "fold"  # The dimension that numbers the fits, and what their variables' names begin with


def with_fold_means(posterior: Posterior, every: Posterior) -> Posterior:
    """A posterior of rows, and in its `sample_stats` E[z | x] of each fold's fit, a chain of
    `every`."""
    theirs = group_of(every, "sample_stats")
    means = [name for name, values in theirs.items() if "site" in values.attrs]
    renamed = {f"{FOLD}_{name}": theirs[name].rename(chain=FOLD) for name in means}
    groups = {name: group_of(posterior, name) for name in group_names(posterior)}
    groups["sample_stats"] = groups["sample_stats"].assign(renamed)
    return like(posterior, groups)


def fold_means(posterior: Posterior) -> xr.DataArray | None:
    """E[z | x] of the first mask site by each fold's fit, (fold, row, feature), or None."""
    name = f"{FOLD}_{mask_means(posterior, by_row=False).name}"
    return group_of(posterior, "sample_stats").get(name)


DRAWN_MEAN = "mask_mean"  # In the name of a probability that no distribution states


def by_groups(posterior: Posterior, groups: Mapping[str, Sequence[str]]) -> Posterior:
    """The posterior of masks of groups of features, by name: a group is kept where a member is.

    Masks are the largest of their members', and probabilities 1 − Π_g (1 − p_g), exact where
    entries are independent given x. Variables that are not of masks (values, gains) are left out.
    """
    if kind_of(posterior) is not PROBABILITY:
        raise ValueError("groups are kept or hidden, and these masks do not select")
    dim = str(mask_means(posterior).dims[-1])
    names = [str(name) for name in masks_of(posterior)[dim].values]
    named = [str(member) for members in groups.values() for member in members]
    if sorted(named) != sorted(names):
        raise ValueError(f"groups must have each of {names} once; they have {named}")
    members = [[names.index(str(member)) for member in group] for group in groups.values()]

    def grouped(values: xr.DataArray) -> xr.DataArray:
        of_groups = [values.isel({dim: places}) for places in members]
        drawn = "draw" in values.dims
        of_groups = [part.max(dim) if drawn else 1.0 - (1.0 - part).prod(dim) for part in of_groups]
        joined = xr.concat(of_groups, dim).transpose(*values.dims)
        joined = joined.astype(values.dtype).assign_coords({dim: list(map(str, groups))})
        return joined.rename(values.name).assign_attrs(values.attrs)

    datasets = {}
    for name in group_names(posterior):
        variables = _of_masks(group_of(posterior, name), dim)
        columns = {
            key: grouped(values) if dim in values.dims else values
            for key, values in variables.items()
            if key != "importance"
        }
        if "importance" in variables and "mask" in columns:
            mean = columns["mask"].mean("row", dtype=np.float64)
            columns["importance"] = mean.assign_attrs(variables["importance"].attrs)
        datasets[name] = xr.Dataset(columns, attrs=variables.attrs)
    return like(posterior, datasets)


def _of_masks(variables: xr.Dataset, dim: str) -> xr.Dataset:
    """The variables of a group without those of features that are not of masks."""
    named = [
        key
        for key, values in variables.items()
        if dim not in values.dims
        or ("draw" in values.dims and bool(((values == 0) | (values == 1)).all()))
        or any(kind in str(key) for kind in (PROBABILITY.variable, DRAWN_MEAN))
        or key == "importance"
    ]
    return variables[named]
