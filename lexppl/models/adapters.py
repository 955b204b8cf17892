"""Models of other libraries with scikit-learn's methods; none of these libraries is imported here
before one of its models is given."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.data.cells import level_of
from lexppl.data.texts import Vocabulary
from lexppl.extras import extra_library
from lexppl.threads import evaluating

EXTRA = "models"
LABEL_LOSSES = ("Logloss", "CrossEntropy", "MultiClass", "MultiClassOneVsAll")  # Of CatBoost
ONE_OUTPUT = "one output is explained: of several, give a function that returns that of one target"
NUMBERS = {"float": "float32", "double": "float64"}
"""Types of ONNX's tensors that numpy calls otherwise."""


class Adapted:
    """A model of another make as a classifier or a regressor.

    Args:
        source: the model.
        name: what errors call it.
        call: from rows, an array or a frame, to its outputs; probabilities by label where it knows
            its labels from them alone.
        output: what these are: "logits", "probabilities" or "response".
        names: of the columns, where the model knows them; then it takes frames.
        features: how many columns it takes, where it says so.
        labels: of its classes, where it says so.
    """

    class_names: Sequence[str] = ()  # Of a classifier whose labels are 0 … C−1 as well

    def __init__(
        self,
        source: Any,
        name: str,
        call: Callable[[Any], Any],
        output: str,
        *,
        names: Sequence[str] | None = None,
        features: int | None = None,
        labels: Sequence[Any] | None = None,
    ) -> None:
        self.source, self.__name__ = source, name
        if names:
            self.feature_names_in_ = list(names)
        if features:
            self.n_features_in_ = features
        if labels is not None:
            self.classes_ = list(labels)
        if output == "response":
            self.predict = call
        else:
            logits = output == "logits"
            self.predict_proba = lambda rows: (
                outputs
                if isinstance(outputs := call(rows), Mapping)
                else as_probabilities(as_numbers(outputs, name), logits).numpy()
            )

    def identified_by(self) -> Any:
        """The model."""
        return self.source


def adapted(
    model: Any,
    *,
    output: str | None = None,
    columns: Sequence[str] | None = None,
    words: Vocabulary | None = None,
) -> Any:
    """A model with scikit-learn's methods, where its make is known or a function takes frames or
    texts; any other as it is.

    Args:
        model: any, also the path of an ONNX file.
        output: what it returns, where it does not say.
        columns: names of the columns of the frame that a function takes.
        words: the vocabulary by which rows of word numbers become the texts that it takes.

    Raises:
        ValueError: an ONNX file that is none; a model that does not say what it returns.
        ImportError: a library that is not installed.
    """
    if isinstance(model, Adapted):
        return model
    packages = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    name = type(model).__name__
    if isinstance(model, str | Path):
        return _of_onnx(*_onnx_file(Path(model)), output)
    if "onnxruntime" in packages or "onnx" in packages:
        held = model if "onnxruntime" in packages else _session(model.SerializeToString(), name)
        return _of_onnx(model, held, name, output)
    if name == "Booster" and packages & {"lightgbm", "xgboost"}:
        return (_of_lightgbm if "lightgbm" in packages else _of_xgboost)(model)
    if name == "CatBoost" and "catboost" in packages:
        return _of_catboost(model)
    if name == "ExportedProgram" and "torch" in packages:
        return model.module()
    if isinstance(model, tuple) and len(model) == 2 and hasattr(model[0], "config"):
        return _of_transformers(*model, words, output)
    if words is not None:
        call = getattr(model, "predict_proba", None) or getattr(model, "predict", model)
        guessed = "response" if hasattr(model, "predict") else "probabilities"
        known = "probabilities" if hasattr(model, "predict_proba") else output or guessed
        labels = getattr(model, "classes_", None)
        return Adapted(model, name_of(model), _reading(words, call), known, labels=labels)
    if columns is not None:
        return Adapted(model, name_of(model), model, output or "probabilities", names=columns)
    return model


def name_of(model: Any) -> str:
    """What errors call a model."""
    return str(getattr(model, "__name__", type(model).__name__))


