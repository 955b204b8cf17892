"""The fits of a sweep in a folder, from which it is resumed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lexppl.atomic_output import output_file, write_through
from lexppl.inference import FitResult
from lexppl.saving import load, save

ROW = "row.json"
"""Written last: a fit without it is not there."""
EXPLAINER = "explainer"
NOT_SAVED = "not saved"


@dataclass(frozen=True)
class KeptFits:
    """A folder with a fit for each setting that has ended, by a hash of the setting.

    Args:
        folder: made with the first fit.
    """

    folder: Path

    def row(self, key: str) -> dict[str, Any] | None:
        """What a fit's row of the table says, or None where it has not ended.

        Args:
            key: the setting's hash.

        Raises:
            ValueError: a file that cannot be read, by its name.
        """
        path = self.folder / key / ROW
        if not path.is_file():
            return None
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(found, dict):
                raise ValueError("it holds no row")
        except ValueError as error:
            raise ValueError(
                f"{path} cannot be read ({error}); remove the folder {path.parent} to fit this "
                "setting again"
            ) from error
        return found

    def keep(self, key: str, row: Mapping[str, Any], result: FitResult) -> None:
        """Write a fit that has ended, and then its row.

        Args:
            key: the setting's hash.
            row: of the table.
            result: the fit.

        Raises:
            OSError: the folder cannot be written.
        """
        place = self.folder / key
        if place.exists():
            shutil.rmtree(place)
        place.mkdir(parents=True)
        why = None
        try:
            save(result, place / EXPLAINER)
        except TypeError as error:
            why = str(error)
        with output_file(place / ROW) as aside:
            write_through(aside, json.dumps({**row, NOT_SAVED: why}, indent=1).encode())

    def result(self, key: str, **how: Any) -> FitResult:
        """A fit that has ended.

        Args:
            key: the setting's hash.
            how: of :func:`lexppl.load`.

        Raises:
            ValueError: one that could not be saved, with the reason.
        """
        row = self.row(key) or {}
        if row.get(NOT_SAVED):
            raise ValueError(f"this fit is not in {self.folder}: {row[NOT_SAVED]}")
        return load(self.folder / key / EXPLAINER, **how)
