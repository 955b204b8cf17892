"""What the files of an explainer are called, and what stands in them."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

FORMAT = 5
"""The one that is read."""
WEIGHTS = "weights.safetensors"
DESCRIPTION = "explainer.json"
SAMPLER = "sampler"
WEIGHTS_CHECKSUM = "weights_sha256"


def own_tensors(beginning: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of a file whose names begin so, by the rest of their names.

    Example:
        >>> import torch
        >>> own_tensors("model.0.", {"model.0.bias": torch.zeros(1), "guide.0.bias": torch.ones(1)})
        {'bias': tensor([0.])}
    """
    return {
        name.removeprefix(beginning): tensor
        for name, tensor in weights.items()
        if name.startswith(beginning)
    }


def is_own_program(described: Any) -> bool:
    """Whether a description names a class alone, of a program that cannot describe itself."""
    return isinstance(described, dict) and "class" in described
