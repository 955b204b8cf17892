"""Programs of masks by rows, groups and all rows: numbers after the bound against brute force.

Each kind has entries that must be right and entries that must refuse; the others may refuse in a
sentence that names a site, and are never wrong.
"""

import importlib
import inspect
import itertools
import math
import sys
import textwrap
from dataclasses import dataclass

import pyro
import pyro.distributions as dist
import pytest
import torch

from lexppl.effects import imputation_particles, mask_particles
from lexppl.evaluation import log_marginal_likelihood
from lexppl.explanation import explain
from tests.programs.odd_check import raised_by_lexppl
from tests.programs.posterior_check import Reference, missing, posterior_program, survey, verdict
from tests.programs.posterior_programs import KINDS, PosteriorProgram

DEFAULT, COMPLETE = 15, 23
"""Programs of each kind in the default tier, of which each is judged by half of the entries, and
further ones, by all, in the complete tier."""
NOT_LISTED = {"an improper prior", "rows, drawn imputations", "shared masks, drawn imputations"}


def test_there_are_as_many_programs_as_is_said():
    assert DEFAULT * len(KINDS) >= 600
    assert COMPLETE * len(KINDS) >= 900


@pytest.mark.parametrize("name", KINDS)
def test_600_programs_are_right_or_refused(name):
    required(name, range(DEFAULT), by_turns=True)


@pytest.mark.complete
@pytest.mark.parametrize("name", KINDS)
def test_900_further_programs_are_right_or_refused(name):
    required(name, range(DEFAULT, DEFAULT + COMPLETE))


def required(name, seeds, by_turns=False):
    """That programs of a kind are as the kind requires; shares are printed."""
    outcomes, by_entry, lacking = survey(name, seeds, by_turns)
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


# Programs beyond brute force, each with a function that returns what is wrong of it, or None


def coin(chance):
    return dist.Bernoulli(torch.full((1,), chance).double()).to_event(1)


def many_groups():
    """Two rows in each of 17 groups: the sum over groups of log-sums; all masks are too many."""
    groups = 17
    x = torch.arange(2 * groups).remainder(groups).unsqueeze(-1).double()
    y = torch.randn(2 * groups, generator=torch.Generator().manual_seed(0)).double()

    def program(x, y=None):
        with mask_particles():
            with pyro.plate("groups", groups, dim=-1):
                z = pyro.sample("mask", coin(0.3))
            with pyro.plate("data", len(x), dim=-1):
                pyro.sample("y", dist.Normal(2 * z[..., x[:, 0].long(), 0], 1.0), obs=y)

    mean, chance = torch.tensor([[0.0], [2.0]]), torch.tensor([[0.7], [0.3]]).double()
    joint = dist.Normal(mean, 1.0).log_prob(y).reshape(2, 2, groups).sum(1) + chance.log()
    evidence = log_marginal_likelihood(program, x, y).log
    if abs(evidence - joint.logsumexp(0).sum().item()) > 1e-8:
        return f"evidence {evidence}"
    found = explain(program, x, y, proposals=math.inf)["sample_stats"]
    kept = torch.tensor(found["selection_probability_given_y"].values.ravel())
    return None if torch.allclose(kept.double(), joint.softmax(0)[1], atol=1e-6) else str(kept)


