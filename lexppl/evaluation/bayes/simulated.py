"""Data sets simulated from a program: latents from its prior, responses from its likelihood."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from lexppl.inference import Stage, System
from lexppl.inference.contexts import keep_parameters_local
from lexppl.inference.posterior.global_latents import sites_of
from lexppl.inference.predictive import drawing
from lexppl.threads import own_random_state

RESPONSE = "y"


@dataclass(frozen=True, eq=False)
class ProgramParts:
    """A program, with the guide and the objective that a system has for it.

    Args:
        model: a copy, called as `model(x, y)`, whose parameters are held fixed.
        given: the program itself, which a guide may hold.
        guide: None where it has none.
        objective: None for a fit's own.
        stage: the system's one stage, with the rate and the optimizer that it trains by.
    """

    model: Callable[..., Any]
    given: Callable[..., Any]
    guide: Any = None
    objective: Any = None
    stage: Stage | None = None


@dataclass(frozen=True, eq=False)
class Simulated:
    """One simulated data set.

    Args:
        shared: by site, a latent outside `mask_particles()`, `(*event)`.
        masks: by site, `(B, G)`.
        y: `(B, *event)`.
        penalties: the names of the program's penalties.
    """

    shared: dict[str, Tensor]
    masks: dict[str, Tensor]
    y: Tensor
    penalties: tuple[str, ...] = ()


def parts_of_program(program: Any) -> ProgramParts:
    """A program as it stands, its parameters held fixed, and what comes with it.

    Args:
        program: a module, a function, or a :class:`System` of one stage with one term.

    Raises:
        TypeError: what cannot be called.
        ValueError: a system of several stages or terms, which is no one program.
    """
    if isinstance(program, System):
        with own_random_state():
            stages = list(program.build())
        if len(stages) != 1 or len(stages[0].terms) != 1:
            raise ValueError(
                f"the system has {len(stages)} stages with {sum(len(s.terms) for s in stages)} "
                "terms, and no posterior is that of them all; give the program itself"
            )
        term = stages[0].terms[0]
        return ProgramParts(held(term.model), term.model, term.guide, term.objective, stages[0])
    if not callable(program):
        raise TypeError(
            f"program must be a Pyro program or a System; it is {type(program).__name__}"
        )
    return ProgramParts(held(program), program)


def held(program: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of a module that learns nothing and drops nothing out; a function as it is."""
    if not isinstance(program, nn.Module):
        return program
    fixed = copy.deepcopy(program).requires_grad_(False).eval()
    keep_parameters_local(fixed)
    return fixed


def keep_local(program: Callable[..., Any]) -> None:
    """Keep the parameters of a module out of Pyro's global store."""
    if isinstance(program, nn.Module):
        keep_parameters_local(program)


def check_rows(x: Any) -> None:
    """Refuse what is no tensor of finite rows `(B, *event)`."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor of rows (B, *event); it is {type(x).__name__}")
    if x.dim() == 0 or len(x) == 0:
        raise ValueError(f"x must have rows (B, *event); its shape is {tuple(x.shape)}")
    if not bool(x.isfinite().all()):
        raise ValueError("x must be finite; it has NaN or infinite values")


def refuse_penalties(names: Iterable[str]) -> None:
    """Refuse penalties beside latents that rows share, under which these have no posterior."""
    if names := list(names):
        raise ValueError(
            f"the program has penalties {names}, under which the latents that rows share have no "
            "posterior; write them as priors of the masks, or leave them out"
        )


def simulate(model: Callable[..., Any], x: Tensor, seed: int) -> Simulated:
    """Draw all that a program draws, for given rows.

    Args:
        model: the program.
        x: rows `(B, *event)`.
        seed: of the draws; global random state is left as it is.

    Raises:
        ValueError: the program draws no response `y` with one value a row.
        FloatingPointError: it draws numbers that are not finite, as under an improper prior.

    Example:
        >>> from lexppl.systems import lex
        >>> program = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,)).program()
        >>> drawn = simulate(program, torch.zeros(5, 3), seed=0)
        >>> drawn.y.shape, {name: tuple(mask.shape) for name, mask in drawn.masks.items()}
        (torch.Size([5]), {'mask': (5, 3)})
    """
    rows = len(x)
    keep_local(model)
    with drawing(seed, x.device):
        sites = sites_of(model, (x, None))
    shared, masks, y = {}, {}, None
    for name, site in sites.items():
        if site.observed or site.value is None:
            continue
        event = tuple(site.distribution.event_shape)
        if name == RESPONSE:
            y = site.value
            if y.numel() == rows * math.prod(event):
                y = y.reshape(rows, *event)
        elif not site.in_particles:
            shared[name] = site.value
        elif site.is_mask and len(event) == 1:
            masks[name] = site.value.reshape(rows, *event)
    if y is None or y.dim() == 0 or len(y) != rows:
        raise ValueError(
            "called as program(x, None), the program must draw a response 'y' with one value for "
            f"each of {rows} rows; "
            + (f"its sites are {list(sites)}" if y is None else f"y is {tuple(y.shape)}")
        )
    for name, value in {**shared, RESPONSE: y}.items():
        if not bool(value.isfinite().all()):
            raise FloatingPointError(
                f"the prior draws numbers at {name!r} that are not finite; is it improper?"
            )
    penalties = tuple(name for name, site in sites.items() if site.is_penalty)
    return Simulated(shared, masks, y, penalties)


def seeds_of(seed: int, stream: int, count: int) -> list[int]:
    """Independent seeds.

    Args:
        seed: of all.
        stream: which of several lists of seeds.
        count: how many.
    """
    state = np.random.SeedSequence(seed, spawn_key=(stream,)).generate_state(count, np.uint64)
    return [int(one >> np.uint64(1)) for one in state]
