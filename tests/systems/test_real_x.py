"""REAL-X's networks are its paper's, and its options do what LEX's of the same names do."""

import pytest
import torch

from lexppl.inference import NestedIWAE, fit
from lexppl.inference.contexts import program_settings
from lexppl.models.predictor import Predictor
from lexppl.systems import real_x
from tests.refusals import refusals

SMALL = {"classes": 2, "hidden": (4,), "predictor_hidden": (4,)}


@pytest.mark.parametrize("rate", [0.2, 0.8])
def test_an_annealed_selector_starts_at_its_rate_without_a_penalty(rate):
    term = real_x(3, towards=rate, samples=3, temperature=0.2, **SMALL).build()[1].terms[0]
    assert isinstance(term.objective, NestedIWAE)
    first, last = (term.objective.at(progress).spec for progress in (0.0, 1.0))
    assert (first.penalty, last.penalty) == (0.0, 1.0)
    assert first.entropy > last.entropy == 0.0
    assert term.objective.estimator.temperature == 0.2
    for layer in term.model.selector.network.layers:
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    with program_settings(validate=True), torch.no_grad():
        kept = term.model.selector(torch.randn(5, 3)).mean
    assert torch.allclose(kept, torch.full_like(kept, rate))


@pytest.mark.smoke
def test_two_folds_fit_two_predictors():
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    data = (x, (x[:, 0] > 0).long())
    counts = []
    for folds in (1, 2):
        result = fit(real_x(3, folds=folds, **SMALL), data, epochs=2, progress=False)
        counts.append(sum(isinstance(part, Predictor) for part in result.model.modules()))
    assert counts == [1, 2]


test_bad_input_is_refused = refusals(
    ({"folds": 0}, "folds must be a whole number of at least 1; it is 0"),
    ({"towards": 1.0}, r"must be a share .*1.0"),
    of=lambda options: real_x(3, **SMALL, **options),
)
