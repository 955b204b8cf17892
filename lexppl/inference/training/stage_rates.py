"""Which learning rate a stage has."""

from lexppl.inference.schedules import Linear, Schedule
from lexppl.inference.stages import Stage

CONTROL_RATE = 1e-2
"""Adam's rate for what is tuned on the gradient's variance."""
GUIDES_RATE = Linear(1e-2, 5e-4, begin=0.5)
"""Adam's where guides alone learn and nobody chooses: at a tenth of it a normal guide of a few
hundred weights has hardly moved after 600 steps."""


def rate_of(
    stage: Stage, rate: float | Schedule | None, is_default: bool
) -> float | Schedule | None:
    """The learning rate of a stage; None where its optimizer has one of its own.

    Args:
        stage: whose.
        rate: of the fit's own optimizer; None where the user brings one.
        is_default: whether that is the fit's own, which gives way to a stage's.

    Example:
        >>> from lexppl.systems import invase
        >>> (stage,) = invase(3, classes=2).build()
        >>> rate_of(stage, 0.5, is_default=False), rate_of(stage, 0.5, is_default=True)
        (0.5, 0.5)
    """
    if stage.learning_rate is None:
        if stage.optimizer is not None:
            return None
        alone = is_default and stage.learns_guides_alone
        return GUIDES_RATE if alone else rate
    return stage.learning_rate if is_default else rate
