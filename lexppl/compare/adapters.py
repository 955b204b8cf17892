"""Adapters: imputers for SHAP and Captum, and a posterior as SHAP's Explanation."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from scipy.stats import t
from torch import Tensor

from lexppl.argument_checks import fraction, int_at_least, one_of, shaped
from lexppl.arviz_compatibility import Posterior, group_of
from lexppl.compare.importances import check_tables, library
from lexppl.explanation.reading.feature_values import GAIN
from lexppl.explanation.reading.masks import constants_name, mask_means, masks_of
from lexppl.inference.contexts import seeded
from lexppl.models import Grouping
from lexppl.models.imputers.imputer import Imputer


class ImputerMasker:
    """Any imputer as a masker of SHAP, so that `shap.explainers.Permutation`, `Exact` and
    `Partition` give the Shapley values of

        v(S) = 1/K Σ_k f(x̃_k),    x̃_k ~ p_ι(x̃ | x_S),

    conditional (observational) ones with an imputer that conditions on what is kept
    (:class:`~lexppl.models.imputers.ConditionalGaussianImputer`), SHAP's own interventional ones,
    of K random background rows, with a :class:`~lexppl.models.imputers.MarginalImputer`. Every mask
    and every row is imputed with the same random numbers: values sum to f(x) − v(∅) exactly, and
    another seed shows the noise that is left.

    Args:
        imputer: the distribution of the hidden features, for rows `(D,)`; of the type in which it
            is to run.
        imputations: K.
        grouping: which columns make a mask entry; values are then `(B, G)`. Give the explainer
            `feature_names=list(grouping.names)`. The data of the explanation are the columns' for
            entries of one column and NaN for others.
        clustering: a linkage matrix of the entries, `(G − 1, 4)`, as of
            `scipy.cluster.hierarchy.linkage`, by which `Partition` (which needs one) and the
            others give Owen values; None for Shapley values.

    Raises:
        TypeError: `imputer` is no :class:`~lexppl.models.imputers.Imputer`.
        ValueError: counts below 1, rows that are no table, a grouping of other features.

    Source: Lundberg and Lee 2017, eq. 9; Aas, Jullum, Løland 2021.

    Example:
        >>> from lexppl.models.imputers.conditional_gaussian import ConditionalGaussianImputer
        >>> covariance = torch.tensor([[1.0, 0.8], [0.8, 1.0]])
        >>> masker = ImputerMasker(ConditionalGaussianImputer(torch.zeros(2), covariance), 1000)
        >>> rows = masker(np.array([True, False]), np.array([2.0, 0.0]))
        >>> rows.shape, bool((rows[:, 0] == 2).all()), abs(float(rows[:, 1].mean()) - 1.6) < 0.1
        ((1000, 2), True, True)
    """

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
        self.imputations = int_at_least("imputations", imputations)
        self.seed = int_at_least("seed", seed, 0)
        event = imputer.event_shape
        if event is not None and (
            len(event) != 1 or (grouping is not None and grouping.features != event[0])
        ):
            raise ValueError(
                f"imputer must be of tables, rows (D,) with the features of the grouping; its rows "
                f"are {tuple(event)}"
            )
        self.imputer, self.grouping, self.clustering = imputer, grouping, clustering
        if grouping is not None:
            self.data_transform = self._entry_values

    def shape(self, x: np.ndarray) -> tuple[int, int]:
        """Rows a mask, K, and mask entries, G."""
        return self.imputations, self._entries(x)

    def mask_shapes(self, x: np.ndarray) -> list[tuple[int]]:
        """The shape of a row's values, `(G,)`."""
        return [(self._entries(x),)]

    def __call__(self, mask: Any, x: np.ndarray) -> np.ndarray:
        """Imputed rows `(K, D)` of one row `(D,)` under a mask `(G,)`; True or False for all."""
        row = np.asarray(x)
        mask, shape = np.asarray(mask), (self._entries(row),)
        if mask.dtype != bool or mask.shape not in ((), shape):
            raise ValueError(f"mask must be boolean, {shape}; it is {mask.dtype} {mask.shape}")
        keep = torch.from_numpy(np.broadcast_to(mask, shape).copy())
        if self.grouping is not None:
            keep = keep[self.grouping.index.cpu()]
        like = next(self.imputer.buffers(), torch.empty(()))
        rows = torch.as_tensor(row[None].astype(np.float64)).to(like)
        with torch.no_grad(), seeded(self.seed, like.device):
            distribution = self.imputer(rows, keep[None].to(like.device))
            drawn = distribution.expand(torch.Size([self.imputations, 1])).sample()[:, 0]
        # The kept values are the row's own, though the imputer may be of a coarser type.
        return np.where(keep.numpy(), row, drawn.double().cpu().numpy())

    def _entries(self, x: np.ndarray) -> int:
        event = self.imputer.event_shape
        features = self.grouping.features if self.grouping else event[0] if event else len(x)
        shaped("x", x, (features,))
        return self.grouping.entries if self.grouping else len(x)

    def _entry_values(self, x: np.ndarray) -> list[np.ndarray]:
        """The value of each entry of one column, NaN for others."""
        grouping = self.grouping or Grouping.identity(len(x))
        index = grouping.index.cpu().numpy()
        alone = np.bincount(index) == 1
        values = np.full(grouping.entries, np.nan)
        values[index] = np.where(alone[index], x, np.nan)
        return [values]


