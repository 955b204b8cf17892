"""Small tables in files, for the command line."""

import html
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd

from lexppl.cli import main


def people(rows: int = 90, seed: int = 0) -> pd.DataFrame:
    """A table with numbers and words; the target follows from age and job."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": random.normal(40.0, 12.0, rows),
            "height": random.normal(170.0, 9.0, rows),
            "job": random.choice(["clerk", "smith", "cook"], rows),
            "<b>shoe</b>": random.normal(42.0, 2.0, rows),
        }
    )
    frame["income"] = np.where((frame.age > 40) | (frame.job == "smith"), "high", "low")
    return frame


def numbers(rows: int = 90, seed: int = 0) -> pd.DataFrame:
    """A table of numbers whose target is one of numbers too."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(random.normal(size=(rows, 3)), columns=["a", "b", "c"])
    frame["price"] = 1000.0 + 250.0 * frame.a + random.normal(0.0, 10.0, rows)
    return frame


def written(frame: pd.DataFrame, folder: Path, name: str = "people.csv") -> Path:
    """The table as a file."""
    path = folder / name
    frame.to_csv(path, index=False)
    return path


def explained(folder: Path, *words: object, frame: pd.DataFrame | None = None, code: int = 0):
    """The folder that `lexppl explain` of a table, by default of people, has written."""
    path, out = written(people() if frame is None else frame, folder), folder / "r"
    assert main(["explain", str(path), "--out", str(out), *map(str, words)]) == code
    return out


def page_of(out: Path) -> str:
    """The report in a folder, unescaped."""
    return html.unescape((out / "report.html").read_text(encoding="utf-8"))


def epoch_lines(text: str) -> list[str]:
    """The epochs of which a line was printed."""
    return re.findall(r"^epoch (\d) of \d: train \S+, valid \S+, \S+ s$", text, re.M)


def cases(lines: str) -> dict[str, tuple[list[str], list[str]]]:
    """Commands that are refused, each with its words and what its line names, of lines such as
    `explain wine --k 0 => --k | at least 1`."""
    found = {}
    for line in lines.strip("\n").splitlines():
        command, _, named = line.partition(" => ")
        found[command] = (shlex.split(command), named.split(" | "))
    return found
