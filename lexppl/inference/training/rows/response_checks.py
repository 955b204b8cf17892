"""Whether the responses of a fit are such as the program's likelihood can have."""

from typing import Any

from torch import Tensor

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
