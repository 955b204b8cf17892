"""Explainers side by side, judged by one judge on the same rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least, int_between, one_of, shaped
from lexppl.choices.methods import LIBRARIES
from lexppl.compare.figures import Figure, encoded, figures_of, with_intervals
from lexppl.compare.importances import (
    GRADIENTS,
    black_box_of,
    check_tables,
    gradient_importances,
    library,
    lime_importances,
    permutation_importances,
    shap_importances,
)
from lexppl.data import Dataset
from lexppl.evaluation import fit_evalx, fit_predictor
from lexppl.evaluation.encode_meter import check_meter_rows
from lexppl.evaluation.evalx import EvalX, FittedPredictor
from lexppl.explanation.explain import explanation_tree
from lexppl.explanation.reading.masks import mask_means
from lexppl.inference import FitResult
from lexppl.inference.training.rows import DIRICHLET
from lexppl.models import Grouping

RANDOM = "random"  # The control: a random order of the entries of each row
FIRST_SIZES = (1, 3, 5)

Table = Dataset | tuple[Tensor, Tensor]
Importances = Callable[[Tensor], Tensor]  # From rows `(B, D)` to importances `(B, G)`
Compared = str | FitResult | Importances


def _importances(
    name: str,
    options: Mapping[str, Any],
    *,
    train: tuple[Tensor, Tensor],
    model: Any,
    grouping: Grouping | None,
    seed: int,
) -> Importances:
    rows = train[0]
    shared = {"grouping": grouping, "seed": seed, **options}
    if name == "permutation":
        of_all = permutation_importances(model, rows[:1], train, **shared)
        return lambda x: of_all.expand(len(x), -1)
    if name in GRADIENTS:
        start = {"baseline": rows.mean(0)} if name == "integrated_gradients" else {}
        arguments = {"grouping": grouping, **start, **options}
        return lambda x: gradient_importances(name, model, x, **arguments)
    function: Any = {"shap": shap_importances, "lime": lime_importances}[name]
    return lambda x: function(model, x, rows, **shared)


METHODS = tuple(LIBRARIES)
"""The methods by name, which explain a model; `compare` adds "random", the control."""


def compare(
    methods: Sequence[str] | Mapping[str, Compared],
    train: Table,
    test: Table,
    *,
    valid: Table | float | None = 0.2,
    model: Any = None,
    judge: EvalX | None = None,
    sizes: Sequence[int] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    fit_options: Mapping[str, Any] | None = None,
    seconds: Mapping[str, float] | None = None,
    draws: int = 20,
    leaks: bool = False,
    seed: int = 0,
    progress: bool = False,
) -> pd.DataFrame:
    """Run explainers on the same rows, and judge them by the same measures.

    Each method gives each test row an importance for each mask entry. The rows' k most important
    entries (ties by lot) are then judged by one EVAL-X, a predictor that has seen every mask and
    that no method was fitted with, and against the truth where the test data have it.

    Columns, one row a method, in the order given, then the row "random", which a method must beat:

    - `fit_seconds`: of all that is fitted before the method can explain, the explained model
      included; for a fit that was given, of its epochs, or what `seconds` says. NaN where it is not
      known: a function, a model of another make.
    - `seconds_per_row`: of explaining the test rows; of a method by name after a first row that is
      not timed, for which libraries compile their code.
    - for each k, `accuracy@k` and `auroc@k`, EVAL-X's (for responses `r2@k` and `rmse@k`, in the
      units of y); beside them `fixed@k`, EVAL-X's accuracy (R²) where all rows keep the same k
      entries, those of the highest mean importance, a choice that cannot carry a row's label, and
      `choice@k`, the accuracy (R²) of y predicted from which entries are kept, whatever they hold:
      where `accuracy@k` is far above `fixed@k`, or `choice@k` is high, the choice may carry the
      label; with truth `tpr@k` and `fdr@k` (:func:`lexppl.evaluation.selection_scores`).
    - with truth, `tpr@truth`: the share found of a row's truly relevant entries where as many are
      kept as there are (FDR is 1 minus it).
    - with `leaks`, `encoded@k`: the nats that the choice of k entries has about y beyond their
      values (:func:`lexppl.evaluation.encode_meter`), which EVAL-X does not see; about 0 of honest
      choices, with an interval over rows and refits.
    - for each of the other figures the 95 % interval `_lower` to `_upper`: over rows, and for a
      fit of several replicates over these too, by the jackknife. It is of one judge and one
      explained model, and takes each method by itself: of the same rows two methods differ by less
      than their intervals say.

    The methods by name:

    - "shap", "lime", "saliency", "integrated_gradients", "gradient_x_input", "permutation": these
      explain a model: the probability of each row's likeliest class, or the response. Integrated
      gradients start from the mean of the training rows; permutation scores the training rows.

    Args:
        methods: names; or a mapping from names of your own to such a name, to a fit of lexppl
            (:func:`lexppl.fit`), whose importances are its mean selection probabilities E[z | x]
            over replicates, or to a function from rows `(B, D)` to importances `(B, G)`.
        train: a data set, or rows `(N, D)` and labels or responses `(N,)`. Its groups are the mask
            entries; without them each column is one.
        test: the same of rows that nothing was fitted on.
        valid: for the fits below: rows to validate, the share of train set apart, or None.
        model: the model that methods explain, as :func:`lexppl.models.black_box` takes it; if None
            a full predictor is fitted (:func:`lexppl.evaluation.fit_predictor`), which they share.
        judge: of :func:`lexppl.evaluation.fit_evalx`; if None it is fitted.
        sizes: the k; 1, 3 and 5 if None, as far as there are entries.
        options: by the method's name in the table, further arguments of its function, such as
            `{"shap": {"permutations": 5}, "lime": {"samples": 500}}`.
        fit_options: of both fits, such as `{"epochs": 50, "hidden": (64, 64)}`.
        seconds: by the method's name in the table, what a given fit took.
        draws: masks a row from which E[z | x] is estimated where the distribution does not state
            it.
        leaks: also `encoded@k`: two small fits a fold for each method and k.

    Raises:
        ImportError: a named method without its library; before any fit.
        ValueError, TypeError: unknown names, sizes outside 0 … G, data that do not fit or, with
            `leaks`, have too few rows or too few of all but the commonest label, a model
            without gradients for a method that needs them; before any fit. Importances of another
            shape or not numbers, naming the method.

    Source: EVAL-X: Jethani et al. 2021; rankings by what k features predict: Chen et al. 2018.

    Example:
        >>> x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> quick = {"epochs": 20, "hidden": (16,), "batch_size": 50, "learning_rate": 1e-2}
        >>> table = compare({"permutation": "permutation", "worst": lambda x: x.new_tensor(
        ...     [[0.0, 1.0, 2.0]]).expand(len(x), -1)}, (x[:200], y[:200]), (x[200:], y[200:]),
        ...     sizes=[1], fit_options=quick)
        >>> bool(table.loc["permutation", "accuracy@1"] > table.loc["worst", "accuracy@1"] + 0.3)
        True
    """
    options, seconds, fit_options = options or {}, seconds or {}, fit_options or {}
    named = _named(methods, options=options, seconds=seconds)
    draws, seed = int_at_least("draws", draws), int_at_least("seed", seed, 0)
    (x, y, grouping, _), (test_x, test_y, _, truth) = _tables(train, test)
    entries = x.shape[1] if grouping is None else grouping.entries
    if leaks:
        check_meter_rows(test_y, name="y of test, which leaks=True reads,")
    chosen = _sizes(sizes, entries)
    stated = {RANDOM: 0.0, **seconds}
    if judge is not None and judge.entries != entries:
        raise ValueError(f"judge has {judge.entries} mask entries; the data have {entries}")
    _check_methods(named, model, test_x)
    shared = {"valid": valid, "seed": seed, "progress": progress, **fit_options}
    explained = any(isinstance(what, str) for what in named.values())
    model, model_seconds = _model_of(model, train, explained, shared)
    if judge is None:
        judge = fit_evalx(train, **shared)

    def build(name: str, method: str) -> Importances:
        return _importances(
            method, options.get(name, {}), train=(x, y), model=model, grouping=grouping, seed=seed
        )

    control = torch.rand(len(test_x), entries, generator=torch.Generator().manual_seed(seed))
    rows = []

    def judged(ranking: Tensor) -> dict[str, Figure]:
        return figures_of(judge, ranking.to(test_x), test_x, test_y, truth, chosen, seed)

    for name, what in {**named, RANDOM: lambda _: control}.items():
        ranked, timing = _explained(what, test_x, partial(build, name), model_seconds, draws, seed)
        _check_importances(name, ranked, (len(test_x), entries))
        weighted = isinstance(what, FitResult) and what.row_weights == DIRICHLET
        figures = with_intervals(judged, ranked, weighted)
        if leaks:
            figures |= encoded(
                ranked.mean(0).to(test_x), test_x, test_y, grouping, chosen, seed, fit_options
            )
        rows.append({**timing, **figures})
        if name in stated:
            rows[-1]["fit_seconds"] = float(stated[name])
    return pd.DataFrame(rows, index=pd.Index([*named, RANDOM], name="method"))


def _check_importances(name: str, ranked: Tensor, shape: tuple[int, int]) -> None:
    shaped(f"importances of {name!r}", ranked[0], shape, note="rows and mask entries")
    if bool(ranked.isnan().any()):
        raise ValueError(f"importances of {name!r} must be numbers; there is NaN among them")


def _sizes(sizes: Sequence[int] | None, entries: int) -> list[int]:
    if sizes is not None and len(sizes) == 0:
        raise ValueError("sizes must have at least one size; it is empty")
    known = [k for k in FIRST_SIZES if k <= entries] if sizes is None else dict.fromkeys(sizes)
    return [int_between("each of sizes", k, 0, entries, note="the mask entries") for k in known]


def _model_of(
    model: Any, train: Table, explained: bool, options: Mapping[str, Any]
) -> tuple[Any, float]:
    if model is None and explained:
        started = time.perf_counter()
        return fit_predictor(train, **options), time.perf_counter() - started
    known = isinstance(model, FittedPredictor)
    return model, float(np.sum(model.result.history.seconds)) if known else math.nan


def _named(
    methods: Sequence[str] | Mapping[str, Compared], **by_name: Mapping[str, Any]
) -> dict[str, Compared]:
    if isinstance(methods, str):
        raise TypeError(f"methods must be a sequence or a mapping; it is one string, {methods!r}")
    names = list(methods)
    if not names or RANDOM in names or len(set(names)) < len(names):
        raise ValueError(
            f"methods must be different names, one at least, of {list(METHODS)}, and not "
            f"{RANDOM!r}, the control that every comparison has; they are {names}"
        )
    stated = {name: methods[name] if isinstance(methods, Mapping) else name for name in names}
    for name, what in stated.items():
        if isinstance(what, str):
            one_of(METHODS, f"methods[{name!r}]", what)
        if not isinstance(what, str | FitResult) and not callable(what):
            raise TypeError(
                f"methods[{name!r}] must be a name, a FitResult or a function from rows to "
                f"importances; it is {type(what).__name__}"
            )
    for argument, of_methods in by_name.items():
        if unknown := sorted(set(of_methods) - set(names)):
            raise ValueError(f"{argument} has {unknown}, which methods lack: {names}")
    return stated


_Rows = tuple[Tensor, Tensor, Grouping | None, Tensor | None]


def _tables(train: Table, test: Table) -> tuple[_Rows, _Rows]:
    x, y, grouping, _ = of_train = _table(train, "train")
    test_x, test_y, test_grouping, _ = of_test = _table(test, "test")
    check_tables(grouping, train=x, test=test_x)
    if grouping and test_grouping and not torch.equal(grouping.index, test_grouping.index):
        raise ValueError("train and test must have the same groups")
    if y.is_floating_point() != test_y.is_floating_point():
        raise ValueError(f"y of train is {y.dtype} and of test {test_y.dtype}; one task is needed")
    return of_train, of_test


def _table(data: Table, name: str) -> _Rows:
    if isinstance(data, Dataset):
        grouping = Grouping(data.groups, data.entry_names).to(data.x.device)
        return data.x, data.y, grouping, data.truth
    pair = isinstance(data, tuple | list) and len(data) == 2
    if not pair or not all(isinstance(part, Tensor) for part in data):
        raise TypeError(f"{name} must be a Dataset or a pair of tensors (x, y); it is {data!r:.60}")
    x, y = data
    shaped(f"y of {name}", y, x.shape[:1])
    return x, y, None, None


def _check_methods(named: Mapping[str, Compared], model: Any, x: Tensor) -> None:
    """Refuse what would fail only after the fits."""
    differentiable = model is None or isinstance(model, nn.Module | FittedPredictor)
    for name, what in named.items():
        if isinstance(what, FitResult):
            what.check(x)
        if not isinstance(what, str):
            continue
        if needed := LIBRARIES[what]:
            library(needed)
        if what in GRADIENTS and not differentiable:
            raise TypeError(
                f"{name!r} needs a model with gradients, a Predictor, an nn.Module or a full "
                f"predictor; model is {type(model).__name__}. Leave the method out, or the model, "
                "so that one is fitted"
            )
        if model is not None and what not in GRADIENTS:
            black_box_of(model)


def _explained(
    what: Compared,
    x: Tensor,
    build: Callable[[str], Importances],
    model_seconds: float,
    draws: int,
    seed: int,
) -> tuple[Tensor, dict[str, float]]:
    """Importances of each replicate, `(R, N, G)`, and the seconds that they took."""
    fit_seconds = math.nan
    method: Any = what
    if isinstance(what, str):
        started = time.perf_counter()
        method = build(what)
        fit_seconds = _seconds_since(started, x) + model_seconds
        # The first row also pays for what is compiled or loaded once.
        method(x[:1])
    started = _seconds_since(0.0, x)
    if isinstance(what, FitResult):
        fit_seconds = float(np.sum(what.history.seconds))
        means = mask_means(explanation_tree(what, x, draws=draws, seed=seed))
        # Of signed attributions their size.
        ranked = torch.from_numpy(np.abs(means.transpose("chain", ...).values).astype(np.float64))
    else:
        ranked = torch.as_tensor(method(x)).detach()[None]
    seconds = _seconds_since(started, x) / len(x)
    return ranked, {"fit_seconds": fit_seconds, "seconds_per_row": seconds}


def _seconds_since(started: float, x: Tensor) -> float:
    if x.device.type == "cuda":
        torch.cuda.synchronize(x.device)
    return time.perf_counter() - started
