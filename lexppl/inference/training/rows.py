"""The rows of a fit: of a step, in folds, with weights; and whether its programs take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lexppl.argument_checks import fraction, shaped
from lexppl.distributions.support import (
    draws_zeros_and_ones,
    lists_labels,
    refuse_labels,
    unlike_labels,
)
from lexppl.effects import weights_first
from lexppl.inference.batches import (
    Columns,
    LoadedRows,
    ReplicateData,
    Rows,
    TensorRows,
    of_replicate,
    refuse_one_class,
    writable,
)
from lexppl.inference.contexts import seeded
from lexppl.inference.objective.program import sample_nodes
from lexppl.inference.pyro_parameters import floating_type
from lexppl.inference.stages import Stage, terms_of
from lexppl.threads import evaluating

PREDICTOR, LIKELIHOOD, RESPONSE = "predictor", "likelihood", "y"
"""Where a program's likelihood stands, and its site, by the convention of explainers."""
IMAGE = 3  # Dimensions of an image, channels first
MOST_BEYOND = 0.5  # How far pixels may leave [0, 1]: noise and enlarged images do so by less


@dataclass(frozen=True)
class StepRows:
    """The rows of one step, their weights `(R, B)`, B, the progress in [0, 1], the step's number,
    and the share of the batch that they are."""

    batch: Columns
    weights: Tensor | None
    size: int
    at: float
    number: int = 0
    share: float = 1.0


def folded(rows: Rows, folds: int) -> TensorRows:
    """Divide rows into F folds at random, labels in proportion."""
    if isinstance(rows, LoadedRows):
        raise ValueError("a loader cannot be divided into folds: give tensors, or folds=1")
    if len(rows) < 2 * folds:
        raise ValueError(f"{folds} folds need {2 * folds} rows, not {len(rows)}: give folds=1")
    stacked = rows.columns if rows.by_replicate else tuple(c[None] for c in rows.columns)
    order = _dealt(*stacked[:2])
    order = order if rows.by_replicate else order[0]
    # Fold f has the rows f, f + F, … of the order: the first folds have a row more, as
    # tensor_split of any number of rows has.
    places = [order[..., fold::folds] for fold in range(folds)]
    sizes = tuple(of_fold.shape[-1] for of_fold in places)
    return replace(rows.at(torch.cat(places, -1)), sizes=sizes)


def _dealt(x: Tensor, y: Tensor | None = None) -> Tensor:
    """An order of the rows `(R, N)`, at random within each label and label after label."""
    order = torch.rand(x.shape[:2], device=x.device).argsort(1)
    if y is None or y.dim() != 2 or y.is_floating_point():
        return order
    return order.gather(1, y.gather(1, order).argsort(dim=1, stable=True))


def likelihood_of(program: Any) -> Any:
    """The likelihood of a program's predictor, or None where there is none."""
    return getattr(getattr(program, PREDICTOR, None), LIKELIHOOD, None)


def response_law(program: Any, x: Tensor, y: Tensor | None = None) -> tuple[Any, Any]:
    """The distribution of y given rows, by a program's predictor, else by its site, and the site's
    value; None where no run shows them."""
    if likelihood_of(program) is None:
        site = _statements(program, x, y).get(RESPONSE)
        return (None, None) if site is None else (site["fn"], site["value"])
    with suppress(Exception), torch.no_grad(), evaluating(program), seeded(0, x.device):
        return program.predictor(x), y
    return None, None


def labelled(program: Any, x: Tensor, y: Tensor) -> Tensor:
    """y as a program takes it: labels of a predictor as integers, but for zeros and ones, which may
    have any type; others than its classes' are refused."""
    law, _ = response_law(program, x[:1])
    if law is None or law.event_shape or not lists_labels(law):
        return y
    classes = len(law.enumerate_support(expand=False))
    if likelihood_of(program) is not None:
        refuse_labels(y, classes)
        return y if y.dim() > 1 or draws_zeros_and_ones(law) else y.long()
    rows = unlike_labels(y, classes).nonzero()[:1, 0] if y.dim() == 1 else ()
    if len(rows):
        # A program may make its labels of what it is given.
        law, value = response_law(program, x[rows], y[rows])
        if law is not None and not bool(law.support.check(value).all()):
            refuse_labels(y, classes)
    return y


