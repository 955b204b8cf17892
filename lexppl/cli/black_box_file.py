"""A black box in a joblib or pickle file, and what it says of the rows of a table."""

import argparse
from pathlib import Path
from typing import Any

import joblib
import torch
from torch import Tensor

from lexppl.cli.terminal.errors import one_line
from lexppl.data import DividedTable
from lexppl.models.black_box import black_box
from lexppl.tabular.estimator_outputs import as_it_takes, asked_by_table


def load_black_box(options: argparse.Namespace) -> Any:
    """Load the model in the file that `--black-box` names, which runs the code in it.

    Raises:
        ValueError: a file that cannot be loaded.
    """
    path = Path(options.black_box).expanduser()
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


def black_box_targets(model: Any, source: DividedTable, options: argparse.Namespace) -> Tensor:
    """What a black box says of every row: probabilities `(N, C)`, or standardised responses.

    Raises:
        ValueError, TypeError: a model that is no black box, was fitted on other columns, or fails.
    """
    data, output = source.data, options.black_box_output
    if options.black_box_input == "table":
        box, x = asked_by_table(model, source.table, classes=data.class_names, output=output)
    else:
        box = black_box(model, classes=data.class_names, output=output)
        x = as_it_takes(model, data.x)
    if box.task != data.task:
        raise ValueError(
            f"the black box is for {box.task}, and the target {data.target_name!r} is for "
            f"{data.task}; give --task {box.task} if the target is"
        )
    try:
        targets = box.targets(x).to(data.x.device, data.x.dtype)
    except Exception as error:
        raise ValueError(
            f"the black box {type(model).__name__} fails on the rows: {one_line(error)}"
        ) from error
    if data.task == "regression":
        return (targets - source.target_mean) / source.target_scale
    if targets.shape[1] != data.n_classes:
        raise ValueError(
            f"the black box gives probabilities of {targets.shape[1]} classes; the target "
            f"{data.target_name!r} has {data.n_classes}"
        )
    return targets
