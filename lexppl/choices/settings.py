"""Settings of a fit by name, and which method has which."""

from collections.abc import Mapping
from typing import Any, Literal

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.choices.methods import METHODS, Method

AUTO: Literal["auto"] = "auto"
"""In place of a penalty: λ is chosen from the data, by a path."""
NETWORK, TREES, AUTO_PREDICTOR = "network", "trees", "auto"
PREDICTORS = (NETWORK, TREES, AUTO_PREDICTOR)
"""What predicts from the features that are kept: the method's network; boosted trees; or of one
explainer that a network taught, its network or boosted trees of what it keeps."""
USUAL_PREDICTOR = AUTO_PREDICTOR
"""Of `lexppl explain`, where nothing is typed."""
TAKEN_AS: Mapping[str, str] = {"regime": "predictor"}
"""By which argument of its factory a method takes a setting, where the names differ."""


def check_settings(method: str, option: str = "{}", **given: Any) -> None:
    """Refuse settings that a method does not have, before any work.

    Args:
        method: a name of :data:`lexppl.systems.METHODS`.
        option: pattern of what a setting is called.
        given: k, penalty, imputer, masks, imputations, folds, predictor and regime as they are
            given; None where they are not.

    Raises:
        ValueError, TypeError: as it says.

    Example:
        >>> check_settings("l2x", "--{}", penalty=0.1)
        Traceback (most recent call last):
        ...
        ValueError: l2x has no --penalty: leave --penalty=0.1 out; base_x, invase, lex, ...
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    typed = {name: f"{option.format(name)}={value!r}" for name, value in chosen.items()}
    for name in chosen:
        takers = [n for n, m in METHODS.items() if m.takes(TAKEN_AS.get(name, name))]
        if method in takers:
            continue
        if name == "imputer":
            raise ValueError(f"{method} has its own way to hide features: leave {typed[name]} out")
        raise ValueError(
            f"{method} has no {option.format(name)}: leave {typed[name]} out; {', '.join(takers)} "
            f"{'has' if len(takers) == 1 else 'have'} one"
        )
    if "k" in chosen and "penalty" in chosen:
        raise ValueError(
            f"give either {typed['k']}, the entries a mask keeps, or {typed['penalty']} for each "
            "of them"
        )
    if "penalty" in chosen:
        checked_penalty(METHODS[method], chosen["penalty"], option)
    if "k" in chosen:
        int_at_least("k", chosen["k"])


def usual_imputer(method: Method) -> str:
    """How a table's hidden features are replaced where nobody says: a bound of several imputations
    draws them from the margins, any other hides them by a constant.

    Example:
        >>> usual_imputer(METHODS["lex"]), usual_imputer(METHODS["real_x"])
        ('marginal', 'constant')
    """
    return "marginal" if method.takes("imputations") else "constant"


def chooses_penalty(method: str) -> bool:
    """Whether a method's penalty may be chosen from the data: its constants are in the units that
    the path is in, and it differs from replicate to replicate in nothing but λ.

    Example:
        >>> chooses_penalty("lex"), chooses_penalty("real_x")
        (True, False)
    """
    return METHODS[method].takes("penalty") and METHODS[method].takes("unit")


def checked_penalty(method: Method, given: Any, option: str = "{}") -> float | Literal["auto"]:
    """A penalty as it is given: nats, or "auto".

    Args:
        method: that has penalties.
        given: what was given.
        option: pattern of what a setting is called.

    Raises:
        ValueError: neither; "auto" for a method that chooses none.

    Example:
        >>> checked_penalty(METHODS["lex"], "auto"), checked_penalty(METHODS["real_x"], 1)
        ('auto', 1.0)
    """
    if isinstance(given, str) and given == AUTO:
        if not chooses_penalty(method.name):
            raise ValueError(
                f"{method.name} chooses no {option.format('penalty')} from the data: give nats, or "
                f"leave it out; {', '.join(n for n in METHODS if chooses_penalty(n))} does"
            )
        return AUTO
    if isinstance(given, str):
        raise ValueError(f"penalty must be nats for each entry kept, or {AUTO!r}; it is {given!r}")
    return finite_float("penalty", given, least=0.0)
