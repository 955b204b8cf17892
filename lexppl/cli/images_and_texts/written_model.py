"""The fitted explainer as files, with what reads texts as it does."""

import json
from pathlib import Path

from lexppl.cli.images_and_texts.divided_rows import DividedRows
from lexppl.cli.outputs import EXPLAINER, TEXTS, VOCABULARY
from lexppl.cli.terminal.signals import deferred_interrupts
from lexppl.data import TextDataset
from lexppl.inference import FitResult
from lexppl.saving import save


def write_model(folder: Path, result: FitResult, source: DividedRows, keep: str | None) -> None:
    """Write what loads the explainer again, whole: Ctrl-C waits until it is there.

    Args:
        folder: where.
        result: the fit.
        source: the rows, of texts with their vocabulary.
        keep: which end of a longer text is kept, or None for none.

    Raises:
        OSError: it cannot be written.
        KeyboardInterrupt: after it was written.
    """
    with deferred_interrupts():
        save(result, folder / EXPLAINER)
        if isinstance(source.train, TextDataset):
            source.train.vocabulary.save(folder / VOCABULARY)
            told = {"length": source.train.length, "keep": keep}
            (folder / TEXTS).write_text(json.dumps(told) + "\n", encoding="utf-8")
