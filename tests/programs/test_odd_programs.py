"""Programs that went astray: each is refused by a site's name, or is what brute force says."""

import random
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from lexppl.inference.objective import grammar
from tests.programs.brute_force import Run
from tests.programs.odd_check import Verdict, first_look, raised_by_lexppl, verdict
from tests.programs.odd_programs import (
    IMPUTATIONS,
    MASKS,
    OddProgram,
    Statement,
    odd_program,
    right_program,
)

SHARDS, PROGRAMS = 6, 50
ACCEPTED = ("right", "large")


def survey(seeds):
    """What came of the programs of some seeds; none may be silently wrong."""
    found = Counter()
    for seed in seeds:
        program = odd_program(seed)
        one = verdict(program, seed)
        found[one.outcome] += 1
        assert one.outcome not in ("wrong", "unnamed"), (seed, one, program)
    return found


@pytest.mark.parametrize(
    ("module", "file", "ours"),
    [
        ("lexppl.models.lex", "/home/ann/explainers/models/lex.py", True),
        ("pyro.infer.elbo", "/home/ann/lexppl/.venv/site-packages/pyro/infer/elbo.py", False),
    ],
)
def test_who_raised_an_error_is_read_off_its_module_and_not_its_folder(module, file, ours):
    with pytest.raises(ValueError, match="x") as caught:
        exec(compile("raise ValueError('x')", file, "exec"), {"__name__": module})
    assert raised_by_lexppl(caught.value) == ours


@pytest.mark.parametrize("shard", range(SHARDS))
def test_300_odd_programs_are_refused_or_right(shard):
    assert survey(range(shard * PROGRAMS, (shard + 1) * PROGRAMS))["right"] >= PROGRAMS // 8


@pytest.mark.complete
@pytest.mark.parametrize("shard", range(10))
def test_1500_further_odd_programs_are_refused_or_right(shard):
    survey(range(300 + 150 * shard, 450 + 150 * shard))


def test_right_programs_are_not_refused():
    outcomes = Counter()
    for seed in range(60):
        one = verdict(right_program(random.Random(seed)), seed, gradient=seed % 4 == 0)
        assert one.outcome in ACCEPTED, (seed, one)
        outcomes[one.outcome] += 1
    assert outcomes["right"] >= 40


# The rows of the table of wrong answers, each refused or right

ROWS = OddProgram(
    "by hand",
    (Statement("mask", "latent", ("data", MASKS), 1), Statement("y", "observed", ("data", MASKS))),
    sizes={"data": 2, "group": 2},
    dims={"data": -1, "group": -1},
)


def by_hand(mask, response, guide=None, **options):
    model = (Statement("mask", "latent", mask, 1), Statement("y", "observed", response))
    drawn = () if guide is None else (Statement("mask", "latent", guide, 1),)
    return replace(ROWS, model=model, guide=drawn, **options)


