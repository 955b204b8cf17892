"""A published system: its stages, and the settings of its paper."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from lexppl.inference.stages import LossTerm, Stage, modules_of
from lexppl.summary import Summarised, Summary, parts_of, some_of
from lexppl.threads import own_random_state


def _no_settings() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, repr=False)
class System(Summarised):
    """Programs, bounds and estimators that belong together, ready for `fit`.

    The program that explains is that of the last stage's first term.

    Args:
        build: makes the stages, with new modules at each call, so that replicates differ.
        published: arguments of `fit` as the system's paper has them; `fit` alone uses its own.
        folds: F, which `fit` cross-fits the predictors with by default and a
            predictor learns; 1 for a single predictor.

    Example:
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import l2x
        >>> system = l2x(3, classes=2, k=1, hidden=(8,), predictor_hidden=(8,))
        >>> import torch
        >>> x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
        >>> data = (x, (x[:, 0] > 0).long())
        >>> result = fit(system, data, **{**system.published, "epochs": 2}, progress=False)
        >>> type(result.model).__name__
        'LEX'
    """

    build: Callable[[], Sequence[Stage]]
    published: Mapping[str, Any] = field(default_factory=_no_settings)
    folds: int = 1

    def __post_init__(self) -> None:
        # Built once, so that a mistake in its numbers is refused where it is made.
        with own_random_state():
            self.build()
        object.__setattr__(self, "published", MappingProxyType(dict(self.published)))

    def summarised(self) -> Summary:
        """The explaining program's parts by role, with how many numbers each learns, and how they
        are learned."""
        with own_random_state():
            stages = list(self.build())
        term = stages[-1].terms[0]
        estimator = getattr(term.objective, "estimator", None)
        others = [_told(one) for stage in stages for one in stage.terms if one is not term]
        lines = {
            **parts_of(term.model),
            "guide": None if term.guide is None else type(term.guide).__name__,
            "bound": term.objective.summary,
            "estimator": None if estimator is None else type(estimator).__name__,
            "other terms": some_of(others, most=3),
            "stages": None if len(stages) == 1 else str(len(stages)),
            "folds": f"{self.folds} predictors, each without a fold" if self.folds > 1 else None,
            "published": some_of(f"{name}={value!r}" for name, value in self.published.items()),
        }
        return Summary(f"System: {type(term.model).__name__}", lines)

    def program(self) -> Any:
        """The program that explains, built anew.

        Example:
            >>> from lexppl.systems import lex
            >>> type(lex(3, classes=2, k=1, hidden=(4,)).program()).__name__
            'LEX'
        """
        return self.build()[-1].terms[0].model

    def to(self, *args: Any, **kwargs: Any) -> "System":
        """The system on another device or in another type, as `torch.nn.Module.to` has it.

        Args:
            args, kwargs: of `torch.nn.Module.to`.

        Example:
            >>> from lexppl.systems import real_x
            >>> stages = real_x(3, classes=2, hidden=(4,)).to(torch.float64).build()
            >>> next(stages[0].terms[0].model.parameters()).dtype
            torch.float64
        """

        def build() -> Sequence[Stage]:
            stages = self.build()
            for stage in stages:
                for term in stage.terms:
                    for part in modules_of(term):
                        part.to(*args, **kwargs)
            return stages

        return System(build, self.published, self.folds)


def _told(term: LossTerm) -> str:
    """A term beside the explainer's, in a few words."""
    return f"{type(term.model).__name__} by {type(term.objective).__name__}"
