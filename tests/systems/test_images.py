"""Every method on images: it fits, explains patches by name, is saved, and is judged."""

import math

import numpy as np
import pytest
import torch

from lexppl import explain, fit, load, save
from lexppl.explanation import mask_means, selection_table
from lexppl.inference.contexts import seeded
from lexppl.models import CategoricalLikelihood, Grouping, Predictor, flat_images, images
from lexppl.models.architectures.base import TableArchitecture
from lexppl.systems import METHODS, cxplain, cxplain_targets, lex, meed, senn, system_for
from lexppl.systems.real_x import real_x
from tests.refusals import refusals, refused

SHAPE = (1, 8, 8)
ROWS = 40
X = torch.rand(ROWS, *SHAPE, generator=torch.Generator().manual_seed(0))
bright = X[:, 0, :4, :4].mean((1, 2))
Y = (bright > bright.median()).long()
NAMES = ["r1 c1", "r1 c2", "r2 c1", "r2 c2"]
FIT = {"epochs": 1, "batch_size": 20, "progress": False}
ON_IMAGES = [name for name in METHODS if name not in ("xtab", "suwr")]


def convolutional(**options):
    small = {"blocks": (4,), "levels": 1, "width": 4}
    return images(SHAPE, patches=4, **{**small, **options})


def flat():
    return flat_images(SHAPE, patches=4, hidden=(8,), predictor_hidden=(8,))


def black_box(architecture, outputs=2):
    return Predictor(architecture.predictor(outputs, seed=1), CategoricalLikelihood(), 3)


def system(name, architecture):
    method = METHODS[name]
    k = 2 if method.needs("k") else None
    box = black_box(architecture)
    given = {"features": architecture, "classes": 2, "k": k, "black_box": box}
    return system_for(method, given)


@pytest.mark.complete(but=6)
@pytest.mark.parametrize("name", ON_IMAGES)
@pytest.mark.parametrize("make", [convolutional, flat])
def test_every_method_fits_and_explains_images(name, make, tmp_path):
    result = fit(system(name, make()), (X, Y), replicates=2, **FIT)
    posterior = explain(result, X[:5], draws=3)
    masks = posterior["predictions"]["mask"]
    assert masks.dims == ("chain", "draw", "row", "feature")
    assert masks.shape == (2, 3, 5, 4)
    assert list(posterior["predictions"]["feature"].values) == NAMES
    assert np.isfinite(mask_means(posterior).values).all()
    assert list(selection_table(posterior).index) != []
    given_y = explain(result, X[:5], Y[:5], draws=3)
    assert np.isfinite(given_y["log_likelihood"]["y"].values).all()
    save(result, tmp_path / "explainer")
    again = explain(load(tmp_path / "explainer"), X[:5], draws=3)
    assert again["predictions"]["mask"].equals(masks)
    assert list(again["predictions"]["feature"].values) == NAMES


@pytest.mark.parametrize("make", [convolutional, flat])
def test_cxplain_explains_images(make):
    architecture = make()
    shares = cxplain_targets(black_box(architecture), X, Y, grouping=architecture.grouping)
    assert shares.shape == (ROWS, 4)
    assert torch.allclose(shares.sum(-1), torch.ones(ROWS), atol=1e-5)
    # What hiding the first patch costs, by hand.
    box = black_box(architecture).eval()
    hidden = X[:1].clone()
    hidden[:, :, :4, :4] = 0.0
    with torch.no_grad():
        dearer = [-box(rows).log_prob(Y[:1]).item() for rows in (hidden, X[:1])]
    assert (shares[0, 0] > 0) == (dearer[0] > dearer[1]) or math.isclose(shares[0, 0], 0.25)
    posterior = explain(fit(cxplain(architecture), (X, shares), **FIT), X[:5], draws=0)
    assert list(posterior["sample_stats"]["feature"].values) == NAMES
    refused("need a grouping=", cxplain_targets, black_box(architecture), X, Y)
    with pytest.raises(ValueError, match="grouping is of"):
        cxplain_targets(black_box(architecture), X, Y, grouping=Grouping(range(64)))


