"""A system from a method's name and settings."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from torch import nn

from lexppl.argument_checks import one_of
from lexppl.choices.methods import METHODS, Method
from lexppl.inference import System
from lexppl.models.architectures.base import Architecture, architecture_of
from lexppl.models.grouping import Grouping
from lexppl.models.likelihoods import Likelihood
from lexppl.models.predictor import check_classes


@dataclass(frozen=True)
class Settings:
    """What a method is built from; a factory reads those that it takes, and None is its own
    default.

    Args:
        features: D of a table, or an architecture, such as :func:`lexppl.models.images`.
        classes: C for labels, or None for a real response.
        k: entries that a mask keeps.
        penalty: nats for each entry kept, or a range of them as :func:`lexppl.systems.lex` takes
            it.
        black_box: the explained model, a module from x to the distribution of y.
        predictor: a given predictor, for LEX's regimes in which it does not learn.
        masks, imputations: L and K.
        folds: F, where the predictor is cross-fitted.
        unit: of constants in nats.
        imputer: distribution of the hidden features.
        likelihood: of a response; normal if None.
        grouping: which features an entry keeps.
        hidden, predictor_hidden: widths of the selector's and the predictor's hidden layers.
    """

    features: int | Architecture
    classes: int | None
    k: int | None = None
    penalty: float | Sequence[float] | None = None
    black_box: nn.Module | None = None
    predictor: nn.Module | None = None
    masks: int | None = None
    imputations: int | None = None
    folds: int | None = None
    unit: float | None = None
    imputer: nn.Module | None = None
    likelihood: Likelihood | None = None
    grouping: Grouping | None = None
    hidden: Sequence[int] | None = None
    predictor_hidden: Sequence[int] | None = None


def system_for(method: str | Method, settings: Settings) -> System:
    """The system of a method, or of a method's name.

    Raises:
        ValueError: another name; settings that the method lacks or cannot take.

    Example:
        >>> type(system_for("real_x", Settings(11, 2)).program()).__name__
        'LEX'
    """
    if isinstance(method, str):
        method = METHODS[one_of(METHODS, "method", method)]
    architecture_of(settings.features, settings.grouping)
    check_classes(settings.classes)
    if method.labels_only and settings.classes is None:
        raise ValueError(f"{method.name} explains labels; it has no form for a real response")
    if method.explains_model and settings.black_box is None:
        raise ValueError(f"{method.name} explains a given model: give black_box=, a predictor")
    if method.needs("k") and settings.k is None:
        raise ValueError(f"{method.name} keeps a given number of entries: give k")
    given = {f.name: getattr(settings, f.name) for f in fields(settings)}
    taken = {
        name: value
        for name, value in given.items()
        if method.takes(name) and (value is not None or name == "classes")
    }
    return method.factory(**taken, **method.fixed)
