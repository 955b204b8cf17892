"""A program whose parameters are latents, so that several fits of it are draws of one program."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar

import pyro
import torch
from pyro.distributions import TorchDistribution
from pyro.nn import PyroModule
from torch import Tensor, nn
from torch.distributions import constraints

from lexppl.inference.contexts import keep_parameters_local


class Unstated(TorchDistribution):
    """Distribution of a parameter without a prior: log-density 0 everywhere, draws at one value."""

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, value: Tensor) -> None:
        self._value = value
        super().__init__(torch.Size(), value.shape, validate_args=False)

    @property
    def support(self) -> Any:
        return constraints.independent(constraints.real, self._value.dim())

    def expand(self, batch_shape: Any, _instance: Any = None) -> Unstated:
        if tuple(batch_shape):
            raise ValueError(f"a parameter is the same for all; its batch shape is {batch_shape}")
        return self

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._value.expand(torch.Size([*sample_shape, *self._value.shape]))

    def log_prob(self, value: Tensor) -> Tensor:
        return value.new_zeros(value.shape[: value.dim() - self._value.dim()]).float()


class DrawnParameters(PyroModule):
    """A program whose parameters are sample sites outside its plates, by their own names."""

    def __init__(self, program: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        held = copy.deepcopy(program).eval().requires_grad_(False)
        keep_parameters_local(held)
        # In a tuple, so that its parameters are not this module's too.
        self._held = (held,)
        keep_parameters_local(self)
        self._names = tuple(names)

    @property
    def program(self) -> nn.Module:
        return self._held[0]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Draw the parameters, then run the program with them."""
        own = {**dict(self.program.named_parameters()), **dict(self.program.named_buffers())}
        values = {name: pyro.sample(name, Unstated(own[name])) for name in self._names}
        return torch.func.functional_call(self.program, values, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("_"):
                raise
            return getattr(self.program, name)


def stacked_parameters(programs: Sequence[nn.Module]) -> dict[str, Tensor]:
    """The parameters of R fits of one program `(R, *shape)`, and buffers that differ."""
    each = [{**dict(p.named_parameters()), **dict(p.named_buffers())} for p in programs]
    shapes = [{name: tuple(value.shape) for name, value in one.items()} for one in each]
    if any(one != shapes[0] for one in shapes):
        raise ValueError(
            "the replicates have parameters of different names or shapes; fit one model R times"
        )
    parameters = dict(programs[0].named_parameters())
    stacked = {n: torch.stack([one[n].detach() for one in each]) for n in each[0]}
    return {
        name: values
        for name, values in stacked.items()
        if name in parameters or bool((values != values[:1]).any())
    }
