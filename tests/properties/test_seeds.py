"""What draws random numbers has them from its seed alone, and leaves those of the process alone."""

import random
from functools import cache

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from lexppl import explain, prior
from lexppl.arviz_compatibility import group_names, group_of
from lexppl.compare import ImputerMasker, conditional_baselines
from lexppl.compare.importances import (
    lime_importances,
    permutation_importances,
    shap_importances,
)
from lexppl.data import load, synthetic, synthetic_survival
from lexppl.data.named_sets import switching_panels
from lexppl.effects import mask_particles
from lexppl.evaluation.imputation import imputed_samples
from lexppl.explanation import draws, read_mask
from lexppl.models import GaussianImputer
from tests.data.images.written import write_mnist
from tests.explanation.test_image_geometry import ImageProgram, images
from tests.refusals import over
from tests.test_explanation import fitted, lex, rows
from tests.test_ranked_sets import ranked_set

X, Y = rows(30)
IMPUTER = GaussianImputer()


@cache
def of_fits():
    return fitted(lex(seed=0), lex(seed=5))


def program(x, y=None):
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        z = pyro.sample("mask", dist.Bernoulli(torch.full((3,), 0.5)).to_event(1))
        pyro.sample("y", dist.Normal((z * x).sum(-1), 1.0), obs=y)


def decides(x):
    return 1 / (1 + np.exp(-4 * x[:, 2]))


def arrays(posterior):
    every = [group_of(posterior, name) for name in group_names(posterior)]
    return [values.values for group in every for values in group.values()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    for name in ("MNIST", "FashionMNIST"):
        write_mnist(folder, name, train=60, test=20)
    return folder


def of_processes():
    """The states of the process's own random numbers."""
    numpys = np.random.get_state()[1].tolist()  # noqa: NPY002
    return random.getstate(), numpys, torch.get_rng_state().tolist()


def bits(arrays):
    return [np.asarray(values).tobytes() for values in arrays]


@over(
    lambda seed, _: arrays(explain(of_fits(), X, Y, draws=10, rows_per_chunk=7, seed=seed)),
    lambda seed, _: arrays(prior(program, X, draws=20, seed=seed)),
    lambda seed, _: [draws(of_fits(), X, read={"m": read_mask}, draws=9, seed=seed)["m"].values],
    lambda seed, _: [imputed_samples(ImageProgram(imputer=IMPUTER), images(), seed=seed).samples],
    lambda seed, _: [conditional_baselines(IMPUTER, X, seed=seed)],
    lambda seed, _: [ImputerMasker(IMPUTER, 4, seed=seed)(np.arange(3) > 1, X[0].numpy())],
    lambda seed, _: [
        shap_importances(decides, X[:2], X, background_rows=5, permutations=2, seed=seed)
    ],
    lambda seed, _: [lime_importances(decides, X[:2], X, samples=50, seed=seed)],
    lambda seed, _: [permutation_importances(decides, X[:2], (X, Y), seed=seed)],
    lambda seed, _: [synthetic("S1", rows=100, seed=seed).x, synthetic("S1", 100, seed).y],
    lambda seed, _: [synthetic_survival(200, seed).y],
    lambda seed, _: [load("diabetes").split(0.8, 0.2, seed=seed)[1].x],
    lambda seed, folder: [
        switching_panels("mnist", folder, rows=(20, 10, 10), seed=seed).train.pixels
    ],
    lambda seed, _: [ranked_set("XOR", 50, seed).x],
)
def test_the_seed_decides_and_the_numbers_of_the_process_stay(call, folder):
    # A library that the first call imports, as shap, may draw from the process's numbers.
    others = bits(call(2, folder))
    before = of_processes()
    first = bits(call(1, folder))
    assert of_processes() == before
    for seeded in (random.seed, np.random.seed, torch.manual_seed):
        seeded(8)
    assert first == bits(call(1, folder)) != others