def test_xtab_and_suwr_say_why_they_have_no_images():
    refused("xtab cuts the columns of a table into subsets", system, "xtab", flat())
    refused("suwr's policy is a perceptron of a table's columns", system, "suwr", flat())


def test_the_selector_of_meed_is_shown_the_output_as_a_channel():
    architecture = convolutional()
    boxes = [black_box(architecture), black_box(architecture)]
    with torch.no_grad():
        boxes[1].network.last.bias += torch.tensor([3.0, -3.0])
    programs = []
    for box in boxes:
        with seeded(3):
            programs.append(meed(architecture, box, classes=2, k=1).program().eval())
    network = programs[0].selector.network
    assert network.network.shape == (2, 8, 8)
    assert network.join.map.out_features == 64
    one, other = (p.selector.network(X[:3]) for p in programs)
    assert not torch.allclose(one, other, atol=1e-4)
    one.sum().backward()
    assert bool((network.join.map.weight.grad != 0).any())
    without = meed(architecture, boxes[0], classes=2, k=1, output_feedback=False).program()
    assert without.selector.network.shape == SHAPE


def test_senn_has_a_coefficient_for_each_pixel_and_sums_them_by_patch():
    program = senn(convolutional(), classes=2).program()
    theta = program.coefficients(X[:3])
    assert theta.shape == (3, 2, 64)
    outputs = (theta * X[:3].flatten(1)[:, None]).sum(-1)
    assert torch.allclose(program.outputs_of(X[:3]), outputs, atol=1e-5)
    rows = X[:1].double().requires_grad_()
    double = senn(convolutional(), classes=2).to(torch.float64).program()
    slopes = torch.stack(
        [torch.autograd.grad(double.outputs_of(rows)[0, c], rows)[0].flatten() for c in range(2)]
    )
    expected = (slopes - double.coefficients(rows)[0]).square().sum()
    assert torch.allclose(double.unsteadiness(rows)[0], expected)


def test_a_table_s_architecture_is_what_a_number_of_features_means():
    with seeded(0):
        short = real_x(3, classes=2, hidden=(4,), predictor_hidden=(5,)).program()
    table = TableArchitecture(3, hidden=(4,), predictor_hidden=(5,))
    with seeded(0):
        long = real_x(table, classes=2).program()
    for a, b in zip(short.parameters(), long.parameters(), strict=True):
        assert torch.equal(a, b)


test_what_an_architecture_has_itself_is_not_given_beside_it = refusals(
    (lambda: lex(flat(), classes=2, hidden=(4,)), "hidden= is of a table's perceptrons"),
    (lambda: real_x(flat(), classes=2, grouping=Grouping(range(4))), "grouping= is of a table"),
    (lambda: lex(SHAPE, classes=2), r"or an architecture, such as images"),
    (lambda: lex(flat(), classes=2, k=5), "k must be a whole number from 1 to 4"),
    (
        lambda: system_for("lex", dict(features=flat(), classes=2, grouping=Grouping([0]))),
        "grouping=",
    ),
)


def test_images_of_another_scale_than_those_of_the_fit_are_refused(tmp_path):
    result = fit(lex(flat(), classes=2, k=1), (X, Y), **FIT)
    save(result, tmp_path / "explainer")
    for fitted in (result, load(tmp_path / "explainer")):
        assert fitted.unit_pixels
        refused(r"in \[0, 1\], as in fit.* Divide by 255", explain, fitted, X[:2] * 255)
        with pytest.raises(ValueError, match=r"in \[0, 1\], as in fit, not -1 to "):
            explain(fitted, torch.where(X[:2] > 0.5, X[:2], -1.0))
        # A little noise is no other scale.
        assert explain(fitted, X[:2] + 0.1, draws=2) is not None
