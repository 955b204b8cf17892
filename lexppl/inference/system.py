"""A published system: its stages, and the settings of its paper."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from lexppl.inference.stages import Stage


def _no_settings() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True)
class System:
    """Programs, bounds and estimators that belong together, ready for `fit`.

    The program that explains is that of the last stage's first term.

    Args:
        build: makes the stages, with new modules at each call, so that replicates differ.
        published: arguments of `fit` as the system's paper has them; `fit` alone uses its own.

    Example:
        >>> from lexppl.inference import fit
        >>> from lexppl.models import l2x
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

    def __post_init__(self) -> None:
        # Built once, so that a mistake in its numbers is refused where it is made.
        with torch.random.fork_rng(devices=[]):
            self.build()
        object.__setattr__(self, "published", MappingProxyType(dict(self.published)))
