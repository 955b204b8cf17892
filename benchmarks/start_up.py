"""What the first word of the command line costs: help, and refusals of what was typed.

    python benchmarks/start_up.py                          # of this working tree
    python benchmarks/start_up.py --before 1260ae5         # beside a revision, in turn
    python benchmarks/start_up.py --before FOLDER          # beside another working tree
    python benchmarks/start_up.py --small                  # to see that it runs

Each command is a process of its own, as when it is typed: seconds by the clock and of the
processor, medians of several runs, and the most memory that was resident at once. This script loads
nothing beyond the standard library, as a child's memory is counted from its parent's on.
"""

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from record import Records, options_of

ROOT = Path(__file__).parent.parent
COMMANDS = {
    "--version": 0,
    "--help": 0,
    "explain --help": 0,
    "evaluate --help": 0,
    "compare --help": 0,
    "explian wine": 2,
    "explain wine": 2,
    "explain wine --out new --penalti 1": 2,
    "explain wine --out new --k 0": 2,
    "explain wine --out new --test-share 1.5": 2,
    "explain wine --out new --imputer mice": 2,
    "explain wine --out new --method l2x --penalty 0.1": 2,
    "explain wine --out new --valid-share 0.5 --test-share 0.6": 2,
    "explain wine --out new --regime surrogate-post-hoc": 2,
    "explain wine --out new --black-box model.joblib": 2,
    "explain wine --out new --target hue": 2,
    "explain wien --out new": 2,
    "explain table.csv --out new": 2,
    "explain wine --out full": 1,
    "explain wine --out new --device abacus": 2,
    "explain wine --out new --device cuda:99": 2,
    "evaluate wine": 2,
    "compare wine --methods lex,shup": 2,
}
"""What is typed, and what it ends with."""
UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes in which the system counts memory."""
SAME = ("command", "code")
LINE = (
    "{code:6s} {command}: {seconds:.2f} s ({cpu_seconds:.2f} s of a core), {megabytes:.0f} MB"
).format


@contextmanager
def checked_out(before: str) -> Iterator[Path]:
    """A working tree: a folder that is one, or a revision's in a temporary folder."""
    if Path(before).is_dir():
        yield Path(before)
        return
    with TemporaryDirectory(prefix="lexppl-before-") as place:
        tree = Path(place) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", str(tree), before], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def run(command: str, tree: Path, place: Path) -> dict[str, float]:
    """One run of a command by a working tree's code: its seconds and megabytes.

    Raises:
        RuntimeError: it ended otherwise than expected.
    """
    words = [sys.executable, "-m", "lexppl", *shlex.split(command)]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    silent = subprocess.DEVNULL
    start = time.perf_counter()
    child = subprocess.Popen(words, cwd=place, env=environment, stdout=silent, stderr=silent)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != COMMANDS[command]:
        raise RuntimeError(
            f"lexppl {command} in {tree} ended with {child.returncode}; expected is "
            f"{COMMANDS[command]}"
        )
    return {
        "seconds": seconds,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "megabytes": usage.ru_maxrss * UNIT / 1e6,
    }


def measured(runs: list[dict[str, float]]) -> dict[str, Any]:
    """Medians of the seconds, and the most memory."""
    return {
        "runs": len(runs),
        "seconds": median(one["seconds"] for one in runs),
        "cpu_seconds": median(one["cpu_seconds"] for one in runs),
        "megabytes": max(one["megabytes"] for one in runs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", help="a revision, or a folder with a working tree")
    parser.add_argument("--runs", type=int, default=7, help="of each command")
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    options = options_of(parser, {"runs": 1, "commands": ["--help", "explain wien --out new"]})
    records = Records("start_up", SAME, LINE, options)
    codes = ["after"] if options.before is None else ["before", "after"]
    due = records.due({"command": c, "code": code} for c in options.commands for code in codes)
    other = nullcontext() if options.before is None else checked_out(options.before)
    with TemporaryDirectory(prefix="lexppl-typed-") as folder, other as before:
        place = Path(folder)
        (place / "full").mkdir()
        (place / "full" / "report.html").write_text("")
        trees = {"before": before, "after": ROOT}
        for command in options.commands:
            wanted = [one["code"] for one in due if one["command"] == command]
            # In turn, so that what else the machine does falls on both.
            rounds = [
                {code: run(command, trees[code], place) for code in wanted}
                for _ in range(1 + options.runs)
            ]
            for code in wanted:
                # The first run finds files that are not in memory yet.
                figures = measured([each[code] for each in rounds[1:]])
                run_of = {"command": command, "code": code, "exit_code": COMMANDS[command]}
                records.add({**run_of, **figures})


if __name__ == "__main__":
    main()
