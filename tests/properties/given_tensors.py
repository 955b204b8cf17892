"""Tensors as users give them: of either type, of any layout, of no rows."""

from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import Tensor

EXAMPLES = settings(
    derandomize=True,
    deadline=None,
    max_examples=25,
    database=None,
    suppress_health_check=list(HealthCheck),
)
"""The same examples each time. `@EXAMPLES` stands above `@given`."""

TYPES = st.sampled_from([torch.float32, torch.float64])
LAYOUTS = st.sampled_from(["contiguous", "transposed", "strided", "reversed copy", "offset"])


def laid_out(tensor: Tensor, layout: str) -> Tensor:
    """The same values, in another place of memory."""
    if tensor.dim() == 0 or layout == "contiguous":
        return tensor.contiguous()
    if layout == "transposed":
        order = list(range(tensor.dim()))[::-1]
        return tensor.permute(order).contiguous().permute(order)
    if layout == "strided":
        wide = torch.stack([tensor, torch.full_like(tensor, 7)], -1).flatten(-2)
        return wide[..., ::2]
    if layout == "offset":
        return torch.cat([torch.full_like(tensor[:1], 3), tensor])[min(1, len(tensor)) :]
    return tensor.flip(-1).clone().flip(-1)


@st.composite
def values(draw: Any, *shape: int, low: float = -3.0, high: float = 3.0) -> Tensor:
    """Numbers of a shape, in double precision."""
    seed = draw(st.integers(0, 2**31 - 1))
    drawn = np.random.default_rng(seed).uniform(low, high, shape)
    return torch.as_tensor(drawn, dtype=torch.float64).reshape(shape)


def close(one: Tensor, other: Tensor, dtype: torch.dtype) -> None:
    """Equal to rounding in a type."""
    assert one.shape == other.shape, (one.shape, other.shape)
    tolerance = {"rtol": 2e-4, "atol": 2e-5} if dtype == torch.float32 else {}
    torch.testing.assert_close(one.double(), other.double(), **tolerance)
