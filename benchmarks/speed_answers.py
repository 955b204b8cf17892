"""What an answer to a table costs, from a file to a report, beside other ways to one: processor
seconds of a command with its imports, one after the other.

The table has ten columns: a product of two numbers and a level out of four matter; an identifier,
four draws, a column of 80 levels and one of 25 do not.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

TABLES = {"300 rows": 300, "1,800 rows": 1_800, "20,000 rows": 20_000}
SHIPPED = "breast_cancer"
MOST_OF_BORUTA = 5_000
"""Rows beyond which Boruta takes more than ten minutes."""
OURS, BORUTA = "lexppl explain", "Boruta, 500 trees"
RIVAL = """
import sys, numpy as np, pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split
if sys.argv[1].endswith(".csv"):
    frame = pd.read_csv(sys.argv[1]); y = frame.pop("y")
else:
    from sklearn.datasets import load_breast_cancer
    frame, y = load_breast_cancer(return_X_y=True, as_frame=True)
x = frame.apply(lambda c: c if c.dtype.kind in "fi" else pd.factorize(c)[0]).to_numpy(float)
x, held_out, y, labels = train_test_split(x, np.asarray(y), test_size=0.2, random_state=0)
"""
BOOSTING = RIVAL + "model = HistGradientBoostingClassifier(random_state=0).fit(x, y)\n"
RIVALS = {
    "boosting and TreeSHAP": BOOSTING
    + "import shap; print(abs(shap.TreeExplainer(model)(held_out).values).mean(0))",
    "boosting and permutation importance": BOOSTING
    + "from sklearn.inspection import permutation_importance as p\n"
    + "print(p(model, held_out, labels, n_repeats=30, scoring='neg_log_loss').importances_mean)",
    BORUTA: RIVAL
    + "from boruta import BorutaPy; from sklearn.ensemble import RandomForestClassifier as F\n"
    + "b = BorutaPy(F(n_estimators=500, max_depth=5), n_estimators=500, random_state=0)\n"
    + "print(b.fit(x, y).support_)",
}


def table(rows: int, seed: int) -> pd.DataFrame:
    """Rows of the law, with labels `y`."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({"dose": draw.gamma(2.0, 2.0, rows), "weight": draw.normal(70, 12, rows)})
    frame["ident"] = draw.integers(0, 10**6, rows)
    for number in range(4):
        frame[f"draw{number + 1}"] = draw.normal(size=rows)
    frame["ward"] = [f"w{level}" for level in draw.choice(4, rows)]
    often = draw.dirichlet(np.full(80, 0.6))
    frame["zip"] = [f"z{level}" for level in draw.choice(80, rows, p=often)]
    frame["vendor"] = [f"v{level}" for level in draw.choice(25, rows)]
    logit = 1.1 * (frame.dose - 4) * np.where(frame.weight > 70, 1.0, -0.2)
    logit += 1.4 * (frame.ward == "w0")
    chance = 1 / (1 + np.exp(-logit))
    return frame.assign(y=np.where(draw.random(rows) < chance, "yes", "no"))


def answers_runs(small: bool) -> Iterator[dict[str, Any]]:
    """The tables."""
    for name in ("300 rows",) if small else (*TABLES, SHIPPED):
        yield {"section": "answers", "name": name, "size": TABLES.get(name, 569)}


def timed_answers(run: dict[str, Any], beside: Path | None, words: tuple[str, ...]) -> dict:
    """Processor seconds of each way to an answer, in turn.

    Args:
        run: of :func:`answers_runs`.
        beside: another tree of the library, whose command is timed too; None for none.
        words: typed after the command besides.
    """
    with TemporaryDirectory() as folder:
        data = SHIPPED
        if run["name"] in TABLES:
            data = str(Path(folder) / "table.csv")
            table(TABLES[run["name"]], 23).to_csv(data, index=False)
        trees = {OURS: Path(__file__).parents[1], "of another tree": beside}
        found = {}
        for name, tree in trees.items():
            if tree is not None:
                found[name] = _explained(data, tree, Path(folder) / name, words)
        for name, code in RIVALS.items():
            if name == BORUTA and (find_spec("boruta") is None or run["size"] > MOST_OF_BORUTA):
                continue
            found[name] = seconds([sys.executable, "-W", "ignore", "-c", code, data], None)
    return {"seconds": found, "beside": None if beside is None else str(beside)}


def _explained(data: str, tree: Path, out: Path, words: tuple[str, ...]) -> float:
    code = "import sys; from lexppl.cli import main; sys.exit(main(sys.argv[1:]))"
    target = ["--target", "y"] if data.endswith(".csv") else []
    typed = ["explain", data, *target, "--out", str(out), "--quiet", *words]
    return seconds([sys.executable, "-c", code, *typed], tree)


def seconds(command: list[str], tree: Path | None) -> float:
    """Processor seconds of a command and its children, on one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if tree is not None:
        environment["PYTHONPATH"] = str(tree)
    before = _spent()
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"{command[:3]} ended with {ended.returncode}: {ended.stderr[-500:]}")
    return _spent() - before


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
