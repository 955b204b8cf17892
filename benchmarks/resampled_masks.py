"""Masks given y by importance resampling, as `lexppl.explain` draws them."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.evaluation.bayes.simulated import parts_of_program
from lexppl.explanation.row_draws import posterior_draws
from lexppl.inference.mask_plates import MaskTree
from lexppl.inference.predictive import FittedProgram, drawing


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
        count, model = self.proposals * self.draws, parts_of_program(self.program).model
        with drawing(seed, x.device):
            few = (x[:1], y[:1])
            program = FittedProgram(model, self.guide, few, self.draws, propose_masks=True)
            ((run, _),) = program.runs((x, y), self.imputations, masks=count)
            names = [site.name for site in run.mask_sites if site.distribution.event_shape]
            tree = MaskTree.of(run, lambda *_: run, names)
            many = (count, self.imputations, self.draws)
            return posterior_draws(run, tree, None, names, *many).masks[names[0]]
