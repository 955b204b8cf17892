"""Programs that went astray: a right one with a site moved, a mask shared, half of it guided.

A program is a list of statements, each with the plates that it is in, in the order of entering
them; a change moves, adds, removes or rescales one. :func:`odd_program` gives the same one for a
seed at each call.
"""

import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from lexppl.effects import imputation_particles, mask_particles, penalty

MASKS, IMPUTATIONS = "mask_particles", "imputation_particles"
PARTICLES = (MASKS, IMPUTATIONS)
ROW_X = torch.tensor([0.9, -0.7, 0.4]).double()
GROUP_X = torch.tensor([0.6, -0.5]).double()
TIME_X = torch.tensor([-0.3, 0.8]).double()
GROUP_OF_ROW = torch.tensor([0, 1, 1])
ROW_SCALE = torch.tensor([0.5, 2.0, 1.4]).double()
COEFFICIENTS = {
    "switch": 0.9, "group": -1.4, "mask": 1.7, "other": 1.2, "fill": -1.1, "b": 0.8,
}  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """One sample statement.

    Args:
        name: of the site.
        kind: "latent", "observed", "factor", "penalty" or "deterministic".
        plates: in the order of entering them.
        entries: of a latent's event; 0 for one without event dims.
        careless: plates that its distribution still depends on, though it has left them.
        scale: None, a number, or "rows".
        param: whether a `pyro.param` is in it.
        dropped_event: whether its `.to_event(1)` is left out.
    """

    name: str
    kind: str
    plates: tuple[str, ...]
    entries: int = 0
    careless: tuple[str, ...] = ()
    scale: Any = None
    param: bool = False
    dropped_event: bool = False


@dataclass(frozen=True)
class OddProgram:
    """A model and what its guide draws, with the particles it is tried with.

    Args:
        change: what was done to it, in a word.
        model, guide: statements in their order.
        sizes, dims: of the plates, by name; a dim of None is a loop.
        subsample: by plate, how many of its entries are drawn.
        subset: by plate, the entries that are; none to draw them.
        masks, imputations, samples: L, K and S.
    """

    change: str
    model: tuple[Statement, ...]
    guide: tuple[Statement, ...] = ()
    sizes: dict = field(default_factory=dict)
    dims: dict = field(default_factory=dict)
    subsample: dict = field(default_factory=dict)
    subset: dict = field(default_factory=dict)
    masks: int = 2
    imputations: int = 1
    samples: int = 1

    def parameters(self) -> dict[str, Tensor]:
        values = {}
        for prefix, statements in (("", self.model), ("q_", self.guide)):
            for place, one in enumerate(statements):
                start = torch.linspace(-0.4, 0.5, max(one.entries, 1)).double()
                values[prefix + one.name] = start + 0.15 * place - 0.1 * len(prefix)
        return values

    @property
    def functions(self) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
        """Model and guide, functions of the parameters."""
        guide = (lambda p: _Run(self, p, "q_").do(self.guide)) if self.guide else None
        return (lambda p: _Run(self, p, "").do(self.model)), guide

    @property
    def of_rows(self) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
        """Model and guide, functions of rows `x`, of which column 0 is the number, and of `y`."""

        def run(statements, prefix):
            def program(x, y=None):
                sized = replace(self, sizes={**self.sizes, "data": len(x)})
                _Run(sized, self.parameters(), prefix, x[:, 0].long(), y is not None).do(statements)

            return program

        return run(self.model, ""), run(self.guide, "q_") if self.guide else None


