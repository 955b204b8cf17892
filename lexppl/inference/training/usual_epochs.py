"""How long a stage is trained that is told by nobody."""

import math

from lexppl.inference.stages import Stage

EPOCHS = 300
GUIDES_STEPS = 1000
"""A posterior of few rows takes as many steps as one of many: a rate that has fallen after 300 of
them leaves some posteriors half as wide as they are, at rest."""


def usual_epochs(stage: Stage, rows: int, batch_size: int) -> int:
    """300, and where guides alone learn as many more as make 1,000 steps.

    Args:
        stage: which says none itself.
        rows: learned from.
        batch_size: of a step.

    Example:
        >>> from lexppl.inference import LossTerm, NestedIWAE
        >>> from lexppl.models import MLP
        >>> usual_epochs(Stage([LossTerm(MLP(2, 2, (2,)), NestedIWAE(1))]), 200, 500)
        300
    """
    if not stage.learns_guides_alone:
        return EPOCHS
    return max(EPOCHS, math.ceil(GUIDES_STEPS / max(1, math.ceil(rows / batch_size))))
