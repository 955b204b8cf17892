"""Programs of masks by rows, groups and all rows: numbers after the bound against brute force.

Each kind has entries that must be right and entries that must refuse; the others may refuse in a
sentence that names a site, and are never wrong.
"""

import importlib
import inspect
import sys
import textwrap
from dataclasses import dataclass

import pyro
import pytest
import torch

from tests.programs.posterior_check import Reference, missing, posterior_program, survey, verdict
from tests.programs.posterior_programs import KINDS, PosteriorProgram

DEFAULT, COMPLETE = 18, 180
"""Programs of each kind in the default tier, and in the complete one: 600 and 6,000 of all."""
NOT_LISTED = {"an improper prior", "rows, drawn imputations", "shared masks, drawn imputations"}


def test_there_are_as_many_programs_as_is_said():
    assert DEFAULT * len(KINDS) >= 600
    assert COMPLETE * len(KINDS) >= 6000


@pytest.mark.parametrize("name", KINDS)
def test_600_programs_are_right_or_refused(name):
    required(name, range(DEFAULT))


@pytest.mark.complete
@pytest.mark.parametrize("name", KINDS)
def test_6000_programs_are_right_or_refused(name):
    required(name, range(DEFAULT, DEFAULT + COMPLETE))


def required(name, seeds):
    """That programs of a kind are as the kind requires; shares are printed."""
    outcomes, by_entry, lacking = survey(name, seeds)
    shares = {entry: dict(counts) for entry, counts in by_entry.items()}
    sys.stdout.write(f"{name}: {dict(outcomes)}, {shares}\n")
    assert not lacking, f"{len(lacking)} of {len(seeds)}, {dict(outcomes)}: {lacking[0]}"


@pytest.mark.parametrize("name", [name for name in KINDS if name not in NOT_LISTED])
def test_the_reference_is_plain_pyro(name):
    """At some joint values the reference is the sum of the log-probabilities of Pyro's trace."""
    for seed in range(3):
        program = posterior_program(name, seed)
        reference = Reference(program)
        weight = reference.prior.logsumexp(0)
        if not any(s.log_weights is not None for s in program.latents):
            torch.testing.assert_close(weight, torch.zeros(()).double())
        possible = (~reference.joint.isneginf()).nonzero()[:, 0]
        for place in possible[:: max(1, len(possible) // 5)]:
            found = log_prob_in_pyro(program, reference, int(place))
            if any(s.log_weights is not None for s in program.latents):
                found = found + program.latents[0].log_weights[0]
            torch.testing.assert_close(found, reference.joint[place])


def log_prob_in_pyro(program: PosteriorProgram, reference: Reference, place: int):
    latents = {}
    for statement in program.latents:
        value = reference.values[statement.name][place : place + 1]
        latents[statement.name] = value[0, 0] if statement.above else value
    with torch.random.fork_rng(devices=[]):
        given = pyro.condition(program, data=latents)
        trace = pyro.poutine.trace(given).get_trace(program.x, program.y)
    trace.compute_log_prob()
    parts = [
        node["log_prob_sum"]
        for name, node in trace.nodes.items()
        if node["type"] == "sample"
        and not node["infer"].get("penalty")
        and not name.endswith("_unobserved")
    ]
    return torch.stack([torch.as_tensor(part).double() for part in parts]).sum()


# Faults of the library, which the programs must notice


@dataclass(frozen=True)
class Break:
    """A fault put into a function of the library, and kinds of programs that must notice it.

    Args:
        where: "module:function" or "module:Class.method".
        old, new: text of its source, which is there once, and what takes its place.
        kinds: of programs, of which at least one is noticed within `SEEDS` seeds each.
    """

    where: str
    old: str
    new: str
    kinds: tuple[str, ...]


SEEDS = 12
LISTS = "lexppl.inference.objective.listed_latents"
BREAKS = [
    Break(
        f"{LISTS}:ListedLatents.log_prior", "site.name not in self.values", "True", ("all rows",)
    ),
    Break(f"{LISTS}:joint_values", "% len(support)", "% 1", ("groups by a column of x",)),
]


def put(broken: Break, patch):
    """Put a fault into a function, wherever it has been imported."""
    module, _, path = broken.where.partition(":")
    holder = importlib.import_module(module)
    *owners, name = path.split(".")
    for owner in owners:
        holder = getattr(holder, owner)
    function = inspect.unwrap(inspect.getattr_static(holder, name))
    function = getattr(function, "__func__", getattr(function, "fget", function))
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(broken.old) == 1, (
        f"{broken.old!r} is {source.count(broken.old)} times there"
    )
    lines = source.replace(broken.old, broken.new).splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith(("def ", "@")))
    while lines[first].startswith("@"):
        first += 1
    made = {}
    exec(
        "\n".join(["from __future__ import annotations", *lines[first:]]),
        function.__globals__,
        made,
    )
    patch.setattr(function, "__code__", made[name].__code__)


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: f"{broken.where} {broken.old}")
def test_a_break_is_noticed(broken, monkeypatch):
    for seed in range(SEEDS):
        for name in broken.kinds:
            program = posterior_program(name, seed)
            with monkeypatch.context() as patch:
                put(broken, patch)
                noticed = missing(program, verdict(program))
            if noticed is not None:
                assert missing(program, verdict(program)) is None, "it is so without the break"
                return
    pytest.fail("no program notices it")