def with_labels(programs: Sequence[Any], rows: Rows, name: str, one_class: bool = False) -> Rows:
    """Rows with y as programs take it (:func:`labelled`); of a loader in each batch."""

    def taken(x: Tensor, y: Tensor) -> Tensor:
        try:
            for program in programs:
                y = labelled(program, x, y)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        return y

    if isinstance(rows, LoadedRows):
        return replace(rows, take=taken)
    if len(rows.columns) < 2:
        return rows
    x, y, *others = rows.columns
    made = torch.stack(list(map(taken, x, y))) if rows.by_replicate else taken(x, y)
    if made is not y and not one_class:
        refuse_one_class(made, name)
    return replace(rows, columns=(x, made, *others))


def refuse_responses(program: Any, y: Tensor) -> None:
    """Refuse responses that the likelihood of a program cannot have."""
    likelihood = likelihood_of(program)
    if hasattr(likelihood, "check_responses"):
        likelihood.check_responses(y)


def refuse_unlike(program: Any, x: Tensor) -> None:
    """Refuse images of another size than the program's grouping, rows that are no texts, and whole
    numbers or booleans that it cannot read, where it can read floats."""
    taken = getattr(getattr(program, "grouping", None), "event_shape", ())
    if len(taken) == IMAGE:
        shaped("images", x, ("N", *taken))
    selector = getattr(program, "selector", None)
    for part in selector.modules() if isinstance(selector, nn.Module) else ():
        if (check := getattr(part, "check_rows", None)) is not None:
            check(x)
    if isinstance(program, nn.Module) and not x.is_floating_point():
        dtype = floating_type([program])
        if not _statements(program, x[:2]) and _statements(program, x[:2].to(dtype)):
            raise ValueError(f"x is {x.dtype}, and the program reads floats: give x.to({dtype})")


