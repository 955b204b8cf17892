"""Mutation testing: small faults of lexppl drawn by seed, and the share caught by room.

Four commands, from the repository's root; files of results stay outside it::

    python tests/mutations.py draw --seed 33 --count 60 --out mutations.json
    python tests/mutations.py coverage --mutations mutations.json --out coverage.json
    python tests/mutations.py run --mutations mutations.json --coverage coverage.json --out out.json
    python tests/mutations.py compare before.json after.json

``draw`` lists mutations of six kinds, in turn: a comparison negated, a constant changed, a sign or
operator changed, a statement dropped, arguments swapped, and an index or bound off by one.
``coverage`` runs the complete suite once and notes which tests execute the changed lines, a
fixture's lines counting for each test that uses it. ``run`` applies each mutation to a copy of the
tree and runs the tests that execute its line, those of the mirrored folder and the shortest first,
until one fails or four minutes have passed; ``--tier default`` leaves out what the README's command
leaves out, and a run that was stopped goes on where it was. ``compare`` prints what one run caught
and another missed.

cosmic-ray and mutmut neither drop statements nor swap arguments, and run one command for every
mutation; the operators here are few enough to be read.
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 240.0
KINDS = ("comparison", "constant", "sign", "dropped", "swapped", "off_by_one")
NEGATED = {
    ast.Lt: ("<", ">="), ast.LtE: ("<=", ">"), ast.Gt: (">", "<="), ast.GtE: (">=", "<"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
SHIFTED = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")}
OPERATORS = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
}  # fmt: skip

Edit = tuple[str, int, int, str]
"""Kind, first and last byte in the file, and the text that takes their place."""


def edits(source: str) -> Iterator[Edit]:
    """Every mutation of a file's function bodies, annotations and defaults left out."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def begin(node: Any) -> int:
        return starts[node.lineno - 1] + node.col_offset

    def end(node: Any) -> int:
        return starts[node.end_lineno - 1] + node.end_col_offset

    data = source.encode()

    def between(left: Any, right: Any, old: str, new: str) -> tuple[int, int, str]:
        text = data[end(left) : begin(right)].decode()
        return (
            end(left),
            begin(right),
            re.sub(re.escape(old).replace(r"\ ", r"\s+"), new, text, count=1),
        )

    bodies = [
        statement
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in function.body
    ]
    nodes = {id(node): node for body in bodies for node in ast.walk(body)}
    for node in list(nodes.values()):
        if isinstance(node, ast.JoinedStr):  # its parts have no places of their own before 3.12
            for part in ast.walk(node):
                nodes.pop(id(part), None)
    for node in nodes.values():
        match node:
            case ast.Compare(ops=[op], comparators=[right]):
                if type(op) in NEGATED:
                    yield "comparison", *between(node.left, right, *NEGATED[type(op)])
                if type(op) in SHIFTED:
                    yield "off_by_one", *between(node.left, right, *SHIFTED[type(op)])
            case ast.If(test=test) | ast.IfExp(test=test):
                if not isinstance(test, ast.Compare):
                    text = data[begin(test) : end(test)].decode()
                    yield "comparison", begin(test), end(test), f"(not ({text}))"
            case ast.Constant(value=bool(value)):
                yield "constant", begin(node), end(node), str(not value)
            case ast.Constant(value=int(value)):
                yield "off_by_one", begin(node), end(node), str(value + 1)
            case ast.Constant(value=float(value)):
                yield "constant", begin(node), end(node), repr(value * 2 if value else 1.0)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                yield "sign", begin(node), end(node), data[begin(operand) : end(operand)].decode()
            case ast.BinOp(op=op) if type(op) in OPERATORS:
                yield "sign", *between(node.left, node.right, *OPERATORS[type(op)])
            case ast.Call(args=[first, second, *_]) if not any(
                isinstance(arg, ast.Starred) for arg in node.args[:2]
            ):
                one = data[begin(first) : end(first)].decode()
                two = data[begin(second) : end(second)].decode()
                middle = data[end(first) : begin(second)].decode()
                yield "swapped", begin(first), end(second), two + middle + one
            case ast.Expr(value=ast.Call()) | ast.AugAssign():
                yield "dropped", begin(node), end(node), "pass"
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield "dropped", begin(node), end(node), "pass"


def mutated(data: bytes, edit: dict[str, Any]) -> bytes:
    """The file with one edit."""
    return data[: edit["begin"]] + edit["after"].encode() + data[edit["end"] :]


