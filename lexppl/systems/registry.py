"""The systems by name: what each takes is read off its factory's signature."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

from torch import nn

from lexppl.inference import System
from lexppl.models.grouping import Grouping
from lexppl.models.table_parts import check_classes, mask_entries

Factory = TypeVar("Factory", bound=Callable[..., System])


@dataclass(frozen=True)
class Settings:
    """What a method is built for and from; what a method's factory does not take, it does not read,
    and what is None is left to the factory's own default.

    Args:
        features: D.
        classes: C for labels, or None for a real response.
        k: entries that a mask keeps, or None.
        penalty: nats for each entry kept, or None.
        black_box: the explained model, a module from x to the distribution of y; for methods that
            explain one.
        predictor: a given predictor, for LEX's regimes in which it does not learn.
        masks, imputations: L and K, for bounds of several.
        folds: F, for methods whose predictor is cross-fitted.
        unit: of its constants in nats, for methods that count them in the base rate's entropy.
        imputer: distribution of the hidden features, or None for the method's own.
        grouping: which features an entry keeps, or None for one a feature.
        hidden: widths of the selector's hidden layers.
        predictor_hidden: widths of the predictor's.
    """

    features: int
    classes: int | None
    k: int | None = None
    penalty: float | None = None
    black_box: nn.Module | None = None
    predictor: nn.Module | None = None
    masks: int | None = None
    imputations: int | None = None
    folds: int | None = None
    unit: float | None = None
    imputer: nn.Module | None = None
    grouping: Grouping | None = None
    hidden: Sequence[int] | None = None
    predictor_hidden: Sequence[int] | None = None


@dataclass(frozen=True)
class Method:
    """A system by name.

    Args:
        name: its name at the command line, in the scikit-learn face and in comparisons.
        factory: from features and keyword settings to the system.
        summary: one line.
        fixed: settings of the factory that are this method's own.
    """

    name: str
    factory: Callable[..., System]
    summary: str
    fixed: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The factory's, but for those that are fixed."""
        every = inspect.signature(self.factory).parameters
        return {name: p for name, p in every.items() if name not in self.fixed}

    def takes(self, setting: str) -> bool:
        """Whether the factory takes a setting."""
        return setting in self.parameters

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

    def build(self, settings: Settings) -> System:
        """The system.

        Raises:
            ValueError: settings that the method needs and has not been given, or cannot take.
        """
        mask_entries(settings.features, settings.grouping)
        check_classes(settings.classes)
        if self.labels_only and settings.classes is None:
            raise ValueError(f"{self.name} explains labels; it has no form for a real response")
        if self.explains_model and settings.black_box is None:
            raise ValueError(
                f"{self.name} explains a given model: give black_box=, such as "
                "lexppl.evaluation.fit_predictor(…).predictor"
            )
        if self.needs("k") and settings.k is None:
            raise ValueError(f"{self.name} keeps a given number of entries: give k")
        given = {f.name: getattr(settings, f.name) for f in fields(settings)}
        taken = {
            name: value
            for name, value in given.items()
            if self.takes(name) and (value is not None or name == "classes")
        }
        return self.factory(**taken, **self.fixed)


class Registry(Mapping[str, Method]):
    """Methods by name, in alphabetical order.

    Example:
        >>> registry = Registry()
        >>> @registry.register("LEX with masks of one entry")
        ... def single(features: int, *, classes: int | None) -> System:
        ...     from lexppl.systems import lex
        ...     return lex(features, classes=classes, k=1, hidden=(4,))
        >>> list(registry), registry["single"].takes("penalty")
        (['single'], False)
    """

    def __init__(self) -> None:
        self._methods: dict[str, Method] = {}

    def register(
        self, summary: str, *, name: str | None = None, **fixed: Any
    ) -> Callable[[Factory], Factory]:
        """A decorator that keeps a factory under a name; the factory itself stays as it is.

        A factory takes `features` and keyword settings, of those of :class:`Settings` as many as it
        has use for, and returns a :class:`lexppl.inference.System`.

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


DEFAULT_METHOD = "lex"
"""Where no method is named."""

METHODS = Registry()
"""The methods by name, a system of one's own among them: `METHODS.register(summary)(factory)`.
CXPlain is not: its y are shares computed of a model and its data, by
:func:`lexppl.systems.cxplain_targets`."""


def system_for(name: str, settings: Settings) -> System:
    """The system of a method's name.

    Raises:
        ValueError: another name; settings that the method needs and has not been given, or that it
            cannot take.

    Example:
        >>> type(system_for("real_x", Settings(11, 2)).program()).__name__
        'LEX'
    """
    if name not in METHODS:
        raise ValueError(f"method must be one of {list(METHODS)}; it is {name!r}")
    return METHODS[name].build(settings)
