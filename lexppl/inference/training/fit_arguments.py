"""How many fits are asked for, and whether what is asked for goes together."""

from typing import Any

import torch
from pyro.optim import PyroOptim
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.inference.replicates.replicate_rows import ReplicateData
from lexppl.inference.training.compiled.compiled_terms import BACKENDS, CompiledTerms
from lexppl.inference.training.mixed_precision import Precision
from lexppl.inference.training.rows.row_weights import weights_by_replicate


def replicates_asked_for(
    replicates: int, models: int | None, train: Any, valid: Any, row_weights: Any = None
) -> int:
    """R, from the number of models, data sets or weights where there is one for each.

    Args:
        replicates: as given.
        models: how many, where there is one for each replicate.
        train, valid, row_weights: as they are given to `fit`.

    Raises:
        ValueError: numbers that differ, or none.
    """
    counts = {"replicates": replicates} if replicates > 1 else {}
    if models is not None:
        counts["models"] = models
    for name, data in (("data sets of train", train), ("data sets of valid", valid)):
        if isinstance(data, ReplicateData):
            counts[name] = len(data)
    weights = weights_by_replicate(row_weights)
    if weights is not None:
        counts["rows of row_weights"] = weights
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise ValueError(f"each replicate has its model and its data; there are {listed}")
    count = next(iter(counts.values()), 1)
    if count < 1:
        raise ValueError("a list of models needs at least one; it is empty")
    return count


def check_numbers(
    replicates: int,
    folds: int | None,
    patience: int | None,
    clip_norm: float | None,
) -> None:
    """Refuse numbers that say nothing.

    Raises:
        ValueError, TypeError: one that is not positive, or not whole where it must be.
    """
    int_at_least("replicates", replicates)
    if folds is not None:
        int_at_least("folds", folds)
    if patience is not None:
        int_at_least("patience", patience)
    if clip_norm is not None and not clip_norm > 0.0:
        raise ValueError(f"clip_norm must be positive; it is {clip_norm}")


def check_given(optimizer: Any, device: Any) -> None:
    """Refuse an optimizer of other parameters than the fit's, and a device.

    Args:
        optimizer, device: as they are given to `fit`.

    Raises:
        TypeError: saying what to give.
    """
    if isinstance(optimizer, torch.optim.Optimizer | PyroOptim) or not callable(optimizer or id):
        raise TypeError(
            "optimizer must be a function from parameters to a torch optimizer, as "
            "torch.optim.AdamW or partial(torch.optim.SGD, lr=0.1), since fit trains copies of "
            f"the model; it is an instance of {type(optimizer).__name__}"
        )
    if device is not None:
        raise TypeError(
            f"fit takes no device= (it is {device!r}): it runs where rows and model are, so give "
            f"both there, by x.to({str(device)!r}) and model.to({str(device)!r})"
        )


def compiled_terms(asked: Any, precision: Precision | None = None) -> CompiledTerms | None:
    """What finds a fit's gradients by graphs; None where nobody asks for it.

    Args:
        asked, precision: as they are given to `fit`.

    Raises:
        ValueError: neither True nor False nor a backend.

    Example:
        >>> compiled_terms(True).backend, compiled_terms(False)
        ('inductor', None)
    """
    if asked is False:
        return None
    rounded = None if precision is None else torch.bfloat16
    if asked is True:
        return CompiledTerms("inductor", rounded)
    if asked not in BACKENDS:
        raise ValueError(f"compile must be True, False or one of {list(BACKENDS)}; it is {asked!r}")
    return CompiledTerms(asked, rounded)


def check_alike(x: Tensor, parameter: Tensor) -> None:
    """Refuse rows on another device, or of another type, than the model.

    Args:
        x: the rows.
        parameter: one of the model.

    Raises:
        ValueError: naming both.
    """
    if parameter.device != x.device:
        raise ValueError(
            f"x is on {x.device} and the model on {parameter.device}; move one to the other"
        )
    if x.is_floating_point() and x.dtype != parameter.dtype:
        raise ValueError(
            f"x is {x.dtype} and the model {parameter.dtype}; convert one, such as x.to"
            f"({parameter.dtype}) or model.to({x.dtype}), which a System has too"
        )
