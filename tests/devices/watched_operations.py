"""What torch is asked for inside a block: on which device, and whether the host waits for it."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FROM_NUMBERS = (torch.tensor, torch.as_tensor, torch.from_numpy, torch.Tensor.new_tensor)
"""Calls that make a tensor of what the host holds. On a device it is copied there, and the host
waits until the device has done all before."""

OF_LIBRARIES = (
    "pyro/poutine/subsample_messenger.py",
    "pyro/distributions/unit.py",
    "torch/_functorch/eager_transforms.py",
)
"""A plate asks for the default device by an empty tensor and numbers its rows on the host, where a
factor has its empty value; `jacfwd` of torch 2.11 has its sizes there. Nothing of it reaches the
device."""


class ElsewhereError(RuntimeError):
    """What is not of the one device, or comes there from the host."""


class WatchedOperations(TorchDispatchMode):
    """Refuse operations that leave a device or bring something there.

    A number of the host (a tensor without dimensions) is an argument of what runs on a device, and
    is no copy. Of fake and meta tensors whatever needs a value (`.item()`, a branch, entries chosen
    by booleans) is refused by torch itself.

    Args:
        device: the one.

    Attributes:
        count: operations seen.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        # A fake tensor is a meta one underneath, which forward derivatives bring to light.
        self.kinds, self.count = {device.type, "meta"}, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        self.count += 1
        given = self._tensors((args, kwargs))
        results = self._tensors(made)
        here = any(t.device.type in self.kinds for t in (*given, *results))
        generator = kwargs.get("generator")
        if here and generator is not None and generator.device.type not in self.kinds:
            raise ElsewhereError(f"{func} draws by a generator of the {generator.device.type}")
        for of, tensors in (("takes", given), ("makes", results)):
            for tensor in tensors:
                if tensor.device.type in self.kinds:
                    continue
                leaves = of == "makes" and any(t.device.type in self.kinds for t in given)
                if (tensor.dim() or leaves) and not _is_of_a_library():
                    shape = tuple(tensor.shape)
                    raise ElsewhereError(f"{func} {of} a tensor {shape} of the {tensor.device}")
        return made

    @staticmethod
    def _tensors(tree: Any) -> list[Tensor]:
        return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


class WatchedNumbers(TorchFunctionMode):
    """Refuse tensors of a device that are made of Python's or NumPy's numbers."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.kind = device.type

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if func not in FROM_NUMBERS or made.device.type != self.kind:
            return made
        given = args[1] if func is torch.Tensor.new_tensor else args[0]
        if not isinstance(given, Tensor) and made.numel() > 0:
            raise ElsewhereError(f"{func.__name__} copies {given!r} from the host")
        return made


def _is_of_a_library() -> bool:
    names = (Path(frame.filename).as_posix() for frame in traceback.extract_stack())
    return any(name.endswith(OF_LIBRARIES) for name in names)


@contextmanager
def watched(device: torch.device) -> Iterator[WatchedOperations]:
    """Refuse, inside, what leaves a device or waits for it.

    Raises:
        ElsewhereError: at the operation.
    """
    with WatchedNumbers(device), WatchedOperations(device) as operations:
        yield operations