class _Run:
    """One run of some statements."""

    def __init__(
        self,
        program: OddProgram,
        p: dict[str, Tensor],
        prefix: str,
        rows: Tensor | None = None,
        given: bool = True,
    ) -> None:
        self.program, self.p, self.prefix, self.given = program, p, prefix, given
        self.rows = torch.arange(program.sizes["data"]) if rows is None else rows
        self.plates: dict[str, Any] = {}
        self.index: dict[str, Tensor] = {}
        self.drawn: dict[str, tuple[Tensor, tuple[str, ...]]] = {}
        self.turn: int | None = None

    def do(self, statements):
        place = 0
        while place < len(statements):
            one = statements[place]
            loop = next((n for n in one.plates if n in self._loops), None)
            if loop is None:
                self._state(one, one.plates)
                place += 1
                continue
            before = one.plates[: one.plates.index(loop)]
            together = [
                s
                for s in statements[place:]
                if loop in s.plates and s.plates[: s.plates.index(loop)] == before
            ]
            with ExitStack() as stack:
                self._enter(stack, before)
                for turn in pyro.plate(loop, self.program.sizes[loop]):
                    self.turn = int(turn)
                    for s in together:
                        self._state(s, s.plates[len(before) + 1 :])
                self.turn = None
            place += len(together)

    @property
    def _loops(self):
        return {name for name, dim in self.program.dims.items() if dim is None}

    def _enter(self, stack, names):
        for name in names:
            if name == MASKS:
                stack.enter_context(mask_particles())
            elif name == IMPUTATIONS:
                stack.enter_context(imputation_particles())
            else:
                if name not in self.plates:
                    self.plates[name] = self._plate(name)
                self.index[name] = stack.enter_context(self.plates[name])

    def _plate(self, name):
        size, dim = self.program.sizes[name], self.program.dims[name]
        if name in self.program.subset:
            chosen = torch.tensor(self.program.subset[name])
            return pyro.plate(name, size, subsample=chosen, dim=dim)
        return pyro.plate(name, size, subsample_size=self.program.subsample.get(name), dim=dim)

    def _along(self, name, values) -> Tensor:
        """A constant of a plate's entries, at the plate's dim."""
        dim = self.program.dims[name]
        if dim is None:
            return values[self.turn or 0]
        chosen = values[self._entries(name)]
        return chosen.reshape(-1, *[1] * (-dim - 1))

    def _entries(self, name) -> Tensor:
        """The number of each entry of a plate."""
        index = self.index.get(name, torch.arange(self.program.sizes[name]))
        return self.rows[index] if name == "data" else index

    def _effect(self, one: Statement) -> Tensor:
        total = torch.zeros((), dtype=torch.double)
        for name in dict.fromkeys((*one.plates, *one.careless)):
            for plate, values in (("data", ROW_X), ("group", GROUP_X), ("time", TIME_X)):
                if name == plate:
                    total = total + self._along(name, values)
        for name, (value, plates) in self.drawn.items():
            root = name.split("_")[0]
            if root == one.name:
                continue
            turn = name.partition("_")[2]
            if turn and self.turn is not None and int(turn) != self.turn:
                continue
            total = total + COEFFICIENTS[root] * self._seen_from(one, value, plates)
        return total

    def _seen_from(self, one: Statement, value: Tensor, plates) -> Tensor:
        """A drawn value in the plates of another statement."""
        dims = self.program.dims
        for name in plates:
            dim = dims.get(name)
            if name in PARTICLES or name in (*one.plates, *one.careless) or dim is None:
                continue
            if value.dim() < -dim or value.shape[dim] == 1:
                continue
            beside = [n for n in one.plates if dims.get(n) == dim]
            if not beside:
                value = value.sum(dim, keepdim=True)
            elif name == "group" and beside == ["data"]:
                value = value.index_select(dim, GROUP_OF_ROW[self._entries("data")])
            else:
                of = GROUP_OF_ROW[self.rows][: value.shape[dim]]
                parts = [value[..., of == g].sum(-1) for g in range(self.program.sizes["group"])]
                value = torch.stack(parts, dim)
        return value

    def _scaled(self, one: Statement):
        if one.scale is None:
            return pyro.poutine.scale(scale=1.0)
        if one.scale == "rows":
            return pyro.poutine.scale(scale=self._along("data", ROW_SCALE))
        return pyro.poutine.scale(scale=one.scale)

    def _state(self, one: Statement, plates):
        with ExitStack() as stack:
            self._enter(stack, plates)
            name = one.name if self.turn is None else f"{one.name}_{self.turn}"
            effect = self._effect(one)
            start = self.p[self.prefix + one.name]
            if one.param:
                start = start + pyro.param(f"{self.prefix}shift", torch.tensor(0.3).double())
            stack.enter_context(self._scaled(one))
            if one.kind == "penalty":
                penalty(name, 0.3 * (start[0] + effect) ** 2)
            elif one.kind == "factor":
                pyro.factor(name, -0.2 * (start[0] + effect) ** 2)
            elif one.kind == "deterministic":
                pyro.deterministic(name, start[0] + effect)
            elif one.kind == "observed":
                logits = start[0] + effect
                response = self._response(one) if self.given or one.name != "y" else None
                pyro.sample(name, dist.Bernoulli(logits=logits), obs=response)
            else:
                self._latent(one, name, start, effect)

    def _response(self, one: Statement) -> Tensor:
        total = torch.zeros((), dtype=torch.long)
        for name in one.plates:
            if name not in PARTICLES:
                total = total + self._along(name, torch.tensor([1, 0, 3])) + len(name)
        return (total % 2).double()

    def _latent(self, one: Statement, name, start, effect):
        if one.entries:
            logits = start + effect.unsqueeze(-1)
            distribution = dist.Bernoulli(logits=logits)
            if not one.dropped_event:
                distribution = distribution.to_event(1)
        else:
            distribution = dist.Bernoulli(logits=start[0] + effect)
        value = pyro.sample(name, distribution)
        if one.entries:
            value = (value * torch.tensor([1.0, -0.6]).double()[: value.shape[-1]]).sum(-1)
        self.drawn[name] = value, one.plates


