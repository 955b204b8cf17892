"""Without the extra the library imports, and says what to install where it is needed."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from lexppl.compare import compare
from lexppl.compare.importances import (
    fit_tabnet,
    gradient_importances,
    lime_importances,
    shap_importances,
)

LIBRARIES = ("shap", "lime", "captum", "pytorch_tabnet")
X = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def first(rows):
    return 1 / (1 + np.exp(-rows[:, 0]))


NEEDING = {
    "shap": lambda: shap_importances(first, X, X),
    "lime": lambda: lime_importances(first, X, X),
    "captum": lambda: gradient_importances("saliency", nn.Linear(2, 2), X, output="logits"),
    "pytorch_tabnet": lambda: fit_tabnet(X, Y),
}


@pytest.fixture
def without_libraries(monkeypatch):
    """Imports of the libraries fail, as where they are not installed."""
    for name in list(sys.modules):
        if name.partition(".")[0] in LIBRARIES:
            monkeypatch.delitem(sys.modules, name)
    for name in LIBRARIES:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("library", NEEDING)
@pytest.mark.usefixtures("without_libraries")
def test_the_message_says_what_to_install(library):
    with pytest.raises(ImportError, match=rf"{library}.*pip install \"lexppl\[compare\]\""):
        NEEDING[library]()


@pytest.mark.usefixtures("without_libraries")
def test_compare_refuses_before_any_fit(monkeypatch):
    def fitted(*_, **__):
        raise AssertionError("fitted before the check")

    # The function hides its module's name in the package.
    module = sys.modules["lexppl.compare.compare"]
    monkeypatch.setattr(module, "fit_predictor", fitted)
    monkeypatch.setattr(module, "fit_evalx", fitted)
    for name in ("shap", "lime", "saliency", "tabnet"):
        with pytest.raises(ImportError, match=r"lexppl\[compare\]"):
            compare([name], (X, Y), (X, Y))


@pytest.mark.complete
def test_importing_imports_none_of_them():
    check = (
        f"import sys, lexppl, lexppl.compare; sys.exit(bool({set(LIBRARIES)!r} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
