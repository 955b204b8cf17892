"""A black box of any make as one thing: from rows to the probabilities or responses it gives."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least, one_of, refuse_not_finite, shaped
from lexppl.data.texts import Vocabulary
from lexppl.distributions.support import distribution_targets
from lexppl.models.adapters import (
    ONE_OUTPUT,
    Adapted,
    adapted,
    as_numbers,
    as_probabilities,
    name_of,
)
from lexppl.models.calls import Answers, Calls, identity_of, table_keys, tensor_keys
from lexppl.models.likelihoods import Likelihood
from lexppl.threads import ONE_THREAD, evaluating

Task = Literal["classification", "regression"]
Output = Literal["logits", "probabilities", "response"]

SUM_TOLERANCE = 5e-4
"""How far from 1 the probabilities of a row may sum, which is how float16 rounds them; they are
divided by their sum."""
RANGE_TOLERANCE = 1e-6  # How far outside [0, 1] rounding may put a probability; it is put back
BATCH_ROWS = 4096  # Rows of a call


@dataclass(frozen=True, eq=False)
class BlackBox:
    """A fitted model as a function of rows, `p_m(y | x)`: see :func:`black_box`.

    Args:
        name: for errors.
        task: whether it gives probabilities of labels or responses.
        classes: C, or None where it is not known before a call, or for responses.
        outputs: a call of the model, from rows `(B, *event)` to what it returns.
        meaning: from that to `(B, C)` or `(B,)`, float64, not yet checked.
        context: what the model returns, in words: part of the content by which answers are kept.
        keys: from rows and `context` to a hash of each row's content.
        model: what was given, and `options`, the other arguments of :func:`black_box`.
        batch_size: rows of a call; 4,096 if None.
        max_calls: most rows that are sent, or None.
        answers: by content.
        calls: what was sent.
    """

    name: str
    task: Task
    classes: int | None
    outputs: Callable[[Any], Any] = field(repr=False)
    meaning: Callable[[Any], Tensor] = field(repr=False)
    context: str = field(default="", repr=False)
    keys: Callable[[Tensor, str], list[bytes]] = field(default=tensor_keys, repr=False)
    model: Any = field(default=None, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    batch_size: int | None = None
    max_calls: int | None = None
    answers: Answers = field(default_factory=Answers, repr=False)
    calls: Calls = field(default_factory=Calls)

    def targets(self, x: Tensor | Sequence[str]) -> Tensor:
        """Its output for each row, without gradient, on the device of `x` and in its floating type.

        Rows of the same content are sent once, by one thread at a time. What was answered before an
        error is kept.

        Args:
            x: rows, shape `(N, *event)`; or, of a model that takes texts, N texts as they are
                written. Of a row of word numbers it gets the words in lower case, without signs,
                and an unknown one as "?", with a warning.

        Returns:
            probabilities of the labels, `(N, C)`, each row divided by its sum; or responses `(N,)`.

        Raises:
            TypeError: `x` is neither, or the black box gives no numbers.
            ValueError: no rows; more new ones than `max_calls` allows; a row on which the model
                fails; values that are not finite; another number of rows or classes; probabilities
                outside [0, 1] or whose sum is off 1 by more than 5e-4.
        """
        box, x = self._read(x)
        with ONE_THREAD, torch.no_grad():
            keys, new = box._new(x)
            if len(new) > self._left:
                raise ValueError(
                    f"max_calls={self.max_calls} allows {self._left} more rows of {self.name}, and "
                    f"{len(new)} have no answer yet: give those that affordable(x) has"
                )
            self.calls.known += len(x) - len(new)
            widths = [self.classes]
            for batch in torch.tensor(new).split(self.batch_size or BATCH_ROWS):
                if len(batch):
                    box._ask(x, batch, keys, widths)
        answers = torch.from_numpy(np.stack([self.answers.held[key] for key in keys]))
        kind = x.dtype if x.is_floating_point() else torch.get_default_dtype()
        return (answers[:, 0] if self.task == "regression" else answers).to(x.device, kind)

    def __call__(self, x: Tensor) -> Tensor:
        """Probabilities `(N, C)` or mean responses `(N,)` of the model, by :meth:`targets`."""
        return self.targets(x)

    def affordable(self, x: Tensor | Sequence[str], seed: int = 0) -> Tensor:
        """Places of the rows that :meth:`targets` answers within `max_calls`: those whose answer is
        known, and as many others at random as may be sent.

        Raises:
            ValueError: there are none; as :meth:`targets` of x.
        """
        box, x = self._read(x)
        keys, new = box._new(x)
        if len(new) > self._left:
            chosen = np.random.default_rng(seed).permutation(new)[: int(self._left)]
            answered = {keys[place] for place in chosen} | self.answers.held.keys()
            places = [place for place, key in enumerate(keys) if key in answered]
            if not places:
                raise ValueError(f"max_calls={self.max_calls} is used up; no row of x is answered")
            self.calls.left_out = len(x) - len(places)
            return torch.tensor(places)
        return torch.arange(len(x))

    def with_calls_of(self, other: BlackBox) -> BlackBox:
        """The same, with the answers, the calls and the limits of another black box."""
        names = ("batch_size", "max_calls", "answers", "calls")
        return replace(self, **{name: getattr(other, name) for name in names})

    def __deepcopy__(self, memo: Any) -> BlackBox:
        """Itself: a clone of an explainer explains the same model, by the same answers."""
        return self

    def __reduce__(self) -> tuple[Callable[..., BlackBox], tuple[Any]]:
        return partial(black_box, **self.options), (self.model,)

    @property
    def _left(self) -> float:
        """Rows that may still be sent."""
        return math.inf if self.max_calls is None else max(0, self.max_calls - self.calls.rows)

    def _read(self, x: Any) -> tuple[BlackBox, Tensor]:
        """Itself and rows; of texts the model as a function of their places, and these."""
        if "words" not in self.options or isinstance(x, str):
            return self, x
        if isinstance(x, Tensor):
            warnings.warn(
                f"{self.name} gets the words of each row in lower case and without signs, an "
                "unknown one as '?': if that changes its answers, give the texts as they are "
                "written, as in targets(data.texts)",
                stacklevel=3,
            )
            return self, x
        texts = np.array(x, dtype=object)
        by_place = replace(
            self,
            outputs=lambda rows: self.outputs(texts[rows[:, 0].numpy()]),
            keys=lambda rows, context: table_keys(texts[rows[:, 0].numpy()], context),
        )
        return by_place, torch.arange(len(texts))[:, None]

    def _new(self, x: Tensor) -> tuple[list[bytes], list[int]]:
        """The content of each row, and the first places of those that have no answer."""
        if not isinstance(x, Tensor):
            raise TypeError(f"x must be a torch.Tensor; it is a {type(x).__name__}")
        shaped("x", x, "N *event", filled=True)
        refuse_not_finite("x", x)
        keys = self.keys(x, self.context)
        first = {key: place for place, key in reversed([*enumerate(keys)])}
        held = self.answers.held
        return keys, sorted(place for key, place in first.items() if key not in held)

    def _ask(self, x: Tensor, batch: Tensor, keys: list[bytes], widths: list[int | None]) -> None:
        """Send rows in one call and keep the answers; of a call that fails half by half, down to
        the row that it fails on."""
        if len(batch) > self._left:
            places = f"rows {int(batch[0])} to {int(batch[-1])}, and max_calls={self.max_calls}"
            raise ValueError(f"{self.name} fails on one of {places} allows no call to show which")
        self.calls.rows, self.calls.calls = self.calls.rows + len(batch), self.calls.calls + 1
        raw, failure, start = None, None, perf_counter()
        try:
            raw = self.outputs(x[batch.to(x.device)])
        # A model may fail in any way.
        except Exception as error:
            failure = error
        self.calls.seconds += perf_counter() - start
        if failure is not None and len(batch) > 1:
            for half in batch.split((len(batch) + 1) // 2):
                self._ask(x, half, keys, widths)
            return
        if failure is not None:
            reason = " ".join(f"{type(failure).__name__}: {failure}".split())
            raise ValueError(f"{self.name} fails on row {int(batch[0])}: {reason}") from failure
        outputs = self._shaped(self.meaning(raw), len(batch), widths)
        good, fault = self._faults(outputs, batch)
        answers = outputs[good]
        if self.task == "classification":
            answers = answers.clamp(0.0, 1.0)
            answers = answers / answers.sum(1, keepdim=True)
        self.answers.add([keys[place] for place in batch[good].tolist()], answers.cpu().numpy())
        if fault:
            raise ValueError(f"{self.name} must give {fault}")

    def _shaped(self, outputs: Tensor, rows: int, widths: list[int | None]) -> Tensor:
        """Outputs `(B, C)`, or `(B, 1)` of responses, of so many rows and classes."""
        if self.task == "regression":
            shaped(f"responses of {self.name}", outputs, (rows,))
            return outputs[:, None]
        _, widths[0] = shaped(f"probabilities of {self.name}", outputs, (rows, widths[0] or "C"))
        return outputs

    def _faults(self, outputs: Tensor, batch: Tensor) -> tuple[Tensor, str]:
        """Which rows have outputs as they must be, and what is wrong with the others."""
        finite = outputs.isfinite().all(1)
        inside = ((outputs >= -RANGE_TOLERANCE) & (outputs <= 1.0 + RANGE_TOLERANCE)).all(1)
        total = outputs.sum(1)
        whole = (total - 1.0).abs() <= SUM_TOLERANCE
        good = finite if self.task == "regression" else finite & inside & whole
        if bool(good.all()):
            return good, ""
        first = f"; row {int(batch[~good][0])} is the first"
        if not bool(finite.all()):
            broken = f"{int((~outputs.isfinite()).sum())} of its {outputs.numel()} values"
            return good, f"finite values; {broken} are NaN or infinite{first}"
        if not bool(inside.all()):
            gave = f"it gave {float(outputs.min()):.4g} to {float(outputs.max()):.4g}{first}"
            advice = "For logits give output='logits', for responses task='regression'"
            return good, f"probabilities in [0, 1]; {gave}. {advice}"
        sums = f"they sum to {float(total.min()):.4g} to {float(total.max()):.4g}"
        return good, f"probabilities that sum to 1 in each row, of one output; {sums}{first}"


def black_box(
    model: Any,
    *,
    classes: int | Sequence[object] | None = None,
    task: Task | None = None,
    output: Output | None = None,
    columns: Sequence[str] | None = None,
    words: Vocabulary | None = None,
    batch_size: int | None = None,
    max_calls: int | None = None,
    cache: str | Path | None = None,
) -> BlackBox:
    """A fitted model of any make, wrapped so that an explainer can be fitted to its output.

    A model is one of

    - a :class:`lexppl.models.Predictor`: its distribution's probabilities, or its mean;
    - any other `nn.Module`, TorchScript too, with `output` saying what it returns;
    - a classifier with `predict_proba` (scikit-learn's way), whose labels `classes_` are
      0 … C−1 or among those of `classes`; a label it never saw has probability 0;
    - a regressor with `predict`; a `Booster` of LightGBM or XGBoost, a `CatBoost`, by its loss;
    - an ONNX model: the path of the file, an `InferenceSession` or a `ModelProto`;
    - a `transformers` classifier and its tokenizer, as a pair: rows are the tokenizer's numbers;
    - a function from an array `(B, *event)`, or a frame or texts, to probabilities `(B, C)`, or
      `(B,)` for P(y = 1); with `task="regression"` to responses `(B,)`.

    A module is called in evaluation mode and put back as it was. An estimator that was fitted on a
    frame of named columns gets a frame with those names, in the order of the features of x.

    Args:
        model: the black box.
        classes: C, or the C labels themselves in the order 0 … C−1, such as `data.class_names`.
        task: "classification" or "regression"; needed only where the model does not say.
        output: what a module, ONNX file or function returns: "logits" (`(B, C)`, or `(B,)` or
            `(B, 1)` for the log-odds of y = 1), "probabilities" (the same shapes) or "response". A
            function gives probabilities if None.
        columns: names of the columns of the frame that a function takes; an array if None.
        words: the vocabulary of rows of word numbers, for a model that takes a list of texts.
        batch_size: rows of a call; 4,096 if None.
        max_calls: most rows that the model is sent: see :meth:`BlackBox.affordable`.
        cache: a folder that keeps each answer as it comes, for later processes; a model of other
            content has files of its own. A function that asks a server is known by its code alone.

    Raises:
        TypeError: not one of these.
        ValueError: a module without `output`, a classifier without `predict_proba` or with labels
            that `classes` does not have, arguments that contradict the model or each other; an ONNX
            file that is none; with `cache`, a model whose content cannot be hashed.
        ImportError: an ONNX file, and no `onnxruntime`.

    Source: Senetaire et al. 2023, § 2.5: the post-hoc regimes.

    Example:
        >>> import torch
        >>> from sklearn.linear_model import LogisticRegression
        >>> fitted = LogisticRegression().fit([[-1.0], [1.0]], [0, 1])
        >>> black_box(fitted).targets(torch.zeros(2, 1))
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])
        >>> steep = black_box(nn.Linear(1, 3), output="logits")
        >>> steep.task, steep.targets(torch.zeros(2, 1)).shape
        ('classification', torch.Size([2, 3]))
    """
    arguments = {**locals()}
    model = arguments.pop("model")
    for name, value, known in (("task", task, Task), ("output", output, Output)):
        if value is not None:
            one_of(get_args(known), name, value)
    options = {name: value for name, value in arguments.items() if value is not None}
    count, labels = _class_count(classes)
    meant = "response" if task == "regression" else output
    kind = adapted(model, output=meant, columns=columns, words=words)
    if labels and set(labels) == set(getattr(kind, "class_names", ())):
        kind.classes_ = kind.class_names
    box = _wrapped(kind, count, labels, None if isinstance(kind, Adapted) else output, task)
    if task is not None and task != box.task:
        reason = "" if output is None else f", as output={output!r} means"
        raise ValueError(f"{box.name} is for {box.task}{reason}, and task is {task!r}")
    if box.task == "regression" and count is not None:
        raise ValueError(f"{box.name} gives responses, which have no classes; classes is {count}")
    return replace(
        box,
        context=repr((box.task, count, labels, output, columns, words and words.words)),
        model=model,
        options=options,
        batch_size=None if batch_size is None else int_at_least("batch_size", batch_size),
        max_calls=None if max_calls is None else int_at_least("max_calls", max_calls),
        answers=Answers() if cache is None else _cached(kind, Path(cache).expanduser()),
    )


def _cached(model: Any, folder: Path) -> Answers:
    try:
        return Answers(folder, identity_of(model))
    except TypeError as error:
        raise ValueError(
            f"cache={str(folder)!r} keeps answers by what a model holds, and of {name_of(model)} "
            f"that cannot be hashed: {error}"
        ) from error


def _wrapped(
    model: Any,
    count: int | None,
    labels: tuple[str, ...] | None,
    output: Output | None,
    task: Task | None,
) -> BlackBox:
    """A model by its kind, called and read."""
    name = name_of(model)
    likelihood = getattr(model, "likelihood", None)
    estimator = hasattr(model, "predict_proba") or hasattr(model, "predict")
    if output is not None and (isinstance(likelihood, Likelihood) or estimator):
        raise ValueError(
            f"{name} has a likelihood, or is called by predict_proba or predict, so that what "
            f"it returns is known; leave output={output!r} out"
        )
    if isinstance(model, nn.Module) and isinstance(likelihood, Likelihood):
        kind: Task = "classification" if likelihood.discrete else "regression"
        return BlackBox(name, kind, count, partial(_evaluated, model), distribution_targets)
    if isinstance(model, nn.Module):
        if output is None and task != "regression":
            raise ValueError(
                f"say what {name} returns: output='logits', 'probabilities' or 'response'"
            )
        return _of_outputs(name, partial(_evaluated, model), output or "response", count)
    if estimator:
        return _of_estimator(model, count, labels)
    if callable(model):
        usual: Output = "response" if task == "regression" else "probabilities"
        return _of_outputs(name, lambda x: model(x.cpu().numpy()), output or usual, count)
    raise TypeError(
        "a black box must be an nn.Module, a classifier with predict_proba, a regressor with "
        f"predict, or a function from arrays to probabilities; it is {name}"
    )


def _evaluated(model: nn.Module, rows: Tensor) -> Any:
    """A module's output in evaluation mode; it is put back as it was."""
    with evaluating(model):
        return model(rows)


