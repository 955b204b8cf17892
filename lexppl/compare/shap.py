"""SHAP: a masker that imputes, and a posterior as its Explanation."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from scipy.stats import t
from torch import Tensor

from lexppl.argument_checks import fraction, int_at_least
from lexppl.arviz_compatibility import Posterior, group_of
from lexppl.compare.common import library
from lexppl.explanation.layout.importance_kind import mask_means
from lexppl.explanation.layout.mask_groups import are_given_y, constants_name, masks_of
from lexppl.inference.contexts import seeded
from lexppl.models import Grouping
from lexppl.models.imputers.imputer import Imputer

NO_CHANGE = 2**31 - 1
"""SHAP's code, in a list of toggles, for a mask that is the same as the one before."""
NUMBERS_AT_ONCE = 2**24
"""Numbers of imputed features, and of the masks' own D × D matrices, that are held at once."""


class ImputerMasker:
    r"""Any imputer as a masker of SHAP, so that `shap.explainers.Permutation`, `Exact` and
    `Partition` give the Shapley values of

        v(S) = 1/K Σ_k f(x̃_k),    x̃_k ~ p_ι(x̃ | x_S),

    the model's expectation given the kept features alone. With an imputer that conditions on what
    is kept (:class:`~lexppl.models.imputers.ConditionalGaussianImputer`) they are conditional
    (observational) Shapley values; with a :class:`~lexppl.models.imputers.MarginalImputer` they
    are SHAP's own interventional ones, with K random background rows.

    The draws are a function of the seed, the mask and the row: every mask and every row is imputed
    with the same random numbers. So one row explained twice gives the same values, the base value
    v(∅) is that of every row, values sum to f(x) − v(∅) exactly, and differences between masks
    carry less noise than independent draws would. The noise that is left is common to all rows;
    another seed shows how large it is. Global random state is left alone.

    Args:
        imputer: the distribution of the hidden features, for rows `(D,)`; of the type in which it
            is to run. It must do so under `torch.func.vmap`, as those of
            `lexppl.models.imputers` do.
        imputations: K.
        grouping: which columns make a mask entry, to be kept or hidden together; values are then
            one an entry, `(B, G)`. Give the explainer the entries' names, as in
            `feature_names=list(grouping.names)`. The data of the explanation are the columns' for
            entries of one column and NaN for others.
        clustering: a linkage matrix of the entries, `(G − 1, 4)`, as of
            `scipy.cluster.hierarchy.linkage`, by which `Partition` (which needs one) and the
            others give Owen values; None for Shapley values.
        seed: of the draws.

    Raises:
        TypeError: `imputer` is no :class:`~lexppl.models.imputers.Imputer`.
        ValueError: counts below 1, a grouping of other features, a clustering of another shape.

    Source:
        Lundberg and Lee 2017, eq. 9 (the conditional expectation that SHAP sets out from);
        Aas, Jullum, Løland 2021 (conditional Gaussian imputation for it).

    Example:
        >>> from lexppl.models.imputers.conditional_gaussian import ConditionalGaussianImputer
        >>> covariance = torch.tensor([[1.0, 0.8], [0.8, 1.0]])
        >>> masker = ImputerMasker(ConditionalGaussianImputer(torch.zeros(2), covariance), 1000)
        >>> rows = masker(np.array([True, False]), np.array([2.0, 0.0]))
        >>> rows.shape, bool((rows[:, 0] == 2).all()), abs(float(rows[:, 1].mean()) - 1.6) < 0.1
        ((1000, 2), True, True)
    """

    supports_delta_masking = True
    immutable_outputs = True

    def __init__(
        self,
        imputer: Imputer,
        imputations: int = 100,
        *,
        grouping: Grouping | None = None,
        clustering: np.ndarray | None = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(imputer, Imputer):
            raise TypeError(f"imputer must be an Imputer; it is {type(imputer).__name__}")
        imputations = int_at_least("imputations", imputations)
        seed = int_at_least("seed", seed, 0)
        event = imputer.event_shape
        if event is not None and len(event) != 1:
            raise ValueError(f"imputer must be of tables, rows (D,); its rows are {tuple(event)}")
        if grouping is not None and event is not None and grouping.features != event[0]:
            raise ValueError(
                f"grouping is of {grouping.features} features, and imputer of {event[0]}"
            )
        if clustering is not None and np.shape(clustering)[1:] != (4,):
            raise ValueError(
                "clustering must be a linkage matrix (G - 1, 4); it has shape "
                f"{np.shape(clustering)}"
            )
        self.imputer = imputer
        self.imputations = imputations
        self.grouping = grouping
        self.clustering = None if clustering is None else np.asarray(clustering)
        self.seed = seed
        if grouping is not None:
            self.data_transform = self._entry_values

    def shape(self, x: np.ndarray) -> tuple[int, int]:
        """Rows a mask, K, and mask entries, G."""
        return self.imputations, self._entries(x)

    def mask_shapes(self, x: np.ndarray) -> list[tuple[int]]:
        """The shape of a row's values, `(G,)`."""
        return [(self._entries(x),)]

    def __call__(self, mask: Any, x: np.ndarray) -> Any:
        """Imputed rows of one row under one mask, or, as SHAP asks for speed, under many.

        Args:
            mask: True or False for all entries; a boolean array `(G,)`; or a list of toggles, of
                integers: entry g is flipped by g, or by −g − 1 where the mask is not yet complete.
            x: one row, `(D,)`.

        Returns:
            `(K, D)`; of toggles giving M masks, `((rows (M·K, D),), all-true (M, K))`.

        Raises:
            ValueError: a row or mask of another length.
        """
        row = np.asarray(x)
        features = self.imputer.event_shape
        if row.ndim != 1 or (features is not None and len(row) != features[0]):
            expected = "(D,)" if features is None else tuple(features)
            raise ValueError(f"x must be one row, shape {expected}; it has shape {row.shape}")
        entries = self._entries(row)
        if isinstance(mask, bool | np.bool_):
            mask = np.full(entries, mask)
        mask = np.asarray(mask)
        if np.issubdtype(mask.dtype, np.integer):
            masks = _toggled(mask, entries)
            rows = self._imputed(masks, row).reshape(-1, len(row))
            return (rows,), np.ones((len(masks), self.imputations), dtype=bool)
        if mask.dtype != bool or mask.shape != (entries,):
            raise ValueError(
                f"mask must be boolean of shape ({entries},); it is {mask.dtype} of shape "
                f"{mask.shape}"
            )
        return self._imputed(mask[None], row)[0]

    def _entries(self, x: np.ndarray) -> int:
        if self.grouping is None:
            return len(x)
        if self.grouping.features != len(x):
            raise ValueError(
                f"x must have {self.grouping.features} features, those of the grouping; it has "
                f"{len(x)}"
            )
        return self.grouping.entries

    def _imputed(self, masks: np.ndarray, row: np.ndarray) -> np.ndarray:
        """`(M, K, D)` of M masks, the random numbers of each being the same."""
        like = next(self.imputer.buffers(), torch.empty(()))
        x = torch.as_tensor(row[None].astype(np.float64)).to(like)
        keep = torch.from_numpy(masks).to(like.device)
        if self.grouping is not None:
            keep = keep[:, self.grouping.index.to(like.device)]

        def impute(kept: Tensor) -> Tensor:
            distribution = self.imputer(x, kept)
            drawn: Tensor = distribution.expand(torch.Size([self.imputations, 1])).sample()
            return drawn[:, 0]

        width = len(row) * max(self.imputations, len(row))
        parts = []
        with torch.no_grad():
            for chunk in keep.split(max(1, NUMBERS_AT_ONCE // width)):
                with seeded(self.seed, like.device):
                    parts.append(torch.func.vmap(impute, randomness="same")(chunk))
        # The kept values are the row's own, though the imputer may be of a coarser type.
        return np.where(keep.cpu().numpy()[:, None], row, torch.cat(parts).double().cpu().numpy())

    def _entry_values(self, x: np.ndarray) -> list[np.ndarray]:
        """The value of each entry of one column, NaN for others."""
        grouping = self.grouping or Grouping.identity(len(x))
        index = grouping.index.cpu().numpy()
        alone = np.bincount(index) == 1
        values = np.full(grouping.entries, np.nan)
        values[index] = np.where(alone[index], x, np.nan)
        return [values]


def _toggled(toggles: np.ndarray, entries: int) -> np.ndarray:
    """Masks `(M, G)` that SHAP's list of toggles walks through, from nothing kept.

    >>> _toggled(np.array([NO_CHANGE, 0, -1, 1]), 2)
    array([[False, False],
           [ True, False],
           [False,  True]])
    """
    flips = np.zeros((len(toggles), entries), dtype=np.int64)
    places = np.where(toggles < 0, -toggles - 1, toggles)
    real = toggles != NO_CHANGE
    flips[np.nonzero(real)[0], places[real]] = 1
    return np.asarray(flips.cumsum(0)[toggles >= 0] % 2 == 1)


Over = Literal["chains", "draws"]


def shap_explanation(
    posterior: Posterior,
    *,
    over: Over | None = None,
    level: float = 0.95,
    given_y: bool = False,
) -> Any:
    r"""What :func:`lexppl.explain` returned as a `shap.Explanation`.

    - `values` `(B, G)`: the mean of the mask over R chains and D draws, the share of them in which
      row b keeps entry g. They are probabilities of being kept, between 0 and 1, and not parts of
      the model's output, to which they do not sum; there is no base value.
    - `error_std` `(B, G)`: the standard error of that mean. Over chains, s/√R with the standard
      deviation s of the R chains' means: what another seed of the fit would change. Over draws,
      s √(1/(RD) + 1/Σ_r ESS_r), with the standard deviation s of all draws and the effective
      number of proposals ESS of masks given y (without y, only s/√(RD)): what more draws would
      change.
    - `lower_bounds`, `upper_bounds` `(B, G)`: over chains, the t-interval of the mean,
      mean ± t_{R−1} · s/√R, cut at 0 and 1; over draws, the equal-tailed quantiles of the mask
      itself, which for masks of 0 and 1 say whether the entry is kept in nearly all draws (1, 1),
      nearly none (0, 0), or neither (0, 1).
    - `data`: the rows, where each entry is one column; else NaN. `feature_names`: of the entries.

    Args:
        posterior: of :func:`lexppl.explain`; of several mask sites the first.
        over: "chains" (needs two) or "draws"; if None chains where there are several.
        level: of the bounds.
        given_y: of masks given x and y, of a posterior that was given y; else given x alone.

    Returns:
        `shap.Explanation`.

    Raises:
        ImportError: without the `compare` extra.
        TypeError, ValueError: not a posterior of `explain`, chains that are not there, a level
            outside (0, 1).

    Example:
        >>> import xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> mask = np.array([[[[1, 0]], [[1, 1]]]], dtype=np.int8)
        >>> dims = ("chain", "draw", "row", "feature")
        >>> posterior = posterior_of({
        ...     "predictions": xr.Dataset({"mask": (dims, mask)}, {"feature": ["age", "height"]}),
        ...     "sample_stats": xr.Dataset({"selection_probability": (
        ...         ("chain", "row", "feature"), mask.mean(1), {"site": "mask"})}),
        ... }, {})
        >>> explanation = shap_explanation(posterior)
        >>> explanation.values, explanation.feature_names
        (array([[1. , 0.5]]), ['age', 'height'])
    """
    if over not in (None, "chains", "draws"):
        raise ValueError(f"over must be 'chains', 'draws' or None; it is {over!r}")
    level = fraction("level", level)
    stats = group_of(posterior, "sample_stats")
    site = mask_means(posterior).attrs["site"]
    mask = masks_of(posterior, given_y)[site]
    ess = stats.get("weight_ess") if given_y or are_given_y(posterior) else None
    chains = mask.sizes["chain"]
    if over is None:
        over = "chains" if chains > 1 else "draws"
    if over == "chains" and chains < 2:
        raise ValueError(
            "bounds over chains need two or more, as fit(…, replicates=2) gives; the posterior "
            "has one. Say over='draws'"
        )
    shap = library("shap")
    mean = mask.mean(("chain", "draw"), dtype=np.float64).values
    tails = ((1 - level) / 2, (1 + level) / 2)
    if over == "chains":
        error = mask.mean("draw", dtype=np.float64).values.std(0, ddof=1) / np.sqrt(chains)
        half = t.ppf(tails[1], chains - 1) * error
        lower, upper = (mean - half).clip(0.0, 1.0), (mean + half).clip(0.0, 1.0)
    else:
        share = np.full((len(mean), 1), 1.0 / (chains * mask.sizes["draw"]))
        if ess is not None:
            share = share + 1.0 / ess.sum("chain").values[:, None]
        error = mask.astype(np.float64).std(("chain", "draw")).values * np.sqrt(share)
        lower, upper = mask.quantile(
            tails, ("chain", "draw"), method="inverted_cdf", skipna=False
        ).values
    names = [str(name) for name in mask[mask.dims[-1]].values]
    return shap.Explanation(
        mean,
        data=_data(posterior, mean.shape),
        feature_names=names,
        lower_bounds=lower,
        upper_bounds=upper,
        error_std=error,
    )


def _data(posterior: Posterior, shape: tuple[int, ...]) -> np.ndarray:
    """The rows where they have a column for each entry, else NaN."""
    try:
        x = group_of(posterior, constants_name(posterior))["x"].values
    except (ValueError, KeyError):
        return np.full(shape, np.nan)
    return x if x.shape == shape else np.full(shape, np.nan)