def draw(root: Path, seed: int, count: int) -> list[dict[str, Any]]:
    """``count`` mutations of ``lexppl``, the kinds in turn, each of a line of its own."""
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for path in sorted((root / "lexppl").rglob("*.py")):
        data = path.read_bytes()
        for kind, begin, end, after in edits(data.decode()):
            lines = {
                "line": data[:begin].count(b"\n") + 1,
                "last_line": data[:end].count(b"\n") + 1,
            }
            place = {"file": str(path.relative_to(root)), **lines, "begin": begin, "end": end}
            before = data[begin:end].decode()
            found[kind].append({**place, "kind": kind, "before": before, "after": after})
    generator = random.Random(seed)
    drawn: dict[tuple[str, int], dict[str, Any]] = {}
    while len(drawn) < count:
        edit = generator.choice(found[KINDS[len(drawn) % len(KINDS)]])
        data = (root / edit["file"]).read_bytes()
        try:
            changed = ast.dump(ast.parse(mutated(data, edit)))
        except SyntaxError:
            continue
        if changed != ast.dump(ast.parse(data)):
            drawn.setdefault((edit["file"], edit["line"]), {"number": len(drawn), **edit})
    return list(drawn.values())


class TestsByLine:
    """A pytest plugin: the tests and fixtures that execute each line, each test's time and tier."""

    def __init__(self, folder: Path, files: set[str]) -> None:
        import coverage

        include = [str(ROOT / file) for file in files]
        self.coverage = coverage.Coverage(
            data_file=str(folder / "coverage"), include=include, config_file=False
        )
        self.coverage.start()
        self.context = "import"
        self.log = (folder / "tests.jsonl").open("w")

    def switch(self, context: str) -> str:
        self.context, left = context, self.context
        self.coverage.switch_context(context)
        return left

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        left = self.switch(item.nodeid)
        yield
        self.switch(left)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            yield
            return
        left = self.switch(f"fixture {fixturedef.baseid} {fixturedef.argname}")
        yield
        self.switch(left)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Iterator[None]:
        outcome = yield
        report = outcome.get_result()
        definitions = getattr(item, "_fixtureinfo", None)
        names = definitions.name2fixturedefs.items() if definitions else ()
        entry = {
            "test": item.nodeid,
            "seconds": report.duration,
            "passed": report.outcome == "passed",
            "complete": item.get_closest_marker("complete") is not None,
            "fixtures": [f"fixture {found[-1].baseid} {name}" for name, found in names],
        }
        self.log.write(json.dumps(entry) + "\n")
        self.log.flush()

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        self.coverage.save()


def pytest_configure(config: Any) -> None:
    """Read by pytest under ``-p tests.mutations``, in the main process and in each worker."""
    folder = os.environ.get("LEXPPL_MUTATIONS")
    if folder is None:
        return
    files = set(json.loads((Path(folder) / "files.json").read_text()))
    config.pluginmanager.register(TestsByLine(Path(folder), files), "tests by line")


def measure(mutations: list[dict[str, Any]], options: list[str], folder: Path) -> dict[str, Any]:
    """The tests of each mutation's lines, and each test's seconds, outcome and tier."""
    import coverage

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "files.json").write_text(json.dumps(sorted({edit["file"] for edit in mutations})))
    environment = {**os.environ, "LEXPPL_MUTATIONS": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "tests.mutations", *options]
    subprocess.run(command, cwd=ROOT, env=environment, check=False)
    tests: dict[str, dict[str, Any]] = {}
    users = defaultdict(set)
    for entry in map(json.loads, (folder / "tests.jsonl").read_text().splitlines()):
        for fixture in entry.pop("fixtures"):
            users[fixture].add(entry["test"])
        test = tests.setdefault(entry["test"], {**entry, "seconds": 0.0, "passed": True})
        test["seconds"] += entry["seconds"]
        test["passed"] &= entry["passed"]
    data = coverage.CoverageData(str(folder / "coverage"))
    data.read()
    lines: dict[str, list[str]] = {}
    for edit in mutations:
        contexts = data.contexts_by_lineno(str(ROOT / edit["file"]))
        found: set[str] = set()
        for line in range(edit["line"], edit["last_line"] + 1):
            for context in contexts.get(line, ()):
                found |= users[context] if context.startswith("fixture ") else {context}
        lines[str(edit["number"])] = sorted(found & tests.keys())
    return {"tests": tests, "lines": lines}


def ordered(edit: dict[str, Any], coverage: dict[str, Any], tier: str) -> list[str]:
    """The tests to run: short ones first, and those of the mirrored folder before others."""
    tests = coverage["tests"]
    names = [
        name
        for name in coverage["lines"][str(edit["number"])]
        if tests[name]["passed"] and (tier == "complete" or not tests[name]["complete"])
    ]
    words = set(re.split(r"[/_.]", edit["file"]))

    def rank(name: str) -> tuple[bool, int, float]:
        alike = len(words & set(re.split(r"[/_.]", name.partition("::")[0])))
        return tests[name]["seconds"] > 5, -alike, tests[name]["seconds"]

    return sorted(names, key=rank)


