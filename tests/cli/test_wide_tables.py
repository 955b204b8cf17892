"""A table of many columns is read and looked at without a warning of pandas."""

import warnings

import numpy as np
import pandas as pd

from lexppl.data.divided_table import divided_frame
from lexppl.data.files import read_frame
from lexppl.report.fit_warnings import _copies
from tests.cli.tables import written


def test_a_wide_file_is_not_fragmented(tmp_path):
    """Pandas holds each column of a file by itself, and warns where one is added to a hundred."""
    values = np.random.default_rng(0).normal(size=(40, 130))
    table = pd.DataFrame(values, columns=[f"c{i}" for i in range(130)])
    file = written(table.assign(y=["a", "b"] * 20), tmp_path)
    with warnings.catch_warnings(action="error", category=pd.errors.PerformanceWarning):
        source = divided_frame(read_frame(file), "y", folds=2, seed=0)
        assert _copies(source) is None
    # Copies are found as before, by values and target.
    doubled = pd.concat([table, table]).assign(y=["a", "b"] * 40)
    source = divided_frame(doubled, "y", folds=2, seed=0)
    assert "40 of 80 rows are copies" in str(_copies(source))
