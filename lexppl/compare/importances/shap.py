"""SHAP: Shapley values of a model's prediction."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.compare.extra import library
from lexppl.compare.importances.checks import check_tables
from lexppl.compare.importances.grouped import grouped_importances, likeliest_class
from lexppl.compare.importances.numpy_model import NumpyModel, array_of, black_box_of
from lexppl.compare.importances.random_state import all_seeded, numpy_seed
from lexppl.models import Grouping


def shap_importances(
    model: Any,
    x: Tensor,
    background: Tensor,
    *,
    grouping: Grouping | None = None,
    background_rows: int = 100,
    permutations: int = 10,
    seed: int = 0,
) -> Tensor:
    r"""Absolute SHAP values, by `shap.explainers.Permutation` over background rows:

        φ_d = E_π[v(S_π ∪ d) − v(S_π)],    v(S) = 1/M Σ_m f(x_S, r^m_{¬S}),

    with S_π what stands before d in a random order π (each order is walked both ways), r the
    background rows, and f the probability of the row's likeliest class, or the response. Hidden
    features are those of a background row whatever is kept, so that φ is interventional; for
    conditional ones see :class:`lexppl.compare.ImputerMasker`.

    Args:
        model: what is explained: a `Predictor`, a full predictor, an estimator of scikit-learn, a
            function such as `predict_proba`, or a black box.
        x: rows, `(B, D)`.
        background: training rows, `(N, D)`.
        grouping: which columns make a mask entry; their absolute values are summed.
        background_rows: M, drawn from the background without replacement; all if it has fewer.
        permutations: orders a row; the model is asked for up to `M (2D + 1)` rows in each.
        seed: of the background rows and the orders. Global random state is left alone.

    Returns:
        `(B, G)`, in the units of f.

    Raises:
        ImportError: without the `compare` extra.
        ValueError, TypeError: rows or counts that do not fit; as
            :func:`~lexppl.models.black_box.black_box` and its model.

    Source:
        Lundberg and Lee 2017; the library `shap`, which computes it.

    Example:
        >>> rows = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
        >>> def first(rows): return 1 / (1 + (-rows[:, 0]) ** 2)
        >>> shap_importances(first, rows[:2], rows).argmax(1)
        tensor([0, 0])
    """
    check_tables(grouping, x=x, background=background)
    background_rows = int_at_least("background_rows", background_rows)
    permutations = int_at_least("permutations", permutations)
    box = black_box_of(model)
    shap = library("shap")
    with all_seeded(seed, x.device):
        chosen = background[torch.randperm(len(background))[:background_rows].to(x.device)]
        masker = shap.maskers.Independent(array_of(chosen), max_samples=len(chosen))
        explainer = shap.explainers.Permutation(
            NumpyModel(box, like=x), masker, seed=numpy_seed(seed)
        )
        evaluations = permutations * (2 * x.shape[1] + 1)
        explained = explainer(array_of(x), max_evals=evaluations, silent=True)
        values = torch.from_numpy(explained.values)
        if values.dim() == 3:
            values = likeliest_class(values, box.targets(x).cpu())
    return grouped_importances(values.to(x), grouping)
