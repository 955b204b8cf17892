"""Settings of a fit: names, checks and texts, which method takes which; regimes, posteriors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from lexppl.argument_checks import did_you_mean, finite_float, int_at_least, one_of
from lexppl.choices.imputers import IMPUTERS
from lexppl.choices.methods import METHODS, Method


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


INFERENCES: Mapping[str, str] = {
    "nuts": "the No-U-Turn sampler, all masks summed out",
    "hmc": "Hamiltonian Monte Carlo, all masks summed out",
    "sghmc": "stochastic-gradient Hamiltonian Monte Carlo",
    "sgld": "stochastic-gradient Langevin dynamics",
    "laplace": "a normal distribution at the mode, by the Hessian",
    "diagonal-laplace": "the same without correlations",
    "vi": "a normal distribution for each weight, fitted",
    "ensemble": "maxima a posteriori from several starts",
}
"""Names of inferences, and what they are."""

GUIDES: Mapping[str, str] = {
    "normal": "a normal distribution for each weight",
    "low-rank": "a normal distribution with correlations of low rank",
    "multivariate-normal": "a normal distribution with all correlations",
}
"""Names of guides, and what they are."""

HAMILTONIAN = frozenset({"nuts", "hmc"})  # Those that sum over every mask of every row at each step
POINTS = frozenset({"ensemble"})
"""Those whose draws are modes: they show how far fits agree, not how sure the rows leave one."""
NEED_BAYES = frozenset({"sghmc", "sgld", "laplace", "diagonal-laplace", "vi"})
"""Those of the library that the extra `bayes` brings."""
BAYES_LIBRARY = "posteriors"
WITH_PRIOR = ("lex",)
"""Methods whose weights can have a posterior by these names: their bound is one of the
likelihood."""
PRIOR_SCALE = 1.0  # Standard deviation of the weights' normal prior, where nobody says


@dataclass(frozen=True)
class AskedPosterior:
    """A posterior of the weights, by an inference or by a guide.

    Args:
        prior: standard deviation of the weights' normal prior about 0.

    Example:
        >>> AskedPosterior("nuts", None, 1.0).words
        'nuts (the No-U-Turn sampler, all masks summed out), weights Normal(0, 1) before'
    """

    inference: str | None
    guide: str | None
    prior: float

    @property
    def words(self) -> str:
        """How the posterior is found, and from which prior."""
        if self.inference is not None:
            named = f"{self.inference} ({INFERENCES[self.inference]}), weights"
        else:
            named = f"guide {self.guide} ({GUIDES[str(self.guide)]}), the selector's weights"
        return f"{named} Normal(0, {self.prior:g}) before"


AUTO: Literal["auto"] = "auto"  # In place of a penalty: λ is chosen from the data, by a path
NETWORK, TREES, AUTO_PREDICTOR = "network", "trees", "auto"
PREDICTORS = (NETWORK, TREES, AUTO_PREDICTOR)
"""What predicts from the features that are kept: the method's network; boosted trees; or of one
explainer that a network taught, its network or boosted trees of what it keeps."""
USUAL_PREDICTOR = AUTO_PREDICTOR  # Of `lexppl explain`, where nothing is typed
REGIMES = tuple(regime.value.replace(" ", "-") for regime in Regime)
"""Names of the training regimes at the command line."""


def nats_or_auto(name: str, value: Any) -> float | Literal["auto"]:
    """Nats for each entry kept, or "auto", or ValueError."""
    if isinstance(value, str):
        if value == AUTO:
            return AUTO
        raise ValueError(f"{name} must be nats for each entry kept, or {AUTO!r}; it is {value!r}")
    return finite_float(name, value, least=0.0)


def widths(name: str, value: Any) -> tuple[int, ...]:
    """Widths of hidden layers, or ValueError."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"{name} must be a sequence of widths, such as (64, 64); it is {value!r}")
    return tuple(int_at_least(f"a width of {name}", width) for width in value)


