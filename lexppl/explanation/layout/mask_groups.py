"""In which groups of a posterior the masks, the responses and the rows stand.

| group | what its draws are |
|---|---|
| `predictions` | z and y of each row given x alone, θ from its posterior: y is not looked at |
| `posterior` | θ given the data; with y z given x and y, where no θ stands beside them |
| `posterior_of_rows` | z given x and y of each row, where θ stands in `posterior` |
| `posterior_predictive` | new responses given x and y |
| `prior`, `prior_predictive` | θ from its prior, z and y given x and that θ |

θ are the latents that all rows share. What `az.summary` and `plot_trace` read of a program that has
some, `prior` and `posterior`, has no array by row.
"""

import xarray as xr

from lexppl.arviz_compatibility import Posterior, group_names, group_of

GIVEN_X, GIVEN_XY, OF_ROWS = "predictions", "posterior", "posterior_of_rows"
NEW_Y = "posterior_predictive"
PRIOR, PRIOR_Y = "prior", "prior_predictive"
CONSTANTS = "constant_data"
RESPONSES = ("y", "y_probability")
"""Variables of responses, beside which masks may stand."""
GUIDE = "guide"
"""What is drawn beside z given x, z given x and y, and from the prior: z from the guide."""
BY_GUIDE = "_by_guide"
"""After the name of a mask site, that of what the guide draws in its place."""
MEAN_OF, EACH_DRAW = "mean_of", "p(z | x, θ)"
"""The attribute of E[z | x, θ_d] by which it differs from masks, and its value."""


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
