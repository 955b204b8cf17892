"""A model that can be asked and not looked into, and the checks of what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Task = Literal["classification", "regression"]

SUM_TOLERANCE = 1e-4
"""How far from 1 the probabilities of a row may sum; they are divided by their sum."""
RANGE_TOLERANCE = 1e-6
"""How far outside [0, 1] rounding may put a probability; it is put back."""


@dataclass(frozen=True, eq=False)
class BlackBox:
    """A model that can be asked and not looked into, `p_m(y | x)`: see :func:`black_box`.

    Args:
        name: what errors call it.
        task: whether it gives probabilities of labels or responses.
        classes: C, or None where it is not known before it is asked, or for responses.
        batch_rows: rows that are asked for at once.
        ask: from rows `(B, *event)` to `(B, C)`, or `(B,)`, float64, not yet checked.
        check_input: refuses rows that the model cannot take, before any work.
    """

    name: str
    task: Task
    classes: int | None
    batch_rows: int
    ask: Callable[[Tensor], Tensor]
    check_input: Callable[[Tensor], None]

    def targets(self, x: Tensor) -> Tensor:
        """What the black box says of each row, without gradient, on the device and in the type of
        `x`.

        Args:
            x: rows, shape `(N, *event)`.

        Returns:
            probabilities of the labels, `(N, C)`, each row divided by its sum; or responses `(N,)`.

        Raises:
            TypeError: `x` is no tensor, or the black box gives no numbers.
            ValueError: no rows; values that are not finite; another number of rows or classes;
                probabilities outside [0, 1] or whose sum is off 1 by more than 1e-4.
        """
        if not isinstance(x, Tensor):
            raise TypeError(f"x must be a torch.Tensor; it is a {type(x).__name__}")
        if x.dim() < 2 or len(x) == 0:
            raise ValueError(f"x must have shape (N, *event), N >= 1; it has {tuple(x.shape)}")
        if not bool(x.isfinite().all()):
            raise ValueError("x must be finite; it has NaN or infinite values")
        self.check_input(x)
        parts: list[Tensor] = []
        classes = self.classes
        with torch.no_grad():
            for rows in x.split(self.batch_rows):
                part = self._checked(self.ask(rows), len(rows), classes)
                classes = part.shape[1] if self.task == "classification" else None
                parts.append(part.to(device=x.device, dtype=x.dtype))
        return torch.cat(parts)

    def __call__(self, x: Tensor) -> Tensor:
        """The same as :meth:`targets`."""
        return self.targets(x)

    def _checked(self, given: Tensor, rows: int, classes: int | None) -> Tensor:
        expected = f"({rows},)" if self.task == "regression" else f"({rows}, {classes or 'C'})"
        if given.dim() == 0 or len(given) != rows:
            raise ValueError(
                f"{self.name} must give one row for each of the {rows} rows of x, shape "
                f"{expected}; it gave shape {tuple(given.shape)}"
            )
        broken = int((~given.isfinite()).sum())
        if broken:
            raise ValueError(
                f"{self.name} must give finite values; {broken} of its {given.numel()} values are "
                "NaN or infinite"
            )
        if self.task == "regression":
            return given
        if classes is not None and given.shape[1] != classes:
            raise ValueError(
                f"{self.name} must give probabilities of {classes} classes; it gave "
                f"{given.shape[1]}"
            )
        low, high = float(given.min()), float(given.max())
        if low < -RANGE_TOLERANCE or high > 1.0 + RANGE_TOLERANCE:
            raise ValueError(
                f"{self.name} must give probabilities in [0, 1]; it gave {low:.4g} to {high:.4g}. "
                "For logits say output='logits', for responses task='regression'"
            )
        total = given.sum(1)
        off = float((total - 1.0).abs().max())
        if off > SUM_TOLERANCE:
            raise ValueError(
                f"{self.name} must give probabilities that sum to 1 in each row; they sum to "
                f"{float(total.min()):.4g} to {float(total.max()):.4g}"
            )
        given = given.clamp(0.0, 1.0)
        return given / given.sum(1, keepdim=True)
