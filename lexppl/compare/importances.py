"""Importances by SHAP, permutation, LIME and TabNet."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lexppl.argument_checks import fraction, int_at_least
from lexppl.compare.common import (
    all_seeded,
    array_of,
    black_box_of,
    check_tables,
    grouped_importances,
    library,
    numpy_model,
    numpy_seed,
)
from lexppl.models import Grouping
from lexppl.models.black_box import BlackBox


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
    """Absolute SHAP values `(B, G)` of f, by `shap.explainers.Permutation` over M background rows
    r:

        φ_d = E_π[v(S_π ∪ d) − v(S_π)],    v(S) = 1/M Σ_m f(x_S, r^m_{¬S}),

    interventional: hidden features are those of a background row (Lundberg and Lee 2017).
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
            numpy_model(box, like=x), masker, seed=numpy_seed(seed)
        )
        evaluations = permutations * (2 * x.shape[1] + 1)
        explained = explainer(array_of(x), max_evals=evaluations, silent=True)
        values = torch.from_numpy(explained.values)
        if values.dim() == 3:
            likeliest = box.targets(x).cpu().argmax(1)
            values = values[torch.arange(len(values)), :, likeliest]
    return grouped_importances(values.to(x), grouping)


def permutation_importances(
    model: Any,
    x: Tensor,
    scored: tuple[Tensor, Tensor],
    *,
    grouping: Grouping | None = None,
    repeats: int = 5,
    seed: int = 0,
) -> Tensor:
    """Permutation importances of a model, `(B, G)`, the same for every row, score the mean
    log-likelihood in nats or minus the mean squared error (Breiman 2001; Fisher, Rudin, Dominici
    2019):

        I_g = score(x, y) − E_π[score(x with the columns of g shuffled by π, y)].
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
    groups = Grouping.identity(rows.shape[1]) if grouping is None else grouping
    generator = torch.Generator().manual_seed(int_at_least("seed", seed, 0))
    found = torch.zeros(groups.entries, dtype=torch.float64)
    for entry in range(groups.entries):
        columns = groups.index.to(rows.device) == entry
        for _ in range(repeats):
            order = torch.randperm(len(rows), generator=generator).to(rows.device)
            found[entry] -= _score(box, torch.where(columns, rows[order], rows), y)
    found = found / repeats + _score(box, rows, y)
    return found.to(x).expand(len(x), -1).clone()


def _score(box: BlackBox, rows: Tensor, y: Tensor) -> float:
    outputs = box.targets(rows).double()
    if outputs.dim() == 1:
        return -float((outputs - y).square().mean())
    likelihood = outputs.gather(1, y.long()[:, None]).clamp(min=torch.finfo(outputs.dtype).tiny)
    return float(likelihood.log().mean())


def lime_importances(
    model: Any,
    x: Tensor,
    background: Tensor,
    *,
    grouping: Grouping | None = None,
    samples: int = 5000,
    seed: int = 0,
) -> Tensor:
    """Absolute weights `(B, G)` of LIME's local linear model, by `LimeTabularExplainer` at its
    defaults; a column of at most two values in the background is a category (Ribeiro, Singh,
    Guestrin 2016).
    """
    check_tables(grouping, x=x, background=background)
    samples = int_at_least("samples", samples)
    box = black_box_of(model)
    lime_tabular = library("lime.lime_tabular")
    outputs, rows = numpy_model(box, like=x), array_of(x)
    table = array_of(background)
    two_valued = ((table == table.min(0)) | (table == table.max(0))).all(0)
    of_labels = box.task == "classification"
    found = np.zeros(rows.shape)
    with all_seeded(seed, x.device):
        explainer = lime_tabular.LimeTabularExplainer(
            table,
            mode=box.task,
            categorical_features=np.flatnonzero(two_valued).tolist(),
            random_state=numpy_seed(seed),
        )
        chosen = box.targets(x).argmax(1).tolist() if of_labels else [1] * len(x)
        # The library explains one row at a time.
        for n, label in enumerate(chosen):
            explained = explainer.explain_instance(
                rows[n], outputs, labels=(label,), num_features=x.shape[1], num_samples=samples
            )
            columns, weights = zip(*explained.local_exp[label], strict=True)
            found[n, list(columns)] = weights
    return grouped_importances(torch.from_numpy(found).to(x), grouping)


def fit_tabnet(
    x: Tensor,
    y: Tensor,
    *,
    epochs: int = 100,
    batch_size: int = 1024,
    patience: int = 10,
    valid: float = 0.2,
    seed: int = 0,
    **settings: Any,
) -> Callable[[Tensor, Grouping | None], Tensor]:
    """TabNet fitted with its defaults: rows and a grouping to importances `(B, G)` (Arik, Pfister
    2021)."""
    check_tables(None, x=x)
    for name, count in (("epochs", epochs), ("batch_size", batch_size), ("patience", patience)):
        int_at_least(name, count)
    held = round(len(x) * fraction("valid", valid, of="the rows"))
    if y.shape != x.shape[:1] or not 1 <= held < len(x) - 1:
        raise ValueError(
            f"y must have shape ({len(x)},), and valid leave rows to fit and to validate; they are "
            f"{tuple(y.shape)} and {valid!r}"
        )
    models = library("pytorch_tabnet.tab_model")
    labels = not y.is_floating_point()
    estimator = models.TabNetClassifier if labels else models.TabNetRegressor
    rows = x.detach().float().cpu().numpy()
    target = y.detach().cpu().numpy() if labels else y.detach().float().cpu().numpy()[:, None]
    order = np.random.default_rng(seed).permutation(len(x))
    validating, fitting = order[:held], order[held:]
    if labels:
        # The library refuses validation labels that it has not fitted.
        validating = validating[np.isin(target[validating], target[fitting])]
    size = min(batch_size, len(fitting))
    with all_seeded(seed, x.device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = estimator(seed=seed, verbose=0, device_name=x.device.type, **settings)
        # The library prints where it stopped, whatever `verbose` is.
        with contextlib.redirect_stdout(io.StringIO()):
            network.fit(
                rows[fitting],
                target[fitting],
                eval_set=[(rows[validating], target[validating])],
                max_epochs=epochs,
                patience=patience,
                batch_size=size,
                virtual_batch_size=min(128, size),
                # Its batch normalisation cannot take one row alone.
                drop_last=len(fitting) % size == 1,
                compute_importance=False,
            )

    def importances(x: Tensor, grouping: Grouping | None) -> Tensor:
        with all_seeded(0, x.device):
            masks, _ = network.explain(x.detach().float().cpu().numpy())
        return grouped_importances(torch.from_numpy(np.asarray(masks)).to(x), grouping)

    return importances
