"""What building a part from a file may cost, so that a hostile description ends in an error."""

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

LEAST_BYTES, TIMES_THE_WEIGHTS = 2**28, 16
"""Bytes that the tensors of all parts may take while they are built: so many, and so many times
those of the weights that are then loaded into them."""
LEAST_CALLS, CALLS_A_WEIGHT = 20_000, 200
"""The same of torch's operations, by tensors in the file."""
MOST = 2**24
"""Of a whole number in a description, and of the places of an image, where the file has fewer
weights than that."""
SMALL = 2**20
"""Numbers that an operation may make without being asked first."""
SHAPES = ("shape", "event_shape")


class BuildLimits(TorchDispatchMode):
    """Within it, torch refuses to make tensors that a file of this size cannot need.

    Entered again, for the next replicate, it goes on counting. What a large operation would make is
    asked of torch's "meta" device, which makes nothing, before it is run.

    Args:
        weights: the tensors of the file.

    Raises:
        ValueError: from an operation within, more bytes or operations than there may be.

    Example:
        >>> with BuildLimits({"weight": torch.zeros(3)}):
        ...     torch.nn.Linear(10**6, 10**6)
        Traceback (most recent call last):
        ...
        ValueError: it describes parts of more than 268,435,648 bytes, which its weights do not fill
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        numbers = sum(t.nbytes for t in weights.values())
        self.bytes = LEAST_BYTES + TIMES_THE_WEIGHTS * numbers
        self.calls = LEAST_CALLS + CALLS_A_WEIGHT * len(weights)
        self._bytes_left, self._calls_left = self.bytes, self.calls

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        self._calls_left -= 1
        if self._calls_left < 0:
            raise ValueError(f"it describes parts that take more than {self.calls:,} operations")
        if _may_be_large(args, named):
            self._count(_made_on_meta(func, args, named), keep=True)
        made = func(*args, **named)
        self._count(made)
        return made

    def _count(self, made: Any, keep: bool = False) -> None:
        tensors = (one for one in tree_leaves(made) if isinstance(one, Tensor))
        left = self._bytes_left - sum(one.numel() * one.itemsize for one in tensors)
        if left < 0:
            raise ValueError(
                f"it describes parts of more than {self.bytes:,} bytes, which its weights do not "
                "fill"
            )
        self._bytes_left = self._bytes_left if keep else left


def refuse_sizes(config: Any, weights: Mapping[str, Tensor], name: str = "") -> None:
    """Refuse whole numbers that no part of a file of this size can have, before it is built.

    What a part makes of numbers in Python, such as a list with an entry for each pixel, torch does
    not see.

    Args:
        config: a description, or what stands in one.
        weights: of the file.
        name: of what it is in the description.

    Raises:
        ValueError: a number, or a product of an image's sides, above the limit.

    Example:
        >>> refuse_sizes({"k": 10**12}, {})
        Traceback (most recent call last):
        ...
        ValueError: it describes a part with k = 1000000000000, which its weights do not fill
    """
    most = max(MOST, sum(t.numel() for t in weights.values()))
    _refuse_above(config, most, name)


def _refuse_above(config: Any, most: int, name: str) -> None:
    if isinstance(config, int) and abs(config) > most:
        said = str(config) if abs(config) < 10**30 else "a number of more than 30 digits"
        raise ValueError(f"it describes a part with {name} = {said}, which its weights do not fill")
    if isinstance(config, list):
        if name in SHAPES and all(type(side) is int for side in config):
            _refuse_above(prod(config), most, f"the product of {name}")
        for one in config:
            _refuse_above(one, most, name)
    if isinstance(config, dict):
        for key, one in config.items():
            _refuse_above(one, most, key)


def _may_be_large(args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether what an operation is given may make more than some megabytes."""
    bound = 1
    for one in tree_leaves((args, kwargs)):
        if isinstance(one, Tensor):
            bound *= max(one.numel(), 1)
        elif isinstance(one, int):
            # Squared, as `eye` takes one number for two sides.
            bound *= max(one * one, 1)
        if bound > SMALL:
            return True
    return False


def _made_on_meta(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What an operation would make, without its numbers."""
    args, kwargs = tree_map_only(Tensor, lambda tensor: tensor.to("meta"), (args, kwargs))
    if "device" in kwargs or not any(isinstance(one, Tensor) for one in tree_leaves(args)):
        kwargs["device"] = torch.device("meta")
    try:
        return func(*args, **kwargs)
    except (NotImplementedError, RuntimeError):
        # How much it makes depends on numbers, as of `nonzero`: it is bounded by what is there.
        return None