def imputations_of_groups():
    """An imputation that the rows of a group share: their densities multiply before the mean."""
    group = torch.tensor([0, 1, 0, 1, 0])
    x = group.unsqueeze(-1).double()
    y = torch.tensor([1.0, -1.0, 2.0, 0.0, 1.5]).double()

    def program(x, y=None):
        of_groups = pyro.plate("groups", 2, dim=-1)
        with mask_particles():
            with of_groups:
                z = pyro.sample("mask", coin(0.3))
            with imputation_particles():
                with of_groups:
                    t = pyro.sample("hidden", dist.Bernoulli(torch.tensor(0.5).double()))
                with pyro.plate("data", len(x), dim=-1):
                    both = 2 * (z[..., 0] * t)[..., x[:, 0].long()]
                    pyro.sample("y", dist.Normal(both, 1.0), obs=y)

    every = torch.tensor(list(itertools.product([0.0, 1.0], repeat=4))).double()
    z, t = every[:, :2], every[:, 2:]
    log_y = dist.Normal(2 * (z * t)[:, group], 1.0).log_prob(y).sum(-1)
    joint = log_y + dist.Bernoulli(0.3).log_prob(z).sum(-1) - 2 * math.log(2)
    exact, count = joint.logsumexp(0).item(), 4000
    # The masks have the same draws at most: by the square of the mean density given both.
    density = log_y.exp().reshape(4, 4)  # By masks, and by imputations.
    spread = density.std(1, correction=0) / density.mean(1)
    share = joint.reshape(4, 4).logsumexp(1).softmax(0)
    error = float((share * spread).sum()) / math.sqrt(count)
    found = log_marginal_likelihood(program, x, y, imputations=count).log
    return None if abs(found - exact) <= 4 * error else f"{found} in place of {exact} ± {error}"


