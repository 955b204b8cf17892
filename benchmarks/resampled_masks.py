"""Masks given y by importance resampling, as `lexppl.explain` draws them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lexppl import explain
from lexppl.argument_checks import int_at_least
from lexppl.arviz_compatibility import group_of
from lexppl.evaluation.bayes.simulated import parts_of_program

DIMS = ("chain", "draw", "row", "feature")


@dataclass(frozen=True)
class ResampledMasks:
    """Masks given y as :func:`lexppl.explain` draws them: by importance resampling.

    Args:
        program: the program.
        guide: q(z | x, y), that proposes masks; None to propose from p(z | x).
        draws: S.
        proposals: masks proposed for each draw.
        imputations: K.

    Example:
        >>> from lexppl.systems import lex
        >>> program = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,)).program()
        >>> infer = ResampledMasks(program, draws=9)
        >>> infer(torch.zeros(5, 3), torch.zeros(5, dtype=torch.long), 0).shape
        torch.Size([9, 5, 3])
    """

    program: Any
    guide: Any = None
    draws: int = 99
    proposals: int = 4
    imputations: int = 1

    def __post_init__(self) -> None:
        for name in ("draws", "proposals", "imputations"):
            int_at_least(name, getattr(self, name))

    @property
    def name(self) -> str:
        """Of the method, for tables."""
        return f"importance resampling of {self.proposals} proposals a draw"

    def __call__(self, x: Tensor, y: Tensor, seed: int) -> Tensor:
        """Masks given y, `(S, B, G)`."""
        options = {"draws": self.draws, "proposals": self.proposals, "seed": seed}
        posterior = explain(
            parts_of_program(self.program).model,
            x,
            y,
            guide=self.guide,
            imputations=self.imputations,
            **options,
        )
        masks = group_of(posterior, "posterior")
        (name,) = [n for n, values in masks.items() if values.dims == DIMS]
        return torch.as_tensor(masks[name].values[0]).to(x)
