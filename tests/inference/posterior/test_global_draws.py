"""Draws of global latents as a guide, and fits as draws: bootstraps and deep ensembles."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lexppl import explain
from lexppl.arviz_compatibility import group_of
from lexppl.inference.contexts import seeded
from lexppl.inference.posterior.global_draws import SampledGuide, stacked_parameters
from lexppl.inference.predictive import FittedProgram, drawing
from lexppl.models import MLP, BernoulliSelector
from tests.refusals import refusals, refused
from tests.small_models import Line, explainer, quick, table

X, Y = table()


@pytest.fixture(scope="module")
def result():
    return quick(explainer(), (X, Y), replicates=3, row_weights="dirichlet", epochs=2)


@pytest.mark.smoke
def test_each_draw_is_one_of_the_fits(result):
    """The masks' means and the label's probabilities of a draw are those of its fit, to the bit."""
    drawn = result.as_draws()
    with drawing(seed=0):
        program = FittedProgram(drawn.model, drawn.guides[0], (X[:1],), draws=3)
        runs = [run for run, _ in program.runs((X,), masks=5)]
        assert len(runs) == 3
        for run, model in zip(runs, result.models, strict=True):
            ((one, _),) = FittedProgram(model, None, (X[:1],), draws=5).runs((X,))
            probabilities = run.sites["mask"].distribution.mean[0]
            torch.testing.assert_close(probabilities, one.sites["mask"].distribution.mean[0])
    first, second = (run.sites["mask"].distribution.mean[0] for run in runs[:2])
    assert not torch.allclose(first, second)


def test_they_are_one_chain(result):
    drawn = result.as_draws()
    assert drawn.replicates == 1 and drawn.guides[0].draws == 3
    assert drawn.sampler.name == "bootstrap" and not drawn.sampler.are_chains
    posterior = explain(drawn, X[:7], Y[:7], draws=3)
    assert group_of(posterior, "log_likelihood")["y"].shape == (1, 3, 7)
    means = explain(drawn, X[:7], draws=3)
    found = group_of(means, "sample_stats")["selection_probability"].values[0]
    each = explain(result, X[:7], draws=1)
    expected = group_of(each, "sample_stats")["selection_probability"].values.mean(0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_buffers_in_which_fits_differ_are_drawn_too(result):
    models = [explainer(), explainer()]
    for place, model in enumerate(models):
        model.predictor.register_buffer("shift", torch.tensor(float(place)))
        model.predictor.register_buffer("common", torch.tensor(1.0))
    stacked = stacked_parameters(models)
    assert stacked["predictor.shift"].tolist() == [0.0, 1.0]
    assert "predictor.common" not in stacked


def test_what_is_no_draws_of_one_program_is_refused(result):
    several = quick(explainer(), (X, Y), replicates=2)
    assert several.as_draws().sampler.name == "deep ensemble"
    refused(r"as_draws\(\) needs two replicates", result.subset([0]).as_draws)
    refused("draws already, by bootstrap", result.as_draws().as_draws)
    refused("same names and shapes", stacked_parameters, [explainer(), explainer(hidden=(5,))])
    models = [explainer(), explainer()]
    for place, model in enumerate(models):
        model.predictor.rounds = place
    others = replace(result.subset([0, 1]), models=models)
    refused(r"differ in predictor.rounds", others.as_draws)
    with pytest.raises(ValueError, match="only parameters of programs"):
        replace(result, guides=[BernoulliSelector(MLP(3, 3, (4,)))] * 3).as_draws()


def slopes_of(draws, samples):
    x = torch.ones(3, 1)
    with drawing(seed=0):
        program = FittedProgram(Line(), SampledGuide({"slope": samples}), (x[:1],), draws)
        runs = [run for run, _ in program.runs((x,))]
    return [float(run.sites["slope"].value) for run in runs]


def test_draws_are_all_samples_in_order_or_evenly_thinned():
    assert slopes_of(4, torch.tensor([1.0, 2.0, 3.0, 4.0])) == [1.0, 2.0, 3.0, 4.0]
    assert slopes_of(2, torch.tensor([1.0, 2.0, 3.0, 4.0])) == [1.0, 3.0]


def test_called_by_itself_it_gives_one_at_random():
    guide = SampledGuide({"a": torch.arange(50.0)})
    with seeded(0):
        first = [float(guide(None)["a"]) for _ in range(20)]
    with seeded(0):
        again = [float(guide(None)["a"]) for _ in range(20)]
    assert first == again
    assert len(set(first)) > 10


def test_its_draws_go_through_its_state():
    guide = SampledGuide({"net.0.weight": torch.randn(5, 2, 3)})
    copy = SampledGuide({"net.0.weight": torch.zeros(5, 2, 3)})
    copy.load_state_dict(guide.state_dict())
    assert torch.equal(copy.sites["net.0.weight"], guide.sites["net.0.weight"])


test_what_is_no_draws_is_refused = refusals(
    ({}, "at least one site"),
    ({"a": [1.0]}, TypeError, "tensor"),
    ({"a": torch.zeros(3), "b": torch.zeros(2)}, "same number of draws"),
    ({"a": torch.zeros(0)}, "same number of draws"),
    of=SampledGuide,
)
