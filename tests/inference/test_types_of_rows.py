"""Rows of whole numbers, booleans and other types: read where a program reads them, or refused."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import NUTS
from pyro.infer.autoguide import AutoNormal
from pyro.nn import PyroModule
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lexppl import explain, fit
from lexppl.distributions import KSubset
from lexppl.evaluation import predictive, revealed_predictions
from lexppl.models import MLP, imputation_particles, mask_particles
from lexppl.systems import l2x, lex

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
WHOLE = (3 * X).long()
FAST = {"epochs": 1, "progress": False}

WHOLE_ROWS = {
    "int64": WHOLE,
    "int32": WHOLE.int(),
    "int8": WHOLE.to(torch.int8),
    "uint8": WHOLE.abs().to(torch.uint8),
    "bool": X > 0,
}
OTHERS = {
    "sparse_coo": X.to_sparse(),
    "sparse_csr": X.to_sparse_csr(),
    "complex64": X.to(torch.complex64),
    "qint8": torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),
}
SMALLER = {"float16": X.half(), "bfloat16": X.bfloat16()}


def small(system=lex):
    return system(3, classes=2, hidden=(4,), predictor_hidden=(4,), k=1)


@pytest.fixture(scope="module")
def result():
    return fit(small(), (X, Y), **FAST)


def refused(kind):
    if kind in WHOLE_ROWS:
        return rf"x is torch\.{kind}, and the program reads floats: give x\.to\(torch\.float32\)"
    if kind in SMALLER:
        return rf"x is torch\.{kind} and the model torch\.float32; convert one"
    return rf"must hold real numbers and be dense; it is .*{kind}"


@pytest.mark.filterwarnings("ignore:.*quantize")
@pytest.mark.parametrize("kind", [*WHOLE_ROWS, *OTHERS, *SMALLER])
def test_rows_that_a_program_cannot_read_are_refused_before_any_work(result, kind):
    rows = {**WHOLE_ROWS, **OTHERS, **SMALLER}[kind]
    before = torch.get_rng_state()
    for system in (lex, l2x):
        with pytest.raises(ValueError, match=refused(kind)):
            fit(small(system), (rows, Y), **FAST)
    for call in (
        lambda: (
            fit(small(), (X, Y), valid=(rows, Y), **FAST)
            if kind not in SMALLER
            else explain(result, rows)
        ),
        lambda: explain(result, rows, draws=2),
        lambda: explain(result, rows, Y, draws=2),
        lambda: predictive(result, rows),
        lambda: revealed_predictions(result, rows),
    ):
        with pytest.raises(ValueError, match=refused(kind)):
            call()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("kind", [*WHOLE_ROWS, "sparse_coo"])
def test_guides_samplers_and_loaders_refuse_them_too(kind):
    rows = {**WHOLE_ROWS, **OTHERS}[kind]
    prior = {"selector": dist.Normal(0.0, 3.0)}
    shared = lex(3, classes=2, hidden=(), prior=prior)
    with pytest.raises(ValueError, match=refused(kind)):
        fit(shared, (rows, Y), guide=AutoNormal, **FAST)
    with pytest.raises(ValueError, match=refused(kind)):
        fit(shared, (rows, Y), inference=NUTS, progress=False)
    if kind == "sparse_coo":
        return
    loader = DataLoader(TensorDataset(rows, Y), batch_size=20)
    with pytest.raises(ValueError, match=refused(kind)):
        fit(small(l2x), loader, valid=None, **FAST)


def test_arrays_of_whole_numbers_are_refused_by_fit_and_floats_to_explain(result):
    with pytest.raises(ValueError, match=refused("int64")):
        fit(small(), (WHOLE.numpy(), Y), **FAST)
    whole, floats = (explain(result, rows, draws=0) for rows in (WHOLE.numpy(), WHOLE.float()))
    for name in ("selection_probability",):
        np.testing.assert_array_equal(whole["sample_stats"][name], floats["sample_stats"][name])


class Words(PyroModule):
    """Looks word numbers up, which are whole by right."""

    def __init__(self):
        super().__init__()
        self.vectors = nn.Embedding(6, 2)
        self.selector, self.predictor = MLP(6, 3), nn.Linear(6, 2)

    def forward(self, x, y=None):
        vectors = self.vectors(x)
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", KSubset(self.selector(vectors.flatten(1)), k=2))
            with imputation_particles():
                logits = self.predictor((mask.unsqueeze(-1) * vectors).flatten(-2))
                return pyro.sample("y", dist.Categorical(logits=logits), obs=y)


class Places(Words):
    """The same by indices, and with y that has to be given."""

    def forward(self, x, y):
        one_hot = nn.functional.one_hot(y, 2) if y is not None else None
        assert one_hot is None or one_hot.sum() == len(y)
        return super().forward(x, y)


@pytest.mark.parametrize("program", [Words, Places])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_whole_numbers_that_a_program_reads_stay_whole(program, dtype):
    words = torch.randint(0, 6, (60, 3), generator=torch.Generator().manual_seed(0)).to(dtype)
    found = fit(program, (words, Y), **FAST)
    assert explain(found, words, Y, draws=2)["sample_stats"]["selection_probability"].shape
