"""How a benchmark's figures are kept: JSON, one record a run, written as the runs end."""

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import mean, stdev
from typing import Any

RESULTS = Path(__file__).parent / "results"


def circumstances() -> dict[str, Any]:
    """Machine, versions and date of a run."""
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "threads": int(os.environ.get("OMP_NUM_THREADS", "0")) or os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("lexppl", "torch", "pyro-ppl")},
        "date": datetime.now(UTC).date().isoformat(),
    }


def read(name: str) -> list[dict[str, Any]]:
    """The records of a benchmark so far."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else []


def add(name: str, record: dict[str, Any], same: tuple[str, ...]) -> None:
    """Add a record, in the place of one that agrees with it in the fields of `same`."""
    RESULTS.mkdir(exist_ok=True)
    kept = [old for old in read(name) if any(old.get(f) != record.get(f) for f in same)]
    path = RESULTS / f"{name}.json"
    aside = path.with_suffix(".part")
    aside.write_text(json.dumps([*kept, {**record, **circumstances()}], indent=1) + "\n")
    aside.replace(path)


def spread(values: list[float], digits: int = 3) -> str:
    """Mean and standard deviation over data sets."""
    if len(values) < 2:
        return f"{values[0]:.{digits}f}"
    return f"{mean(values):.{digits}f} ± {stdev(values):.{digits}f}"
