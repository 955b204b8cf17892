"""Base of the imputers: their tensors, their description and the checks of their input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from pyro.distributions.torch_distribution import TorchDistribution
from pyro.distributions.util import broadcast_shape
from pyro.infer.util import is_validation_enabled
from torch import Tensor, nn

from lexppl.configured import Configured, constructor_arguments
from lexppl.models.imputers.imputed import Imputed

TensorOrShape = float | Sequence[Any] | np.ndarray | Tensor | Mapping[str, Any]
"""A tensor, what makes one, or `{"shape": [...], "dtype": "float32"}`: one to be loaded."""


class Imputer(Configured, nn.Module):
    """A conditional distribution `p_ι(x̃ | x, z)` of the hidden features.

    A subclass says in :meth:`hidden_distribution` what each feature would be, were it hidden, and
    in :attr:`event_shape` which rows it takes. Calling it gives the :class:`Imputed` distribution,
    in which the kept features stay as they are:

        with imputation_particles():
            x_imputed = pyro.sample("x_imputed", imputer(x, keep))

    Its tensors are buffers named like the arguments of the constructor, so that
    `type(imputer)(**imputer.config())` followed by `load_state_dict` gives it again.
    """

    @property
    def event_shape(self) -> torch.Size | None:
        """The shape of one row, or None where any will do."""
        return None

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """The distribution of what each entry would be, were it hidden.

        Args:
            x: rows, shape `(B, *event)`.
            keep: shape `(…, B, *event)` or broadcastable to it.

        Returns:
            a distribution of event shape `event` and a batch shape that broadcasts with `(…, B)`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define hidden_distribution(x, keep)")

    def forward(self, x: Tensor, keep: Tensor) -> Imputed:
        """The distribution of the imputed rows, batch shape `(…, B)` and event shape `event`.

        Args:
            x: rows, shape `(B, *event)`: `(B, D)` for tables, `(B, C, H, W)` for images.
            keep: what is kept of each feature, boolean or in [0, 1], of shape `(…, B, *event)` or
                broadcastable to it.

        Raises:
            TypeError: when `x` is not of the imputer's floating-point type.
            ValueError: when a shape does not fit.
        """
        self._check_input(x, keep)
        return Imputed(x, keep, self.hidden_distribution(x, keep))

    def config(self) -> dict[str, Any]:
        """The constructor's arguments as JSON: of a tensor its shape and type.

        The values are in `state_dict()`; until `load_state_dict` has filled it, an imputer made of
        a configuration holds NaN.
        """
        return {
            name: _description(value) if isinstance(value, Tensor) else value
            for name, value in constructor_arguments(self).items()
        }

    def extra_repr(self) -> str:
        """The shapes of the tensors."""
        return ", ".join(f"{n}={tuple(b.shape)}" for n, b in self.named_buffers(recurse=False))

    def _register(self, name: str, value: TensorOrShape) -> bool:
        """Registers a buffer; False where its values are yet to be loaded."""
        if isinstance(value, Mapping):
            dtype = getattr(torch, value["dtype"])
            self.register_buffer(name, torch.full(tuple(value["shape"]), torch.nan, dtype=dtype))
            return False
        try:
            tensor = torch.as_tensor(value).detach().clone()
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"{name} must be a number, a tensor or an array; it is a {type(value).__name__}"
            ) from error
        if tensor.is_complex():
            raise TypeError(f"{name} must be real; it is {tensor.dtype}")
        if not tensor.is_floating_point():
            tensor = tensor.to(torch.get_default_dtype())
        bad = int((~tensor.isfinite()).sum())
        if bad:
            raise ValueError(
                f"{name} must be finite; {bad} of its {tensor.numel()} values are NaN or infinite"
            )
        self.register_buffer(name, tensor)
        return True

    def _refuse_mixed_types(self) -> None:
        types = {name: buffer.dtype for name, buffer in self.named_buffers(recurse=False)}
        if len(set(types.values())) > 1:
            raise TypeError(f"{', '.join(types)} must be of one type; they are {types}")

    def _hard_mask(self, x: Tensor, keep: Tensor, draw: str, instead: str) -> Tensor:
        """What is kept, boolean, of a mask of 0 and 1 without a gradient."""
        self._check_input(x, keep)
        if keep.requires_grad:
            raise ValueError(
                f"{draw} has no gradient in the mask, and this estimator differentiates masks: use "
                f"one of the score, such as LeaveOneOut() (the default of lex), or {instead}"
            )
        kept = keep == 1
        if is_validation_enabled() and not bool((kept | (keep == 0)).all()):
            raise ValueError(
                f"an entry is kept or {draw}, and the mask has values between 0 and 1: use masks "
                f"that are hard, such as BernoulliSelector's, or {instead}"
            )
        return kept

    def _check_input(self, x: Tensor, keep: Tensor) -> None:
        event_shape = self.event_shape
        if x.ndim < 2 or (event_shape is not None and x.shape[1:] != event_shape):
            event = "*event" if event_shape is None else ", ".join(map(str, event_shape))
            raise ValueError(f"x must have shape (B, {event}); it has shape {tuple(x.shape)}")
        for name, buffer in self.named_buffers(recurse=False):
            if buffer.dtype != x.dtype:
                raise TypeError(
                    f"x is {x.dtype} and the imputer's {name} is {buffer.dtype}; "
                    f"call imputer.to({x.dtype}) or convert x"
                )
        try:
            shape = torch.Size(broadcast_shape(keep.shape, x.shape))
        except ValueError:
            shape = torch.Size()
        if keep.ndim < x.ndim - 1 or shape[-x.ndim :] != x.shape:
            raise ValueError(
                f"keep must have shape (..., {', '.join(map(str, x.shape))}), as x, or broadcast "
                f"to it; it has shape {tuple(keep.shape)}. A grouping carries mask entries to "
                "features"
            )