@dataclass(frozen=True)
class Setting:
    """A setting of a fit, read by the plan, the estimators of tables and the command line, whose
    `help/options.txt` describes it.

    Args:
        check: from the setting's name and a value to the value, or the refusal.
        argument: of a method's factory, by which only some methods take the setting; None of all.
        choices: its names at the command line.
    """

    check: Callable[[str, Any], Any]
    argument: str | None = None
    choices: Sequence[str] | None = None


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        "k": Setting(int_at_least, "k"),
        "penalty": Setting(nats_or_auto, "penalty"),
        "imputer": Setting(lambda _, value: value, "imputer", tuple(IMPUTERS)),
        "predictor": Setting(partial(one_of, PREDICTORS), "predictor", PREDICTORS),
        "masks": Setting(partial(int_at_least, least=2), "masks"),
        "imputations": Setting(int_at_least, "imputations"),
        "folds": Setting(int_at_least, "folds"),
        "regime": Setting(partial(one_of, REGIMES), "predictor", REGIMES),
        "hidden": Setting(widths),
        "predictor_hidden": Setting(widths),
        "epochs": Setting(int_at_least),
        "batch_size": Setting(int_at_least),
        "learning_rate": Setting(partial(finite_float, above=0.0)),
        "replicates": Setting(int_at_least),
        "seed": Setting(partial(int_at_least, least=0)),
    }
)
"""The settings of a fit by name."""


def check_settings(method: str, option: str = "{}", **settings: Any) -> dict[str, Any]:
    """The settings of :data:`SETTINGS` that are not None, checked.

    Args:
        option: pattern of a setting's name in errors.

    Raises:
        ValueError: a setting that the method does not take, two that exclude each other, or a
            wrong value.
        TypeError: an unknown setting.

    Example:
        >>> check_settings("l2x", "--{}", penalty=0.1)
        Traceback (most recent call last):
        ...
        ValueError: l2x has no --penalty: leave --penalty=0.1 out; base_x, invase, lex, ...
    """
    if unknown := [name for name in settings if name not in SETTINGS]:
        meant = did_you_mean(unknown[0], SETTINGS) or f"there are {', '.join(SETTINGS)}"
        raise TypeError(f"there is no setting {unknown[0]!r}; {meant}")
    chosen = {name: value for name, value in settings.items() if value is not None}
    typed = {name: f"{option.format(name)}={value!r}" for name, value in chosen.items()}
    for name in chosen:
        if has_setting(method, name):
            continue
        takers = [other for other in METHODS if has_setting(other, name)]
        if name == "imputer":
            raise ValueError(f"{method} has its own way to hide features: leave {typed[name]} out")
        raise ValueError(
            f"{method} has no {option.format(name)}: leave {typed[name]} out; {', '.join(takers)} "
            f"{'has' if len(takers) == 1 else 'have'} one"
        )
    if "k" in chosen and "penalty" in chosen:
        raise ValueError(
            f"give either {typed['k']}, the entries a mask keeps, or {typed['penalty']} for each"
        )
    checked = {name: SETTINGS[name].check(name, value) for name, value in chosen.items()}
    if checked.get("penalty") == AUTO and not chooses_penalty(method):
        raise ValueError(
            f"{method} chooses no {option.format('penalty')} from the data: give nats, or leave "
            f"it out; {', '.join(n for n in METHODS if chooses_penalty(n))} does"
        )
    return checked


def has_setting(method: str, setting: str) -> bool:
    """Whether a fit of a method has a setting, both by name.

    Example:
        >>> has_setting("l2x", "k"), has_setting("l2x", "masks"), has_setting("l2x", "epochs")
        (True, False, True)
    """
    argument = SETTINGS[setting].argument
    return argument is None or METHODS[method].takes(argument)


def usual_imputer(method: Method) -> str:
    """Imputer of a table by default: the margins for a bound of several imputations, else a
    constant.

    Example:
        >>> usual_imputer(METHODS["lex"]), usual_imputer(METHODS["real_x"])
        ('marginal', 'constant')
    """
    return "marginal" if method.takes("imputations") else "constant"


def chooses_penalty(method: str) -> bool:
    """Whether a method's penalty may be chosen from the data: replicates differ in λ alone.

    Example:
        >>> chooses_penalty("lex"), chooses_penalty("real_x")
        (True, False)
    """
    return METHODS[method].takes("penalty") and METHODS[method].takes("unit")