Over = Literal["chains", "draws"]


def shap_explanation(
    posterior: Posterior,
    *,
    over: Over | None = None,
    level: float = 0.95,
    given_y: bool = False,
    values: Literal["masks", "gains"] = "masks",
) -> Any:
    """What :func:`lexppl.explain` returned as a `shap.Explanation`.

    - `values` `(B, G)`: the mean of the mask over R chains and D draws. They are probabilities of
      being kept, and not parts of the model's output, to which they do not sum; there is no base
      value.
    - `error_std` `(B, G)`: the standard error of that mean. Over chains, s/√R with the standard
      deviation s of the R chains' means. Over draws, s √(1/(RD) + 1/Σ_r ESS_r), with the standard
      deviation s of all draws and the effective number of proposals ESS of masks given y (without
      y, only s/√(RD)).
    - `lower_bounds`, `upper_bounds` `(B, G)`: over chains, mean ± t_{R−1} · s/√R, cut at 0 and 1;
      over draws, the equal-tailed quantiles of the mask itself.
    - `data`: the rows, where each entry is one column; else NaN. `feature_names`: of the entries.

    Args:
        posterior: of :func:`lexppl.explain`; of several mask sites the first.
        over: "chains" (needs two) or "draws"; if None chains where there are several.
        given_y: of masks given x and y, of a posterior that was given y; else given x alone.
        values: "gains" for the gains of rows, in nats, without bounds, of a posterior that has them
            (`posterior.nc` of `lexppl explain`).

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
        >>> shap_explanation(posterior).values
        array([[1. , 0.5]])
    """
    one_of((None, "chains", "draws"), "over", over)
    level = fraction("level", level)
    one_of(("masks", "gains"), "values", values)
    site = mask_means(posterior).attrs["site"]
    mask = masks_of(posterior, given_y)[site]
    names = [str(name) for name in mask[mask.dims[-1]].values]
    if values == "gains":
        gains = group_of(posterior, "sample_stats").get(GAIN)
        if gains is None:
            raise ValueError("the posterior has no gains of rows")
        data = _data_like(posterior, gains.values)
        return library("shap").Explanation(gains.values, data=data, feature_names=names)
    chains = mask.sizes["chain"]
    over = over or ("chains" if chains > 1 else "draws")
    if over == "chains" and chains < 2:
        raise ValueError("bounds over chains need two: fit(…, replicates=2), or over='draws'")
    mean = mask.mean(("chain", "draw"), dtype=np.float64).values
    tails = ((1 - level) / 2, (1 + level) / 2)
    if over == "chains":
        error = mask.mean("draw", dtype=np.float64).values.std(0, ddof=1) / np.sqrt(chains)
        half = t.ppf(tails[1], chains - 1) * error
        lower, upper = (mean - half).clip(0.0, 1.0), (mean + half).clip(0.0, 1.0)
    else:
        share = np.full((len(mean), 1), 1.0 / (chains * mask.sizes["draw"]))
        ess = group_of(posterior, "sample_stats").get("weight_ess") if given_y else None
        if ess is not None:
            share = share + 1.0 / ess.sum("chain").values[:, None]
        error = mask.astype(np.float64).std(("chain", "draw")).values * np.sqrt(share)
        lower, upper = mask.quantile(
            tails, ("chain", "draw"), method="inverted_cdf", skipna=False
        ).values
    return library("shap").Explanation(
        mean,
        data=_data_like(posterior, mean),
        feature_names=names,
        lower_bounds=lower,
        upper_bounds=upper,
        error_std=error,
    )


