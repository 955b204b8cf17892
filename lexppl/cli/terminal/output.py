"""What commands write and print: files by name, JSON, progress, tables."""

from __future__ import annotations

import argparse
import json
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from lexppl.sealed_files import output_file

if TYPE_CHECKING:
    import pandas as pd

POSTERIOR, IMPORTANCE, REPORT = "posterior.nc", "importance.csv", "report.html"
EXPLAINER, ENCODING, PATH = "explainer", "encoding.json", "penalty_path.csv"
DIRECTIONS, ROWS, GROUPS = "directions.csv", "rows.csv", "groups.csv"
VOCABULARY, TEXTS = "vocabulary.json", "texts.json"
MODEL = (EXPLAINER, ENCODING, VOCABULARY, TEXTS)
"""What is written of the model, before what follows from it."""
OUTPUTS = (*MODEL, POSTERIOR, IMPORTANCE, REPORT, PATH, DIRECTIONS, ROWS, GROUPS)


@contextmanager
def json_output(
    options: argparse.Namespace, command: Sequence[str]
) -> Iterator[Callable[[Mapping[str, Any]], object]]:
    """A writer of figures, with the command, to the file of --out, if there is one."""
    if options.out is None:
        yield lambda figures: None
        return
    with output_file(options.out, options.overwrite) as file:
        yield lambda figures: file.write_text(
            json.dumps({"command": list(command), **figures}, indent=1) + "\n", encoding="utf-8"
        )


def records(table: pd.DataFrame) -> list[dict[Any, Any]]:
    """Lines of a table for JSON, its index first; None for what is missing."""
    flat = table.reset_index()
    found: list[dict[Any, Any]] = flat.astype(object).where(flat.notna(), None).to_dict("records")
    return found


def show_progress(message: str, quiet: bool = False) -> None:
    """Print one line of progress on standard error."""
    if not quiet:
        print(f"lexppl: {message}", file=sys.stderr, flush=True)


def warn(message: str) -> None:
    """Print one line of warning on standard error."""
    print(f"lexppl: warning: {message}", file=sys.stderr, flush=True)


def progress_of(options: argparse.Namespace) -> bool | Literal["lines"]:
    """How fits show their progress: not, by a bar, or by lines."""
    if options.quiet:
        return False
    return "lines" if getattr(options, "epoch_lines", False) else True


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """Align columns: the first to the left, the others to the right."""
    # A name may have line breaks.
    table = [head, *([" ".join(cell.splitlines()) for cell in line] for line in rows)]
    widths = [max(_width(line[c]) for line in table) for c in range(len(head))]
    lines = []
    for line in table:
        cells = [
            cell + " " * (w - _width(cell)) if c == 0 else " " * (w - _width(cell)) + cell
            for c, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def _width(text: str) -> int:
    return sum(1 for character in text if not unicodedata.combining(character))
