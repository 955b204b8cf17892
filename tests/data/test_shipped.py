"""Shipped sets: shapes, standardisation, names."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn import datasets

from lexppl.data import load
from tests.refusals import refused


@pytest.mark.smoke
def test_values_are_those_of_scikit_learn():
    bunch = datasets.load_breast_cancer()
    data = load("breast_cancer", dtype=torch.float64)
    scale = bunch.data.std(0)
    np.testing.assert_allclose(data.x.numpy(), (bunch.data - bunch.data.mean(0)) / scale)
    assert [data.class_names[label] for label in data.y] == list(bunch.target_names[bunch.target])
    assert data.entry_names == tuple(bunch.feature_names)


def test_digits_keep_the_order_of_classes_and_lose_the_constant_pixels():
    bunch = datasets.load_digits()
    data = load("digits")
    assert data.class_names == tuple("0123456789")
    assert data.y.tolist() == bunch.target.tolist()
    constant = set(np.asarray(bunch.feature_names)[bunch.data.std(0) == 0])
    assert set(bunch.feature_names) - set(data.entry_names) == constant
    assert len(constant) == 3


def test_refusals():
    refused(r"no shipped data set 'iris'.*'breast_cancer'.*'S3'", load, "iris")
    for name in ("wine", "S1"):
        refused("standardise_target is for", load, name, standardise_target=True)
