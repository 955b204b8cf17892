"""Programs and terms that several systems share."""

from collections.abc import Sequence

from torch import nn

from lexppl.inference import LossTerm, NestedIWAE, Unscored
from lexppl.models.architectures.base import Architecture, predictor_of
from lexppl.models.grouping import Grouping
from lexppl.models.imputers.simple import ConstantImputer
from lexppl.models.lex import LEX
from lexppl.models.penalties import Penalty
from lexppl.models.priors.with_prior import Prior, explainer_with_prior
from lexppl.models.selectors import RandomSelector


def joint_explainer(
    architecture: Architecture,
    selector: nn.Module,
    classes: int | None,
    imputer: nn.Module | None = None,
    prior: Prior | None = None,
    penalties: Sequence[Penalty] = (),
) -> LEX:
    """An explainer whose predictor, the architecture's, learns from the selector's own masks.

    Args:
        architecture: of the networks.
        selector: the distribution of masks.
        classes: C for labels, or None for a real response.
        imputer: the architecture's for what is hidden if None.
        prior: of the networks' weights, or None.
        penalties: on masks.
    """
    program = LEX(
        selector,
        architecture.imputer() if imputer is None else imputer,
        predictor_of(architecture, classes),
        penalties,
        architecture.grouping,
    )
    return explainer_with_prior(program, prior)


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
    `p(y | x_r)`, and cannot read the label off which entries are kept: REAL-X's first stage, and
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
        >>> from lexppl.models.predictor import table_predictor
        >>> term = random_mask_predictor(table_predictor(3, 2, (8,)), ConstantImputer(-5.0), 3)
        >>> type(term.model.selector).__name__
        'RandomSelector'
    """
    program = LEX(RandomSelector(entries), imputer, predictor, grouping=grouping)
    objective = NestedIWAE(1, samples=samples, estimator=Unscored())
    return LossTerm(program, objective, learns=[predictor])


def constant_imputer(imputer: nn.Module | None) -> nn.Module:
    """An imputer that puts a number in place of what is hidden, and no draw; 0 if None.

    Raises:
        TypeError: one that draws.
    """
    if imputer is None:
        return ConstantImputer(0.0)
    if not getattr(imputer, "puts_a_constant", False):
        raise TypeError(
            "imputer must be a ConstantImputer, so that what is hidden has one value and is no "
            f"draw; it is {type(imputer).__name__}"
        )
    return imputer