def _description(tensor: Tensor) -> dict[str, Any]:
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}


def check_training_rows(x: Tensor, minimum: int = 2) -> None:
    """Refuses rows that no distribution can be fitted on.

    Args:
        x: training rows, shape `(B, *event)`.
        minimum: the least number of rows.

    Raises:
        TypeError: when `x` is not a floating-point tensor.
        ValueError: when it is not `(B, *event)`, has too few rows, or NaN or infinite values.

    Example:
        >>> check_training_rows(torch.ones(1, 3))
        Traceback (most recent call last):
        ValueError: x must have at least 2 rows to fit an imputer; it has 1
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        given = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"x must be a floating-point tensor; it is {given}")
    if x.ndim < 2:
        raise ValueError(f"x must have shape (B, *event); it has shape {tuple(x.shape)}")
    if len(x) < minimum:
        raise ValueError(f"x must have at least {minimum} rows to fit an imputer; it has {len(x)}")
    bad = int((~torch.isfinite(x)).sum())
    if bad:
        raise ValueError(
            f"x must be finite; {bad} of its {x.numel()} values are NaN or infinite. Drop those "
            "rows or fill the values first"
        )


def fill_zero_variances(variance: Tensor) -> Tensor:
    """The variances with each 0 replaced by the smallest positive one, or by 1 without any.

    Constant columns are common (a rare category, the border of an image). They are imputed with a
    small share of this variance, which lends them a unit without a guess from outside the data.

    Args:
        variance: variances of features, any shape, squared units of the features.

    Example:
        >>> fill_zero_variances(torch.tensor([4.0, 0.0, 0.25]))
        tensor([4.0000, 0.2500, 0.2500])
    """
    positive = variance > 0
    smallest = torch.where(positive, variance, torch.inf).amin()
    return torch.where(positive, variance, torch.where(smallest.isinf(), 1, smallest))