def attempt(
    edit: dict[str, Any], names: list[str], tests: dict[str, Any], tree: Path
) -> dict[str, Any]:
    """Whether a test fails of the mutation: the first that does, and the seconds it took."""
    chosen, predicted = [], 0.0
    for name in names:
        chosen.append(name)
        predicted += tests[name]["seconds"]
        if predicted > SECONDS:
            break
    result = {**edit, "covering": len(names), "caught": False, "by": None, "seconds": 0.0}
    if not chosen:
        return result
    path = tree / edit["file"]
    original = path.read_bytes()
    path.write_bytes(mutated(original, edit))
    (tree / "names.txt").write_text("\n".join(chosen))
    start = time.monotonic()
    try:
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-m", "", "--tb=line",
             "-p", "no:cacheprovider", "-p", "no:randomly", "@names.txt"],
            cwd=tree, env={**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as stopped:
        output = stopped.stdout or b""
        text = output.decode(errors="replace") if isinstance(output, bytes) else output
        result["stopped"] = True
        result["caught"] = "FAILED" in text
    else:
        result["caught"] = run.returncode != 0
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", run.stdout, re.MULTILINE)
        result["by"] = failed[1] if failed else run.stdout[-300:] if run.returncode else None
    finally:
        path.write_bytes(original)
    result["seconds"] = round(time.monotonic() - start, 1)
    return result


def run(mutations: list[dict[str, Any]], coverage: dict[str, Any], tier: str, out: Path) -> None:
    """Write to ``out``, mutation by mutation, which of them a test catches, and print the share."""
    done: list[dict[str, Any]] = json.loads(out.read_text()) if out.exists() else []
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv*", ".mypy_cache"))
        for edit in mutations[len(done) :]:
            done.append(attempt(edit, ordered(edit, coverage, tier), coverage["tests"], tree))
            out.write_text(json.dumps(done, indent=1))
            print(row(done[-1]), flush=True)
    rooms = defaultdict(list)
    for result in done:
        rooms["/".join(Path(result["file"]).parts[:2])].append(result["caught"])
    for name, caught in sorted(rooms.items()):
        print(f"{name:24} {sum(caught)} of {len(caught)} caught")
    print(f"{'all':24} {sum(result['caught'] for result in done)} of {len(done)} caught")


def row(result: dict[str, Any]) -> str:
    """A result in one line."""
    before = " ".join(result["before"].split())[:40]
    after = " ".join(result["after"].split())[:40]
    caught = f"caught by {result['by']}" if result["caught"] else "MISSED"
    return (
        f"{result['number']:3} {result['file']}:{result['line']} {result['kind']}: {before!r} -> "
        f"{after!r}: {caught} ({result['covering']} tests, {result['seconds']} s)"
    )


def compare(before: Path, after: Path) -> None:
    """Print which mutations caught before are missed after."""
    old, new = (json.loads(path.read_text()) for path in (before, after))
    caught = [(one, other) for one, other in zip(old, new, strict=False) if one["caught"]]
    missed = [other for _, other in caught if not other["caught"]]
    print(
        f"{len(caught) - len(missed)} of {len(caught)} that {before} caught are caught in {after}"
    )
    for result in missed:
        print(row(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    drawing, measuring, running, comparing = map(
        commands.add_parser, ("draw", "coverage", "run", "compare")
    )
    drawing.add_argument("--seed", type=int, required=True)
    drawing.add_argument("--count", type=int, default=60)
    measuring.add_argument("--options", nargs=argparse.REMAINDER, default=["-m", ""])
    measuring.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "mutations")
    running.add_argument("--coverage", type=Path, required=True)
    running.add_argument("--tier", choices=("default", "complete"), default="complete")
    for command in (measuring, running):
        command.add_argument("--mutations", type=Path, required=True)
    for command in (drawing, measuring, running):
        command.add_argument("--out", type=Path, required=True)
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.command == "compare":
        compare(given.before, given.after)
    elif given.command == "draw":
        given.out.write_text(json.dumps(draw(ROOT, given.seed, given.count), indent=1))
    else:
        mutations = json.loads(given.mutations.read_text())
        if given.command == "coverage":
            found = measure(mutations, given.options, given.folder)
            given.out.write_text(json.dumps(found))
        else:
            run(mutations, json.loads(given.coverage.read_text()), given.tier, given.out)


if __name__ == "__main__":
    main()