def _data_like(posterior: Posterior, values: np.ndarray) -> np.ndarray:
    """The rows, where each entry is one column; else NaN."""
    try:
        data: np.ndarray = group_of(posterior, constants_name(posterior))["x"].values
    except (ValueError, KeyError):
        data = np.empty(0)
    return data if data.shape == values.shape else np.full(values.shape, np.nan)


def conditional_baselines(
    imputer: Imputer, x: Tensor, *, draws: int = 1, grouping: Grouping | None = None, seed: int = 0
) -> Tensor:
    """Baselines that know the rest of the row, `(L, B, D)`, for methods of Captum that replace one
    feature (or one group) at a time, such as `FeatureAblation`:

        b_d ~ p_ι(x̃_d | x_{¬d}),    with groups: b_g ~ p_ι(x̃_g | x_{¬g}) .

    **Conditional** only for one replacement at a time: for methods that replace several entries at
    once (`ShapleyValueSampling`, `KernelShap`) take :class:`lexppl.compare.ImputerMasker`.

    Args:
        x: rows to be explained, `(B, D)`.
        draws: L; average the attributions over them.
        grouping: which columns are replaced together; give `FeatureAblation` its index as
            `feature_mask=grouping.index[None]`.

    Raises:
        TypeError, ValueError: no imputer, rows that it does not take, counts below 1, a grouping of
            other features.

    Example:
        >>> from captum.attr import FeatureAblation
        >>> from lexppl.models.imputers.conditional_gaussian import ConditionalGaussianImputer
        >>> imputer = ConditionalGaussianImputer(torch.zeros(2), torch.eye(2))
        >>> network, x = torch.nn.Sequential(torch.nn.Linear(2, 1)), torch.ones(4, 2)
        >>> method = FeatureAblation(network)
        >>> each = [method.attribute(x, b) for b in conditional_baselines(imputer, x, draws=20)]
        >>> torch.stack(each).mean(0).shape
        torch.Size([4, 2])
    """
    if not isinstance(imputer, Imputer):
        raise TypeError(f"imputer must be an Imputer; it is {type(imputer).__name__}")
    int_at_least("draws", draws)
    int_at_least("seed", seed, 0)
    check_tables(grouping, x=x)
    if grouping is None:
        grouping = Grouping.identity(x.shape[1])
    index = grouping.index.to(x.device)
    others = ~torch.eye(grouping.entries, dtype=torch.bool, device=x.device)[:, index]
    columns = torch.arange(x.shape[1], device=x.device)
    with torch.no_grad(), seeded(seed, x.device):
        distribution = imputer(x, others[:, None, :])
        drawn: Tensor = distribution.expand(torch.Size([draws, grouping.entries, len(x)])).sample()
    return drawn[:, index, :, columns].movedim(0, -1)
