"""Every system by name: fits, explains, is saved and loaded, and refuses bad input."""

import math

import numpy as np
import pytest
import torch

from lexppl import explain, fit, load, save
from lexppl.explanation import mask_means
from lexppl.inference.contexts import seeded
from lexppl.models import Grouping
from lexppl.models.predictor import table_predictor
from lexppl.systems import METHODS, system_for
from tests.refusals import refused, refused_before_any_step

ROWS = 120
X = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(0))
LABELS = (X[:, 0] > 0).long() + (X[:, 1] > 1).long()
RESPONSE = X[:, 0] * 2.0 + 1.0
SMALL = {"hidden": (6,), "predictor_hidden": (6, 6)}
FIT = {"epochs": 2, "batch_size": 40, "progress": False}


def settings(name, classes=3, features=4, **options):
    with seeded(1):
        model = table_predictor(features, classes, (5,))
    method = METHODS[name]
    given = {"k": 2 if method.needs("k") else None, "black_box": model, **SMALL, **options}
    return {"features": features, "classes": classes, **given}


@pytest.mark.complete(but=6)
@pytest.mark.parametrize("name", METHODS)
def test_it_fits_labels_a_black_box_and_replicates_and_is_saved(name, tmp_path):
    state = torch.get_rng_state()
    grouping = Grouping([0, 1, 1, 2])
    system = system_for(name, settings(name, grouping=grouping))
    result = fit(system, (X, LABELS), replicates=2, **FIT)
    posterior = explain(result, X[:7], draws=3)
    importance = mask_means(posterior).values
    assert importance.shape == (2, 7, 3)
    assert np.isfinite(importance).all()
    assert (importance[0] != importance[1]).any() or name in ("l2x", "vibi", "meed")
    given_y = explain(result, X[:7], LABELS[:7], draws=3)
    assert given_y["predictions"]["mask"].equals(posterior["predictions"]["mask"])
    assert np.isfinite(given_y["log_likelihood"]["y"].values).all()
    save(result, tmp_path / "explainer")
    again = explain(load(tmp_path / "explainer"), X[:7], draws=3)
    assert again["predictions"]["mask"].equals(posterior["predictions"]["mask"])
    black_box = torch.softmax(torch.stack([X[:, 0], X[:, 1], 0 * X[:, 0]], -1), -1)
    other = fit(system_for(name, settings(name)), (X, black_box), valid=0.2, **FIT)
    assert math.isfinite(other.best_valid[0])
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", METHODS)
def test_it_fits_a_response_or_says_that_it_cannot(name):
    if METHODS[name].labels_only:
        refused(f"{name} explains labels", system_for, name, settings(name, classes=None))
        return
    result = fit(system_for(name, settings(name, classes=None)), (X, RESPONSE), **FIT)
    posterior = explain(result, X[:3], RESPONSE[:3], draws=2)
    assert posterior["predictions"]["y"].shape == (1, 2, 3)
    assert posterior["log_likelihood"]["y"].shape == (1, 2, 3)


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_bits(name):
    def weights():
        result = fit(system_for(name, settings(name)), (X, LABELS), seed=3, **FIT)
        parts = [*result.models, *[g for g in result.guides if g is not None]]
        return torch.cat([p.detach().flatten() for m in parts for p in m.parameters()])

    assert torch.equal(weights(), weights())


@pytest.mark.parametrize("name", METHODS)
def test_it_works_in_double_precision(name):
    with pytest.raises(ValueError, match=r"x is torch.float64 and the model torch.float32"):
        fit(system_for(name, settings(name)), (X.double(), LABELS), **FIT)
    system = system_for(name, settings(name)).to(torch.float64)
    result = fit(system, (X.double(), LABELS), **FIT)
    assert {p.dtype for p in result.model.parameters()} == {torch.float64}
    assert explain(result, X[:3].double(), draws=2)["predictions"]["mask"].shape == (1, 2, 3, 4)


def nan_rows():
    x = X.clone()
    x[3, 1] = math.nan
    return x


BAD_DATA = {
    "NaN": (lambda: (nan_rows(), LABELS), r"must be finite; 1 of its \d+ values"),
    "infinite": (lambda: (X / 0.0, LABELS), "must be finite"),
    "empty": (lambda: (X[:0], LABELS[:0]), "has no rows"),
    "lengths": (lambda: (X, LABELS[:5]), "as many rows each"),
    "one class": (lambda: (X, 0 * LABELS), "one class only"),
    "text": (lambda: (np.array([["a"] * 4] * ROWS), LABELS), "must hold numbers"),
    "features": (lambda: (X[:, :3], LABELS), "features|must"),
    "label": (lambda: (X, LABELS + 5), "labels must be 0 …"),
}


@pytest.mark.parametrize("bad", BAD_DATA)
@pytest.mark.parametrize("name", METHODS)
def test_bad_data_is_refused_before_any_step(name, bad):
    if (name, bad) == ("q_fit_global", "one class"):
        pytest.skip("nothing but a posterior is learned, and such labels leave it its prior")
    make, message = BAD_DATA[bad]
    refused_before_any_step(message, system_for(name, settings(name)), make(), batch_size=40)


BAD_SETTINGS = {
    "classes": ({"classes": 1}, "classes|labels of at least 2|explains"),
    "features": ({"features": 0}, "features must be a whole number of at least 1"),
    "grouping": ({"grouping": Grouping([0, 1, 1])}, "is of 3 features; there are 4"),
}


@pytest.mark.parametrize("bad", BAD_SETTINGS)
@pytest.mark.parametrize("name", METHODS)
def test_bad_numbers_are_refused_by_the_factory(name, bad):
    changed, message = BAD_SETTINGS[bad]
    good = settings(name)
    refused(message, system_for, name, {**good, **changed}, error=(ValueError, TypeError))


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if m.takes("penalty")])
def test_a_negative_penalty_is_refused(name):
    message = "penalty's weight must be a finite number of at least 0; it is -1"
    refused(message, system_for, name, settings(name, penalty=-1.0))


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if m.explains_model])
def test_a_model_that_is_missing_is_asked_for(name):
    with pytest.raises(ValueError, match=f"{name} explains a given model: give black_box="):
        system_for(name, settings(name, black_box=None))


def test_an_unknown_method_is_told_the_known_ones():
    message = r"method must be one of \['base_x', 'fastshap'.*it is 'shapley'"
    refused(message, system_for, "shapley", settings("lex"))


def test_a_system_has_its_own_objective():
    system = system_for("lex", settings("lex"))
    refused("have their own: leave out guide", fit, system, (X, LABELS), objective=object(), **FIT)
    refused("a System has stages of its own", fit, system, (X, LABELS), stages=[], **FIT)
