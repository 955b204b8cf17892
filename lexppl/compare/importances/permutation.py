"""Permutation importance: what a model loses when a feature is shuffled."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.inspection import permutation_importance
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.compare.importances.checks import check_tables
from lexppl.compare.importances.numpy_model import black_box_of
from lexppl.compare.importances.random_state import all_seeded, numpy_seed
from lexppl.models import Grouping
from lexppl.models.black_box import BlackBox


def permutation_importances(
    model: Any,
    x: Tensor,
    scored: tuple[Tensor, Tensor],
    *,
    grouping: Grouping | None = None,
    repeats: int = 5,
    seed: int = 0,
) -> Tensor:
    """Permutation importances of a model, the same for every row, by
    `sklearn.inspection.permutation_importance`:

        I_g = score(x, y) − E_π[score(x with the columns of g shuffled by π, y)]

    The score is the mean log-likelihood of the labels in nats, or for responses minus the mean
    squared error. The columns of an entry are shuffled together, so that one-hot columns stay one
    category. An entry that the model does not use has about 0, of either sign.

    Args:
        model: as :func:`lexppl.compare.shap_importances`.
        x: rows, `(B, D)`; only their number matters.
        scored: rows `(N, D)` and their labels or responses `(N,)` on which the model is scored.
        grouping: which columns make a mask entry.
        repeats: shuffles of each entry.
        seed: of the shuffles. Global random state is left alone.

    Returns:
        `(B, G)`, each row the same.

    Raises:
        ValueError, TypeError: as :func:`lexppl.compare.shap_importances`; y of another length or
            type.

    Source:
        Breiman 2001; Fisher, Rudin, Dominici 2019; scikit-learn, which computes it.

    Example:
        >>> rows = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
        >>> def first(rows): return 1 / (1 + np.exp(-3 * rows[:, 0]))
        >>> permutation_importances(first, rows[:1], (rows, (rows[:, 0] > 0).long())).argmax(1)
        tensor([0])
    """
    rows, y = scored
    check_tables(grouping, x=x, scored=rows)
    repeats = int_at_least("repeats", repeats)
    box = black_box_of(model)
    if y.shape != rows.shape[:1] or y.is_floating_point() != (box.task == "regression"):
        kind = "responses" if box.task == "regression" else "labels"
        raise ValueError(
            f"scored must have {kind} of shape ({len(rows)},); they are {y.dtype} of shape "
            f"{tuple(y.shape)}"
        )
    entries = rows.shape[1] if grouping is None else grouping.entries
    index = torch.arange(entries) if grouping is None else grouping.index.cpu()
    entrywise = _EntrywiseRows(box, rows, index)
    # scikit-learn shuffles columns; here a column is an entry, and holds numbers of rows.
    numbers = np.repeat(np.arange(len(rows))[:, None], entries, 1)
    with all_seeded(seed, x.device):
        found = permutation_importance(
            entrywise,
            numbers,
            y.cpu().numpy(),
            scoring=_score,
            n_repeats=repeats,
            random_state=numpy_seed(seed),
        )
    return torch.from_numpy(found.importances_mean).to(x).expand(len(x), -1).clone()


class _EntrywiseRows(BaseEstimator):
    """A black box asked for rows that are put together from several, entry by entry."""

    def __init__(self, box: BlackBox, rows: Tensor, index: Tensor) -> None:
        self.box = box
        self.rows = rows
        self.index = index

    def fit(self, numbers: np.ndarray, y: np.ndarray) -> _EntrywiseRows:
        """Nothing: the model is fitted; scikit-learn asks for the method."""
        return self

    def predict(self, numbers: np.ndarray) -> Tensor:
        """What the model says where entry g is that of row `numbers[n, g]`."""
        chosen = torch.from_numpy(numbers)[:, self.index].to(self.rows.device)
        return self.box.targets(self.rows.gather(0, chosen)).double().cpu()


def _score(model: _EntrywiseRows, numbers: np.ndarray, y: np.ndarray) -> float:
    outputs, truth = model.predict(numbers), torch.from_numpy(y)
    if outputs.dim() == 1:
        return -float((outputs - truth.double()).square().mean())
    likelihood = outputs.gather(1, truth.long()[:, None]).clamp(min=torch.finfo(outputs.dtype).tiny)
    return float(likelihood.log().mean())
