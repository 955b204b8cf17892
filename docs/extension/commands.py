"""`{command-help}`: what a command prints with `--help`."""

import contextlib
import io
import os
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective


def setup(app: Any) -> None:
    app.add_directive("command-help", CommandHelp)


class CommandHelp(SphinxDirective):
    """Its argument is the command after `lexppl`, or nothing."""

    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[Any]:
        words = self.arguments[0].split() if self.arguments else []
        text = f"$ lexppl {' '.join([*words, '--help'])}\n\n{printed([*words, '--help'])}"
        block = nodes.literal_block(text, text)
        block["language"] = "text"
        return [block]


def printed(words: list[str]) -> str:
    """The help, at a width of 88 whatever the terminal's."""
    from lexppl.cli import main  # noqa: PLC0415

    kept = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "88"
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            main(words)
    finally:
        if kept is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = kept
    return out.getvalue().rstrip()
