"""A rise to a schedule."""

import pytest

from lexppl.inference import Linear, WarmUp
from lexppl.inference.schedules import settles


def test_a_schedule_is_risen_to_and_then_followed():
    fall = Linear(2.0, 1.0, begin=0.05, end=0.5)
    rate = WarmUp(fall, share=0.1)
    assert rate(0.0) == 0.0
    assert rate(0.075) == pytest.approx(0.75 * fall(0.075))
    assert [rate(t) for t in (0.1, 0.3, 1.0)] == [fall(t) for t in (0.1, 0.3, 1.0)]
    assert settles(rate) == 0.5
    constant = WarmUp(0.5, share=0.2)
    assert [constant(t) for t in (0.1, 0.2, 1.0)] == [0.25, 0.5, 0.5]
    assert settles(constant) == 0.2


def test_a_share_that_is_none_is_refused():
    for share in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match="share must be a share of the fit"):
            WarmUp(1.0, share)
