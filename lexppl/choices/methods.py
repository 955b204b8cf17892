"""The systems by name: what each takes, where its factory stands; libraries to compare with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, TypeVar

Factory = TypeVar("Factory", bound=Callable[..., Any])


@dataclass(frozen=True)
class Method:
    """A system by name.

    Args:
        source: its factory, from features (or an architecture) and keyword settings to the system;
            or its place, as `"module:name"`.
        summary: one line.
        fixed: settings of the factory that are this method's own.
        settings: those of :data:`lexppl.systems.SETTINGS` that the factory takes, known
            before it is loaded; read off its signature if None.
        epochs: how many times the usual epochs it takes by default.
        own_rate: default learning rate of its own stages, in words; None for the plan's.

    Example:
        >>> METHODS["l2x"].takes("k"), METHODS["l2x"].takes("penalty")
        (True, False)
    """

    name: str
    source: Callable[..., Any] | str
    summary: str
    fixed: Mapping[str, Any] = field(default_factory=lambda: {})
    settings: frozenset[str] | None = None
    epochs: int = 1
    own_rate: str | None = None

    @cached_property
    def factory(self) -> Callable[..., Any]:
        """The factory itself, loaded if need be."""
        if not isinstance(self.source, str):
            return self.source
        return resolve_name(self.source)

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The factory's, but for those that are fixed."""
        every = inspect.signature(self.factory).parameters
        return {name: p for name, p in every.items() if name not in self.fixed}

    def takes(self, setting: str) -> bool:
        """Whether the factory takes a setting, and the method leaves it open."""
        if self.settings is None:
            return setting in self.parameters
        return setting in self.settings and setting not in self.fixed

    def needs(self, setting: str) -> bool:
        """Whether it takes it and has no default."""
        return self.takes(setting) and self.parameters[setting].default is inspect.Parameter.empty

    def default(self, setting: str) -> Any:
        """The factory's default; None where it has none."""
        if not self.takes(setting) or self.needs(setting):
            return None
        return self.parameters[setting].default

    @property
    def explains_model(self) -> bool:
        """Whether y is a given model's output."""
        return self.takes("black_box")

    @property
    def labels_only(self) -> bool:
        """Whether it knows labels only: its classes may not be None."""
        return self.takes("classes") and self.parameters["classes"].annotation is int


class Registry(Mapping[str, Method]):
    """Methods by name, in alphabetical order.

    Args:
        methods: those that are there from the start.

    Example:
        >>> registry = Registry()
        >>> @registry.register("LEX with masks of one entry")
        ... def single(features: int, *, classes: int | None):
        ...     from lexppl.systems import lex
        ...     return lex(features, classes=classes, k=1, hidden=(4,))
        >>> list(registry), registry["single"].takes("penalty")
        (['single'], False)
    """

    def __init__(self, methods: Iterable[Method] = ()) -> None:
        self._methods = {method.name: method for method in methods}

    def register(
        self, summary: str, *, name: str | None = None, **fixed: Any
    ) -> Callable[[Factory], Factory]:
        """A decorator that keeps a factory under a name; the factory itself stays as it is.

        A factory takes `features` and keyword settings, of those of
        :func:`lexppl.systems.system_for` as many as it has use for, and returns a
        :class:`lexppl.inference.System`.

        Args:
            summary: one line.
            name: the factory's own name if None.
            fixed: settings of the factory that are this method's own.

        Raises:
            ValueError: a name that is taken, or a factory without features.
        """

        def keep(factory: Factory) -> Factory:
            known = name or factory.__name__
            if known in self._methods:
                raise ValueError(f"there is a method {known!r} already; give another name=")
            method = Method(known, factory, summary, MappingProxyType(dict(fixed)))
            if not method.takes("features"):
                raise ValueError(f"the factory {known!r} must take features, the D columns of x")
            self._methods[known] = method
            return factory

        return keep

    def __getitem__(self, name: str) -> Method:
        return self._methods[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._methods))

    def __len__(self) -> int:
        return len(self._methods)


DEFAULT_METHOD = "lex"  # Where no method is named

# By name: settings beside features and grouping, and a line.
_METHODS: Mapping[str, tuple[str, str]] = {
    "base_x": (
        "classes penalty imputer hidden predictor_hidden",
        "BASE-X: REAL-X whose predictor sees the selector's masks",
    ),
    "fastshap": (
        "classes black_box imputer hidden predictor_hidden",
        "FastSHAP: Shapley values of a surrogate, by regression",
    ),
    "invase": (
        "classes penalty imputer hidden predictor_hidden",
        "INVASE: actor, critic and baseline",
    ),
    "l2x": ("classes k imputer hidden predictor_hidden", "L2X: max-of-k Concrete masks"),
    "lex": (
        "classes k penalty predictor masks imputations folds unit imputer likelihood "
        "hidden predictor_hidden",
        "LEX: the nested bound, k-subset or Bernoulli masks",
    ),
    "meed": (
        "classes k black_box hidden predictor_hidden",
        "MEED: adversarial infidelity learning",
    ),
    "q_fit": ("black_box hidden", "Q-FIT: a Dirichlet posterior of importance, by row"),
    "q_fit_global": (
        "black_box hidden",
        "Q-FIT: a Dirichlet posterior of importance, one for all rows",
    ),
    "rationale": (
        "classes penalty imputer hidden predictor_hidden",
        "rationale selection: short, contiguous selections",
    ),
    "real_x": (
        "classes penalty folds imputer hidden predictor_hidden",
        "REAL-X: a predictor of random masks, then a selector",
    ),
    "senn": ("classes hidden", "SENN: linear in x, with coefficients that vary slowly"),
    "suwr": (
        "classes penalty folds imputer hidden predictor_hidden",
        "SUWR: entries chosen one by one by those already kept, which cannot leak",
    ),
    "vibi": (
        "classes k imputer hidden predictor_hidden",
        "VIBI: L2X with an information bottleneck",
    ),
    "xtab": ("classes predictor_hidden", "XTab: a deterministic soft mask"),
}
# Epochs: shares of Q-FIT start alike, and part slowly; for a part of its epochs SUWR's choices are
# near random; XTab's penalties take up to a nat from the first step on: its masks open slowly.
_MORE: Mapping[str, dict[str, Any]] = {
    "q_fit": {"epochs": 4},
    "q_fit_global": {
        "source": "lexppl.systems:q_fit",
        "fixed": MappingProxyType({"scope": "global"}),
        "epochs": 4,
        "own_rate": "0.5 in the logarithm of α, falling to 0.001",
    },
    "suwr": {"epochs": 2},
    "xtab": {"epochs": 2},
}


def _listed(name: str, settings: str, summary: str) -> Method:
    """A method of the library, loaded at its first use."""
    taken = frozenset({"features", "grouping", *settings.split()})
    method = Method(name, f"lexppl.systems:{name}", summary, settings=taken)
    return replace(method, **_MORE.get(name, {}))


METHODS = Registry(_listed(name, *texts) for name, texts in _METHODS.items())
"""The methods by name, a system of one's own among them: `METHODS.register(summary)(factory)`.
CXPlain is not: its y are shares computed of a model and its data, by
:func:`lexppl.systems.cxplain_targets`."""


LIBRARIES: Mapping[str, str | None] = {
    "shap": "shap",
    "lime": "lime",
    "saliency": "captum",
    "integrated_gradients": "captum",
    "gradient_x_input": "captum",
    "permutation": None,
}
"""Names, and the library that each needs beyond lexppl's own."""
