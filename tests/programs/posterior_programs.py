"""Small programs of discrete masks drawn at random, by kind, each a list of statements.

A statement has a function from the latents before it, `(…, entries, *event)` by name, and from the
rows to its distribution or number. The program runs the statements under Pyro, with the particles
as leading dims; the reference of `posterior_check` runs the same statements on all joint values.
Column 0 of x is a row's group, columns 1 to 3 are features, 4 is a second response and 5 says
whether y is seen.
"""

import itertools
import math
import random
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from lexppl.distributions import KSubset
from lexppl.effects import imputation_particles, mask_particles, penalty

LARGEST = 4096
LOSS, EVIDENCE, GIVEN_X, GIVEN_Y, LOO = "loss", "evidence", "given x", "given x and y", "loo"
TABLE = "table"
ENTRIES = (LOSS, EVIDENCE, GIVEN_X, GIVEN_Y, LOO, TABLE)
LISTED = frozenset((LOSS, EVIDENCE, GIVEN_X, GIVEN_Y))
SECOND, SEEN = 4, 5
"""Columns of x: a second response, and whether y is seen."""

Values = dict[str, Tensor]
Of = Callable[[Values, Tensor], Any]


@dataclass(frozen=True)
class Statement:
    """One statement.

    Args:
        name: of the site.
        kind: "latent", "observed", "factor", "penalty", "deterministic" or "imputed".
        of: the distribution or the number, of the latents before and of x.
        plate: "data", "groups", "features", or None for one value of all rows.
        support: the values of one entry, `(n, *event)`, of a discrete latent.
        column: of x, where it is observed; None for the response y.
        loop: whether it is a turn of a `pyro.markov` loop.
        above: whether it stands before `mask_particles()`.
        log_weights: of the support's values, where these are nodes of a quadrature.
        marginal, log_square: of a response with imputations `log E[p]` and `log E[p²]` over them.
    """

    name: str
    kind: str
    of: Of
    plate: str | None = None
    support: Tensor | None = None
    column: int | None = None
    loop: bool = False
    above: bool = False
    log_weights: Tensor | None = None
    marginal: Of | None = None
    log_square: Of | None = None


@dataclass(frozen=True)
class PosteriorProgram:
    """A program, called as `program(x, y)`, and its rows.

    Args:
        kind: the one of `KINDS` that it is of.
        apart: whether each row has a log of its own: its plate is entered before the particles.
        sizes: of the plates of groups and features.
        masked: whether `y` is observed with `obs_mask=`.
        imputations: K that it is compared with.
    """

    kind: str
    statements: tuple[Statement, ...]
    x: Tensor
    y: Tensor
    apart: bool = False
    sizes: dict = field(default_factory=dict)
    masked: bool = False
    imputations: int = 1

    @property
    def latents(self) -> list[Statement]:
        return [s for s in self.statements if s.support is not None]

    @property
    def response(self) -> Statement:
        return next(s for s in self.statements if s.kind == "observed" and s.column is None)

    def entries(self, statement: Statement) -> int:
        sizes = {None: 1, "data": len(self.x), **self.sizes}
        return sizes[statement.plate]

    @property
    def joint_values(self) -> int:
        return math.prod(len(s.support) ** self.entries(s) for s in self.latents)

    def __call__(self, x: Tensor, y: Tensor | None = None) -> None:
        values: Values = {}
        sizes = {**self.sizes, "data": len(x)}
        plates = {name: pyro.plate(name, size, dim=-1) for name, size in sizes.items()}
        with ExitStack() as stack:
            inside = list(self.statements)
            while inside[0].above:
                self._state(inside.pop(0), values, x, y)
            if self.apart:
                stack.enter_context(plates["data"])
            stack.enter_context(mask_particles())
            for looped, together in itertools.groupby(inside, lambda s: s.loop):
                for statement in pyro.markov(list(together)) if looped else together:
                    if statement.kind == "imputed":
                        if not self.apart:
                            stack.enter_context(plates["data"])
                        stack.enter_context(imputation_particles())
                    entered = self.apart or statement.plate is None or statement.kind == "imputed"
                    entered = entered or (statement.plate == "data" and self.imputations > 1)
                    with nullcontext() if entered else plates[statement.plate]:
                        self._state(statement, values, x, y)

    def _state(self, statement: Statement, values: Values, x: Tensor, y: Tensor | None) -> None:
        name, found = statement.name, statement.of(values, x)
        if statement.kind == "factor":
            pyro.factor(name, found)
        elif statement.kind == "penalty":
            penalty(name, found)
        elif statement.kind == "deterministic":
            values[name] = pyro.deterministic(name, found, event_dim=0)
        elif statement.kind != "observed":
            values[name] = pyro.sample(name, found)
        elif statement.column is not None:
            pyro.sample(name, found, obs=x[:, statement.column])
        elif self.masked and y is not None:
            pyro.sample(name, found, obs=y, obs_mask=x[:, SEEN] > 0)
        else:
            pyro.sample(name, found, obs=y)


