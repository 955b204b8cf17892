"""The four ways to train an explainer, by name."""

from enum import Enum


class Regime(Enum):
    """A training regime (Senetaire et al. 2023, § 2.5).

    ==================  =============================  ==================
    regime              the program observes           the predictor
    ==================  =============================  ==================
    free in-situ        labels                         learns
    fixed in-situ       labels                         is given, frozen
    self post-hoc       that same predictor, on all x  is given, frozen
    surrogate post-hoc  a black box                    learns
    ==================  =============================  ==================

    Example:
        >>> Regime("self post-hoc").learns_predictor, Regime.SURROGATE_POST_HOC.post_hoc
        (False, True)
    """

    FREE_IN_SITU = "free in-situ"
    FIXED_IN_SITU = "fixed in-situ"
    SELF_POST_HOC = "self post-hoc"
    SURROGATE_POST_HOC = "surrogate post-hoc"

    @property
    def post_hoc(self) -> bool:
        """Whether a model's output is explained, and not the labels."""
        return self in (Regime.SELF_POST_HOC, Regime.SURROGATE_POST_HOC)

    @property
    def learns_predictor(self) -> bool:
        """Whether the predictor's parameters are learned; where not, give the program
        `frozen(predictor)`."""
        return self in (Regime.FREE_IN_SITU, Regime.SURROGATE_POST_HOC)
