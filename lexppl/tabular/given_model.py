"""A model that is given to be explained: what it says of rows, and which distribution it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from lexppl.argument_checks import quoted
from lexppl.configured import Configured
from lexppl.data import TableEncoding
from lexppl.data.cells import level_index, level_of
from lexppl.data.columns import CategoricalColumn, NumericColumn
from lexppl.models import Likelihood
from lexppl.models.adapters import Adapted, adapted, categories_of, name_of
from lexppl.models.black_box import BlackBox, Output, Task, black_box
from lexppl.models.calls import table_keys


class EstimatorByRow:
    """An estimator that is called by row numbers `(B, 1)`, since tensors hold no words."""

    def __init__(self, estimator: Any, table: Any, labels: Sequence[str] | None = None) -> None:
        if isinstance(estimator, BaseEstimator):
            _refuse_unfitted(estimator)
        self._estimator = estimator
        self._cells = _cells_for(estimator, table)
        if labels is not None or hasattr(estimator, "classes_"):
            self.classes_ = estimator.classes_ if labels is None else list(labels)
        for method in ("predict", "predict_proba"):
            if hasattr(estimator, method):
                setattr(self, method, partial(self._outputs, method))

    def keys(self, x: Tensor, context: str) -> list[bytes]:
        """A hash of the cells of rows by number, `(B, 1)`."""
        return table_keys(self._chosen(x.numpy()), context)

    def identified_by(self) -> Any:
        """The estimator."""
        return self._estimator

    def _outputs(self, method: str, rows: NDArray[Any]) -> Any:
        return getattr(self._estimator, method)(self._chosen(rows))

    def _chosen(self, rows: NDArray[Any]) -> NDArray[Any] | pd.DataFrame:
        places, cells = rows[:, 0].astype(np.int64), self._cells
        if isinstance(cells, pd.DataFrame):
            return cells.iloc[places].reset_index(drop=True)
        return cells[places]


def _refuse_unfitted(estimator: Any) -> None:
    try:
        check_is_fitted(estimator)
    except NotFittedError as error:
        raise NotFittedError(
            f"the model {type(estimator).__name__} is not fitted. A clone of an explainer clones "
            "its model, which is then not fitted any more: give "
            "model=sklearn.frozen.FrozenEstimator(fitted) to a search or a cross-validation"
        ) from error


def box_of_table(
    model: Any,
    table: Any,
    *,
    classes: Sequence[object] | None,
    labels: Sequence[str] | None = None,
    output: Output | None = None,
    **limits: Any,
) -> tuple[BlackBox, Tensor]:
    """A model as a black box, and rows `x` such that `box.targets(x)` are its outputs of the table.

    A table with other columns than those fitted on, or words for a module of numbers, is refused.
    """
    shared = model if isinstance(model, BlackBox) else None
    if shared is not None:
        model, output = shared.model, output or shared.options.get("output")
    columns = None if shared is None else shared.options.get("columns")
    meant = "response" if classes is None else output
    model = adapted(model, output=meant, columns=columns)
    if hasattr(model, "predict") or hasattr(model, "predict_proba"):
        # Errors call a black box by its class.
        by_row = type(name_of(model), (EstimatorByRow,), {})(model, table, labels)
        x = torch.arange(len(table), dtype=torch.float64)[:, None]
        known = None if isinstance(model, Adapted) else output
        box = replace(black_box(by_row, classes=classes, output=known, **limits), keys=by_row.keys)
    else:
        function = classes is None and not isinstance(model, nn.Module)
        task: Task | None = "regression" if function else None
        box = black_box(model, classes=classes, task=task, output=output, **limits)
        x = as_it_takes(model, torch.as_tensor(_numbers(table)))
    return (box if shared is None else box.with_calls_of(shared)), x


def as_it_takes(model: Any, x: Tensor) -> Tensor:
    """Rows on the device and in the type of a module's parameters.

    Example:
        >>> as_it_takes(nn.Linear(2, 1), torch.zeros(3, 2, dtype=torch.float64)).dtype
        torch.float32
    """
    held = [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
    if isinstance(model, torch.jit.ScriptModule):
        # A frozen one has its weights as constants.
        graph: Any = model.inlined_graph
        nodes = (n for n in graph.findAllNodes("prim::Constant") if n.hasAttribute("value"))
        held += [n.t("value") for n in nodes if n.kindOf("value") == "t" and n.t("value").dim()]
    return next((x.to(tensor) for tensor in held if tensor.is_floating_point()), x)


def _cells_for(estimator: Any, table: Any) -> pd.DataFrame | NDArray[Any]:
    """The columns that an estimator was fitted on, by name where it has names, with its
    categories."""
    if not isinstance(table, pd.DataFrame):
        return np.asarray(table)
    name = name_of(estimator)
    names = getattr(estimator, "feature_names_in_", getattr(estimator, "feature_names_", ()))
    known, columns = [str(column) for column in names], {str(c): c for c in table.columns}
    # LightGBM and CatBoost name the columns of an array so.
    by_place = ([f"{word}{n}" for n in range(len(known))] for word in ("Column_", ""))
    named = bool(known) and (known not in by_place or {*known} <= columns.keys())
    if named:
        table = table[[columns[c] for c in _named(known, columns, name)]].set_axis(known, axis=1)
    expected = getattr(estimator, "n_features_in_", None)
    if expected is not None and expected != table.shape[1]:
        raise ValueError(
            f"the black box {name} was fitted on {expected} features; the table has "
            f"{table.shape[1]} columns beside the target (was it fitted on the features of "
            "lexppl.data?)"
        )
    words = [c for c in table.columns if not pd.api.types.is_numeric_dtype(table[c])]
    categories = categories_of(estimator, list(table.columns), words)
    if categories is None:
        return table if named or words else table.to_numpy()
    if lacking := [c for c in words if c not in categories and table[c].dtype != "category"]:
        raise ValueError(
            f"the black box {name} remembers no categories of columns {quoted(lacking)}, which "
            "hold words: give the codes that it was fitted on, or a pipeline that encodes them"
        )
    table = table.copy()
    for column, listed in categories.items():
        levels, cells = pd.Index(listed).dropna(), table[column]
        if pd.api.types.is_bool_dtype(cells) and not pd.api.types.is_bool_dtype(levels):
            cells = cells.astype(int)  # As scikit-learn has booleans
        places = level_index(cells, tuple(levels.map(level_of)), "category", gaps=True)
        table[column] = pd.Categorical.from_codes(places, levels)
    return table


def _named(known: Sequence[str], columns: Iterable[str], name: str) -> list[str]:
    """The columns that a model knows by names in which signs may have become underscores."""
    alike: dict[str, list[str]] = {fitted: [] for fitted in known}
    for column in columns:
        # LightGBM's rule, what XGBoost refuses, and every sign.
        signs = () if column in alike else (" ", r"[\[\]<]", r"\W")
        for fitted in {column, *(re.sub(sign, "_", column) for sign in signs)} & alike.keys():
            alike[fitted].append(column)
    if several := [names for names in alike.values() if len(names) > 1]:
        hint = "which has signs as underscores: leave out those that it was not fitted on"
        raise ValueError(f"columns {quoted(several[0])} are one to the black box {name}, {hint}")
    if lacking := [fitted for fitted, names in alike.items() if not names]:
        raise ValueError(
            f"the black box {name} was fitted on columns that the table lacks: "
            f"{quoted(lacking)}; it has {quoted(columns)}"
        )
    return [column for (column,) in alike.values()]


def same_of_all(outputs: Tensor, classes: Sequence[object] | None) -> str | None:
    """A note that a model's outputs, `(N, C)` or `(N,)`, are one label or one value; None if they
    are not."""
    if bool(((outputs - outputs[:1]).abs() < SAME).all()):
        return "the black box says the same of every row: there is nothing to explain"
    if classes is None or outputs.dim() < 2:
        return None
    likeliest = outputs.argmax(-1)
    if bool((likeliest != likeliest[0]).any()):
        return None
    label = str(list(classes)[int(likeliest[0])])
    return f"the black box gives every row the label {label!r}; what is explained is how sure it is"


SAME = 1e-6
"""Probabilities, or responses in standard deviations of y, that differ by less are the same."""


def _numbers(table: Any) -> NDArray[np.float64]:
    if isinstance(table, pd.DataFrame):
        words = [c for c in table.columns if not pd.api.types.is_numeric_dtype(table[c])]
        if words:
            raise ValueError(
                f"a torch module takes numbers, and the table's columns {quoted(words)} hold "
                "others: give the table as the module takes it, such as pandas.get_dummies(table) "
                "(was it fitted on the features of lexppl.data?)"
            )
    return np.asarray(table, dtype=np.float64)


class OnStandardisedRows(Configured, nn.Module):
    """A predictor of rows in their own units, for standardised ones.

        y' | x' ~ distribution of (y − m) / s,    y ~ Φ(y | f(mean + scale · x')).

    Args:
        predictor: a module from x, in its own units, to the distribution of y.
        mean: of each column that it reads, `(P,)`.
        scale: of each of them, `(P,)`.
        target_mean: m, in the units of y; 0 for labels.
        target_scale: s, in the same; 1 for labels.
        places: which of the D features x' each column is; None where P = D and they stand in order.
        asinh: of each column the centre c and the spread s > 0 of a heavy tail, whose values are
            c + s sinh(mean + scale · x'), or s = 0, `(P, 2)`; None where no column has one.

    Example:
        >>> from lexppl.models import NormalLikelihood, Predictor
        >>> given = Predictor(nn.Identity(), NormalLikelihood(2.0))
        >>> OnStandardisedRows(given, [5.0], [2.0], 1.0, 2.0)(torch.tensor([[1.0]])).mean
        tensor([3.])
    """

    mean: Tensor
    scale: Tensor
    asinh: Tensor | None

    def __init__(
        self,
        predictor: nn.Module,
        mean: Any,
        scale: Any,
        target_mean: float = 0.0,
        target_scale: float = 1.0,
        places: Any = None,
        asinh: Any = None,
    ) -> None:
        super().__init__()
        self.places = None if places is None else [int(place) for place in places]
        self.predictor = predictor
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.get_default_dtype()))
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.get_default_dtype()))
        of_tails = None if asinh is None else torch.as_tensor(asinh, dtype=self.mean.dtype)
        self.register_buffer("asinh", of_tails)
        self.target_mean, self.target_scale = float(target_mean), float(target_scale)

    @property
    def likelihood(self) -> Likelihood:
        """That of the predictor."""
        return self.predictor.likelihood  # type: ignore[return-value]

    def forward(self, x: Tensor) -> Any:
        read = x if self.places is None else x[..., self.places]
        values = read * self.scale + self.mean
        if self.asinh is not None:
            centre, spread = self.asinh.unbind(-1)
            # No sinh of the others, whose gradient may be infinite.
            of_tails = centre + spread * torch.where(spread > 0, values, 0.0).sinh()
            values = torch.where(spread > 0, of_tails, values)
        distribution = self.predictor(values)
        if self.likelihood.discrete:
            return distribution
        center = (distribution.mean - self.target_mean) / self.target_scale
        return dist.Normal(center, distribution.stddev / self.target_scale)


def box_of_rows(
    model: Any, table: Any, classes: NDArray[Any] | None, output: Output | None = None
) -> tuple[BlackBox, Tensor, Tensor]:
    """A model as a black box, the rows of a table as it takes them, and the places of those that it
    may be asked of: all but what `max_calls` leaves out.

    Args:
        model: a fitted estimator, a torch module, a torch predictor, or a black box of one.
        table: rows as they were given to `fit`.
        classes: the C labels, or None for responses.
        output: what a module without a likelihood returns of labels.

    Raises:
        ValueError, TypeError: as :func:`lexppl.tabular.given_model.box_of_table`; a module
            of labels of which it is not known what it returns; a model for the other task, or with
            labels other than `classes`.
    """
    names, labels, passed = None, None, model
    if isinstance(model, BlackBox):
        model, output = model.model, output or model.options.get("output")
    own_output = isinstance(model, nn.Module) and not has_likelihood(model)
    if own_output and classes is None:
        output = "response"
    elif own_output and output is None:
        raise TypeError(
            f"model is a {type(model).__name__}, which does not say what its outputs mean: give "
            "model_output='logits' or 'probabilities', or "
            "lexppl.models.Predictor(network, CategoricalLikelihood())"
        )
    if classes is not None:
        names = [level_of(label) for label in classes]
        levels = getattr(model, "classes_", None)
        # By name: a model's labels are those of y, and never places among them.
        labels = None if levels is None else [x if np.ndim(x) else level_of(x) for x in levels]
    box, x = box_of_table(passed, table, classes=names, labels=labels, output=output)
    if classes is None and box.task == "classification":
        raise ValueError(f"model, a {type(model).__name__}, is for labels; y is a real response")
    return box, x, box.affordable(x)


def outputs_of(box: BlackBox, x: Tensor) -> Tensor:
    """Outputs of a model of rows in their own units, `(N, C)` in the order of its labels or `(N,)`.

    Raises:
        ValueError: a row on which it fails, or outputs that are none; as
            `BlackBox.targets`.
    """
    try:
        return box.targets(x).cpu().double()
    except ValueError as error:
        if not (isinstance(box.model, nn.Module) and isinstance(error.__cause__, RuntimeError)):
            raise
        raise ValueError(
            f"model: {error}. It has the rows of X as they are, {tuple(x.shape)} of {x.dtype}, "
            "with the columns in their order and units"
        ) from error


def has_likelihood(model: Any) -> bool:
    """Whether a torch module names its likelihood, and so can itself be given masked rows."""
    return isinstance(getattr(model, "likelihood", None), Likelihood)


def predictor_on_standardised_rows(predictor: nn.Module, encoding: TableEncoding) -> nn.Module:
    """A torch predictor of rows in their own units as one of encoded rows.

    Raises:
        TypeError: columns of levels, which a torch predictor has no units for; a response whose
            distribution is not normal.
    """
    columns, places = list[NumericColumn](), list[int]()
    for column in encoding.columns:
        place = encoding.feature_names.index(column.feature_names[0])
        if isinstance(column, CategoricalColumn) and set(column.levels) == {"False", "True"}:
            # A boolean is 0 or 1 to the module, which is its indicator of True.
            place += column.levels.index("True")
            column = NumericColumn(column.name, 0.0, 1.0)
        if not isinstance(column, NumericColumn):
            raise TypeError(
                "model is a torch predictor, which takes numbers, and column "
                f"{column.name!r} is not one; encode it first, and give groups= for its indicators"
            )
        columns.append(column)
        places.append(place)
    target = encoding.target
    read = None if places == list(range(len(encoding.feature_names))) else places
    if target.class_names is None:
        with torch.no_grad():
            weight = next(predictor.parameters(), torch.empty(()))
            middle = [float(column.original(np.zeros(1))[0]) for column in columns]
            distribution = predictor(weight.new_tensor([middle]))
        if not isinstance(distribution, dist.Normal):
            raise TypeError(f"model must have a normal distribution of y; it has {distribution}")
    mean, scale = [column.mean for column in columns], [column.scale for column in columns]
    tails = [column.asinh or (0.0, 0.0) for column in columns]
    asinh = tails if any(column.asinh for column in columns) else None
    return OnStandardisedRows(predictor, mean, scale, target.mean, target.scale, read, asinh)
