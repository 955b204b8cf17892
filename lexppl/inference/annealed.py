"""The objective that a fit has by default."""

from typing import Any

from lexppl.inference.nested_iwae import NestedIWAE
from lexppl.inference.schedules import Linear


def annealed(masks: int = 4, imputations: int = 1, **options: Any) -> NestedIWAE:
    """The bound with the annealing that keeps discrete selectors from collapsing.

    The entropy bonus fades from 0.1 to 0 over the first 60 % of the fit, and penalties grow from 0
    to their full weight between 30 % and 80 %: a distribution that saturates before it depends on x
    has no gradient left, and a penalty must come after the predictor has learned what masks can
    buy. `benchmarks/README.md` measures it.

    Args:
        masks: `L`.
        imputations: `K`.
        options: other arguments of :class:`NestedIWAE`, in place of these.

    Example:
        >>> annealed().settled
        0.8
    """
    schedule: dict[str, Any] = {
        "entropy": Linear(0.1, 0.0, end=0.6),
        "penalty": Linear(0.0, 1.0, begin=0.3, end=0.8),
    }
    return NestedIWAE(masks, imputations, **{**schedule, **options})
