"""The identity of a fit: its settings, rows and program, by path, as numbers, words and hashes."""

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import torch

from lexppl.fingerprint import contents, digest, fingerprint
from lexppl.inference.batches import HasBatches, LoadedRows
from lexppl.inference.stages import TrainingModules
from lexppl.inference.training.rows.rows import TrainingRows, WeightedRows

Identity = dict[str, str]
"""What makes a fit the fit that it is, by path."""


def identity_of(
    settings: Mapping[str, Any],
    copies: Sequence[TrainingModules],
    learned: TrainingRows | None,
    held_out: TrainingRows | None,
) -> Identity:
    """The identity of a fit: the same for the same fit in any process, another for another.

    Args:
        settings: of the fit, by name.
        copies: the replicates' modules, as they are before the first step.
        learned: the rows to learn from, with their weights and in their folds.
        held_out: the validation rows.

    Raises:
        TypeError: a program that carries a random state of its own.
    """
    found: Identity = {}
    rows = {"train": _rows(learned), "valid": _rows(held_out)}
    model = {f"stage {number}": stage for number, stage in enumerate(copies[0].stages)}
    for name, value in {**settings, **rows, "replicates": len(copies), "model": model}.items():
        found |= {path: digest(leaf) for path, leaf in contents(value, name).items()}
    for place, one in enumerate(copies[1:], 1):
        own = {path: digest(leaf) for path, leaf in contents(list(one.stages), "").items()}
        found[f"model.replicate {place}"] = fingerprint(own)
    return found


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is another in one fit than in another, in words: where arguments are, those alone, as
    the rest follows from them.

    Example:
        >>> differences({"seed": "0", "train.x": "ab"}, {"seed": "1", "train.x": "cd"})
        ['seed was 0 and is 1']
    """
    absent = "not there"
    every = dict.fromkeys([*now, *before])
    names = [name for name in every if before.get(name, absent) != now.get(name, absent)]
    arguments = [name for name in names if "." not in name]
    found = []
    for name in arguments or names:
        # A hash of numbers or code stands last, after their type and shape.
        pair = [one.get(name, absent).rpartition(" ") for one in (before, now)]
        hashed = all(len(last.strip("'")) == 32 for _, _, last in pair)
        first, second = (head if hashed else f"{head}{gap}{last}" for head, gap, last in pair)
        same = hashed and first == second
        found.append(f"{name} has other values" if same else f"{name} was {first} and is {second}")
    return found


def versions() -> dict[str, str]:
    """What else the bits of a fit depend on: versions, the processor, the number of threads."""
    return {
        "lexppl": version("lexppl"),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "the processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "the number of threads": str(torch.get_num_threads()),
    }


def _rows(rows: TrainingRows | None) -> Any:
    """What rows consist of, by name."""
    if isinstance(rows, WeightedRows):
        rows = rows.rows
    if rows is None:
        return None
    if isinstance(rows, LoadedRows):
        loader = rows.loader
        if isinstance(loader, HasBatches):
            return loader
        settings = ("batch_size", "drop_last", "num_workers", "collate_fn", "dataset")
        drawn = ("weights", "indices", "replacement", "num_samples")
        return {
            **{name: getattr(loader, name) for name in settings},
            "sampler": type(loader.sampler),
            **{f"sampler's {name}": getattr(loader.sampler, name, None) for name in drawn},
        }
    names = ("x", "y", *(f"column {place}" for place in range(2, len(rows.columns))))
    return dict(zip(names, rows.columns, strict=False))
