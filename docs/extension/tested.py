"""`{tested-by}`: the tests that check the formula above, each of which must exist."""

import ast
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]


def setup(app: Any) -> None:
    app.add_directive("tested-by", TestedBy)


def is_there(test: str, root: Path = ROOT) -> bool:
    """Whether `tests/file.py::name`, or `…::Class::name`, is defined."""
    path, *names = test.split("::")
    file = root / path
    if not names or not file.is_file():
        return False
    body = ast.parse(file.read_text(encoding="utf-8")).body
    for name in names:
        found = [
            node
            for node in body
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
        ]
        if not found:
            return False
        body = found[0].body
    return True


class TestedBy(SphinxDirective):
    """One test a line, as pytest names them."""

    has_content = True

    def run(self) -> list[Any]:
        tests = [line.strip() for line in self.content if line.strip()]
        for test in tests:
            if not is_there(test):
                raise self.error(f"no test is called {test}")
        line = nodes.paragraph(classes=["tested-by"])
        line += nodes.Text("Checked by ")
        for number, test in enumerate(tests):
            if number:
                line += nodes.Text(", ")
            line += nodes.literal(test, test)
        return [line]