def a_factor_that_reads_y():
    """What is observed without y, and changes with y, has no posterior given x alone."""
    x, y = torch.ones(3, 1).double(), torch.tensor([0.5, 1.0, 1.5]).double()

    def program(x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            z = pyro.sample("mask", coin(0.3))
            pyro.factor("field", z[..., 0] * (1.0 if y is None else y))
            pyro.sample("y", dist.Normal(z[..., 0], 1.0), obs=y)

    for call in (explain, log_marginal_likelihood):
        try:
            call(program, x, y)
        except ValueError as error:
            if raised_by_lexppl(error) and "'field'" in str(error):
                continue
        return f"{call.__name__} accepts it"
    return None


CASES = {
    "many groups": many_groups,
    "imputations of groups": imputations_of_groups,
    "a factor that reads y": a_factor_that_reads_y,
}


def fault(name, seed):
    """What is wrong of a program of a kind or of a case, or None."""
    if name not in CASES:
        program = posterior_program(name, seed)
        return missing(program, verdict(program))
    try:
        return CASES[name]()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("name", CASES)
def test_a_program_beyond_brute_force_is_right(name):
    assert fault(name, 0) is None


# Faults of the library, which the programs must notice


@dataclass(frozen=True)
class Break:
    """A fault put into a function of the library, and what must notice it.

    Args:
        where: "module:function" or "module:Class.method".
        old, new: text of its source, which is there once, and what takes its place.
        name: a kind of programs, or one of `CASES`.
        seed: of the kind, the first of `SEEDS` seeds of which at least one is noticed.
    """

    where: str
    old: str
    new: str
    name: str
    seed: int = 0


SEEDS = 12
LISTS = "lexppl.inference.objective.listed_latents"
PLATES = "lexppl.inference.mask_plates"
DEPENDS = "lexppl.inference.objective.dependence"
RUNS = "lexppl.inference.objective.program"
DRAWS = "lexppl.explanation.row_draws"
PLAN = "lexppl.explanation.mask_sampler"
FOUND = "lexppl.explanation.program_sites"
TABLES = "lexppl.evaluation.bayes.mask_table"
CHECK = f"{PLATES}:_TreeCheck"
GIVEN = "(site.is_deterministic or site.is_penalty)"
X, RING, NEIGHBOURS = "rows, x observed", "groups in a ring", "rows see neighbours"
THREE, ZEROS = "an event of three of many groups", "structural zeros of the likelihood"
READS_ANOTHER, A_FACTOR = "a group's prior reads another group", "a factor that reads y"
MARKOV, A_SIZE = "rows, scalar masks in a markov loop", "rows, a size above k-subsets"
# What is done to the list of masks.
OF_LISTS = [
    (f"{LISTS}:ListedLatents.log_prior", "site.name not in self.values", "True", "all rows"),
    (f"{LISTS}:joint_values", "support[index]", "support[0 * index]", "groups by a column of x"),
]
# To the check that an entry's terms depend on its own latents alone.
OF_CHECKS = [
    (f"{PLATES}:_confirmed", "not below or", "True or", RING),
    (f"{PLATES}:MaskTree.of", "and imputed <= rows", "", "imputations of groups"),
    (f"{CHECK}.with_groups", "(follows.long() << digit)", "0", "many groups"),
    (f"{CHECK}.terms", "if self.exact else ()", "if False else ()", READS_ANOTHER),
    (f"{CHECK}.holds", "self.shifted(d, s)", "self.base", "a rare pair of many values"),
    (f"{CHECK}.holds", "[self._jointly(tree)]", "[]", THREE, 1),
    (
        f"{CHECK}._jointly",
        "(number, n), device=device)",
        "(number, 1), device=device).expand(-1, n)",
        THREE,
        1,
    ),
    (f"{CHECK}._is_as_known", ".all()", ".any()", RING),
    (f"{CHECK}._is_as_known", "[(*places, entry)]", "[(*index, entry)]", RING),
    (f"{PLATES}:_same", "** 0.55", "** 0.02", "another group in a rare event", 2),
    (
        f"{PLATES}:_same",
        "close, close, equal_nan=True)",
        "close, close, equal_nan=True) | own.isneginf() | known.isneginf()",
        ZEROS,
        8,
    ),
    (
        f"{PLATES}:MaskTree.refuse_missing",
        "sorted({self.levels[name] for name in listed.names})",
        "()",
        A_SIZE,
        1,
    ),
    (f"{DEPENDS}:refuse_dependent_rows", "if dependent:", "if False:", NEIGHBOURS),
    (f"{DEPENDS}:refuse_dependent_rows", "== turn % 2", "== 1", NEIGHBOURS, 4),
    (f"{DEPENDS}:refuse_dependent_rows", "sites_at(alike)", "sites_at({})", NEIGHBOURS, 24),
]
# To the rule that everything after a fit is given what is observed without y.
OF_WHAT_IS_GIVEN = [
    (f"{DEPENDS}:observed_without_y", f"site.observed and not {GIVEN}", "False", X),
    (f"{DEPENDS}:observed_without_y", "alike[0] and not all(alike)", "False", A_FACTOR),
    (f"{RUNS}:ParticleTrace.weighing", "and s.name not in names", "", X),
    (f"{RUNS}:ParticleTrace.weighing", "s.name not in names", "s.name in names", X),
    (f"{DRAWS}:without_new_responses", "if drawn else run", "if False else run", X),
    (f"{DRAWS}:posterior_draws", "if of_beside:", "if False:", X),
    (f"{DRAWS}:posterior_draws", "run.weighing(beside)", "run", X),
    (f"{PLAN}:MaskSampler.are_weighed", "bool(self.sites.beside)", "False", X),
    (f"{PLAN}:MaskSampler.are_weighed", "source == GIVEN_XY or", "", "rows"),
    (f"{PLAN}:MaskSampler.drawn", "y if source == GIVEN_XY else None", "y", X),
    (f"{PLAN}:MaskSampler._weighed", "if args[1] is None else self.sites.beside", "", X),
    (f"{FOUND}:sites_of", "beside & inside", "frozenset()", X),
    (f"{FOUND}:sites_of", "not is_response(site.name)", "True", MARKOV, 6),
    (f"{TABLES}:_matched", "observed_without_y(program)", "frozenset()", X),
    (f"{TABLES}:_row_likelihood", "log_beside is None", "True", "no mask"),
    (f"{TABLES}:mask_table", "if beside:", "if False:", X, 1),
    (f"{TABLES}:mask_table", "likelihood - log_beside)", "likelihood)", X, 1),
    (f"{TABLES}:row_log_likelihood", "- summed(run.weighing(beside))", "", X),
]
BREAKS = [Break(*row) for row in OF_LISTS + OF_CHECKS + OF_WHAT_IS_GIVEN]


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


@pytest.mark.complete(but=12)
@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: f"{broken.where} {broken.old}")
def test_a_break_is_noticed(broken, monkeypatch):
    for seed in range(broken.seed, broken.seed + SEEDS):
        with monkeypatch.context() as patch:
            put(broken, patch)
            noticed = fault(broken.name, seed)
        if noticed is not None:
            assert fault(broken.name, seed) is None, "it is so without the break"
            return
    pytest.fail("no program notices it")
