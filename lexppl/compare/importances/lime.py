"""LIME: a linear model of the prediction around each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.compare.extra import library
from lexppl.compare.importances.checks import check_tables
from lexppl.compare.importances.grouped import grouped_importances
from lexppl.compare.importances.numpy_model import NumpyModel, array_of, black_box_of
from lexppl.compare.importances.random_state import all_seeded, numpy_seed
from lexppl.models import Grouping


def lime_importances(
    model: Any,
    x: Tensor,
    background: Tensor,
    *,
    grouping: Grouping | None = None,
    samples: int = 5000,
    seed: int = 0,
) -> Tensor:
    """Absolute weights of LIME's local linear model, by `LimeTabularExplainer` at its defaults.

    Around each row, rows are drawn from the background's columns, one by one, and a ridge
    regression, weighted by distance, of the model's output on "the feature is in the same
    quartile as the row's" gives the weights. A column of at most two values in the background is
    taken as a category. What is explained is the probability of the row's likeliest class, or the
    response.

    Args:
        model: as :func:`lexppl.compare.shap_importances`.
        x: rows, `(B, D)`; each is explained by itself.
        background: training rows, `(N, D)`.
        grouping: which columns make a mask entry; their absolute weights are summed.
        samples: rows drawn around each row.
        seed: of the draws. Global random state is left alone.

    Returns:
        `(B, G)`.

    Raises:
        ImportError: without the `compare` extra.
        ValueError, TypeError: as :func:`lexppl.compare.shap_importances`.

    Source:
        Ribeiro, Singh, Guestrin 2016; the library `lime`, which computes it.

    Example:
        >>> rows = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
        >>> def first(rows): return 1 / (1 + np.exp(-3 * rows[:, 0]))
        >>> lime_importances(first, rows[:2], rows, samples=500).argmax(1)
        tensor([0, 0])
    """
    check_tables(grouping, x=x, background=background)
    samples = int_at_least("samples", samples)
    box = black_box_of(model)
    lime_tabular = library("lime.lime_tabular")
    asked, rows = NumpyModel(box, like=x), array_of(x)
    table = array_of(background)
    of_labels = box.task == "classification"
    found = np.zeros(rows.shape)
    with all_seeded(seed, x.device):
        explainer = lime_tabular.LimeTabularExplainer(
            table,
            mode=box.task,
            categorical_features=[d for d, column in enumerate(table.T) if _two_valued(column)],
            random_state=numpy_seed(seed),
        )
        chosen = box.targets(x).argmax(1).tolist() if of_labels else [1] * len(x)
        # The library explains one row at a time.
        for n, label in enumerate(chosen):
            explained = explainer.explain_instance(
                rows[n], asked, labels=(label,), num_features=x.shape[1], num_samples=samples
            )
            columns, weights = zip(*explained.local_exp[label], strict=True)
            found[n, list(columns)] = weights
    return grouped_importances(torch.from_numpy(found).to(x), grouping)


def _two_valued(column: np.ndarray) -> bool:
    return bool(((column == column.min()) | (column == column.max())).all())
