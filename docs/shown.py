"""Write what the README prints and shows, and run the first notebook: `python docs/shown.py`.

`tests/test_readme.py` compares what the README prints with what its programs print.
"""

import contextlib
import io
import re
import shlex
import tempfile
from pathlib import Path
from typing import Any

import arviz
import matplotlib as mpl
import nbformat
from nbclient import NotebookClient

from lexppl.cli import main
from lexppl.plots import plot_importance

DOCS = Path(__file__).parent
README, NOTEBOOK = DOCS.parent / "README.md", DOCS.parent / "notebooks" / "first_explainer.ipynb"
PRINTED = re.compile(r"(?<=```python\n)(.*?)(```\n\n```text\n)(.*?)(?=```\n)", re.DOTALL)
"""A program of the README, what stands between, and what it prints."""
DPI = 120


def run(program: str) -> tuple[str, dict[str, Any]]:
    """What a program prints, and its names after it."""
    printed, names = io.StringIO(), {}
    with contextlib.redirect_stdout(printed):
        exec(compile(program, str(README), "exec"), names)
    return re.sub(r" +$", "", printed.getvalue(), flags=re.MULTILINE), names


def draw_importance(text: str) -> None:
    """The README's first picture, of the posterior that its first command writes."""
    (words,) = re.findall(r"lexppl (explain .*) --out explanation$", text, re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        main([*shlex.split(words), "--out", folder])
        posterior = arviz.from_netcdf(Path(folder) / "posterior.nc")
        plot_importance(posterior, features=10).savefig(DOCS / "importance.png", dpi=DPI)


def run_notebook() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    folder = {"metadata": {"path": NOTEBOOK.parent}}
    NotebookClient(notebook, record_timing=False, resources=folder).execute()
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    mpl.use("agg")
    text = README.read_text(encoding="utf-8")
    draw_importance(text)

    def printed(found: re.Match[str]) -> str:
        program, between, _ = found.groups()
        shown, names = run(program)
        if "figure" in names:
            names["figure"].savefig(DOCS / "selection_map.png", dpi=DPI)
        return program + between + shown

    README.write_text(PRINTED.sub(printed, text), encoding="utf-8")
    run_notebook()