REFUSED = {
    "a guide outside the particles": (
        by_hand(("data", MASKS), ("data", MASKS), ("data",)),
        "'mask' .*the same plates in both, mask_particles",
    ),
    "the same where shapes agree": (
        by_hand(("data", MASKS), ("data", MASKS), ("data",), masks=1),
        "'mask' is a draw of the guide, in other plates, or of other event dims",
    ),
    "imputations that nothing reads": (
        by_hand(("data", MASKS), ("data", MASKS), imputations=3),
        r"'mask' .*imputations=3.*inside imputation_particles",
    ),
    "masks by group, each row a log": (
        by_hand(("group", MASKS), ("data", MASKS), sizes={"data": 3, "group": 2}),
        r"'mask' .*shared by several logs.*enter mask_particles\(\) before",
    ),
    "one mask for all rows, each a log": (
        by_hand((MASKS,), ("data", MASKS)),
        r"'mask' .*shared by several logs.*enter mask_particles\(\) before",
    ),
    "a plate where imputations are": (
        by_hand(
            ("deep", "data", MASKS),
            ("deep", "data", MASKS),
            sizes={"data": 1, "deep": 2},
            dims={"data": -1, "deep": -3},
        ),
        "plate 'deep' of site 'mask' is a plate, at dim -3",
    ),
    "a response outside the particles, at one mask": (
        replace(
            by_hand(("data", MASKS), ("data", MASKS), masks=1),
            model=(*ROWS.model, Statement("b", "observed", ("data",))),
        ),
        r"'b' has batch shape \(1, 2\), and no plate declares its dims \[-2\]",
    ),
    "a penalty of the guide": (
        replace(
            by_hand(("data", MASKS), ("data", MASKS)),
            guide=(Statement("cost", "penalty", ("data", MASKS)),),
        ),
        "'cost' is a penalty, in the guide",
    ),
}
MENDED = {
    "a guide inside the particles": by_hand(("data", MASKS), ("data", MASKS), ("data", MASKS)),
    "imputations that are drawn": replace(
        ROWS,
        imputations=2,
        sizes={"data": 1},
        model=(
            Statement("mask", "latent", ("data", MASKS), 1),
            Statement("fill", "latent", ("data", MASKS, IMPUTATIONS)),
            Statement("y", "observed", ("data", MASKS, IMPUTATIONS)),
        ),
    ),
    "masks by group in one log": by_hand(
        (MASKS, "group"), (MASKS, "data"), sizes={"data": 3, "group": 2}
    ),
    "spike and slab": by_hand((MASKS,), (MASKS, "data"), sizes={"data": 3}, masks=3),
    "spike and slab with a guide": by_hand((MASKS,), (MASKS, "data"), (MASKS,)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_bound_would_misread(name):
    program, words = REFUSED[name]
    assert first_look(program).outcome == "refused"
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(first_look(program).says)


@pytest.mark.parametrize("name", MENDED)
def test_with_the_mend_it_is_brute_force(name):
    assert verdict(MENDED[name]) == Verdict("right")


def test_another_posterior_is_noticed(monkeypatch):
    program = MENDED["spike and slab"]
    assert verdict(program).outcome == "right"
    monkeypatch.setattr(Run, "posterior", lambda run: (-run.log_joint()).softmax(0))
    found = verdict(program)
    assert found.outcome == "wrong" and found.says.startswith("explain ")


# The table itself


def test_the_documents_hold_the_table():
    lines = [
        f"| {r.kind} | {r.place} | {r.meaning or 'refused: ' + r.mend} |" for r in grammar.GRAMMAR
    ]
    page = Path(__file__).parents[2] / "docs" / "theory" / "objective.md"
    found = [line for line in page.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    assert found[1:] == lines


def test_no_row_is_there_twice():
    places = [(rule.kind, rule.place) for rule in grammar.GRAMMAR]
    assert len(set(places)) == len(places)


BROKEN = [
    ("accepted", grammar.LATENT, grammar.OUTSIDE),
    ("accepted", grammar.LATENT, grammar.SHARED),
    ("accepted", grammar.LATENT, grammar.UNREAD_K),
    ("accepted", grammar.DRAW, grammar.UNREAD_K),
    ("accepted", grammar.DRAW, grammar.OF_OBSERVED),
    ("accepted", grammar.OBSERVED, grammar.OTHER_LOG),
    ("accepted", grammar.COST, grammar.IN_GUIDE),
    ("accepted", grammar.PLATE, grammar.OWN_DIM),
    ("accepted", grammar.SUBSAMPLE, grammar.WITHIN),
    ("left out", grammar.LATENT, grammar.IN_MASKS),
    ("left out", grammar.LATENT, grammar.IN_IMPUTATIONS),
    ("left out", grammar.GUIDED, grammar.IN_MASKS),
    ("left out", grammar.DRAW, grammar.OUTSIDE),
    ("left out", grammar.OBSERVED, grammar.IN_MASKS),
    ("left out", grammar.COST, grammar.IN_MASKS),
]


def of(key):
    """A seed and its odd program; of a name 0 and the refused program."""
    return (0, REFUSED[key][0]) if key in REFUSED else (key, odd_program(key))


@pytest.fixture(scope="module")
def met_by_row():
    """Keys of :func:`of`: the programs whose sites are matched with each row."""
    found = defaultdict(list)
    whole = grammar.matched
    with pytest.MonkeyPatch.context() as patch:
        met = []
        patch.setattr(
            grammar, "matched", lambda k, p, *words: met.append((k, p)) or whole(k, p, *words)
        )
        for key in (*range(SHARDS * PROGRAMS), *REFUSED):
            met.clear()
            first_look(of(key)[1])
            for row in set(met):
                found[row].append(key)
    return found


@pytest.mark.parametrize(("how", "kind", "place"), BROKEN)
def test_a_broken_row_is_noticed(how, kind, place, monkeypatch, met_by_row):
    met = list(map(of, met_by_row[kind, place]))
    assert met
    rows = [rule for rule in grammar.GRAMMAR if (rule.kind, rule.place) != (kind, place)]
    if how == "accepted":
        rows.append(grammar.Rule(kind, place, "nothing is wrong with it"))
        assert any(_wrong(seed, one, rows, monkeypatch) for seed, one in met)
    else:
        right = [one for one in met if first_look(one[1]) is None]
        assert right
        monkeypatch.setattr(grammar, "GRAMMAR", tuple(rows))
        assert first_look(right[0][1]).outcome == "refused"


def _wrong(seed, program, rows, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(grammar, "GRAMMAR", tuple(rows))
        return verdict(program, seed, gradient=False).outcome == "wrong"
