"""The systems by name, with one set of settings for all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from torch import nn

from lexppl.inference import System
from lexppl.models.grouping import Grouping
from lexppl.models.regimes import frozen
from lexppl.models.table_parts import check_classes, mask_entries
from lexppl.systems.fastshap.system import fastshap
from lexppl.systems.invase import invase
from lexppl.systems.l2x import l2x
from lexppl.systems.lex import lex
from lexppl.systems.meed.system import meed
from lexppl.systems.q_fit.system import q_fit
from lexppl.systems.rationale import rationale
from lexppl.systems.real_x import base_x, real_x
from lexppl.systems.senn import senn
from lexppl.systems.vibi import vibi
from lexppl.systems.xtab.system import xtab


@dataclass(frozen=True)
class Settings:
    """What a method is built for and from; what a method does not have, it does not read.

    Args:
        features: D.
        classes: C for labels, or None for a real response.
        k: entries that a mask keeps, or None.
        penalty: nats for each entry kept, or None.
        model: the explained model, a module from x to the law of y; for methods that explain one.
        predictor: a given predictor, frozen here, for LEX's regimes in which it does not learn.
        masks, imputations: L and K, for bounds of several.
        imputer: law of the hidden features, or None for the method's own.
        grouping: which features an entry keeps, or None for one a feature.
        hidden: widths of the selector's hidden layers.
        predictor_hidden: widths of the predictor's.
    """

    features: int
    classes: int | None
    k: int | None = None
    penalty: float | None = None
    model: nn.Module | None = None
    predictor: nn.Module | None = None
    masks: int = 4
    imputations: int = 1
    imputer: nn.Module | None = None
    grouping: Grouping | None = None
    hidden: Sequence[int] = (200, 200)
    predictor_hidden: Sequence[int] = (200, 200, 200)


@dataclass(frozen=True)
class Method:
    """A system by name.

    Args:
        build: from settings to the system.
        summary: one line.
        explains_model: whether y is a given model's output, and `model` must be given.
        takes_k: whether it needs k.
        takes_penalty: whether it reads a penalty.
        takes_imputer: whether it reads an imputer.
        labels_only: whether it knows labels only, no real response.
        default_penalty: nats for each entry kept where none is given; None where it depends on G.
    """

    build: Callable[[Settings], System]
    summary: str
    explains_model: bool = False
    takes_k: bool = False
    takes_penalty: bool = False
    takes_imputer: bool = True
    labels_only: bool = False
    default_penalty: float | None = 0.02


def _lex(s: Settings) -> System:
    return lex(
        s.features,
        k=s.k,
        penalty=s.penalty if s.k is None else None,
        masks=s.masks,
        imputations=s.imputations,
        predictor=None if s.predictor is None else frozen(s.predictor),
        **_jointly(s),
    )


def _shared(s: Settings) -> dict[str, Any]:
    return {"grouping": s.grouping, "hidden": s.hidden}


def _jointly(s: Settings) -> dict[str, Any]:
    return {
        **_shared(s),
        "classes": s.classes,
        "imputer": s.imputer,
        "predictor_hidden": s.predictor_hidden,
    }


def _priced(s: Settings) -> dict[str, Any]:
    return {"penalty": s.penalty, **_jointly(s)}


def _meed(s: Settings) -> System:
    return meed(
        s.features,
        _given(s, "meed"),
        classes=s.classes or 0,
        k=_size(s, "meed"),
        predictor_hidden=s.predictor_hidden,
        **_shared(s),
    )


def _fast_shap(s: Settings) -> System:
    return fastshap(
        s.features,
        classes=s.classes,
        model=_given(s, "fastshap"),
        surrogate_hidden=s.predictor_hidden,
        **_shared(s),
    )


def _xtab(s: Settings) -> System:
    wide = tuple(s.predictor_hidden)
    return xtab(
        s.features,
        classes=s.classes,
        subsets=min(2, s.features),
        grouping=s.grouping,
        encoder_hidden=wide[:1],
        predictor_hidden=wide,
    )


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "lex": Method(
            _lex, "LEX: the nested bound, k-subset or Bernoulli masks", takes_penalty=True
        ),
        "l2x": Method(
            lambda s: l2x(s.features, k=_size(s, "l2x"), **_jointly(s)),
            "L2X: max-of-k Concrete masks",
            takes_k=True,
        ),
        "vibi": Method(
            lambda s: vibi(s.features, k=_size(s, "vibi"), **_jointly(s)),
            "VIBI: L2X with an information bottleneck",
            takes_k=True,
        ),
        "invase": Method(
            lambda s: invase(s.features, **_priced(s)),
            "INVASE: actor, critic and baseline",
            takes_penalty=True,
            default_penalty=None,
        ),
        "real_x": Method(
            lambda s: real_x(s.features, **_priced(s)),
            "REAL-X: a predictor of random masks, then a selector",
            takes_penalty=True,
            default_penalty=0.01,
        ),
        "base_x": Method(
            lambda s: base_x(s.features, **_priced(s)),
            "BASE-X: REAL-X whose predictor sees the selector's masks",
            takes_penalty=True,
            default_penalty=0.01,
        ),
        "rationale": Method(
            lambda s: rationale(s.features, **_priced(s)),
            "rationale selection: short, contiguous selections",
            takes_penalty=True,
            default_penalty=3e-4,
        ),
        "q_fit": Method(
            lambda s: q_fit(s.features, _given(s, "q_fit"), **_shared(s)),
            "Q-FIT: a Dirichlet posterior of importance, by row",
            explains_model=True,
            takes_imputer=False,
        ),
        "q_fit_global": Method(
            lambda s: q_fit(s.features, _given(s, "q_fit_global"), scope="global", **_shared(s)),
            "Q-FIT: a Dirichlet posterior of importance, one for all rows",
            explains_model=True,
            takes_imputer=False,
        ),
        "meed": Method(
            _meed,
            "MEED: adversarial infidelity learning",
            explains_model=True,
            takes_k=True,
            takes_imputer=False,
            labels_only=True,
        ),
        "fastshap": Method(
            _fast_shap,
            "FastSHAP: Shapley values of a surrogate, by regression",
            explains_model=True,
            takes_imputer=False,
        ),
        "senn": Method(
            lambda s: senn(s.features, classes=s.classes, **_shared(s)),
            "SENN: linear in x, with coefficients that vary slowly",
            takes_imputer=False,
        ),
        "xtab": Method(_xtab, "XTab: a deterministic soft mask", takes_imputer=False),
    }
)
"""The methods by name. CXPlain is not among them: its y are shares computed of a model and its
data, by :func:`lexppl.systems.cxplain_targets`."""


def system_for(name: str, settings: Settings) -> System:
    """The system of a method's name.

    Raises:
        ValueError: another name; settings that the method needs and has not been given, or that it
            cannot take.

    Example:
        >>> type(system_for("real_x", Settings(11, 2)).build()[1].terms[0].model).__name__
        'LEX'
    """
    method = METHODS.get(name)
    if method is None:
        raise ValueError(f"method must be one of {list(METHODS)}; it is {name!r}")
    mask_entries(settings.features, settings.grouping)
    check_classes(settings.classes)
    if method.labels_only and settings.classes is None:
        raise ValueError(f"{name} explains labels; it has no form for a real response")
    if settings.penalty is None:
        settings = replace(settings, penalty=method.default_penalty)
    return method.build(settings)


def _size(s: Settings, name: str) -> int:
    if s.k is None:
        raise ValueError(f"{name} keeps a given number of entries: give k")
    return s.k


def _given(s: Settings, name: str) -> nn.Module:
    if s.model is None:
        raise ValueError(
            f"{name} explains a given model: give model=, such as "
            "lexppl.evaluation.fit_predictor(…).predictor"
        )
    return s.model
