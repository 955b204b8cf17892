"""The notebooks run from top to bottom, and are committed with their pictures."""

from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
NEEDS = MappingProxyType({"fairness_privacy": ("fairlearn", "opacus")})
"""Libraries of the extra `studies`, by notebook."""


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


@pytest.mark.complete
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path):
    missing = [name for name in NEEDS.get(path.stem, ()) if find_spec(name) is None]
    if missing:
        pytest.skip(f'{path.stem} needs {missing}: pip install "lexppl[studies]"')
    notebook = nbformat.read(path, as_version=4)
    committed = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in committed)
    assert not any(output.output_type == "error" for output in committed)
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": path.parent}}
    ).execute()
