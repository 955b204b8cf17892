"""Calibration of posteriors over masks: each row is a simulated data set of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.evaluation.bayes.calibration import ranked, thinned
from lexppl.evaluation.bayes.calibration_result import Calibration
from lexppl.evaluation.bayes.mask_table import mask_table
from lexppl.evaluation.bayes.posteriors import name_of
from lexppl.evaluation.bayes.simulated import (
    check_rows,
    parts_of_program,
    seeds_of,
    simulate,
)
from lexppl.explanation.masks.plate_draws import posterior_draws
from lexppl.inference.mask_plates import MaskTree
from lexppl.inference.predictive import FittedProgram, drawing

MaskInfer = Callable[[Tensor, Tensor, int], Tensor]
"""From x, y and a seed to masks `(S, B, G)`, draws of each row's p(z | x, y)."""
MaskQuantity = Callable[[Tensor], Tensor]
"""From masks `(S, B, G)` to a number of each, `(S, B)`."""


def mask_calibration(
    program: Any,
    x: Tensor,
    infer: MaskInfer | None = None,
    *,
    simulations: int = 500,
    draws: int = 99,
    quantities: Mapping[str, MaskQuantity] | None = None,
    name: str | None = None,
    seed: int = 0,
) -> Calibration:
    r"""Simulation-based calibration of p(z | x, y), the masks of a row given its outcome:

        z*_n ~ p(z | x_n),  y_n ~ p(y | x_n, z*_n),  z_n1 … z_nS ~ q(z | x_n, y_n),

    with each row a data set of its own, so that a thousand cost one call. What is ranked are
    numbers of a mask, z* among the z_ns, ties broken at random: how many entries it keeps, each of
    its entries, and log p(y | x, z), which finds draws that have not looked at y (their sizes and
    entries would be uniform, Modrák et al. 2023).

    Args:
        program: a program without latents outside `mask_particles()`, fitted or not, of up to
            65,536 masks.
        x: rows `(B, *event)`; they are repeated in their order up to N.
        infer: gives draws of p(z | x, y), `(S, N, G)`; None for exact ones by
            enumeration. :class:`ResampledMasks` is what :func:`lexppl.explain` does.
        simulations: N.
        draws: S.
        quantities: by name, a function from masks `(S, N, G)` to numbers `(S, N)`; None for `size`
            and every entry. `log p(y | x, z)` is always there.
        name: of the method, for tables.
        seed: of all that is random; global random state is left as it is.

    Raises:
        ValueError, TypeError: as :func:`calibration`; a program with latents that rows share;
            masks of another shape, or that the program cannot draw.

    Source: Talts et al. (2018); Modrák et al. (2023), "Simulation-based calibration checking for
    Bayesian computation: the choice of test quantities shapes sensitivity".

    Example:
        >>> from lexppl.systems import lex
        >>> program = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,)).program()
        >>> x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
        >>> mask_calibration(program, x).alarms()
        {}
    """
    simulations = int_at_least("simulations", simulations)
    draws = int_at_least("draws", draws, 2)
    seed = int_at_least("seed", seed, 0)
    check_rows(x)
    model = parts_of_program(program).model
    x = x[torch.arange(simulations) % len(x)]
    of_data, of_infer, of_table = seeds_of(seed, 0, 3)
    drawn = simulate(model, x, of_data)
    if drawn.shared:
        raise ValueError(
            f"rows share {sorted(drawn.shared)}, so that a row is no data set of its own; "
            "condition the program on them by pyro.poutine.condition, or use calibration()"
        )
    if len(drawn.masks) != 1:
        raise ValueError(f"the program must draw one mask a row; it draws {sorted(drawn.masks)}")
    ((site, truth),) = drawn.masks.items()
    with drawing(of_table, x.device):
        table = mask_table(model, x, drawn.y)
    if table.log_prior.shape[-1] != len(x):
        raise ValueError(f"all rows share {site!r}; the program must draw a mask for each row")
    if infer is None:
        found, method = table.draws(draws, of_infer), "enumeration"
    else:
        found, method = infer(x, drawn.y, of_infer), name_of(infer)
    expected = tuple(truth.shape)
    if not isinstance(found, Tensor) or found.dim() != 3 or tuple(found.shape[1:]) != expected:
        own = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"infer must give masks (S, {expected[0]}, {expected[1]}); it gave {own}")
    found = thinned(found, draws, site)
    functions = dict({} if quantities is None else quantities)
    if quantities is None:
        functions["size"] = lambda masks: masks.sum(-1)
        for entry in range(expected[-1]):
            functions[f"{site}[{entry}]"] = partial(torch.select, dim=-1, index=entry)
    functions["log p(y | x, z)"] = table.likelihood_of
    values, truths = [], []
    for label, function in functions.items():
        value, own = function(found), function(truth.unsqueeze(0))
        if value.shape != (draws, len(x)) or own.shape != (1, len(x)):
            raise ValueError(
                f"quantity {label!r} must give a number of each mask, {(draws, len(x))} of "
                f"{tuple(found.shape)}; it gave {tuple(value.shape)}"
            )
        values.append(value.double().cpu().numpy().T)
        truths.append(own[0].double().cpu().numpy())
    method = method if name is None else name
    return ranked(tuple(functions), np.stack(values, 2), np.stack(truths, 1), None, method, seed)


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
