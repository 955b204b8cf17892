"""What stands above what: no room imports one that stands above it."""

import ast
from pathlib import Path

import pytest

from tests.refusals import over

ROOT = Path(__file__).parent.parent / "lexppl"
ORDER = {
    "argument_checks": set(),
    "threads": set(),
    "extras": set(),
    "summary": set(),
    "sealed_files": set(),
    "fingerprint": set(),
    "workers": set(),
    "choices": set(),
    "distributions": set(),
    "effects": set(),
    "configured": set(),
    "data": {"configured"},
    "inference": {"distributions", "effects", "configured"},
}
ORDER["models"] = {*ORDER["inference"], "data"}
ORDER["systems"] = {*ORDER["models"], "models", "inference"}
ORDER["explanation"] = {*ORDER["systems"], "systems", "arviz_compatibility"}
ORDER["evaluation"] = {*ORDER["explanation"], "explanation"}
ORDER["tabular"] = {*ORDER["evaluation"], "evaluation", "saving", "plots"}
ORDER["compare"] = {*ORDER["tabular"], "tabular"}
ORDER["report"] = {*ORDER["tabular"], "tabular"}
ORDER["cli"] = {*ORDER["compare"], "compare", "report"}
FOR_ALL = {
    "argument_checks",
    "choices",
    "threads",
    "extras",
    "sealed_files",
    "summary",
    "fingerprint",
    "workers",
}
ORDER = {room: allowed | (FOR_ALL - {room}) for room, allowed in ORDER.items()}
"""What each room may import."""

ROOMS = {
    "inference": {
        "objective": set(),
        "estimators": {"objective"},
        "posterior": {"objective", "estimators"},
        "training": {"objective", "estimators", "posterior"},
    },
    "models": {
        "imputers": set(),
        "trees": set(),
        "architectures": {"imputers"},
    },
    "explanation": {"reading": set()},
    "report": {"results": set()},
    "cli": {"options": set()},
}
"""What the rooms within a room may import, besides the files that stand in none of them."""


def imported(source):
    """Names of the project's modules that a source imports, wherever it does."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("lexppl.")}


def breaches(sources, order=ORDER, above="lexppl."):
    """`{file: what it may not import}` for sources by file, as `models/lex.py`."""
    found = {}
    for file, source in sources.items():
        room = file.split("/")[0].removesuffix(".py")
        if room not in order:
            continue
        rooms = {
            name.removeprefix(above).split(".")[0]
            for name in imported(source)
            if name.startswith(above)
        }
        wrong = {r for r in rooms if r in order} - order[room] - {room}
        if wrong:
            found[file] = wrong
    return found


def sources(folder):
    return {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in folder.rglob("*.py")}


def test_no_room_imports_what_stands_above_it():
    every = sources(ROOT)
    assert {name.split("/")[0].removesuffix(".py") for name in every} >= set(ORDER)
    assert not breaches(every)


@pytest.mark.parametrize("room", ROOMS)
def test_the_rooms_within_a_room_have_an_order_too(room):
    every = sources(ROOT / room)
    assert {name.split("/")[0] for name in every if "/" in name} == set(ROOMS[room])
    assert not breaches(every, ROOMS[room], f"lexppl.{room.replace('/', '.')}.")


@over(
    "from lexppl.inference import fit",
    "import lexppl.inference.training.fit",
    "def later():\n    from lexppl.systems.l2x import l2x",
    "from lexppl.cli import main",
)
def test_a_breach_is_noticed(line):
    source = (ROOT / "models" / "lex.py").read_text(encoding="utf-8")
    assert set(breaches({"models/lex.py": f"{source}\n{line}\n"})) == {"models/lex.py"}