class Ingredients:
    """Sizes, names and numbers drawn for one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.rows = self.random.randint(3, 8)
        self.groups = self.random.randint(2, 3)
        self.x = self.normal(self.rows, 6)
        self.x[:, 0] = torch.tensor([self.random.randrange(self.groups) for _ in range(self.rows)])
        self.x[:, SEEN] = torch.tensor([self.random.choice((-1.0, 1.0)) for _ in range(self.rows)])
        self.x[0, SEEN] = 1.0
        self.names = self.random.sample(["mask", "keep", "gate", "chosen", "active"], 5)
        self.sizes = {"groups": self.groups}
        self.scale = self.random.uniform(0.4, 1.2)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def weights(self, entries: int) -> Tensor:
        """Coefficients that are not near zero."""
        found = self.normal(entries)
        return found + found.sign()

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    # Latents

    def size(self, plate: str | None) -> int:
        return {None: 1, "data": self.rows, "groups": self.groups}.get(plate, 3)

    def mask(
        self, plate: str | None, entries: int = 0, *, name: str = "", shift: Of | None = None
    ) -> Statement:
        """A mask of some entries in a plate, Bernoulli or of k entries, its logits shifted."""
        entries = entries or self.pick(1, 1, 2, 3)
        name = name or self.names.pop()
        same = plate == "data" or self.random.random() < 0.5
        base = self.normal(*((entries,) if same else (self.size(plate), entries)))
        slope = 0.5 * self.normal(entries)

        def logits(values: Values, x: Tensor) -> Tensor:
            found = base + slope * x[:, 1 : 1 + entries] if plate == "data" else base
            return found if shift is None else found + shift(values, x).unsqueeze(-1)

        every = torch.tensor(list(itertools.product([0.0, 1.0], repeat=entries))).double()
        if entries > 1 and self.random.random() < 0.3:
            k = self.random.randint(1, entries)
            support = every[every.sum(-1) == k]
            return Statement(name, "latent", lambda v, x: KSubset(logits(v, x), k), plate, support)

        def of(values: Values, x: Tensor) -> Any:
            return dist.Bernoulli(logits=logits(values, x)).to_event(1)

        return Statement(name, "latent", of, plate, every)

    def scalar(self, plate: str | None, name: str = "", shift: Of | None = None) -> Statement:
        """A mask of event shape () in a plate."""
        base = self.normal(1)

        def of(values: Values, x: Tensor) -> Any:
            return dist.Bernoulli(logits=base if shift is None else base + shift(values, x))

        support = torch.tensor([0.0, 1.0]).double()
        return Statement(name or self.names.pop(), "latent", of, plate, support)

    def label(
        self, plate: str | None, values: int, *, zero: int | None = None, name: str = "class"
    ) -> Statement:
        """A class, of which one has no probability."""
        logits = self.normal(values)
        if zero is not None:
            logits[zero] = -math.inf
        support = torch.arange(values)
        return Statement(
            name, "latent", lambda v, x: dist.Categorical(logits=logits), plate, support
        )

    # What a latent adds to the mean of each row, `(…, rows)`

    def effect(self, statement: Statement) -> Of:
        """Of a mask of all rows, of rows, or of groups by column 0 of x."""
        event = statement.support.dim() - 1
        weights = self.weights(statement.support.shape[-1] if event else 1)
        name, plate = statement.name, statement.plate

        def of(values: Values, x: Tensor) -> Tensor:
            value = values[name] if event else values[name].unsqueeze(-1)
            value = value[..., x[:, 0].long(), :] if plate == "groups" else value
            return (value * weights * x[:, 1 : 1 + len(weights)]).sum(-1)

        return of

    def effect_of_features(self, statement: Statement) -> Of:
        """Of a mask in a plate of features."""
        weights, name = self.weights(3), statement.name
        return lambda v, x: (v[name].unsqueeze(-2) * weights * x[:, 1:4]).sum(-1)

    def some(self, *effects: Of) -> Of:
        """Their sum, with an interaction."""
        product = self.pick(0.0, 0.7) if len(effects) > 1 else 0.0

        def of(values: Values, x: Tensor) -> Tensor:
            found = [one(values, x) for one in effects]
            total = sum(found[1:], found[0])
            return total + product * found[0] * found[-1] if product else total

        return of

    # What is observed

    def respond(self, mean: Of, name: str = "y", column: int | None = None) -> Statement:
        """A response of rows."""
        scale = self.scale

        def normal(values: Values, x: Tensor) -> Any:
            return dist.Normal(mean(values, x), scale)

        def poisson(values: Values, x: Tensor) -> Any:
            return dist.Poisson(mean(values, x).clamp(-3.0, 2.0).exp())

        def bernoulli(values: Values, x: Tensor) -> Any:
            return dist.Bernoulli(logits=mean(values, x))

        of = normal if column is not None else self.pick(normal, normal, poisson, bernoulli)
        return Statement(name, "observed", of, "data", column=column)

    def program(self, *statements: Statement, **options: Any) -> PosteriorProgram:
        return PosteriorProgram("", statements, self.x, torch.zeros(self.rows), **options)

    def shared(self, *statements: Statement, **options: Any) -> PosteriorProgram:
        """A program of one log."""
        return self.program(*statements, sizes=self.sizes, **options)


Builder = Callable[[Ingredients], PosteriorProgram]


@dataclass(frozen=True)
class Kind:
    """Programs of one kind: the entries that must be right, those that must refuse, and the most
    joint values that a program has."""

    build: Builder
    right: frozenset = LISTED
    refused: frozenset = frozenset()
    largest: int = LARGEST


KINDS: dict[str, Kind] = {}


def kind(name: str, **of: Any) -> Callable[[Builder], Builder]:
    def add(build: Builder) -> Builder:
        KINDS[name] = Kind(build, **of)
        return build

    return add


# Rows

APART = {"right": LISTED | {LOO}}


def _rows(r: Ingredients) -> tuple[list[Statement], Of]:
    """One or two masks of rows, of which the second reads the first, and what they add."""
    first = r.mask("data")
    if r.random.random() < 0.5:
        return [first], r.effect(first)
    reads = r.effect(first)
    second = r.pick(
        lambda: r.mask("data", r.pick(1, 2), shift=reads), lambda: r.scalar("data", shift=reads)
    )()
    return [first, second], r.some(r.effect(first), r.effect(second))


@kind("rows", **APART)
def rows(r: Ingredients) -> PosteriorProgram:
    masks, mean = _rows(r)
    return r.program(*masks, r.respond(mean), apart=True)


@kind("rows, a class above the masks", **APART)
def rows_of_classes(r: Ingredients) -> PosteriorProgram:
    c = r.label("data", r.pick(2, 3))
    shift = r.normal(len(c.support))
    mask = r.mask("data", shift=lambda v, x: shift[v["class"]])
    effect = r.effect(mask)
    return r.program(c, mask, r.respond(lambda v, x: effect(v, x) + shift[v["class"]]), apart=True)


@kind("rows, a factor within a row", **APART)
def factor_within_rows(r: Ingredients) -> PosteriorProgram:
    masks, mean = _rows(r)
    strength, energy = r.weights(1), r.effect(masks[0])
    field_ = Statement("field", "factor", lambda v, x: strength * energy(v, x), "data")
    return r.program(*masks, field_, r.respond(mean), apart=True)


@kind("rows, x observed", **APART)
def rows_x_observed(r: Ingredients) -> PosteriorProgram:
    masks, mean = _rows(r)
    spread, effect = 1 + abs(float(r.normal(1))), r.effect(masks[0])

    def measured(values: Values, x: Tensor) -> Any:
        return dist.Normal(0.0, torch.where(effect(values, x) > 0, 0.5, 1.0).double() * spread)

    x = Statement("x", "observed", measured, "data", column=1)
    order = [x, r.respond(mean)] if r.pick(True, False) else [r.respond(mean), x]
    return r.program(*masks, *order, apart=True)


@kind("rows, a second response without y", **APART)
def rows_second_response(r: Ingredients) -> PosteriorProgram:
    masks, mean = _rows(r)
    second = r.respond(r.effect(masks[-1]), r.pick("t", "y_other", "other"), SECOND)
    return r.program(*masks, second, r.respond(mean), apart=True)


@kind("rows, scalar masks in a markov loop", **APART)
def markov_rows(r: Ingredients) -> PosteriorProgram:
    return _markov(r, "data")


def _markov(r: Ingredients, plate: str | None) -> PosteriorProgram:
    steps = r.random.randint(2, 3)
    stay = 1.5 * r.weights(1)
    masks: list[Statement] = []
    for t in range(1, steps + 1):
        before = masks[-1].name if masks else ""
        shift = (lambda v, x, name=before: stay * (v[name] - 0.5)) if before else None
        masks.append(replace(r.scalar(plate, f"z_{t}", shift), loop=True))
    parts = [r.effect(mask) for mask in masks]
    # Each step has a feature of its own.
    columns = [[0, 2, 1], [0, 3, 1]]
    moved = [parts[0]] + [
        (lambda v, x, one=one, c=c: one(v, x[:, c]))
        for one, c in zip(parts[1:], columns, strict=False)
    ]
    make = r.program if plate == "data" else r.shared
    return make(*masks, r.respond(r.some(*moved)), apart=plate == "data")


@kind("rows, drawn imputations", **APART)
def imputed_rows(r: Ingredients) -> PosteriorProgram:
    return _imputed(r, "data")


def _imputed(r: Ingredients, plate: str | None) -> PosteriorProgram:
    """y is normal given x where it is kept, else given a draw: `log E[p]` and `log E[p²]` over it
    are those of normals."""
    mask = r.mask(plate, r.pick(1, 2))
    entries, name = mask.support.shape[-1], mask.name
    weights, centre, spread = 0.5 * r.weights(entries), r.normal(entries), 0.7
    scale = 1.5

    def kept(values: Values, x: Tensor) -> Tensor:
        value = values[name]
        return value[..., x[:, 0].long(), :] if plate == "groups" else value

    def mean(values: Values, x: Tensor) -> Tensor:
        hidden = values["hidden"]
        value = kept(values, x)
        return (weights * (value * x[:, 1 : 1 + entries] + (1 - value) * hidden)).sum(-1)

    def variance(values: Values, x: Tensor) -> Tensor:
        return ((weights * spread) ** 2 * (1 - kept(values, x))).sum(-1)

    def about(values: Values, x: Tensor) -> Tensor:
        return mean({**values, "hidden": centre}, x)

    def square(values: Values, x: Tensor) -> Any:
        normal = dist.Normal(about(values, x), (variance(values, x) + scale**2 / 2).sqrt())
        return lambda y: normal.log_prob(y) - math.log(2 * scale * math.sqrt(math.pi))

    hidden = Statement(
        "hidden", "imputed", lambda v, x: dist.Normal(centre, spread).to_event(1), "data"
    )
    y = Statement(
        "y", "observed", lambda v, x: dist.Normal(mean(v, x), scale), "data",
        marginal=lambda v, x: dist.Normal(about(v, x), (variance(v, x) + scale**2).sqrt()),
        log_square=square,
    )  # fmt: skip
    make = r.program if plate == "data" else r.shared
    return make(mask, hidden, y, apart=plate == "data", imputations=400)


@kind("rows, a response with obs_mask", **APART)
def seen(r: Ingredients) -> PosteriorProgram:
    masks, mean = _rows(r)
    return r.program(*masks, r.respond(mean), apart=True, masked=True)


@kind("rows, a response of another name")
def named(r: Ingredients) -> PosteriorProgram:
    masks, mean = _rows(r)
    return r.program(*masks, r.respond(mean, r.pick("outcome", "deaths")), apart=True)


@kind("rows, a size above k-subsets", right=frozenset())
def sizes(r: Ingredients) -> PosteriorProgram:
    size = r.label("data", 2, name="size")
    logits = r.normal(2)
    every = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]).double()

    def of(values: Values, x: Tensor) -> Any:
        return KSubset(logits, 1 + values["size"], max_k=2)

    mask = Statement("mask", "latent", of, "data", every)
    return r.program(size, mask, r.respond(r.effect(mask)), apart=True)


@kind("no mask", right=frozenset((EVIDENCE, LOO)), refused=frozenset((GIVEN_X, GIVEN_Y, TABLE)))
def no_mask(r: Ingredients) -> PosteriorProgram:
    slope, spread = r.weights(1), 1 + abs(float(r.normal(1)))
    x = Statement("x", "observed", lambda v, x: dist.Normal(0.0, spread), "data", column=1)
    return r.program(x, r.respond(lambda v, x: slope * x[:, 2]), apart=True)


# Masks that rows share


@kind("all rows")
def all_rows(r: Ingredients) -> PosteriorProgram:
    mask = r.mask(None)
    return r.shared(mask, r.respond(r.effect(mask)))


@kind("all rows, a class above the masks")
def class_above(r: Ingredients) -> PosteriorProgram:
    c = r.label(None, r.pick(2, 3), name=r.pick("class", "k"))
    shift = 2 * r.normal(len(c.support))
    plate = r.pick(None, "groups", "data")
    mask = r.mask(plate, r.pick(1, 2), shift=lambda v, x: shift[v[c.name]])
    return r.shared(c, mask, r.respond(r.effect(mask)))


@kind("all rows, groups and rows")
def three_levels(r: Ingredients) -> PosteriorProgram:
    plates = r.pick((None, "groups", "data"), (None, "data"), ("groups", "data"), (None, "groups"))
    masks: list[Statement] = []
    for plate in plates:
        shift = None
        if masks and masks[-1].plate is None and r.pick(True, False):
            above, by = masks[-1].name, r.normal(1)
            shift = lambda v, x, above=above, by=by: by * v[above].sum(-1)  # noqa: E731
        masks.append(r.mask(plate, r.pick(1, 1, 2), shift=shift))
    return r.shared(*masks, r.respond(r.some(*map(r.effect, masks))))


@kind("groups by a column of x")
def groups(r: Ingredients) -> PosteriorProgram:
    masks = [r.mask("groups") for _ in range(r.pick(1, 1, 2))]
    return r.shared(*masks, r.respond(r.some(*map(r.effect, masks))))


@kind("groups by a latent class")
def groups_by_class(r: Ingredients) -> PosteriorProgram:
    mask = r.mask("groups", r.pick(1, 1, 2))
    label = r.label(r.pick("data", "data", None), r.groups)
    weights = r.weights(mask.support.shape[-1])

    def mean(values: Values, x: Tensor) -> Tensor:
        total = 0.0
        for group in range(r.groups):
            value = values[mask.name][..., group : group + 1, :]
            here = (values["class"] == group) * (value * weights * x[:, 1 : 1 + len(weights)]).sum(
                -1
            )
            total = total + here
        return total

    order = [mask, label] if r.pick(True, False) else [label, mask]
    return r.shared(*order, r.respond(mean))


def _next(x: Tensor, groups: int, by: int = 1) -> Tensor:
    """Rows that stand in the group after theirs."""
    return torch.cat([((x[:, 0] + by) % groups).unsqueeze(-1), x[:, 1:]], -1)


@kind("groups in a ring")
def ring(r: Ingredients) -> PosteriorProgram:
    mask = r.mask("groups", r.pick(1, 1, 2, 3))
    one, other = r.effect(mask), r.effect(mask)
    combine = r.pick(torch.add, torch.mul)
    return r.shared(mask, r.respond(lambda v, x: combine(one(v, x), other(v, _next(x, r.groups)))))


@kind("another group in a rare event")
def rare(r: Ingredients) -> PosteriorProgram:
    entries = r.pick(1, 2, 3)
    mask, beside = r.mask("groups", entries), r.mask(None, r.pick(1, 2))
    effect, weight = r.effect(mask), 2 * r.weights(1)
    row = r.random.randrange(r.rows)

    def mean(values: Values, x: Tensor) -> Tensor:
        both = values[mask.name].prod(-1).prod(-1, keepdim=True) * values[beside.name].prod(-1)
        reads = (x[:, 1] == r.x[row, 1]).double()
        return effect(values, x) + weight * both * reads

    return r.shared(beside, mask, r.respond(mean))


@kind("an event of three of many groups", right=frozenset((LOSS, EVIDENCE)), largest=2**13)
def of_three(r: Ingredients) -> PosteriorProgram:
    """One row reads a pattern of three groups, which no two of them show."""
    r.groups = 13
    r.sizes = {"groups": r.groups}
    r.x[:, 0] = torch.tensor([r.random.randrange(r.groups) for _ in range(r.rows)])
    mask = r.mask("groups", 1)
    effect, weight = r.effect(mask), 3 * r.weights(1)
    row = r.random.randrange(r.rows)
    three = r.random.sample(range(r.groups), 3)
    pattern = torch.tensor([[float(r.pick(0, 1))] for _ in three]).double()

    def mean(values: Values, x: Tensor) -> Tensor:
        here = (values[mask.name][..., three, :] == pattern).all(-1).all(-1, keepdim=True)
        reads = (x[:, 1] == r.x[row, 1]).double()
        return effect(values, x) + weight * here * reads

    return r.shared(mask, r.respond(mean))


@kind("a rare pair of many values", right=frozenset((LOSS, EVIDENCE)), largest=2**14)
def rare_pair(r: Ingredients) -> PosteriorProgram:
    """One row reads whether the masks of two groups have certain values."""
    r.groups, entries = 2, 7
    r.sizes = {"groups": r.groups}
    r.x[:, 0] = torch.tensor([r.random.randrange(r.groups) for _ in range(r.rows)])
    every = torch.tensor(list(itertools.product([0.0, 1.0], repeat=entries))).double()
    logits, weights, weight = r.normal(entries), 0.3 * r.normal(entries), 20 * r.weights(1)
    row, pair = r.random.randrange(r.rows), every[[r.random.randrange(128) for _ in range(2)]]
    mask = Statement(
        "mask", "latent", lambda v, x: dist.Bernoulli(logits=logits).to_event(1), "groups", every
    )

    def mean(values: Values, x: Tensor) -> Tensor:
        value = values["mask"]
        here = (value == pair).all(-1).all(-1, keepdim=True)
        reads = (x[:, 1] == r.x[row, 1]).double()
        return (value[..., x[:, 0].long(), :] * weights).sum(-1) + weight * here * reads

    y = Statement("y", "observed", lambda v, x: dist.Normal(mean(v, x), 1.0), "data")
    return r.shared(mask, y)


@kind("groups behind a mask of all rows")
def groups_behind(r: Ingredients) -> PosteriorProgram:
    """A row depends on its group where a mask of all rows is on, or else on the next one."""
    gate, mask = r.mask(None, r.pick(1, 2)), r.mask("groups", r.pick(1, 1, 2))
    effect, by = r.effect(mask), r.pick(0, 0, 1)

    def mean(values: Values, x: Tensor) -> Tensor:
        on = values[gate.name].prod(-1)
        other = effect(values, _next(x, r.groups)) if by else 0.0
        return on * effect(values, x) + (1 - on) * other

    return r.shared(gate, mask, r.respond(mean))


@kind("a group's prior reads another group")
def prior_of_groups(r: Ingredients) -> PosteriorProgram:
    first = r.mask("groups", r.pick(1, 1, 2))
    by = 2 * r.weights(1)
    turn = r.pick(
        lambda v: v.roll(1, -1), lambda v: v.sum(-1, keepdim=True), lambda v: v[..., :1] * v
    )
    second = r.mask("groups", r.pick(1, 1, 2), shift=lambda v, x: by * turn(v[first.name].sum(-1)))
    return r.shared(first, second, r.respond(r.some(r.effect(first), r.effect(second))))


@kind("structural zeros of the likelihood")
def zeros_of_likelihood(r: Ingredients) -> PosteriorProgram:
    plate = r.pick("groups", "groups", "data", None)
    mask = r.mask(plate, 1)
    others = [r.mask(r.pick(None, "groups"), 1)] if r.pick(True, False) else []
    group, high = r.random.randrange(r.groups), r.random.uniform(0.5, 3.0)

    def rate(values: Values, x: Tensor) -> Any:
        total = 0.0
        for one in (mask, *others):
            value = values[one.name][..., 0]
            total = total + (value[..., x[:, 0].long()] if one.plate == "groups" else value)
        found = high * total * torch.ones(len(x)).double()
        return dist.Poisson(torch.where(x[:, 0] == group, found, found * r.scale))

    return r.shared(*others, mask, Statement("y", "observed", rate, "data"))


@kind("structural zeros of the prior")
def zeros_of_prior(r: Ingredients) -> PosteriorProgram:
    mask = r.mask(r.pick(None, "groups", "data"), r.pick(1, 2))
    effect = r.effect(mask)
    if r.pick(True, False):
        label = r.label(r.pick("data", None), 3, zero=r.random.randrange(3))
        shift = r.normal(3)
        return r.shared(mask, label, r.respond(lambda v, x: effect(v, x) * shift[v["class"]].exp()))

    def rule(values: Values, x: Tensor) -> Tensor:
        return torch.where(values[mask.name].prod(-1) > 0, -math.inf, 0.0).double()

    barred = Statement("rule", "factor", rule, mask.plate)
    return r.shared(mask, barred, r.respond(effect))


@kind("a factor on masks of all rows")
def factor_of_all(r: Ingredients) -> PosteriorProgram:
    mask, by = r.mask(None, r.pick(2, 3)), r.weights(1)
    field_ = Statement("field", "factor", lambda v, x: by * (v[mask.name].sum(-1) - 1) ** 2, None)
    return r.shared(mask, field_, r.respond(r.effect(mask)))


@kind("a factor across groups")
def factor_across_groups(r: Ingredients) -> PosteriorProgram:
    return _across(r, "groups")


@kind("a factor across rows")
def factor_across_rows(r: Ingredients) -> PosteriorProgram:
    return _across(r, "data")


def _across(r: Ingredients, plate: str) -> PosteriorProgram:
    """An Ising prior of the entries of a plate."""
    mask, by = r.mask(plate, r.pick(1, 1, 2)), r.weights(1)

    def energy(values: Values, x: Tensor) -> Tensor:
        value = values[mask.name].sum(-1)
        return by * (value[..., 1:] * value[..., :-1]).sum(-1, keepdim=True)

    field_ = Statement("field", "factor", energy, None)
    return r.shared(mask, field_, r.respond(r.effect(mask)))


def _of_a_plate(r: Ingredients) -> Statement:
    return r.mask(r.pick(None, "groups", "data"), r.pick(1, 1, 2))


@kind("shared masks, x observed")
def shared_x_observed(r: Ingredients) -> PosteriorProgram:
    mask = _of_a_plate(r)
    effect = r.effect(mask)

    def measured(values: Values, x: Tensor) -> Any:
        return dist.Normal(0.0, torch.where(effect(values, x) > 0, 0.5, 1.5).double())

    x = Statement("x", "observed", measured, "data", column=1)
    return r.shared(mask, x, r.respond(effect))


@kind("shared masks, a second response without y")
def shared_second_response(r: Ingredients) -> PosteriorProgram:
    masks = [_of_a_plate(r) for _ in range(r.pick(1, 2))]
    second = r.respond(r.effect(masks[-1]), r.pick("t", "y_other", "other"), SECOND)
    return r.shared(*masks, second, r.respond(r.some(*map(r.effect, masks))))


@kind("shared masks, scalar in a markov loop")
def markov_shared(r: Ingredients) -> PosteriorProgram:
    return _markov(r, r.pick(None, "groups"))


@kind("shared masks, drawn imputations")
def imputed_shared(r: Ingredients) -> PosteriorProgram:
    return _imputed(r, r.pick(None, "groups"))


@kind("a plate of features")
def features(r: Ingredients) -> PosteriorProgram:
    above: list[Statement] = []
    shift = None
    if r.pick(True, False):
        above, by = [r.label(None, 2, name="k")], r.normal(2)
        shift = lambda v, x: by[v["k"]]  # noqa: E731
    mask = r.scalar("features", shift=shift)
    effects = [r.effect_of_features(mask)]
    beside = [r.mask(r.pick(None, "groups", "data"), 1)] if r.pick(True, False) else []
    sizes_ = {**r.sizes, "features": 3}
    effects += map(r.effect, beside)
    return r.program(*above, mask, *beside, r.respond(r.some(*effects)), sizes=sizes_)


@kind("a deterministic product of masks")
def deterministic(r: Ingredients) -> PosteriorProgram:
    first, second = r.mask(None, 1), r.mask(r.pick(None, "groups"), r.pick(1, 2))
    weight = r.weights(1)

    def product(values: Values, x: Tensor) -> Tensor:
        return values[first.name].prod(-1) * values[second.name].prod(-1)

    kept = Statement("kept", "deterministic", product, second.plate)
    effect = r.effect(second)

    def mean(values: Values, x: Tensor) -> Tensor:
        value = values["kept"]
        value = value[..., x[:, 0].long()] if second.plate else value
        return effect(values, x) + weight * value

    return r.shared(first, second, kept, r.respond(mean))


@kind("one response of all rows")
def one_response(r: Ingredients) -> PosteriorProgram:
    masks = [_of_a_plate(r) for _ in range(r.pick(1, 2))]
    mean = r.some(*map(r.effect, masks))
    strength = r.random.uniform(0.2, 1.0)

    def of(values: Values, x: Tensor) -> Any:
        near = (-(x[:, 1] - x[:, 1:2]).square()).exp()
        covariance = torch.eye(len(x)).double() + strength * near
        return dist.MultivariateNormal(mean(values, x).unsqueeze(-2), covariance)

    return r.shared(*masks, Statement("y", "observed", of, None))


# Rows that see each other


def _neighbours(r: Ingredients, apart: bool) -> PosteriorProgram:
    # A mask of one value is seen by nobody.
    mask = next(
        m
        for m in (r.mask("data", r.pick(1, 1, 2), name="mask") for _ in range(99))
        if len(m.support) > 1
    )
    entries, weights = mask.support.shape[-1], r.weights(mask.support.shape[-1])
    look = r.pick(
        lambda v: v.roll(1, -2) * v,
        lambda v: v + 0.7 * v.flip(-2),
        lambda v: v * v.mean(-2, keepdim=True),
        lambda v: v + v.prod(-2, keepdim=True),
        lambda v: v + 0.7 * v[..., :1, :],
    )

    def mean(values: Values, x: Tensor) -> Tensor:
        value = values[mask.name]
        value = value.expand(*value.shape[:-2], len(x), entries)
        return (look(value) * weights * x[:, 1 : 1 + entries]).sum(-1)

    if r.pick(True, True, False):
        return r.program(mask, r.respond(mean), apart=apart, sizes={} if apart else r.sizes)
    field_ = Statement("field", "factor", mean, "data")
    return r.program(mask, field_, r.respond(r.effect(mask)), apart=apart)


@kind("rows see neighbours", right=frozenset(), refused=frozenset(ENTRIES))
def neighbours(r: Ingredients) -> PosteriorProgram:
    return _neighbours(r, apart=True)


@kind("rows see neighbours in one log")
def neighbours_in_one_log(r: Ingredients) -> PosteriorProgram:
    return _neighbours(r, apart=False)


# Latents before the particles


@kind("a class before the particles", right=frozenset((EVIDENCE,)))
def class_before(r: Ingredients) -> PosteriorProgram:
    masks, mean = _rows(r)
    label, shift = r.label(None, r.pick(2, 3)), r.normal(3)
    y = r.respond(lambda v, x: mean(v, x) + shift[v["class"]])
    return r.program(replace(label, above=True), *masks, y, apart=True)


@kind("a mean before the particles", right=frozenset((EVIDENCE, LOO)))
def mean_before(r: Ingredients) -> PosteriorProgram:
    """A mean that all rows share; the reference has the nodes of a quadrature."""
    r.x, r.rows = r.x[:4], min(r.rows, 4)
    mask = r.mask("data", 1)
    effect = r.effect(mask)
    nodes = torch.linspace(-6.0, 6.0, 201).double()
    weights = torch.full((201,), math.log(0.06)).double()
    mean = Statement(
        "mean", "latent", lambda v, x: dist.Normal(torch.tensor(0.0).double(), 0.8), None, nodes,
        above=True, log_weights=weights,
    )  # fmt: skip
    y = Statement("y", "observed", lambda v, x: dist.Normal(effect(v, x) + v["mean"], 1.0), "data")
    return r.program(mean, mask, y, apart=True)


@kind("an improper prior", right=frozenset(), refused=frozenset(ENTRIES))
def improper(r: Ingredients) -> PosteriorProgram:
    masks, mean = _rows(r)
    base = Statement(
        "intercept", "latent", lambda v, x: dist.ImproperUniform(dist.constraints.real, (), ()),
        None, above=True,
    )  # fmt: skip
    return r.program(base, *masks, r.respond(lambda v, x: mean(v, x) + v["intercept"]), apart=True)


# Several at once


@kind("several at once")
def mixed(r: Ingredients) -> PosteriorProgram:
    """One of the kinds of one log, with a penalty, a factor and a second response."""
    name = r.pick(
        "rows", "all rows", "all rows, groups and rows", "groups by a column of x",
        "groups by a latent class", "groups in a ring", "a group's prior reads another group",
        "structural zeros of the likelihood", "structural zeros of the prior",
        "rows see neighbours in one log", "one response of all rows",
    )  # fmt: skip
    found = KINDS[name].build(r)
    *statements, y = found.statements
    mask = next(s for s in statements if s.support is not None and s.support.dim() == 2)
    effect, by = r.effect(mask), r.weights(1)
    before = [
        Statement("price", "penalty", lambda v, x: 0.3 * v[mask.name].sum(-1), mask.plate),
        Statement("energy", "factor", lambda v, x: by * v[mask.name].sum(-1), mask.plate),
        r.respond(effect, "t", SECOND),
    ]
    chosen = [one for one in before if r.random.random() < 0.6]
    return replace(found, statements=(*statements, *chosen, y))
