"""What differs between replicates besides what they learn: numbers and given tensors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from lexppl.distributions.computed_once import MadeOnce
from lexppl.inference.stages import Stage

_NO_SETTINGS = frozenset([*vars(nn.Module()), "stages"])
"""What torch keeps in a module, and the stages of `Terms`, which are compared by themselves."""


@dataclass(frozen=True)
class ReplicateHyperparameter:
    """A module's number that differs between replicates, such as λ or k."""

    path: str
    attribute: str
    values: tuple[float, ...]


def replicate_hyperparameters(copies: Sequence[nn.Module]) -> list[ReplicateHyperparameter]:
    """The numbers in which the replicates' modules differ."""
    modules = [list(one.named_modules()) for one in copies]
    if len({len(m) for m in modules}) > 1:
        raise ValueError(
            "replicates must be built of the same parts; they have "
            f"{[len(m) for m in modules]} modules"
        )
    found = []
    for same_place in zip(*modules, strict=True):
        path, first = same_place[0]
        kinds = [type(module).__name__ for _, module in same_place]
        if len(set(kinds)) > 1:
            raise ValueError(f"replicates must be built of the same parts; {path!r} is {kinds}")
        priors = [vars(module).get("_pyro_samples") for _, module in same_place]
        if not all(alike(priors[0], other) for other in priors):
            raise ValueError(
                "replicates may differ in the numbers of priors that lexppl.models.with_prior "
                f"gave, not in those given by hand (PyroSample) or in kind; {path!r} has others"
            )
        for attribute, value in vars(first).items():
            if attribute in _NO_SETTINGS or attribute.startswith("_pyro"):
                continue
            if isinstance(value, MadeOnce):
                continue
            values = [vars(module).get(attribute) for _, module in same_place]
            if all(alike(value, other) for other in values):
                continue
            if not all(_is_number(v) for v in values):
                raise ValueError(
                    "replicates may differ in numbers and in tensors; they differ in "
                    f"{attribute!r} of {kinds[0]} ({path})"
                )
            found.append(ReplicateHyperparameter(path, attribute, tuple(values)))
    return found


def differing_tensors(copies: Sequence[nn.Module], learned: Sequence[str]) -> list[str]:
    """Names of the given tensors (frozen weights, imputers' rows) in which replicates differ."""
    held = [{**dict(one.named_parameters()), **dict(one.named_buffers())} for one in copies]
    if len({tuple(h) for h in held}) > 1:
        raise ValueError("replicates must have the same parameters and buffers")
    found = []
    for name, first in held[0].items():
        shapes = [tuple(h[name].shape) for h in held]
        if len(set(shapes)) > 1:
            raise ValueError(f"replicates must be alike in shape; {name!r} is {shapes}")
        if name not in learned and any(not torch.equal(first, h[name]) for h in held[1:]):
            found.append(name)
    return found


def alike(one: Any, other: Any) -> bool:
    """Whether two settings are the same, as far as their parts show."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return one.shape == other.shape and bool(torch.equal(one, other))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(v, other[k]) for k, v in one.items())
    if isinstance(one, nn.Module):
        # Modules are compared part by part, where they stand.
        return True
    if isinstance(one, functools.partial):
        return alike((one.func, one.args, one.keywords), (other.func, other.args, other.keywords))
    if isinstance(one, FunctionType):
        cells = [
            [cell.cell_contents for cell in function.__closure__ or ()] for function in (one, other)
        ]
        return one.__code__ is other.__code__ and alike(cells[0], cells[1])
    if hasattr(one, "__dict__"):
        return alike(vars(one), vars(other))
    return bool(one == other)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def refuse_other_stages(every: Sequence[Sequence[Stage]]) -> None:
    """Refuse replicates that are trained in other ways."""
    first = every[0]
    for others in every[1:]:
        if len(others) != len(first) or any(
            len(a.terms) != len(b.terms) for a, b in zip(first, others, strict=True)
        ):
            raise ValueError("replicates must have the same stages and terms")
        for a, b in zip(first, others, strict=True):
            if not alike((a.epochs, a.optimizer), (b.epochs, b.optimizer)):
                raise ValueError("replicates must have the same epochs and optimizer in each stage")
            for mine, theirs in zip(a.terms, b.terms, strict=True):
                if not alike((mine.objective, mine.weight), (theirs.objective, theirs.weight)):
                    raise ValueError(
                        "replicates must have the same objective; what may differ are numbers and "
                        f"tensors of modules. They are {mine.objective!r} and {theirs.objective!r}"
                    )
