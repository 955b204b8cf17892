"""A black box in a file, and what it says of the rows of a table."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.argument_checks import quoted
from lexppl.cli.terminal import UsageError, one_line
from lexppl.data.columns import Standardised
from lexppl.data.divided_table import DividedTable
from lexppl.data.encoding import TargetColumn
from lexppl.models.black_box import BlackBox, black_box
from lexppl.tabular.given_model import as_it_takes, box_of_table


def load_black_box(file: str) -> Any:
    """Load the model in a file, which runs the code in it unless the file is ONNX; its path then.

    Raises:
        ValueError: a file that cannot be loaded.
    """
    path = Path(file).expanduser()
    if path.suffix == ".onnx":
        return path
    try:
        if path.suffix not in (".pt", ".pth"):
            return joblib.load(path)
        held = torch.load(path, map_location="cpu", weights_only=False)
        if isinstance(held, dict):
            raise ValueError(
                "it holds weights (a state_dict), not the module: save that, by "
                "torch.jit.script(module).save(path), which needs no code of yours"
            )
        return held
    # The code in a file may fail in any way.
    except Exception as error:
        raise ValueError(
            f"the black box {str(path)!r} cannot be loaded as joblib or pickle: "
            f"{type(error).__name__}: {one_line(error)}"
        ) from error


def asked_black_box(
    model: Any, source: DividedTable, options: argparse.Namespace
) -> tuple[BlackBox, Tensor, DividedTable]:
    """A model as a black box, its answers (:func:`_answers`), and the table, whose parts have the
    rows alone that it may be asked of.

    Raises:
        ValueError, TypeError: a model that is no black box, was fitted on other columns, or fails.
        UsageError: a `--row` that is left out.
    """
    data, output = source.data, options.black_box_output
    limits = {
        "batch_size": options.black_box_rows,
        "max_calls": options.max_calls,
        "cache": options.cache,
    }
    if options.black_box_input == "table":
        names = data.class_names
        box, x = box_of_table(model, source.table, classes=names, output=output, **limits)
    else:
        columns = () if data.encoding is None else data.encoding.columns
        if tails := [c.name for c in columns if isinstance(c, Standardised) and c.curve]:
            raise ValueError(
                f"--black-box-input encoded is not for columns with a heavy tail, {quoted(tails)}: "
                "fit the black box on the table's own columns, or on logarithms in the table"
            )
        box = black_box(model, classes=data.class_names, output=output, **limits)
        x = as_it_takes(model, data.x)
    if box.task != data.task:
        raise ValueError(
            f"the black box is for {box.task}, and the target {data.target_name!r} is for "
            f"{data.task}; give --task {box.task} if the target is"
        )
    places = box.affordable(x, options.seed)
    if len(places) < len(x):
        for row in options.row:
            if row not in places:
                raise UsageError(f"--row {row} is not among the {len(places)} rows of --max-calls")
        rows = {part: getattr(source, part) for part in ("train_rows", "valid_rows", "test_rows")}
        asked: Any = {p: r if r is None else r[np.isin(r, places.numpy())] for p, r in rows.items()}
        source = replace(source, **asked)
        if not len(source.train_rows) or not len(source.test_rows):
            raise UsageError(f"--max-calls {options.max_calls} leaves no row to fit on or to judge")
    return box, *_answers(box, x, places, source)


def _answers(
    box: BlackBox, x: Tensor, places: Tensor, source: DividedTable
) -> tuple[Tensor, DividedTable]:
    """Answers of a black box for the rows at some places, NaN elsewhere: probabilities `(N, C)`, or
    responses standardised by those of the rows to fit on, as the table's own then are too.

    Raises:
        ValueError: a model that fails.
    """
    data = source.data
    try:
        answers = box.targets(x[places]).to(data.x.device)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the black box: {one_line(error)}") from error
    targets = answers.new_full((len(x), *answers.shape[1:]), torch.nan)
    targets[places] = answers
    if data.task == "regression":
        return _standardised(targets.double().cpu().numpy(), source)
    if targets.shape[1] != data.n_classes:
        raise ValueError(
            f"the black box gives probabilities of {targets.shape[1]} classes; the target "
            f"{data.target_name!r} has {data.n_classes}"
        )
    return targets.to(data.x.dtype), source


def _standardised(
    answers: NDArray[np.float64], source: DividedTable
) -> tuple[Tensor, DividedTable]:
    """Answers, and the table, standardised by the answers for the rows to fit on."""
    data = source.data
    if data.encoding is None:
        return torch.from_numpy(answers).to(data.x), source
    name, y = data.encoding.target.name, source.target.inverse(data.y.cpu().numpy())
    target = TargetColumn.of_responses(name, answers[source.train_rows])
    data = replace(
        data,
        y=torch.from_numpy(target.standardised(y)).to(data.y),
        target_name=target.label,
        encoding=replace(data.encoding, target=target),
    )
    targets = torch.from_numpy(target.standardised(answers)).to(data.x)
    return targets, replace(source, data=data)
