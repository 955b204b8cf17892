"""Tensors that have a device and no values."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.func import jacfwd

from tests import needs

FAKE_CUDA, META = "fake CUDA", "meta"


class ValueFree:
    """Likes of tensors, without values: on a CUDA device that need not be there, or on meta.

    Args:
        kind: :data:`FAKE_CUDA` or :data:`META`.
    """

    def __init__(self, kind: str) -> None:
        if kind == FAKE_CUDA:
            needs.cuda_build()
        self.device = torch.device("cuda", 0) if kind == FAKE_CUDA else torch.device("meta")
        self.mode = FakeTensorMode() if kind == FAKE_CUDA else None
        self._likes: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, tensor: Tensor) -> Tensor:
        """The tensor's like, one and the same whenever asked."""
        if id(tensor) not in self._likes:
            like = tensor.detach().to("meta")
            if self.mode is not None:
                like = FakeTensor(self.mode, like, self.device)
            if isinstance(tensor, nn.Parameter):
                like = nn.Parameter(like, requires_grad=tensor.requires_grad)
            else:
                like.requires_grad_(tensor.requires_grad)
            self._likes[id(tensor)] = (tensor, like)
        return self._likes[id(tensor)][1]

    @contextmanager
    def held_by(self, *holders: nn.Module | dict[str, Tensor]) -> Iterator[None]:
        """Let modules and dictionaries hold likes, as after `module.to(device)`: what a module has
        beside its parameters and buffers stays where it is."""
        places: list[dict[str, Any]] = []
        for holder in holders:
            parts = holder.modules() if isinstance(holder, nn.Module) else ()
            places += [held for part in parts for held in (part._parameters, part._buffers)]
            places += [holder] if isinstance(holder, dict) else []
        before = [(held, dict(held)) for held in places]
        try:
            for held in places:
                held.update({n: self(value) for n, value in held.items() if value is not None})
            yield
        finally:
            for held, values in before:
                held.update(values)

    @contextmanager
    def running(self) -> Iterator[None]:
        """What stands in for a driver, and for what torch has no values-free form of."""
        with ExitStack() as scope:
            if self.mode is None:
                for library in _meta_kernels():
                    scope.callback(library._destroy)
            else:
                for stand_in in _without_driver():
                    scope.enter_context(stand_in)
                scope.enter_context(self.mode)
            yield


def _without_driver() -> list[Any]:
    """Random states, which torch asks the driver for, and gradients within a loss: torch's engine
    has a thread a device, forward mode runs the same operations of the program without it."""
    return [
        patch("torch.cuda.get_rng_state", lambda device: None),
        patch("torch.cuda.set_rng_state", lambda state, device: None),
        patch("torch.func.vjp", _vjp),
        patch.object(import_module("lexppl.systems.senn"), "jacrev", jacfwd),
        patch.object(import_module("lexppl.systems.meed"), "grad", jacfwd),
    ]


def _vjp(function: Any, *given: Tensor) -> tuple[Tensor, Any]:
    """`torch.func.vjp` whose derivatives are zeros."""
    return function(*given), lambda weights: tuple(torch.zeros_like(one) for one in given)


def _meta_kernels() -> list[Any]:
    """Derivatives of gamma draws, which torch has for CPU and CUDA and not for meta."""
    library = torch.library.Library("aten", "IMPL", "Meta")
    library.impl("_standard_gamma_grad", lambda given, output: torch.empty_like(given))
    library.impl("_dirichlet_grad", lambda x, alpha, total: torch.empty_like(x))
    return [library]
