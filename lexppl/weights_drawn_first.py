"""Weights that have priors: drawn before a program does anything else, so that all rows share
them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pyro.nn import PyroModule
from torch import nn


def draw_weights(module: nn.Module) -> None:
    """Draw a module's weights that have priors now, at the head of its `forward`.

    A `PyroSample` that is first read inside a plate would be drawn for each of its entries; read
    before the plates, it is one latent that all rows share. `fit` does this for every program; call
    it in a program that is to run under Pyro's own inference too.

    Example:
        >>> import pyro, torch
        >>> import pyro.distributions as dist
        >>> from pyro.nn import PyroSample
        >>> class Line(PyroModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.slope = PyroSample(dist.Normal(0.0, 1.0))
        ...     def forward(self, x):
        ...         draw_weights(self)
        ...         with pyro.plate("data", len(x)):
        ...             return pyro.sample("y", dist.Normal(self.slope * x, 1.0))
        >>> trace = pyro.poutine.trace(Line()).get_trace(torch.zeros(5))
        >>> trace.nodes["slope"]["value"].shape
        torch.Size([])
    """
    if not isinstance(module, PyroModule) or module._pyro_context.active:
        _draw(_with_priors(module))


def weights_first(program: Callable[..., Any]) -> Callable[..., Any]:
    """A program whose weights with priors are drawn before it does anything else."""
    if not isinstance(program, nn.Module):
        return program
    parts = _with_priors(program)
    if not parts:
        return program

    def called(*args: Any, **kwargs: Any) -> Any:
        with _active(parts):
            _draw(parts)
            return program(*args, **kwargs)

    return called


@contextmanager
def drawing_weights_first(module: nn.Module) -> Iterator[None]:
    """Let a module that others hold draw its weights with priors first, wherever it is called."""
    parts = _with_priors(module)
    calls: list[ExitStack] = []

    def before(_: nn.Module, __: Any) -> None:
        calls.append(_active(parts))
        _draw(parts)

    def after(*_: Any) -> None:
        calls.pop().close()

    hooks = []
    if parts:
        hooks.append(module.register_forward_pre_hook(before))
        hooks.append(module.register_forward_hook(after, always_call=True, prepend=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _draw(parts: list[PyroModule]) -> None:
    for part in parts:
        # Only what is being called remembers a weight that is read.
        if part._pyro_context.active:
            for name in part._pyro_samples:
                getattr(part, name)


def _active(parts: list[PyroModule]) -> ExitStack:
    """A weight that is read is kept until its module's outermost call ends."""
    calls = ExitStack()
    for context in {id(p._pyro_context): p._pyro_context for p in parts}.values():
        calls.enter_context(context)
    return calls


def weights_with_priors(module: nn.Module) -> list[str]:
    """The names of a module's weights that have priors (`PyroSample`)."""
    return [
        f"{path}.{name}" if path else name
        for path, part in module.named_modules()
        if isinstance(part, PyroModule)
        for name in part._pyro_samples
    ]


def _with_priors(module: nn.Module) -> list[PyroModule]:
    return [m for m in module.modules() if isinstance(m, PyroModule) and m._pyro_samples]