def as_read(program: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows of whole numbers as they are where a program reads them so, and else as floats."""
    return x if x.is_floating_point() or _statements(program, x[:2]) else x.to(dtype)


def _statements(program: Any, x: Tensor, y: Tensor | None = None) -> dict[str, Any]:
    """The sample statements of a program's run on rows, by name; none where it fails."""
    with suppress(Exception), torch.no_grad(), evaluating(program), seeded(0, x.device):
        return sample_nodes(weights_first(program), (x, y))
    return {}


def refuse_rows(stages: Sequence[Stage], rows: Rows | None, name: str, replicates: int) -> None:
    """Refuse rows of a fit, or responses, that one of its programs does not take."""
    if rows is None or isinstance(rows, LoadedRows):
        return
    for replicate in range(replicates if rows.by_replicate else 1):
        x, *others = of_replicate(rows, rows.columns, replicate)
        for term in terms_of(stages):
            try:
                refuse_unlike(term.model, x)
                for y in others[:1]:
                    refuse_responses(term.model, y)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None


def refuse_other_scale(x: Tensor) -> None:
    """Refuse images that are not of the scale [0, 1], such as those of bytes from 0 to 255."""
    low, high = (float(value) for value in x.aminmax())
    if low < -MOST_BEYOND or high > 1 + MOST_BEYOND:
        hint = ". Divide by 255" if low >= 0 else ""
        raise ValueError(f"x must be images in [0, 1], as in fit, not {low:g} to {high:g}{hint}")


def check_alike(x: Tensor, parameter: Tensor) -> None:
    """Refuse rows on another device, or of another type, than the model."""
    if parameter.device != x.device:
        raise ValueError(f"x is on {x.device} and the model on {parameter.device}; move one")
    if x.is_floating_point() and x.dtype != parameter.dtype:
        raise ValueError(
            f"x is {x.dtype} and the model {parameter.dtype}; convert one, such as x.to"
            f"({parameter.dtype}) or model.to({x.dtype}), which a System has too"
        )


def data_fields(train: Any, rows: Rows, model: Any, shown: Tensor) -> dict[str, Any]:
    """What a result keeps of the data: names, labels, the shape of a row."""
    x, *others = rows.columns if isinstance(rows, TensorRows) else (shown,)
    of_data: dict[str, Any] = {}
    for name in ("entry_names", "feature_names", "class_names"):
        is_common = isinstance(train, ReplicateData)
        of_data[name] = train.common(name) if is_common else getattr(train, name, None)
    of_data |= {"event_shape": tuple(shown.shape[1:]), "unit_pixels": False, "labels": None}
    if shown.dim() == 1 + IMAGE and x.numel():
        low, high = x.aminmax()
        of_data["unit_pixels"] = bool(low >= 0) and bool(high <= 1)
    if others and _are_labels(model, shown[:1], others[0], others[0].dim() == 1 + rows.row_dim):
        of_data["labels"] = tuple(others[0].long().unique().tolist())
    return of_data


def _are_labels(model: Any, x: Tensor, y: Tensor, by_row: bool) -> bool:
    """Whether y, a number a row where `by_row`, is labels, and no counts or times, by a program's
    likelihood or site y."""
    floating = y.is_floating_point()
    if floating and not (by_row and bool((y == y.round()).all())):
        return False
    if (likelihood := likelihood_of(model)) is not None:
        return bool(getattr(likelihood, "discrete", not floating))
    law, _ = response_law(model, x)
    return not floating if law is None else lists_labels(law)


DIRICHLET = "dirichlet"  # Weights drawn for each replicate, `N · Dirichlet(1, …, 1)`
GIVEN = "given"  # Weights that the user gives


@dataclass(frozen=True)
class RowWeighting:
    """The weights of a fit's rows: `(R, N)`, drawn or given; `samples` `(N,)` and `valid` `(M,)`,
    how often rows to divide and validation rows stand in the sample."""

    weights: Tensor
    kind: str
    samples: Tensor | None = None
    valid: Tensor | None = None

    @classmethod
    def of(
        cls, row_weights: Any, rows: Rows, replicates: int, seed: int, sample_weight: Any = None
    ) -> RowWeighting:
        """The weighting by `row_weights` and `sample_weight` of N rows and R replicates."""
        if isinstance(rows, LoadedRows):
            raise ValueError(
                "row_weights need rows with places of their own, and a loader's have none: give "
                "tensors, arrays or a data set, or leave row_weights out"
            )
        like, shape = rows.columns[0], (replicates, len(rows))
        dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
        samples, valid = _of_samples(sample_weight, len(rows))
        if isinstance(row_weights, str):
            if row_weights != DIRICHLET:
                raise ValueError(
                    f"row_weights must be {DIRICHLET!r} or weights (N,) or (R, N); it is "
                    f"{row_weights!r}"
                )
            # Draws of their own, so that those of the fit stay what they are without weights.
            generator = torch.Generator().manual_seed(seed + 2)
            weights = torch.empty(shape, dtype=torch.float64).exponential_(generator=generator)
        elif row_weights is None:
            weights = torch.ones(shape, dtype=torch.float64)
        else:
            weights = _weights("row_weights", row_weights, shape[1:], shape).expand(shape)
        if samples is not None:
            weights = weights * samples
        placed = (None if w is None else w.to(like.device, dtype) for w in (samples, valid))
        kind = DIRICHLET if isinstance(row_weights, str) else GIVEN
        return cls(weights.to(like.device, dtype), kind, *placed)

    def added(self, rows: TensorRows) -> TensorRows:
        """The rows with two more columns, their weights and how often they stand in the sample."""
        samples = torch.ones_like(self.weights) if self.samples is None else self.samples
        pair = self.weights, samples.expand_as(self.weights)
        columns = pair if rows.by_replicate else tuple(column.mT for column in pair)
        return replace(rows, columns=(*rows.columns, *columns))

    def settled(self, rows: TensorRows) -> TensorRows:
        """Rows of :meth:`added` that are trained on, drawn weights scaled to sum to N."""
        dim = rows.row_dim
        *columns, weights, samples = rows.columns
        total = weights.sum(dim, keepdim=True)
        if not bool((total > 0).all()):
            raise ValueError(
                "row_weights are zero for all rows that are left to train on; give validation rows "
                "of their own as valid=, or more rows a weight"
            )
        if self.kind == DIRICHLET:
            weights = weights * (samples.sum(dim, keepdim=True) / total)
        return replace(rows, columns=(*columns, weights), is_weighted=True)

    def held_out(self, rows: Rows | None, apart: bool) -> Rows | None:
        """Validation rows, with how often each stands in the sample."""
        if rows is None or isinstance(rows, LoadedRows):
            if self.valid is not None:
                raise ValueError(
                    "sample_weight has weights of validation rows, and there are none that "
                    "have places of their own: give weights (N,) of train alone, or rows as valid="
                )
            return rows
        if apart:
            *columns, _, samples = rows.columns
        elif self.samples is None:
            return rows
        elif self.valid is None or len(self.valid) != len(rows):
            count = "none" if self.valid is None else str(len(self.valid))
            raise ValueError(
                f"sample_weight must be a pair, of train and of valid, with a weight for each of "
                f"the {len(rows)} validation rows; there are {count}"
            )
        else:
            columns, samples = list(rows.columns), self.valid.expand(len(self.weights), -1)
            samples = samples if rows.by_replicate else samples.mT
        if self.samples is None:
            return replace(rows, columns=tuple(columns))
        weighted = replace(rows, columns=(*columns, samples), is_weighted=True)
        if not bool((torch.as_tensor(weighted.total) > 0).all()):
            raise ValueError("sample_weight is zero for all validation rows: give some a weight")
        return weighted


def divided_rows(
    valid: Any, rows: Rows, read: Callable[..., Rows], weighting: RowWeighting | None, folds: int
) -> tuple[Rows, Rows | None, Rows]:
    """Training rows, validation rows, which `read` checks, and the former as learned from: weighted
    and in folds."""
    if weighting is None or isinstance(rows, LoadedRows):
        rows, held_out = _validation(valid, rows, read)
        return rows, held_out, rows if folds == 1 else folded(rows, folds)
    weighted, apart = _validation(valid, weighting.added(rows), read)
    assert not isinstance(weighted, LoadedRows)
    settled = weighting.settled(weighted)
    learned = settled if folds == 1 else folded(settled, folds)
    judged = weighting.held_out(apart, isinstance(valid, float | int))
    return replace(settled, columns=settled.columns[:-1], is_weighted=False), judged, learned


def _validation(valid: Any, rows: Rows, read: Callable[..., Rows]) -> tuple[Rows, Rows | None]:
    if valid is None:
        return rows, None
    if not isinstance(valid, float | int):
        return rows, read(valid, "valid")
    share = fraction("valid", valid, of="the rows")
    if isinstance(rows, LoadedRows):
        raise ValueError("a loader cannot be split: give validation rows as valid=, or valid=None")
    if len(rows) < 2:
        raise ValueError("one row cannot be split into training and validation rows")
    return rows.split(share)


def weights_by_replicate(row_weights: Any) -> int | None:
    """R, where weights are given for each replicate; None where they are the same for all."""
    if row_weights is None or isinstance(row_weights, str):
        return None
    weights = _weights("row_weights", row_weights)
    return len(weights) if weights.dim() == 2 else None


def _of_samples(sample_weight: Any, rows: int) -> tuple[Tensor | None, Tensor | None]:
    if sample_weight is None:
        return None, None
    train, *others = sample_weight if isinstance(sample_weight, tuple) else (sample_weight, None)
    if len(others) != 1:
        raise ValueError(f"sample_weight must be weights (N,) or a pair, not {1 + len(others)}")
    if train is None:
        raise ValueError("sample_weight has weights of valid and none of train")
    valid = None if others[0] is None else _weights("sample_weight", others[0])
    if valid is not None:
        shaped("sample_weight of valid", valid, "M")
    return _weights("sample_weight", train, (rows,)), valid


def _weights(name: str, values: Any, *shapes: tuple[int, ...]) -> Tensor:
    """Weights as numbers, one for each row, finite, at least 0 and not all 0."""
    try:
        held = values if isinstance(values, Tensor) else writable(values, np.float64)
        weights = torch.as_tensor(held, dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        word = f"{DIRICHLET!r} or " if name == "row_weights" else ""
        raise TypeError(
            f"{name} must be {word}numbers (N,) or (R, N); it is {type(values).__name__}"
        ) from error
    if shapes:
        shaped(name, weights, *shapes)
    if not bool((weights.isfinite() & (weights >= 0)).all()):
        raise ValueError(f"{name} must be finite and at least 0")
    if not bool((weights.sum(-1) > 0).all()):
        raise ValueError(f"{name} must not be all zero")
    return weights
