"""A predictor of random masks: what REAL-X, and LEX's surrogate imputation, select with."""

from torch import nn

from lexppl.inference import LossTerm, NestedIWAE, Unscored
from lexppl.models.grouping import Grouping
from lexppl.models.lex import LEX
from lexppl.models.selectors import RandomSelector


def random_mask_predictor(
    predictor: nn.Module,
    imputer: nn.Module,
    entries: int,
    *,
    grouping: Grouping | None = None,
    samples: int = 1,
) -> LossTerm:
    """The term in which a predictor learns from masks that know nothing of x:

        max_θ E_{r ~ Bernoulli(½)} E_{x̃ ~ p_ι(·|x, r)} log q_θ(y | x̃).

    With a constant imputer the predictor learns what its constant stands for, `q_θ(y | x̃)` near
    `p(y | x_r)`, and cannot be told the label by which entries are kept: REAL-X's first stage, and
    the surrogate constant of LEX (Senetaire et al. 2023, App. B), where the explainer's stage
    follows with this predictor frozen.

    Args:
        predictor: the distribution of y given x̃; it is what learns.
        imputer: what hidden features are replaced with.
        entries: G.
        grouping: which features an entry keeps.
        samples: masks averaged a row and step.

    Example:
        >>> from lexppl.models import ConstantImputer
        >>> from lexppl.models.table_parts import table_predictor
        >>> term = random_mask_predictor(table_predictor(3, 2, (8,)), ConstantImputer(-5.0), 3)
        >>> type(term.model.selector).__name__
        'RandomSelector'
    """
    program = LEX(RandomSelector(entries), imputer, predictor, grouping=grouping)
    objective = NestedIWAE(1, samples=samples, estimator=Unscored())
    return LossTerm(program, objective, learns=[predictor])
