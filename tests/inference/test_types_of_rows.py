"""Rows of whole numbers, booleans and other types: read where a program reads them, or refused."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr
from pyro.infer import NUTS
from pyro.infer.autoguide import AutoNormal
from pyro.nn import PyroModule
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lexppl import explain, fit
from lexppl.distributions import KSubset
from lexppl.evaluation import predictive, revealed_predictions
from lexppl.explanation import explain_to_zarr
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


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_arrays_of_whole_numbers_are_explained_as_they_are_fitted(dtype, tmp_path):
    words = np.random.default_rng(0).integers(0, 6, (60, 3)).astype(dtype)
    found = fit(Words, (words, Y.numpy()), **FAST)
    of_tensor = explain(found, torch.from_numpy(words).long(), Y, draws=5)
    of_array = explain(found, words, Y.numpy(), draws=5)
    for group, name in (("predictions", "mask"), ("posterior", "mask"), ("log_likelihood", "y")):
        np.testing.assert_array_equal(of_array[group][name], of_tensor[group][name])
    np.testing.assert_array_equal(of_array["constant_data"]["x"], words)
    pytest.importorskip("zarr")
    path = explain_to_zarr(found, words, tmp_path / "words.zarr", draws=5, progress=False)
    with xr.open_zarr(path, group="predictions") as stored:
        expected = explain(found, words, draws=5)["predictions"]["mask"]
        np.testing.assert_array_equal(stored["mask"], expected)


class WholeOrFloats(PyroModule):
    """Reads both, with a latent that all rows share."""

    def forward(self, x, y=None):
        weights = pyro.sample("weights", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(logits=weights * x).to_event(1))
            with imputation_particles():
                logits = (mask * weights * x).sum(-1, keepdim=True) * torch.tensor([0.0, 1.0])
                return pyro.sample("y", dist.Categorical(logits=logits), obs=y)


@pytest.mark.parametrize("rows", [WHOLE, WHOLE.numpy()], ids=["tensor", "array"])
def test_samples_stay_as_they_are_beside_rows_of_whole_numbers(rows):
    samples = {"weights": torch.randn(10, 3, generator=torch.Generator().manual_seed(1))}
    whole, floats = (
        explain(WholeOrFloats(), x, samples=samples, draws=10) for x in (rows, WHOLE.float())
    )
    np.testing.assert_array_equal(whole["posterior"]["weights"][0], samples["weights"])
    for name in ("mask", "mask_mean"):
        np.testing.assert_array_equal(whole["predictions"][name], floats["predictions"][name])


def test_a_program_that_is_tried_on_whole_numbers_leaves_no_parameters_behind():
    pyro.clear_param_store()
    explain(Words(), np.zeros((4, 3), dtype=np.int64), draws=2)
    assert not list(pyro.get_param_store().keys())
