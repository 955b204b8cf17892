"""An explanation is of ArviZ's own class; what it reads in sentences."""

import copy
import pickle

import arviz
import pandas as pd
import pytest
import torch
import xarray as xr

from lexppl.arviz_compatibility import group_names, group_of
from lexppl.data import synthetic
from lexppl.evaluation import Folds
from lexppl.explanation import explain, selection_table
from lexppl.explanation.explain import explanation_tree
from lexppl.explanation.reading.sentences import Reading, groups_read, html, plain
from lexppl.inference import fit
from lexppl.models import images
from lexppl.plots import answers
from lexppl.systems import lex
from tests.refusals import refused

ARVIZ = getattr(arviz, "InferenceData", xr.DataTree)
X = torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
NAMES = ["<b>age</b>", "height", "x2"]


def fitted(penalty, replicates=3):
    system = lex(3, classes=2, penalty=penalty, hidden=(8,), predictor_hidden=(8,))
    return fit(
        system,
        (X, Y),
        valid=None,
        replicates=replicates,
        epochs=30,
        batch_size=40,
        learning_rate=1e-2,
        progress=False,
    )


@pytest.fixture(scope="module")
def result():
    return fitted((0.005, 0.16))


@pytest.mark.smoke
def test_an_explanation_is_of_arvizs_own_class(result):
    posterior = explain(result, X, Y, draws=4)
    folds = Folds.of(Y, 3)
    for own in (posterior, folds.posterior(result, X, draws=0)):
        assert type(own) is ARVIZ
        for other in (copy.copy(own), copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
            assert type(other) is ARVIZ and repr(other) == repr(own)
            assert other.attrs == own.attrs and group_names(other) == group_names(own)
            for name in group_names(own):
                assert group_of(other, name).identical(group_of(own, name))
    assert {"predictions", "log_likelihood"} <= set(group_names(posterior))
    # A group that is set is that of the posterior.
    posterior["sample_stats"]["mine"] = xr.DataArray([1.0], dims="new")
    assert "mine" in group_of(posterior, "sample_stats")


def test_the_tree_of_the_command_line_has_the_same_groups(result):
    options = {"draws": 4, "seed": 3, "penalty": 0.05, "coords": {"row": range(7, 127)}}
    tree = explanation_tree(result, X, Y, **options)
    posterior = explain(result, X, Y, **options)
    assert type(tree) is xr.DataTree and dict(tree.attrs) == dict(posterior.attrs)
    assert set(group_names(tree)) == set(group_names(posterior))  # ArviZ has an order of them
    for name in group_names(tree):
        assert group_of(tree, name).identical(group_of(posterior, name))


def test_answers_are_the_sentences_of_the_report(result):
    posterior = explain(result, X, draws=0, entry_names=NAMES)
    found = answers(posterior)
    page = found._repr_html_()
    reading = Reading("", groups_read(selection_table(posterior), None), 3, 120, 3)
    for question, answer in reading.answers():
        assert question in page and str(html(answer)) in page
        assert question in repr(found) and plain(answer) in repr(found)
    assert "<strong>&lt;b&gt;age&lt;/b&gt;</strong> in nearly every row" in page
    assert "The 3 fits agree" in page and "<b>" not in page and "<script" not in page
    # Nothing was judged.
    assert "predict" not in page.replace("prediction", "")
    assert "There is one fit" in repr(answers(explain(result.subset([0]), X, draws=0)))


def test_rows_of_images_have_no_answers():
    shape = images((1, 4, 4), blocks=(2,), levels=0, width=2)
    system = lex(shape, classes=2, penalty=0.02)
    pixels = torch.randn(6, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    model = fit(system, (pixels, Y[:6]), valid=None, epochs=1, progress=False)
    refused(
        r"table's rows \(N, D\); those .* shape \(6, 1, 4, 4\)", answers, explain(model, pixels)
    )


def test_a_data_set_is_explained_as_its_x_and_y(result):
    data = synthetic("S1", rows=20, seed=0)
    system = lex(11, classes=2, k=3, hidden=(4,), predictor_hidden=(4,))
    of_data = fit(system, data, epochs=1, progress=False)
    expected = explain(of_data, data.x, data.y, draws=4)
    frame = pd.DataFrame(X[:5].numpy(), columns=["x", "y", "z"])
    for found in (explain(of_data, data, draws=4), explain(of_data, (data.x, data.y), draws=4)):
        assert group_names(found) == group_names(expected)
        for name in group_names(expected):
            assert group_of(found, name).identical(group_of(expected, name))
    alone = explain(of_data, (data.x, None), draws=4)
    assert "posterior" not in group_names(alone)
    # A data frame with columns x and y is rows.
    assert explain(result, frame, draws=0)["sample_stats"].sizes["row"] == 5