def as_probabilities(outputs: Tensor, logits: bool) -> Tensor:
    """Outputs `(B, C)`, or `(B, 1)` or `(B,)` of y = 1, as probabilities `(B, C)`."""
    if outputs.dim() == 2 and outputs.shape[1] == 1:
        outputs = outputs[:, 0]
    if outputs.dim() != 1:
        return outputs.softmax(1) if logits else outputs
    zeroth, first = (
        (outputs.neg().sigmoid(), outputs.sigmoid()) if logits else (1.0 - outputs, outputs)
    )
    return torch.stack([zeroth, first], 1)


def as_numbers(values: Any, name: str) -> Tensor:
    """An array, tensor or series as float64, by the row that its index names; masked: NaN."""
    if isinstance(values, Tensor):
        return values.detach().cpu().double()
    if hasattr(values, "sort_index") and set(values.index) == set(range(len(values))):
        values = values.sort_index()
    try:
        return torch.from_numpy(np.array(np.ma.filled(values, np.nan), dtype=np.float64))
    except (TypeError, ValueError) as error:
        kind = type(values).__name__
        raise TypeError(f"{name} must give an array of numbers; it gave {kind}: {error}") from None


def _of_lightgbm(model: Any) -> Adapted:
    objective = re.search(r"^objective=(\w+)", model.model_to_string(num_iteration=1), re.MULTILINE)
    kinds = ("binary", "multiclass", "multiclassova", "cross_entropy")
    output = "probabilities" if objective and objective[1] in kinds else "response"
    return Adapted(model, "Booster", model.predict, output, names=model.feature_name())


def _of_xgboost(model: Any) -> Adapted:
    learner = json.loads(model.save_config())["learner"]
    if int(learner["learner_model_param"].get("num_target", 1)) > 1:
        raise ValueError(f"Booster has several outputs; {ONE_OUTPUT}")
    objective = learner["objective"]["name"]
    margin = objective.startswith("multi:") or objective in ("binary:logistic", "binary:logitraw")

    def call(rows: Any) -> NDArray[Any]:
        matrix = extra_library("xgboost", EXTRA).DMatrix(rows, enable_categorical=True)
        return model.predict(matrix, output_margin=margin)

    output, names = "logits" if margin else "response", model.feature_names
    return Adapted(model, "Booster", call, output, names=names, features=model.num_features())


def categories_of(estimator: Any, columns: list[str], words: list[str]) -> dict[str, Any] | None:
    """The categories by column that boosted trees were fitted on, None of another model; `words`
    are the columns of words."""
    model: Any = estimator
    for within in ("source", "best_estimator_", "booster_"):
        model = getattr(model, within, model)
    if hasattr(model, "pandas_categorical"):  # LightGBM, which does not state ordered categories
        stated = re.search(r"\n\[categorical_feature: ([\d,]+)\]", model.model_to_string(1))
        listed = [columns[int(n)] for n in stated[1].split(",")] if stated else []
        lists = model.pandas_categorical or []
        named = next((part for part in (listed, words) if len(part) == len(lists)), ())
        return dict(zip(named, lists, strict=False))
    model = model.get_booster() if hasattr(model, "get_booster") else model
    if hasattr(model, "get_categories"):  # XGBoost
        held = model.get_categories(export_to_arrow=True).to_arrow()
        return {
            columns[n]: categories.to_pandas()
            for n, (_, categories) in enumerate(held)
            if categories is not None
        }
    if getattr(model, "is_categorical_", None) is not None:  # scikit-learn's
        lists = model._preprocessor.named_transformers_["encoder"].categories_
        places = np.flatnonzero(model.is_categorical_).tolist()
        return {columns[n]: held for n, held in zip(places, lists, strict=True)}
    return None


def _of_catboost(model: Any) -> Adapted:
    names = model.feature_names_
    if model.get_all_params().get("loss_function") not in LABEL_LOSSES:
        return Adapted(model, "CatBoost", model.predict, "response", names=names)
    call = partial(model.predict, prediction_type="Probability")
    return Adapted(model, "CatBoost", call, "probabilities", names=names, labels=model.classes_)


