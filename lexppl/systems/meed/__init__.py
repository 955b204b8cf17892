"""MEED, and the parts of its own."""

from lexppl.systems.meed.fading_prior import FadingPrior
from lexppl.systems.meed.output_feedback import OutputFeedback
from lexppl.systems.meed.system import FlippedTargets, meed

__all__ = ["FadingPrior", "FlippedTargets", "OutputFeedback", "meed"]
