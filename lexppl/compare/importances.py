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
        permutations: orders a row; the model predicts up to `M (2D + 1)` rows in each.
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
    """Permutation importances of a model, the same for every row:

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
        Breiman 2001; Fisher, Rudin, Dominici 2019.

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
    """Fit TabNet, which predicts y and explains itself, with the library's defaults.

    Args:
        x: training rows, `(N, D)`.
        y: labels (of an integer type) or responses (floating), `(N,)`.
        epochs: at most so many.
        batch_size: rows of a step.
        patience: epochs without improvement on the validation rows that end the fit.
        valid: share of the rows that validate.
        seed: of the division, of initial weights and batches. Global random state is left alone.
        settings: of `TabNetClassifier`, such as `n_d`, `n_a`, `n_steps`, `gamma`, `lambda_sparse`.

    Returns:
        a function from rows `(B, D)` and a grouping (None for an entry a column) to importances
        `(B, G)`: the masks of the library's `explain`, summed over TabNet's steps by what each step
        decides, and over an entry's columns.

    Raises:
        ImportError: without the `compare` extra.
        ValueError, TypeError: rows or counts that do not fit.

    Source:
        Arik and Pfister 2021; the library `pytorch_tabnet`, which computes it.

    Example:
        >>> rows = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
        >>> importances = fit_tabnet(rows, (rows[:, 0] > 0).long(), epochs=2)
        >>> importances(rows[:5], None).shape
        torch.Size([5, 3])
    """
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
