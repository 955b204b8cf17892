"""Whether the rows of a fit, images and texts among them, are such as its programs take."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from lexppl.inference.batches import LoadedRows
from lexppl.inference.replicates.replicate_rows import Rows, of_replicate
from lexppl.inference.stages import Stage
from lexppl.inference.training.rows.response_checks import refuse_responses
from lexppl.inference.training.rows.row_weights import WeightedRows

IMAGE = 3
"""Dimensions of an image, channels first."""
MOST_BEYOND = 0.5
"""How far pixels may leave [0, 1]: noise and enlarged images do so by less."""


def refuse_unlike(program: Any, x: Tensor) -> None:
    """Refuse images of another size than the program's grouping, and rows that are no texts.

    Args:
        program: with a `grouping` of images, or with a part of its `selector` that has
            `check_rows(x)`; any other takes all.
        x: rows `(N, *event)`.

    Raises:
        ValueError: naming the size, or as the part says.
    """
    taken = getattr(getattr(program, "grouping", None), "event_shape", ())
    if len(taken) == IMAGE and tuple(x.shape[1:]) != tuple(taken):
        size = ", ".join(map(str, taken))
        raise ValueError(f"the model takes images (N, {size}); it is given {tuple(x.shape)}")
    selector = getattr(program, "selector", None)
    for part in selector.modules() if isinstance(selector, nn.Module) else ():
        check = getattr(part, "check_rows", None)
        if check is not None:
            check(x)


def refuse_rows(
    stages: Sequence[Stage], rows: Rows | WeightedRows | None, name: str, replicates: int
) -> None:
    """Refuse rows of a fit that one of its programs does not take (:func:`refuse_unlike`), or whose
    responses it cannot have (:func:`refuse_responses`).

    Args:
        stages: with the programs.
        rows: to learn from or to be judged on; a loader's are looked at batch by batch.
        name: what they are called.
        replicates: R.

    Raises:
        ValueError: naming them.
    """
    inner = rows.rows if isinstance(rows, WeightedRows) else rows
    if inner is None or isinstance(inner, LoadedRows):
        return
    for replicate in range(replicates if inner.by_replicate else 1):
        x, *others = of_replicate(inner, inner.columns, replicate)
        for term in (term for stage in stages for term in stage.terms):
            try:
                refuse_unlike(term.model, x)
                for y in others[:1]:
                    refuse_responses(term.model, y)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None


def are_unit_pixels(x: Tensor, event_shape: Sequence[int]) -> bool:
    """Whether x holds images, and all of their pixels lie in [0, 1].

    Args:
        x: the values of rows, in any layout.
        event_shape: of a row.
    """
    if len(event_shape) != IMAGE or not x.numel():
        return False
    low, high = x.aminmax()
    return bool(low >= 0) and bool(high <= 1)


def refuse_other_scale(x: Tensor) -> None:
    """Refuse images that are not of the scale [0, 1], such as those of bytes from 0 to 255.

    Raises:
        ValueError: a pixel more than half a unit outside [0, 1].

    Example:
        >>> import torch
        >>> refuse_other_scale(torch.tensor([[[[0.0, 255.0]]]]))
        Traceback (most recent call last):
        ...
        ValueError: x must be images in [0, 1], as in fit; they go from 0 to 255. Divide by 255
    """
    low, high = (float(value) for value in x.aminmax())
    if low < -MOST_BEYOND or high > 1 + MOST_BEYOND:
        hint = ". Divide by 255" if low >= 0 else ""
        raise ValueError(
            f"x must be images in [0, 1], as in fit; they go from {low:g} to {high:g}{hint}"
        )
