"""The notebooks run from top to bottom, and are committed with their pictures."""

import re
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import nbformat
import pytest
from jupyter_client import KernelManager
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
NEEDS = MappingProxyType({"fairness_privacy": ("fairlearn", "opacus")})
"""Libraries of the extra `studies`, by notebook."""
LONG_FIT = re.compile(r'(\b(?:epochs|samples|warmup)(?:=|": ?))\d{2,}')
LONG_LOOP = re.compile(r"(?<=for _ in )range\(\d{3,}\)")


def test_there_are_notebooks():
    names = (
        "calibrated comparing_with_loo fairness_privacy first_explainer hierarchical how_sure "
        "imputation_matters one_likelihood one_pixel_cheat own_explainer own_mask_distribution "
        "survival what_changed which_variables enough beside_shap priors workflow patients reviews"
    )
    assert {path.stem for path in NOTEBOOKS} >= set(names.split())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_r_hat_of_replicates_is_explained(path):
    """Chains that are fits have an r_hat above 1.01 without any fault of a sampler."""
    cells = nbformat.read(path, as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    tables = [str(output.get("data", {}).get("text/plain", "")) for output in outputs]
    words = " ".join(cell.source for cell in cells if cell.cell_type == "markdown")
    if any("r_hat" in table for table in tables):
        assert "r_hat" in words or "r̂" in words


@pytest.fixture(scope="module")
def kernel():
    """One kernel for all: to start and import is half of a short notebook's time."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(NOTEBOOKS[0].parent))
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.mark.complete
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path, kernel):
    """Every cell, with short fits: the committed outputs are of the whole ones."""
    missing = [name for name in NEEDS.get(path.stem, ()) if find_spec(name) is None]
    if missing:
        pytest.skip(f'{path.stem} needs {missing}: pip install "lexppl[studies]"')
    notebook = nbformat.read(path, as_version=4)
    committed = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in committed)
    assert not any(output.output_type == "error" for output in committed)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in code:
        cell.source = LONG_LOOP.sub("range(4)", LONG_FIT.sub(r"\g<1>4", cell.source))
    code[0].source = f"%reset -f\n{code[0].source}"
    NotebookClient(
        notebook, km=kernel, timeout=600, resources={"metadata": {"path": path.parent}}
    ).execute()
