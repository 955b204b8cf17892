"""A plain multilayer perceptron that can describe itself."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from lexppl.argument_checks import finite_float, fraction, int_at_least, one_of
from lexppl.configured import Configured
from lexppl.threads import own_random_state

BLOCK = 4096  # Rows whose hidden layers stay in the processor's cache, without gradients
ACTIVATIONS = ("relu", "selu", "tanh", "leaky_relu", "silu", "gelu")


@contextmanager
def initial_weights(seed: int | None) -> Iterator[None]:
    """Draw initial weights from a seed, leaving the global random state as it is; None: from
    torch's default generator."""
    with own_random_state(None, enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        yield


class MLP(Configured, nn.Module):
    """Multilayer perceptron on the last dimension: `(…, D)` to `(…, outputs)`.

    Args:
        inputs: D.
        outputs: size of the last layer.
        hidden: widths of the hidden layers.
        activation: one of "relu", "selu", "tanh", "leaky_relu", "silu", "gelu".
        seed: initial weights drawn from this seed, leaving the global random state as it is; None
            draws them from torch's default generator, as any torch module does.
        batch_norm: normalise each hidden layer over the batch, before its activation; rows then
            come as `(N, D)`.
        dropout: share of each hidden layer that is dropped while training.

    Raises:
        ValueError: a width below 1, an unknown activation, a share outside [0, 1).

    Example:
        >>> MLP(11, 2, hidden=(200, 200), seed=0)(torch.zeros(5, 11)).shape
        torch.Size([5, 2])
    """

    not_described: ClassVar[frozenset[str]] = frozenset({"seed"})

    def __init__(
        self,
        inputs: int,
        outputs: int,
        hidden: Sequence[int] = (200, 200),
        activation: str = "relu",
        seed: int | None = None,
        *,
        batch_norm: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        inputs, outputs = int_at_least("inputs", inputs), int_at_least("outputs", outputs)
        hidden = tuple(int_at_least("a width of hidden", width) for width in hidden)
        widths = [inputs, *hidden, outputs]
        one_of(ACTIVATIONS, "activation", activation)
        self.inputs, self.outputs = inputs, outputs
        self.hidden, self.activation = hidden, activation
        with initial_weights(seed):
            self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.batch_norm, self.dropout = batch_norm, fraction("dropout", dropout, zero=True)
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in hidden if batch_norm)
        self._activate = getattr(nn.functional, activation)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.inputs:
            raise ValueError(f"the network takes {self.inputs} features; it is given {x.shape[-1]}")
        learns = torch.is_grad_enabled() or self.training
        if x.dim() == 2 and len(x) > BLOCK and x.device.type == "cpu" and not learns:
            return torch.cat([self._outputs(rows) for rows in x.split(BLOCK)])
        return self._outputs(x)

    def _outputs(self, x: Tensor) -> Tensor:
        *before, last = self.layers
        for place, layer in enumerate(before):
            x = layer(x)
            if self.batch_norm:
                x = self.norms[place](x)
            x = nn.functional.dropout(self._activate(x), self.dropout, self.training)
        return last(x)


class ScaledOutput(Configured, nn.Module):
    """A network `(N, *event)` to `(N, 1)` in the units of a response: `shift + scale ·
    network(x)`."""

    def __init__(self, network: nn.Module, shift: float, scale: float) -> None:
        super().__init__()
        self.network = network
        self.shift = float(shift)
        self.scale = finite_float("scale", scale, above=0.0)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.network(x)
        return self.shift + self.scale * outputs
