"""Labels of any type are labels; others than those of the classes are refused by name."""

import numpy as np
import pandas as pd
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import NUTS
from torch.utils.data import DataLoader, TensorDataset

from lexppl import explain, fit
from lexppl.evaluation import imputation, predictive_log_likelihood
from lexppl.models import (
    BernoulliLikelihood,
    ConstantImputer,
    GaussianImputer,
    OrdinalLikelihood,
    flat_images,
)
from lexppl.systems import lex, real_x
from tests.refusals import refused
from tests.small_models import OwnExplainer

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(60, 3, generator=GENERATOR)
Y = torch.randint(0, 3, (60,), generator=GENERATOR)
QUICK = {"epochs": 1, "progress": False}
SMALL = {"hidden": (4,), "predictor_hidden": (4,)}


def own(**options):
    return OwnExplainer(classes=3, **options)


def with_one(value, y=Y, row=17):
    changed = y.clone()
    changed[row] = value
    return changed


MODELS = {
    "categorical": (lambda: lex(3, classes=3, k=1, **SMALL), 3),
    "one predictor": (lambda: lex(3, classes=3, k=1, folds=1, **SMALL), 3),
    "two stages": (lambda: real_x(3, classes=3, penalty=0.1, **SMALL), 3),
    "ordinal": (lambda: lex(3, classes=3, k=1, likelihood=OrdinalLikelihood(3), **SMALL), 3),
    "bernoulli": (lambda: lex(3, classes=2, k=1, likelihood=BernoulliLikelihood(), **SMALL), 2),
    "own": (lambda: own, 3),
}


@pytest.mark.parametrize("value", [5, -1])
@pytest.mark.parametrize("name", MODELS)
def test_labels_beyond_the_classes_are_refused_by_name(name, value):
    make, classes = MODELS[name]
    y = Y.clamp(max=classes - 1)
    said = f"labels must be 0 … {classes - 1} for classes={classes}; y has {value} in row 17$"
    refused("train: " + said, fit, make(), (X, with_one(value, y)), **QUICK)
    floats = with_one(float(value), y.double()).numpy()
    refused("train: " + said, fit, make(), (X.numpy(), floats), **QUICK)
    refused("valid: " + said, fit, make(), (X, y), valid=(X, with_one(value, y)), **QUICK)


@pytest.mark.smoke
def test_a_fit_refuses_them_later_too():
    y, said = with_one(5), "labels must be 0 … 2 for classes=3; y has 5 in row 17"
    result = fit(lex(3, classes=3, k=1, **SMALL), (X, Y), **QUICK)
    for labels in (y, y.double()):
        refused(said, predictive_log_likelihood, result, X, labels)
        for explainer in (result, result.model):
            refused(said, explain, explainer, X, labels)
    refused(
        "y has labels .2.; fit saw",
        predictive_log_likelihood,
        fit(lex(3, classes=3, k=1, **SMALL), (X, Y.clamp(max=1)), **QUICK),
        X,
        Y.float(),
    )


def test_a_sampler_and_a_loader_refuse_them():
    y, said = with_one(5, Y), "train: labels must be 0 … 2 for classes=3; y has 5 in row 17"
    prior = {"selector": dist.Normal(0.0, 1.0)}
    system = lex(3, classes=3, k=1, hidden=(), prior=prior)
    refused(said, fit, system, (X, y), inference=NUTS, progress=False)
    loader = DataLoader(TensorDataset(X, y), batch_size=20)
    alone = lex(3, classes=3, k=1, folds=1, **SMALL)
    refused(said, fit, alone, loader, valid=None, **QUICK)
    late = DataLoader(TensorDataset(X, with_one(5, row=57)), batch_size=20)
    refused(said, fit, alone, late, valid=None, **QUICK)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.int32])
def test_whole_numbers_of_any_type_are_labels(name, kind):
    make, classes = MODELS[name]
    y = Y.clamp(max=classes - 1)
    first = fit(make(), (X, y), **QUICK)
    result = fit(make(), (X, y.to(kind)), **QUICK)
    assert result.labels == first.labels == tuple(range(classes))
    if name != "bernoulli":  # Whose labels may be fitted at once as floats alone
        np.testing.assert_array_equal(result.history.train, first.history.train)
    given = [explain(result, X, labels, draws=2, seed=1) for labels in (y, y.to(kind))]
    assert given[0]["sample_stats"].identical(given[1]["sample_stats"])


