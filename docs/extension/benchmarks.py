"""Tables of the benchmarks' records, and the rows of them that are a system's.

The figures come from `benchmarks/results/` by `benchmarks/tables.py` at each build; none is copied.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]


def setup(app: Any) -> None:
    app.add_directive("benchmark", Benchmark)
    app.add_directive("system-row", SystemRow)
    app.add_directive("system-figures", SystemFigures)


@cache
def tables() -> dict[str, str]:
    """The benchmarks' tables by name, as Markdown with a line on the machine below."""
    from tables import RESULTS, made  # noqa: PLC0415

    return made(RESULTS)


@cache
def headings() -> dict[str, str]:
    """The heading in `docs/figures.md` under which each table stands."""
    text = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    return {
        name: heading
        for heading, name in re.findall(r"^## (.+)\n\n```\{benchmark\} (\S+)$", text, re.MULTILINE)
    }


def slug(heading: str) -> str:
    """The heading's anchor, as GitHub and MyST make it."""
    return re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-")


def rows_of(table: str, system: str) -> str:
    """The rows of a table that are a system's, under the table's head; nothing where none is."""
    lines = [
        line for line in table.split("\n\n", maxsplit=1)[0].splitlines() if line.startswith("|")
    ]
    kept = [line for line in lines[2:] if any(_is(cell, system) for cell in line.split("|"))]
    return "\n".join([*lines[:2], *kept]) if kept else ""


def _is(cell: str, system: str) -> bool:
    cell = cell.strip().replace("*", "").replace("`", "")
    return cell == system or cell.startswith((f"{system}, ", f"{system} ", f"{system}("))


class _Markdown(SphinxDirective):
    """A directive whose answer is Markdown."""

    def parsed(self, text: str) -> list[Any]:
        text = text.replace(" ± ", "\u00a0±\u00a0")
        node = nodes.container(classes=["figures"])
        self.state.nested_parse(StringList(text.splitlines(), self.env.docname), 0, node)
        return [node]

    def source_of(self, name: str) -> str:
        depth = "../" * self.env.docname.count("/")
        heading = headings()[name]
        return f"[{heading}]({depth}figures.md#{slug(heading)})"


class Benchmark(_Markdown):
    """A whole table by its name in `benchmarks/tables.py`; `:rows:` keeps those with a word."""

    required_arguments = 1
    option_spec = {"rows": directives.unchanged}  # noqa: RUF012

    def run(self) -> list[Any]:
        name = self.arguments[0]
        if name not in tables():
            raise self.error(f"no table is called {name}; they are {sorted(tables())}")
        table, _, about = tables()[name].partition("\n\n")
        if "rows" in self.options:
            table = rows_of(table, self.options["rows"])
            if not table:
                raise self.error(f"no row of {name} is {self.options['rows']}'s")
        if self.env.docname != "figures":
            about = f"{self.source_of(name)}: {about}"
        return self.parsed(f"{table}\n\n{about}")


class SystemRow(_Markdown):
    """A system's row of `systems.md`, one property a line."""

    required_arguments = 1

    def run(self) -> list[Any]:
        lines = (ROOT / "docs" / "systems.md").read_text(encoding="utf-8").splitlines()
        cells = [
            [c.strip() for c in line.strip("|").split("|")] for line in lines if line[:1] == "|"
        ]
        system = self.arguments[0]
        found = [row for row in cells if row[0] == f"`{system}`"]
        if len(found) != 1:
            raise self.error(f"systems.md has no row of {system}")
        pairs = zip(cells[0][1:], found[0][1:], strict=True)
        rows = "\n".join(f"| {name} | {value} |" for name, value in pairs)
        return self.parsed(f"| part | here |\n| --- | --- |\n{rows}")


class SystemFigures(_Markdown):
    """Every table's rows that are a system's, the papers' figures beside them."""

    required_arguments = 1

    def run(self) -> list[Any]:
        system = self.arguments[0]
        parts = []
        for name, table in tables().items():
            if rows := rows_of(table, system):
                about = table.partition("\n\n")[2].replace("\n", " ")
                parts.append(f"**{self.source_of(name)}**\n\n{rows}\n\n{about}")
        if not parts:
            return self.parsed("No benchmark has figures of it yet.")
        return self.parsed("\n\n".join(parts))
