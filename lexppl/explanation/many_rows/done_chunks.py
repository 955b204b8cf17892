"""Which chunks of a table have been explained, so that a run that ended early goes on."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lexppl.atomic_output import output_file, write_through
from lexppl.explanation.explained_rows import Sums

ABOUT = "about"
RUN = "run.json"
CHUNKS = "chunks"


@dataclass(frozen=True)
class DoneChunk:
    """A chunk whose rows are in the store.

    Args:
        rows: how many.
        digest: of what was written.
        identity: of the rows it was made from, where they had to be read to be told from others.
        sums: of its blocks.
    """

    rows: int
    digest: str
    identity: str | None
    sums: list[Sums]


@dataclass(frozen=True)
class DoneChunks:
    """The chunks that are done, in a folder beside the store.

    Args:
        folder: of the run.
    """

    folder: Path

    def begin(self, run: Mapping[str, Any]) -> None:
        """Note what the run is, or see that it is the one that is there.

        Args:
            run: what the numbers depend on, in words.

        Raises:
            ValueError: chunks of another run.
        """
        path = self.folder / RUN
        if path.is_file():
            found = json.loads(path.read_text(encoding="utf-8"))
            other = [name for name in run if found.get(name) != run[name]]
            if other:
                raise ValueError(
                    f"{str(self.folder)!r} has chunks of another run, which differs in "
                    f"{', '.join(other)}: make the same call to go on with it, give another path, "
                    "or overwrite=True to begin anew"
                )
            return
        (self.folder / CHUNKS).mkdir(parents=True, exist_ok=True)
        with output_file(path) as aside:
            write_through(aside, json.dumps(run, indent=1).encode())

    def forget(self) -> None:
        """Begin the run anew."""
        shutil.rmtree(self.folder / CHUNKS)
        (self.folder / CHUNKS).mkdir()

    def add(self, number: int, done: DoneChunk) -> None:
        """Note that a chunk is in the store.

        Args:
            number: of the chunk.
            done: what is known of it.

        Raises:
            OSError: it cannot be written.
        """
        about = {"rows": done.rows, "digest": done.digest, "identity": done.identity}
        names = sorted(done.sums[0]) if done.sums else []
        arrays = {
            f"{group}/{name}": np.stack([block[group, name] for block in done.sums])
            for group, name in names
        }
        content = io.BytesIO()
        np.savez(content, **{ABOUT: np.array(json.dumps(about))}, **arrays)  # type: ignore[arg-type]
        with output_file(self._path(number), overwrite=True) as aside:
            write_through(aside, content.getbuffer())

    def get(self, number: int) -> DoneChunk | None:
        """A chunk that is done, or None.

        Args:
            number: of the chunk.

        Raises:
            ValueError: a file that cannot be read, by its name.
        """
        path = self._path(number)
        if not path.is_file():
            return None
        try:
            with np.load(path, allow_pickle=False) as held:
                about = json.loads(str(held[ABOUT]))
                arrays = {name: held[name] for name in held.files if name != ABOUT}
            blocks = len(next(iter(arrays.values()), ()))
            places = {name: tuple(name.split("/", 1)) for name in arrays}
            sums: list[Any] = [
                {places[name]: values[block] for name, values in arrays.items()}
                for block in range(blocks)
            ]
            return DoneChunk(int(about["rows"]), about["digest"], about["identity"], sums)
        except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{path} cannot be read ({error}); remove it to explain its rows again"
            ) from error

    def _path(self, number: int) -> Path:
        return self.folder / CHUNKS / f"{number:08d}.npz"