def test_floats_of_a_loader_are_labels():
    alone = lex(3, classes=3, k=1, folds=1, **SMALL)
    loaders = [DataLoader(TensorDataset(X, y), batch_size=20) for y in (Y, Y.float())]
    whole, floats = (fit(alone, one, valid=None, **QUICK).history.train for one in loaders)
    np.testing.assert_array_equal(whole, floats)


def test_truths_are_labels():
    result = fit(lex(3, classes=2, k=1, **SMALL), (X, Y > 0), **QUICK)
    assert result.labels == (0, 1)


def test_probabilities_are_asked_for_by_name():
    system = lex(3, classes=2, k=1, **SMALL)
    said = r"y has 0.25 in row 0, and 59 more rows .*; probabilities of labels are y \(N, 2\)"
    refused(said, fit, system, (X, torch.full((60,), 0.25)), **QUICK)
    said = r"\(N, 2\), labels, or .* for classes=2; the shape is \(60, 3\)$"
    refused(said, fit, system, (X, torch.full((60, 3), 1 / 3)), **QUICK)
    refused(r"give y\[:, 0\]; the shape is \(60, 1\)", fit, system, (X, Y[:, None]), **QUICK)
    assert fit(system, (X, torch.full((60, 2), 0.5)), **QUICK).labels is None


def test_one_class_of_floats_is_one_class():
    system = lex(3, classes=2, k=1, **SMALL)
    refused("train has one class only, 1", fit, system, (X, torch.ones(60)), **QUICK)


def test_a_program_may_make_its_labels():
    ages = 20.0 + 10.0 * Y
    result = fit(own(make=lambda y: (y > 25.0).long()), (X, ages), **QUICK)
    assert explain(result, X, ages, draws=2)["log_likelihood"]["y"].shape == (1, 2, 60)
    refused(
        "labels must be 0 … 2 for classes=3; y has [24]0 in row 0, and 59 more rows have others",
        fit,
        own(make=lambda y: y.long()),
        (X, ages),
        **QUICK,
    )
    # What is a number a row of a program of responses is none of this.
    fit(own(law=lambda f: dist.Normal(f[..., 0], 1.0)), (X, ages), **QUICK)


def test_rows_are_one_argument_and_have_a_dimension_of_rows():
    system = lex(3, classes=3, k=1, **SMALL)
    said = r"give x and y as one argument: fit\(model, \(x, y\)\)"
    refused(said, fit, system, X, Y, error=TypeError)
    refused(said, fit, system, X.numpy(), Y.numpy(), error=TypeError)
    said = r"x must have shape \(B, D\); it has \(3,\): give x\[:1\]"
    for y in (Y[0], Y[:1], Y[:3]):
        refused(said, fit, system, (X[0], y), **QUICK)
    refused(".B,.; it is a number: give y", fit, system, (X[:1], Y[0]), **QUICK)
    result = fit(system, (X, Y), **QUICK)
    for explainer in (result, result.model):
        refused(said, explain, explainer, X[0])
        refused(said, explain, explainer, X[0].numpy(), Y[0])
    refused(said, predictive_log_likelihood, result, X[0], Y[:1])
    refused("it is a number", predictive_log_likelihood, result, X[:1], Y[0])


def test_an_image_without_its_dimension_of_rows():
    x = torch.rand(40, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    system = lex(flat_images((1, 4, 4), patches=2), classes=3, k=1)
    result = fit(system, (x, Y[:40]), **QUICK)
    said = r"x must have shape \(B, 1, 4, 4\); it has \(1, 4, 4\): give x\[:1\]$"
    refused(said, explain, result, x[0])


def test_arrays_that_must_not_be_written_to_are_taken_without_a_warning(recwarn):
    """Pandas gives such arrays, and torch warns of them once a process."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        x, y = X.numpy().copy(), Y.numpy().copy()
        x.flags.writeable = y.flags.writeable = False
        weights = np.broadcast_to(1.0, 60)
        system = lex(3, classes=3, k=1, **SMALL)
        result = fit(system, (x, y), row_weights=weights, sample_weight=weights, **QUICK)
        explain(result, pd.DataFrame(x), pd.Series(y), draws=2)
        imputation({"a": GaussianImputer(), "b": ConstantImputer()}, x, rates=[0.5])
    finally:
        torch.set_warn_always(before)
    assert not [each for each in recwarn if "writable" in str(each.message)]
    np.testing.assert_array_equal(x, X.numpy())
