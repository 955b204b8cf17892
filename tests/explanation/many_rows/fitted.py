"""A small fitted explainer and rows of several blocks for it."""

from functools import cache

import numpy as np
import torch

from lexppl.inference import fit
from lexppl.systems import lex

ROWS = 3400
"""Three blocks of 1,000 and a part of a fourth."""


@cache
def rows():
    x = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(1))
    return x, (x[:, 0] > 0).long()


@cache
def fitted(**settings):
    x, y = rows()
    system = lex(4, classes=2, penalty=0.02, hidden=(4,), predictor_hidden=(4,))
    return fit(system, (x[:200], y[:200]), epochs=2, progress=False, **settings)


def assert_same(one, other, rounding=0.0):
    """Every group, variable, dimension and bit, of posteriors; with a rounding, what was computed
    elsewhere, by other kernels of the same processor, within it."""
    from lexppl.arviz_compatibility import group_names, group_of

    assert set(group_names(one)) == set(group_names(other))
    for name in group_names(one):
        left, right = group_of(one, name).load(), group_of(other, name).load()
        assert left.attrs == right.attrs
        assert set(left.variables) == set(right.variables), name
        for variable in left.variables:
            assert left[variable].dims == right[variable].dims, variable
            assert left[variable].dtype == right[variable].dtype, variable
            assert left[variable].attrs == right[variable].attrs, variable
            mine, others = left[variable].values, right[variable].values
            if rounding and mine.dtype.kind == "f":
                np.testing.assert_allclose(mine, others, rounding, rounding, err_msg=str(variable))
            else:
                assert mine.tobytes() == others.tobytes(), variable