def _of_outputs(
    name: str, outputs: Callable[[Tensor], Any], output: Output, classes: int | None
) -> BlackBox:
    """A function of rows whose outputs have a meaning."""
    task: Task = "regression" if output == "response" else "classification"
    return BlackBox(
        name, task, classes, outputs, lambda value: _meaning(as_numbers(value, name), output, name)
    )


def _of_estimator(model: Any, classes: int | None, labels: tuple[str, ...] | None) -> BlackBox:
    """A classifier by its `predict_proba`, a regressor by its `predict`."""
    from sklearn.base import BaseEstimator, is_classifier  # noqa: PLC0415 - slow to import

    name, checked = name_of(model), list[bool]()
    if not hasattr(model, "predict_proba"):
        source = model.identified_by() if hasattr(model, "identified_by") else model
        if isinstance(source, BaseEstimator) and is_classifier(source):
            raise ValueError(
                f"{name} has no predict_proba, and an explainer needs probabilities; use one that "
                "has, or wrap it in sklearn.calibration.CalibratedClassifierCV"
            )
        return _of_outputs(name, lambda x: model.predict(_table(model, x)), "response", None)
    own_labels = getattr(model, "classes_", None)
    places = None if own_labels is None else _places(name, own_labels, classes, labels)
    count = len(places) if classes is None and places is not None else classes

    def outputs(x: Tensor) -> tuple[Any, Any]:
        rows = _table(model, x)
        shown = [] if checked or not hasattr(model, "predict") else model.predict(rows[:1])
        return model.predict_proba(rows), shown

    def meaning(outputs: tuple[Any, Any]) -> Tensor:
        probabilities, shown = outputs
        # Those of several targets may sum to 1 as those of one; labels of a row are as many.
        if np.shape(shown)[1:] > (1,):
            raise ValueError(f"{name} has several outputs; {ONE_OUTPUT}")
        checked.append(True)
        columns = places
        if isinstance(probabilities, Mapping):
            columns = _places(name, probabilities, classes, labels)
            probabilities = np.stack([*probabilities.values()], 1)
        numbers = as_numbers(probabilities, name)
        if columns is None:
            return numbers
        placed = numbers.new_zeros(len(numbers), count or len(columns))
        placed[:, columns] = numbers
        return placed

    return BlackBox(name, "classification", count, outputs, meaning)


