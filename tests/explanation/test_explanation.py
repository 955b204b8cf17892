"""What a notebook shows of an explanation, and the same rows at another penalty."""

import copy
import pickle

import numpy as np
import pytest
import torch

from lexppl.arviz_compatibility import group_of, posterior_class
from lexppl.explanation import explain, mask_means, selection_table
from lexppl.explanation.reading.sentences import Reading, groups_read, html
from lexppl.inference import fit
from lexppl.models import images
from lexppl.systems import lex
from tests.refusals import refused

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


def test_a_notebook_shows_the_reports_sentences(result):
    posterior = explain(result, X, draws=0, entry_names=NAMES)
    page = posterior._repr_html_()
    table = selection_table(posterior)
    reading = Reading("", groups_read(table, None), 3, 120, 3)
    for question, answer in reading.answers():
        assert question in page and str(html(answer)) in page
    assert "<strong>&lt;b&gt;age&lt;/b&gt;</strong> in nearly every row" in page
    assert "The 3 fits agree" in page and "<b>" not in page
    assert all(f"{share:.3f}" in page for share in table["selection_probability"])
    # Nothing was judged.
    assert "predict" not in page.replace("prediction", "")
    assert len(page) < 3000 and "<script" not in page and "120 rows, 3 features" in page


def test_entries_of_images_are_not_named():
    shape = images((1, 4, 4), blocks=(2,), levels=0, width=2)
    system = lex(shape, classes=2, penalty=0.02)
    pixels = torch.randn(6, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    model = fit(system, (pixels, Y[:6]), valid=None, epochs=1, progress=False)
    page = explain(model, pixels, draws=0)._repr_html_()
    assert "What does the prediction rest on?" not in page and "sample_stats" in page


def test_another_penalty_is_that_of_explain(result):
    how = {"draws": 20, "seed": 7, "entry_names": NAMES, "row_names": list(range(200, 320))}
    posterior = explain(result, X, Y, **how).at(penalty=0.1)
    again = explain(result, X, Y, penalty=0.1, **how)
    for name in ("predictions", "sample_stats", "log_likelihood"):
        assert group_of(posterior, name).identical(group_of(again, name))
    assert posterior.at(penalty=0.005).attrs["seed"] == 7
    assert not mask_means(posterior).equals(mask_means(explain(result, X, Y, **how)))


def test_a_fit_of_one_penalty_has_no_other():
    posterior = explain(fitted(0.02, 1), X, draws=0)
    refused("this program was fitted for one alone", posterior.at, penalty=0.01)
    assert "There is one fit" in posterior._repr_html_()


@pytest.mark.parametrize(
    "derived",
    [
        copy.deepcopy,
        lambda p: pickle.loads(pickle.dumps(p)),
        lambda p: p.isel(row=[0, 1]),
        lambda p: type(p)(),
    ],
    ids=["copied", "pickled", "selected", "wrapped"],
)
def test_what_is_derived_holds_no_fit_and_is_shown_by_arviz(result, derived):
    posterior = explain(result, X, draws=0)
    assert posterior.attrs["seed"] == 0
    found = derived(posterior)
    assert isinstance(found, posterior_class())
    assert "What does the prediction rest on?" not in found._repr_html_()
    if type(found) is not posterior_class():
        refused(r"holds no fit: take explanation.at\(penalty=…\) of", found.at, penalty=0.1)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_hold_the_numbers(result, copied):
    posterior = explain(result, X, draws=0)
    found = copied(posterior)
    assert (type(found) is posterior_class()) == (copied is not copy.deepcopy)
    np.testing.assert_array_equal(mask_means(found), mask_means(posterior))
