"""What commands write: the files of `lexppl explain` by their names, and figures as JSON."""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from lexppl.sealed_files import output_file

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
    """Within, what writes figures to the file of --out, with the words that were typed; nothing is
    written where there is none.

    Raises:
        FileExistsError, OSError: a file that is there already, or cannot be written.
    """
    if options.out is None:
        yield lambda figures: None
        return
    with output_file(options.out, options.overwrite) as file:
        yield lambda figures: file.write_text(
            json.dumps({"command": list(command), **figures}, indent=1) + "\n", encoding="utf-8"
        )