# Right programs


def right_program(source: random.Random) -> OddProgram:
    """A program that the bound reads, small enough to be enumerated."""
    shape = source.choice(["rows", "rows", "rows", "shared", "groups", "nested", "loop", "time"])
    rows = source.choice([1, 2, 2, 2, 3])
    sizes, dims = {"data": rows, "group": 2, "time": 2}, {"data": -1, "group": -1, "time": -4}
    entries = source.choice([1, 1, 2]) if rows < 2 else 1
    inside = ("data", MASKS)
    of_mask: tuple[str, ...] = inside
    of_response: tuple[str, ...] = inside
    if shape == "shared":
        of_mask, of_response, entries = (MASKS,), (MASKS, "data"), source.choice([1, 2])
    elif shape == "groups":
        of_mask, of_response = (MASKS, "group"), (MASKS, "data")
    elif shape == "nested":
        dims = {**dims, "group": -4}
        of_mask, of_response = ("group", MASKS), ("group", MASKS, "data")
    elif shape == "loop":
        dims = {**dims, "time": None}
        of_response = (*inside, "time")
    elif shape == "time":
        of_response = (*inside, "time")
    model = [Statement("mask", "latent", of_mask, entries)]
    if source.random() < 0.25:
        model.insert(0, Statement("switch", "latent", ()))
    if shape == "rows" and source.random() < 0.3 and rows < 3:
        model.append(Statement("other", "latent", inside, 1))
    imputations = 1
    if shape in ("rows", "shared") and source.random() < 0.35 and rows * entries < 3:
        imputations = source.choice([1, 2, 2])
        model.append(Statement("fill", "latent", (*of_mask, IMPUTATIONS), 0))
        of_response = (*inside, IMPUTATIONS) if shape == "rows" else (MASKS, IMPUTATIONS, "data")
    if source.random() < 0.2:
        kind = source.choice(["penalty", "factor", "deterministic"])
        model.append(Statement("extra", kind, of_response))
    model.append(Statement("y", "observed", of_response))
    guided = [s for s in model if s.kind == "latent" and (s.name == "switch")]
    if source.random() < 0.4 and of_mask == of_response:
        guided += [s for s in model if s.kind == "latent" and s.plates == of_response]
    elif source.random() < 0.2:
        guided += [s for s in model if s.name == "mask"]
    masks, samples = source.choice([(2, 1), (2, 1), (2, 1), (1, 1)])
    return OddProgram(
        "none", tuple(model), tuple(guided), sizes, dims,
        masks=masks, samples=samples, imputations=imputations,
    )  # fmt: skip


# Changes


def _which(source, statements, accept=lambda s: True):
    fitting = [i for i, s in enumerate(statements) if accept(s)]
    return source.choice(fitting) if fitting else None


def _change(statements, place, **words):
    return (*statements[:place], replace(statements[place], **words), *statements[place + 1 :])


def _one(accept):
    """A change of one statement of the model, the guide, or of both where both have the site."""

    def decorate(edit):
        def change(source, program):
            side = source.choice(["model", "guide", "both"]) if program.guide else "model"
            statements = program.guide if side == "guide" else program.model
            place = _which(source, statements, lambda s: accept(program, s))
            if place is None:
                return None
            words = edit(source, program, statements[place])
            changed = {
                ("guide" if side == "guide" else "model"): _change(statements, place, **words)
            }
            if side == "both":
                name = statements[place].name
                again = _which(source, program.guide, lambda s: s.name == name)
                if again is not None:
                    changed["guide"] = _change(program.guide, again, **words)
            return replace(program, **changed)

        change.__name__ = edit.__name__
        return change

    return decorate


@_one(lambda program, s: s.plates)
def moved_out(source, program, s):
    leaves = source.choice(s.plates)
    careless = (leaves,) if source.random() < 0.3 and leaves not in PARTICLES else ()
    return {"plates": tuple(n for n in s.plates if n != leaves), "careless": careless}


