"""The objective that a fit has by default."""

from typing import Any

from lexppl.argument_checks import finite_float
from lexppl.inference.nested_iwae import NestedIWAE
from lexppl.inference.schedules import Linear

ENTROPY = 0.1
"""Weight of the annealing at the start of a fit, in units of the information in y."""
COURSE = 0.6, 0.3, 0.8
EARLY_COURSE = 0.4, 0.2, 0.5
"""Of a fit of every λ, whose small λ let the predictor learn meanwhile: later, masks have not
settled when it ends."""


def annealed(
    masks: int = 4,
    imputations: int = 1,
    *,
    unit: float = 1.0,
    course: tuple[float, float, float] = COURSE,
    **options: Any,
) -> NestedIWAE:
    """The bound with the annealing that keeps discrete selectors from collapsing.

    The entropy bonus fades from 0.1 to 0 over the first 60 % of the fit, and penalties grow from 0
    to their full weight between 30 % and 80 %: a distribution that saturates before it depends on x
    has no gradient left, and a penalty must come after the predictor has learned what masks can
    buy. `benchmarks/README.md` measures it.

    Args:
        masks: `L`.
        imputations: `K`.
        unit: what the 0.1 nats are multiplied by: :func:`lexppl.inference.entropy_unit` of y, so
            that the bonus weighs the same against labels of any base rate.
        course: the shares of the fit at which the bonus has faded, and penalties begin and end to
            grow, where 60, 30 and 80 % stand above.
        options: other arguments of :class:`NestedIWAE`, in place of these.

    Raises:
        ValueError: a unit that is not above 0; as :class:`NestedIWAE`.

    Example:
        >>> annealed().settled, annealed(unit=0.5).at(0.0).spec.entropy
        (0.8, 0.05)
    """
    unit = finite_float("unit", unit, above=0.0)
    faded, begin, end = course
    schedule: dict[str, Any] = {
        "entropy": Linear(ENTROPY * unit, 0.0, end=faded),
        "penalty": Linear(0.0, 1.0, begin=begin, end=end),
    }
    return NestedIWAE(masks, imputations, **{**schedule, **options})