def _table(model: Any, rows: Any) -> Any:
    """Rows as an array, or as a frame for an estimator that was fitted on one."""
    array = rows.detach().cpu().numpy() if isinstance(rows, Tensor) else rows
    columns = getattr(model, "feature_names_in_", None)
    if columns is None:
        return array
    import pandas as pd  # noqa: PLC0415 - slow to import

    return pd.DataFrame(array, columns=columns)


def _places(
    name: str, own_labels: Any, classes: int | None, labels: tuple[str, ...] | None
) -> list[int]:
    """The label 0 … C−1 that each column of `predict_proba` stands for."""
    if any(np.ndim(label) for label in own_labels):
        raise ValueError(f"{name} has several outputs; {ONE_OUTPUT}")
    plain = [label.item() if isinstance(label, np.generic) else label for label in own_labels]
    count = len(plain) if classes is None else classes
    whole = all(isinstance(label, int | float) and float(label).is_integer() for label in plain)
    are_places = whole and all(0 <= label < count for label in plain)
    by_number = [int(label) for label in plain] if are_places else None
    by_name = None
    if labels is not None and all(str(label) in labels for label in plain):
        by_name = [labels.index(str(label)) for label in plain]
    if by_number is not None and by_name is not None and by_number != by_name:
        raise ValueError(
            f"{name} has the labels {plain}, which are places 0 to {count - 1} as well as names in "
            f"classes={list(labels or ())}, and the two disagree; refit it on labels that are one "
            "of them, or give classes as a number"
        )
    places = by_number if by_name is None else by_name
    if places is None:
        expected = f"0 to {count - 1}" if labels is None else f"among {list(labels)}"
        raise ValueError(
            f"{name} must have labels {expected}; it has {plain}. Give its labels in the order of "
            "0 … C−1 as classes=[…]"
        )
    return places


def _class_count(
    classes: int | Sequence[object] | None,
) -> tuple[int | None, tuple[str, ...] | None]:
    """C and the labels of `classes`, where it has them."""
    if classes is None:
        return None, None
    if isinstance(classes, int | np.integer):
        return int_at_least("classes", classes, 2), None
    labels = () if isinstance(classes, str) else tuple(str(label) for label in classes)
    if len(labels) < 2 or len(set(labels)) != len(labels):
        raise ValueError(f"classes must be a number or several different labels; it is {classes!r}")
    return len(labels), labels


def _meaning(outputs: Tensor, output: Output, name: str) -> Tensor:
    """Outputs as probabilities `(B, C)` or responses `(B,)`."""
    shape = "(N,)" if output == "response" else "(N, C) or (N,)"
    single = outputs.dim() == 1 or (outputs.dim() == 2 and outputs.shape[1] == 1)
    if not single and (output == "response" or outputs.dim() != 2):
        what = f"{output} of shape {shape}; it gave {tuple(outputs.shape)}"
        raise ValueError(f"{name} must give {what}; {ONE_OUTPUT}")
    if output == "response":
        return outputs.flatten()
    return as_probabilities(outputs, output == "logits")
