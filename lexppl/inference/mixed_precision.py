"""Training with the products of layers in bf16, and all else in the model's own precision."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

Precision = Literal["bf16-mixed"]
MIXED: Precision = "bf16-mixed"
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
MOST_ROUNDED = 0.02
"""Of a column's standard deviation, that rounding it may take (root mean square)."""


class MixedPrecision:
    """Context in which learned layers round the factors of their products to bf16:

        y = float32(bf16(W) · bf16(x)) + b.

    Sums, biases, activations and moments stay float32, unlike under `torch.autocast`. Layers whose
    weights are not learned, of other kinds, and a program's own products stay as they are.
    """

    def __init__(self, modules: nn.Module, learned: Collection[str]) -> None:
        parameters = dict(modules.named_parameters())
        weights = {id(parameters[name]) for name in learned if name in parameters}
        self.layers = [part for part in modules.modules() if _is_rounded(part, weights)]
        self._placed = [(vars(layer), *_product_of(layer)) for layer in self.layers]

    def __enter__(self) -> Self:
        for held, name, product in self._placed:
            held[name] = product
        return self

    def __exit__(self, *_: object) -> None:
        for held, name, _product in self._placed:
            del held[name]


def _is_rounded(layer: nn.Module, weights: Collection[int]) -> bool:
    """Whether a layer's product is one that can be taken from it, and its weight is learned."""
    kind: Any = type(layer)
    if isinstance(layer, nn.Linear):
        is_plain = kind.forward is nn.Linear.forward
    elif isinstance(layer, CONVOLUTIONS):
        # Another padding than zeros copies values, and sums their gradients.
        is_plain = layer.padding_mode == "zeros" and any(
            kind._conv_forward is convolution._conv_forward for convolution in CONVOLUTIONS
        )
    else:
        return False
    return is_plain and id(layer._parameters.get("weight")) in weights


def _product_of(layer: nn.Module) -> tuple[str, Callable[..., Tensor]]:
    if isinstance(layer, nn.Linear):

        def whole(x: Tensor) -> Tensor:
            made = linear(_rounded(x), _rounded(layer.weight)).to(x.dtype)
            return made if layer.bias is None else made + layer.bias

        return "forward", whole
    convolution: Any = layer
    inner: Callable[..., Tensor] = type(convolution)._conv_forward

    def part(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        made = inner(convolution, _rounded(x), _rounded(weight), None).to(x.dtype)
        places = [1] * len(convolution.kernel_size)
        return made if bias is None else made + bias.reshape(-1, *places)

    return "_conv_forward", part


def _rounded(tensor: Tensor) -> Tensor:
    return tensor.to(torch.bfloat16)


def refuse_unmixed(modules: nn.Module, dtype: torch.dtype) -> None:
    """Refuse a fit that has nothing to gain from rounded products, or too much to lose."""
    if dtype != torch.float32:
        raise ValueError(
            f"precision='bf16-mixed' keeps weights and sums in float32, and the model is {dtype}: "
            "leave precision out, or give model.float() and rows of float32"
        )
    learned = [name for name, p in modules.named_parameters() if p.requires_grad]
    if not MixedPrecision(modules, learned).layers:
        raise ValueError(
            "precision='bf16-mixed' rounds the products of linear layers and convolutions that "
            "are learned by gradients, and there is none here (trees, estimators, given models "
            "and weights with priors have none): leave precision out"
        )


def refuse_rounded_away(x: Tensor, modules: nn.Module) -> None:
    """Refuse columns of a batch `(B, D)` that bf16 does not distinguish, such as years."""
    embedded = any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in modules.modules())
    if x.dim() != 2 or not x.is_floating_point() or embedded:
        return
    rows = x.detach()
    lost = (_rounded(rows).to(x.dtype) - rows).square().mean(0).sqrt()
    spread = rows.std(0, correction=0)
    places = (lost > MOST_ROUNDED * spread).logical_and(spread > 0).nonzero().flatten().tolist()
    if places:
        raise ValueError(
            f"precision='bf16-mixed' has 8 bits of a number, which of columns {places[:8]} of x "
            "keep too little of what distinguishes rows: subtract each column's mean and divide by "
            "its standard deviation first, or leave precision out"
        )
