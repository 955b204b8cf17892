"""Whether the responses of a fit are such as the program's likelihood can have."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lexppl.inference.batches import LoadedRows
from lexppl.inference.replicates.replicate_rows import Rows, of_replicate
from lexppl.inference.stages import Stage
from lexppl.inference.training.rows.row_weights import WeightedRows

PREDICTOR, LIKELIHOOD = "predictor", "likelihood"
"""Where a program's likelihood stands, by the convention of explainers."""


def likelihood_of(program: Any) -> Any:
    """The likelihood of a program's predictor, or None where it is not told."""
    return getattr(getattr(program, PREDICTOR, None), LIKELIHOOD, None)


def holds_labels(program: Any, y: Tensor) -> bool:
    """Whether y is of labels: of an integer type, and not of a likelihood of counts or times."""
    return not y.is_floating_point() and bool(getattr(likelihood_of(program), "discrete", True))


def refuse_responses(program: Any, y: Tensor) -> None:
    """Refuse responses that the likelihood of a program cannot have.

    Args:
        program: with a `predictor.likelihood` that has `check_responses(y)`; any other takes all.
        y: of some rows.

    Raises:
        ValueError: as the likelihood says.
    """
    check = getattr(likelihood_of(program), "check_responses", None)
    if check is not None:
        check(y)


def refuse_rows(
    stages: Sequence[Stage], rows: Rows | WeightedRows | None, name: str, replicates: int
) -> None:
    """Refuse rows whose responses one of the programs cannot have.

    Args:
        stages: with the programs.
        rows: to learn from or to be judged on; a loader's are looked at batch by batch.
        name: what they are called.
        replicates: R.

    Raises:
        ValueError: naming them.
    """
    inner = rows.rows if isinstance(rows, WeightedRows) else rows
    if inner is None or isinstance(inner, LoadedRows) or len(inner.columns) < 2:
        return
    for replicate in range(replicates if inner.by_replicate else 1):
        y = of_replicate(inner, inner.columns, replicate)[1]
        for term in (term for stage in stages for term in stage.terms):
            try:
                refuse_responses(term.model, y)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