def _reading(words: Vocabulary, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def of_rows(rows: NDArray[Any]) -> Any:
        if rows.dtype == object:
            return call(rows.tolist())
        return call([" ".join(filter(None, map(words.word, row))) for row in rows])

    return of_rows


def _of_transformers(
    model: Any, tokenizer: Any, words: Vocabulary | None, output: str | None
) -> Adapted:
    """A classifier of texts, whose rows are numbers of its tokenizer, or of a vocabulary; with one
    output it is a regression, as it is in that library."""
    name, config = type(model).__name__, model.config
    if config.problem_type == "multi_label_classification":
        raise ValueError(f"{name}'s labels do not exclude each other; give a function of one")

    def logits(**tokens: Any) -> NDArray[np.float64]:
        device = next(model.parameters()).device
        with evaluating(model), torch.no_grad():
            outputs = model(**{name: part.to(device) for name, part in tokens.items()})
        return outputs.logits.double().cpu().numpy()

    def of_tokens(rows: NDArray[Any]) -> NDArray[np.float64]:
        ids = torch.from_numpy(np.asarray(rows)).long()
        return logits(input_ids=ids, attention_mask=(ids != tokenizer.pad_token_id).long())

    def of_texts(texts: list[str]) -> NDArray[np.float64]:
        return logits(**tokenizer(texts, padding=True, truncation=True, return_tensors="pt"))

    call = of_tokens if words is None else _reading(words, of_texts)
    means = output or ("response" if config.num_labels == 1 else "logits")
    made = Adapted(model, name, call, means)
    made.class_names = [config.id2label[number] for number in range(config.num_labels)]
    return made


def _onnx_file(path: Path) -> tuple[bytes, Any, str]:
    path = path.expanduser()
    if not path.is_file():
        raise ValueError(f"there is no black box file {str(path)!r}")
    content = path.read_bytes()
    return content, _session(content, path.name), path.name


def _session(content: bytes, name: str) -> Any:
    runtime = extra_library("onnxruntime", EXTRA)
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    try:
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    # The runtime has an exception for each of its codes.
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{name} is no ONNX model that onnxruntime reads: {reason}") from error


def _of_onnx(source: Any, session: Any, name: str, output: str | None) -> Adapted:
    inputs, outputs = session.get_inputs(), session.get_outputs()
    place, known = 0, output
    if len(outputs) == 2 and outputs[0].type in ("tensor(int64)", "tensor(string)"):
        place, known = 1, "probabilities"
    for word, meaning in (("prob", "probabilities"), ("logit", "logits"), ("variable", "response")):
        for number, port in enumerate(outputs):
            if known is None and word in port.name.lower():
                place, known = number, meaning
    if known is None:
        listed = ", ".join(port.name for port in outputs)
        raise ValueError(
            f"say what {name} returns ({listed}): output='logits', 'probabilities' or 'response'"
        )
    names = [port.name for port in inputs] if len(inputs) > 1 else None
    # Of some models the batch and the columns have a size of their own, of others a name.
    at_once, *width = (size if isinstance(size, int) else None for size in inputs[0].shape)

    def call(rows: Any) -> Any:
        columns = [np.asarray(rows)] if names is None else [rows[n].to_numpy() for n in names]
        count, size = len(rows), at_once or len(rows)
        # The last batch of a fixed size is filled up with rows from the start.
        places = np.arange(-(-count // size) * size).reshape(-1, size) % count
        parts = [run([column[chunk] for column in columns]) for chunk in places]
        if isinstance(parts[0], list) and isinstance(parts[0][0], Mapping):
            dicts = [row for part in parts for row in part][:count]
            return {label: np.array([row[label] for row in dicts]) for label in dicts[0]}
        joined = np.concatenate(parts)[:count]
        return joined.reshape(count) if known == "response" else joined

    def run(parts: Sequence[NDArray[Any]]) -> Any:
        arrays = {port.name: _typed(port, part) for port, part in zip(inputs, parts, strict=True)}
        return session.run([outputs[place].name], arrays)[0]

    features = width[0] if names is None and len(width) == 1 else None
    return Adapted(source, name, call, known, names=names, features=features)


def _typed(node: Any, cells: NDArray[Any]) -> NDArray[Any]:
    kind = node.type.removeprefix("tensor(").removesuffix(")")
    if cells.ndim < len(node.shape):
        cells = cells[:, None]
    if kind == "string":
        return np.vectorize(level_of, [object])(cells)
    return cells.astype(NUMBERS.get(kind, kind))
