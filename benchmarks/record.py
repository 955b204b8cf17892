"""How a benchmark is run and its figures are kept: JSON, one record a run, written as runs end.

Several runs may keep records in one folder at once.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import mean, stdev
from tempfile import mkdtemp
from typing import Any

RESULTS = Path(__file__).parent / "results"
"""The figures of README.md."""
DIGITS = 8
"""Significant digits of each number in a record."""


def options_of(parser: argparse.ArgumentParser, small: dict[str, Any]) -> argparse.Namespace:
    """Options of a script, with those that every script takes.

    Args:
        parser: has the script's own options.
        small: their defaults under `--small`.
    """
    take = parser.add_argument
    take("--small", action="store_true", help="few rows and epochs, to see that the script runs")
    take("--results", type=Path, help="folder of the records; of --small a new temporary one")
    take("--again", action="store_true", help="also what is already recorded")
    if parser.parse_args().small:
        parser.set_defaults(**small)
    options = parser.parse_args()
    if options.small and getattr(options, "full", False):
        parser.error("--small and --full are two sizes; give one of them")
    if options.results is None:
        options.results = Path(mkdtemp(prefix="lexppl-benchmarks-")) if options.small else RESULTS
    if options.small and options.results.resolve() == RESULTS.resolve():
        parser.error(f"{RESULTS} has the figures of full size; give --small another --results")
    print(f"records are kept in {options.results}", flush=True)
    return options


def circumstances() -> dict[str, Any]:
    """Machine, versions and date of a run."""
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "threads": int(os.environ.get("OMP_NUM_THREADS", "0")) or os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("lexppl", "torch", "pyro-ppl")},
        "date": datetime.now(UTC).date().isoformat(),
    }


def read(name: str, folder: Path = RESULTS) -> list[dict[str, Any]]:
    """The records of a benchmark so far."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else []


@contextmanager
def timed(record: dict[str, Any]) -> Iterator[None]:
    """Put the seconds that the block takes into the record."""
    start = time.perf_counter()
    yield
    record["seconds"] = time.perf_counter() - start


@dataclass(frozen=True)
class Records:
    """A benchmark's records in a folder: one for each value of the fields of `same`.

    Args:
        name: of the JSON file.
        same: the fields that say which run a record is of.
        line: what is printed of a record, made from its fields by name.
        options: of `options_of`: the folder, the size, and whether to run again what is there.
    """

    name: str
    same: tuple[str, ...]
    line: Callable[..., str]
    options: argparse.Namespace

    def due(self, runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Of the runs, identified by the fields of `same`, those that are not recorded yet.

        Raises:
            ValueError: the folder has records of another size.
        """
        done, runs = {self._run_of(old) for old in self._read()}, list(runs)
        due = [run for run in runs if self.options.again or self._run_of(run) not in done]
        if len(due) < len(runs):
            print(f"{len(runs) - len(due)} of {len(runs)} are recorded; --again runs them")
        return due

    @contextmanager
    def run(self, run: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """A record for the block to fill; then it is timed, unless the block did so, and kept.

        Other programs on the machine lengthen `seconds`, and hardly the processor's,
        `cpu_seconds`.
        """
        record, clock, begun = dict(run), {}, time.process_time()
        with timed(clock):
            yield record
        clock["cpu_seconds"] = time.process_time() - begun
        self.add({**clock, **record})

    def add(self, record: dict[str, Any]) -> None:
        """Keep and print a record, in the place of one of the same run."""
        size = {"small": True} if self.options.small else {}
        made = {**record, **size, **circumstances()}
        folder = self.options.results
        folder.mkdir(parents=True, exist_ok=True)
        with _alone_in(folder):
            kept = [old for old in self._read() if self._run_of(old) != self._run_of(made)]
            aside = folder / f"{self.name}.part"
            aside.write_text(_as_lines([*kept, made]))
            aside.replace(folder / f"{self.name}.json")
        print(self.line(**made), flush=True)

    def _run_of(self, record: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(_rounded(record.get(field)) for field in self.same)

    def _read(self) -> list[dict[str, Any]]:
        found = read(self.name, self.options.results)
        if any(old.get("small", False) != self.options.small for old in found):
            raise ValueError(
                f"{self.options.results / self.name}.json has records of another size (--small or "
                "not), and one table must not mix them; give another --results"
            )
        return found


def _as_lines(records: list[dict[str, Any]]) -> str:
    """The records as JSON, one a line."""
    return "[\n" + ",\n".join(json.dumps(_rounded(record)) for record in records) + "\n]\n"


def _rounded(value: Any) -> Any:
    """The value with its numbers in `DIGITS` significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Other runs that keep a record in the folder wait until the block is done."""
    try:
        import fcntl
    except ImportError:  # Windows: one run at a time.
        yield
        return
    place = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)


def spread(values: list[float], digits: int = 3) -> str:
    """Mean and standard deviation over data sets."""
    if len(values) < 2:
        return f"{values[0]:.{digits}f}"
    return f"{mean(values):.{digits}f} ± {stdev(values):.{digits}f}"