@_one(lambda program, s: True)
def moved_in(source, program, s):
    absent = [n for n in (*program.dims, *PARTICLES) if n not in s.plates]
    if not absent:
        return {}
    enters, place = source.choice(absent), source.randint(0, len(s.plates))
    return {"plates": (*s.plates[:place], enters, *s.plates[place:])}


@_one(lambda program, s: len(s.plates) > 1)
def reordered(source, program, s):
    return {"plates": tuple(source.sample(s.plates, len(s.plates)))}


def all_reordered(source, program):
    order = source.sample([*program.dims, *PARTICLES], len(program.dims) + 2)

    def sort(statements):
        return tuple(
            replace(s, plates=tuple(sorted(s.plates, key=order.index))) for s in statements
        )

    return replace(program, model=sort(program.model), guide=sort(program.guide))


@_one(lambda program, s: s.kind == "latent" and "data" in s.plates)
def shared(source, program, s):
    new = [] if source.random() < 0.5 else ["group"]
    plates = [m for n in s.plates for m in (new if n == "data" else [n])]
    return {"plates": tuple(plates)}


@_one(lambda program, s: s.kind in ("latent", "observed", "factor"))
def with_a_param(source, program, s):
    return {"param": True}


@_one(lambda program, s: s.kind == "latent" and s.entries)
def event_dropped(source, program, s):
    return {"dropped_event": True, "entries": source.choice([2, 2, 2, 3])}


def half_guided(source, program):
    latents = [s for s in program.model if s.kind == "latent"]
    chosen = [s for s in latents if s.name == "switch" or source.random() < 0.5]
    if source.random() < 0.4 and chosen:
        place = source.randrange(len(chosen))
        plates = tuple(n for n in chosen[place].plates if n not in (MASKS, IMPUTATIONS))
        chosen[place] = replace(chosen[place], plates=plates)
    return replace(program, guide=tuple(chosen))


def second_response(source, program):
    first = next(s for s in program.model if s.name == "y")
    plates = source.choice(
        [first.plates, first.plates[:-1], first.plates[1:], (MASKS,), ("data", MASKS), ("data",)]
    )
    kind = source.choice(["observed", "observed", "factor"])
    return replace(program, model=(*program.model, Statement("b", kind, plates)))


@_one(lambda program, s: s.kind != "deterministic")
def one_scaled(source, program, s):
    rows = "data" in s.plates and program.dims["data"] == -1
    return {"scale": source.choice([0.5, "rows"]) if rows else 0.5}


def subsampled(source, program):
    name = source.choice([n for n, d in program.dims.items() if d is not None])
    if program.sizes[name] == 1:
        return None
    return replace(program, subsample={name: program.sizes[name] - 1})


def imputations_unread(source, program):
    return replace(program, imputations=2)


@_one(lambda program, s: s.kind in ("latent", "observed"))
def another_dim(source, program, s):
    return {"plates": (*s.plates, "deep") if source.random() < 0.5 else ("deep", *s.plates)}


def guide_observes(source, program):
    kind = source.choice(["observed", "penalty", "factor"])
    name = "y" if source.random() < 0.5 and kind != "factor" else "extra"
    first = next(s for s in program.model if s.name == "y")
    statement = Statement(name, kind if name != "y" else "latent", first.plates)
    return replace(program, guide=(*program.guide, statement))


CHANGES = (
    moved_out, moved_out, moved_in, moved_in, reordered, all_reordered, shared, shared,
    with_a_param, event_dropped, half_guided, half_guided, second_response, one_scaled,
    subsampled, imputations_unread, another_dim, guide_observes,
)  # fmt: skip


def odd_program(seed: int) -> OddProgram:
    """The program of a seed: a right one, changed once or twice."""
    source = random.Random(seed)
    while True:
        program = right_program(source)
        program = replace(
            program,
            sizes={**program.sizes, "deep": 2},
            dims={**program.dims, "deep": source.choice([-3, -5])},
        )
        change = CHANGES[seed % len(CHANGES)]
        changed = change(source, program)
        if changed is None:
            continue
        if source.random() < 0.2:
            changed = source.choice(CHANGES)(source, changed) or changed
        # A loop is one statement in Pyro: its statements stand together.
        loops = {n for n, dim in changed.dims.items() if dim is None}
        stated = [s for s in changed.model + changed.guide if loops & set(s.plates)]
        if (
            len(
                {s.plates[: min(s.plates.index(n) for n in loops if n in s.plates)] for s in stated}
            )
            > 1
        ):
            continue
        return replace(changed, change=change.__name__)
