"""Weight decay by part of the program and by replicate."""

import math
import warnings

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule, PyroParam
from torch import nn
from torch.distributions import constraints

from lexppl.effects import mask_particles
from lexppl.inference import Enumerate, LossTerm, NestedIWAE, Stage, System, fit
from lexppl.inference.stages import TrainingModules
from lexppl.inference.training.weight_decay import decays_by_parameter
from lexppl.models import (
    LEX,
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    ConstantImputer,
    Predictor,
    frozen,
)
from lexppl.systems import lex

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] * X[:, 1] > 0).long()
QUIET = {
    "progress": False,
    "valid": None,
    "epochs": 6,
    "batch_size": 20,
    "learning_rate": 0.02,
    "objective": NestedIWAE(math.inf, estimator=Enumerate()),
}

WHOLE = {**QUIET, "batch_size": 40}
"""All rows in a batch: of the exact objective nothing is drawn then."""


def explainer(seed=0, given=None):
    predictor = Predictor(MLP(3, 2, (4,), seed=seed + 1), CategoricalLikelihood())
    return LEX(
        BernoulliSelector(MLP(3, 3, (4,), seed=seed)),
        ConstantImputer(0.0),
        predictor if given is None else frozen(given),
    )


def largest_difference(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)


@pytest.mark.parametrize("folds", [1, 2])
@pytest.mark.parametrize("clip_norm", [None, 0.05])
def test_a_part_for_all_is_adams_own(folds, clip_norm):
    options = {**QUIET, "folds": folds, "clip_norm": clip_norm}
    own = fit(explainer(), (X, Y), weight_decay=0.3, **options).model
    by_hand = {"selector": 0.3, "predictor": 0.3}
    found = fit(explainer(), (X, Y), weight_decay=by_hand, **options).model
    assert largest_difference(own, found) < 1e-5
    none = fit(explainer(), (X, Y), weight_decay=0.0, **options).model
    assert largest_difference(own, none) > 1e-2


@pytest.mark.parametrize("part", ["selector", "predictor"])
def test_each_replicate_is_the_fit_with_its_own(part):
    models = [explainer(0), explainer(5), explainer(9)]
    decays = (0.0, 0.3, 0.05)
    together = fit(models, (X, Y), weight_decay={part: decays}, **WHOLE)
    for model, decay, found in zip(models, decays, together.models, strict=True):
        alone = fit(model, (X, Y), weight_decay={part: decay}, **WHOLE).model
        assert largest_difference(alone, found) < 1e-4
    other = fit(models[1], (X, Y), weight_decay={part: 0.05}, **WHOLE).model
    assert largest_difference(other, together.models[1]) > 1e-3


def test_a_sequence_alone_is_for_all_parts():
    models = [explainer(0), explainer(0)]
    together = fit(models, (X, Y), weight_decay=(0.0, 0.3), **WHOLE)
    for decay, found in zip((0.0, 0.3), together.models, strict=True):
        alone = fit(explainer(0), (X, Y), weight_decay=decay, **WHOLE).model
        assert largest_difference(alone, found) < 1e-4
    assert largest_difference(*together.models) > 1e-2


def sizes(model):
    parts = (model.selector, model.predictor)
    return [float(sum(p.detach().square().sum() for p in part.parameters())) for part in parts]


def test_only_the_named_part_is_held_back():
    options = {**QUIET, "epochs": 60}
    selector, predictor = (
        sizes(fit(explainer(), (X, Y), weight_decay=decays, **options).model)
        for decays in ({"selector": 3.0, "predictor": 0.0}, {"selector": 0.0, "predictor": 3.0})
    )
    assert selector[0] < 0.1 * predictor[0]
    assert predictor[1] < 0.1 * selector[1]


def decays_of(model, given, replicates=1, **options):
    modules = TrainingModules([Stage([LossTerm(model, NestedIWAE(2))], **options)])
    found = decays_by_parameter(given, modules, replicates, 1e-3)
    return {name.removeprefix("programs.0."): decay for name, decay in found.items()}


def test_the_longest_name_counts_and_the_rest_keeps_its_own():
    found = decays_of(explainer(), {"selector": 0.1, "selector.network.layers.0": (0.2,)})
    assert found["selector.network.layers.0.weight"] == (0.2,)
    assert {d for n, d in found.items() if n.startswith("predictor")} == {(1e-3,)}
    rest = [n for n in found if n.startswith("selector") and ".layers.0." not in n]
    assert rest and all(found[n] == (0.1,) for n in rest)
    assert decays_of(explainer(), (0.1, 0.2), 2)["selector.network.layers.0.bias"] == (0.1, 0.2)


def test_systems_of_several_terms_and_cross_fitted_ones_are_named_alike():
    system = lex(3, classes=2, hidden=(4,), predictor_hidden=(4,), folds=2)
    options = {"epochs": 30, "progress": False, "learning_rate": 0.02, "batch_size": 40}
    free, held = (
        sizes(fit(system, (X, Y), weight_decay={"predictor": decay}, **options).model)[1]
        for decay in (0.0, 3.0)
    )
    assert held < 0.2 * free


def test_a_parameter_that_programs_share_has_one_name():
    class Renamed(nn.Module):
        def __init__(self, part):
            super().__init__()
            self.critic = part

        def forward(self, x, y=None):
            with pyro.plate("data", len(x), dim=-1), mask_particles():
                pyro.sample("y", self.critic(x), obs=y)

    model = explainer()
    terms = [LossTerm(m, NestedIWAE(1)) for m in (model, Renamed(model.predictor))]
    modules = TrainingModules([Stage(terms)])
    found = decays_by_parameter({"critic": 0.5}, modules, 1, 1e-3)
    assert {d for n, d in found.items() if "predictor" in n or "critic" in n} == {(0.5,)}
    with pytest.raises(ValueError, match="twice, as 'predictor' and 'critic'"):
        decays_by_parameter({"critic": 0.5, "predictor": 0.1}, modules, 1, 1e-3)


class Held(PyroModule):
    """A network and a constrained number."""

    def __init__(self):
        super().__init__()
        self.selector = MLP(3, 3, (4,), seed=0)
        self.temperature = PyroParam(torch.tensor(2.0), constraint=constraints.positive)

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            logits = self.selector(x) / self.temperature
            mask = pyro.sample("mask", dist.Bernoulli(logits=logits).to_event(1))
            pyro.sample("y", dist.Bernoulli(logits=(mask * x).sum(-1)), obs=y.float())


def test_what_the_bound_holds_is_spared():
    options = {**QUIET, "epochs": 3, "objective": NestedIWAE(2)}
    with pytest.warns(UserWarning, match=r"leaves out \[.*temperature_unconstrained'\]"):
        held = fit(Held(), (X, Y), weight_decay={"selector": 0.1, "temperature": 5.0}, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        free = fit(Held(), (X, Y), weight_decay={"selector": 0.1}, **options)
    assert largest_difference(held.model, free.model) == 0.0


@pytest.mark.parametrize(
    ("given", "replicates", "words"),
    [
        ({"selektor": 0.1}, 1, r"names \['selektor'\].*those are \['predictor', 'selector'\]"),
        ({"select": 0.1}, 1, r"names \['select'\]"),
        ({"selector": -0.1}, 1, "weight_decay of 'selector' must be .*at least 0"),
        ({"selector": math.inf}, 1, "weight_decay of 'selector' must be"),
        ({"selector": (0.1, -0.2)}, 2, "weight_decay of 'selector' must be"),
        ({"selector": (0.1, 0.2)}, 3, "one for each of 3 replicates; there are 2"),
        ((0.1, 0.2), 1, "weight_decay must be a number or one for each of 1 replicates"),
    ],
)
def test_refused_before_any_training(given, replicates, words):
    with pytest.raises(ValueError, match=words):
        fit(explainer(), (X, Y), weight_decay=given, replicates=replicates, **QUIET)


def test_what_does_not_learn_or_has_its_own_optimizer_is_no_part():
    given = Predictor(MLP(3, 2, (4,), seed=20), CategoricalLikelihood())
    with pytest.raises(ValueError, match=r"names \['predictor'\].*those are \['selector'\]"):
        fit(explainer(given=given), (X, Y), weight_decay={"predictor": 0.1}, **QUIET)
    own = System(
        lambda: [
            Stage([LossTerm(explainer(), NestedIWAE(2))], optimizer=lambda p: torch.optim.SGD(p, 1))
        ]
    )
    options = {k: v for k, v in QUIET.items() if k != "objective"}
    with pytest.raises(ValueError, match=r"those are \[\]"):
        fit(own, (X, Y), weight_decay={"selector": 0.1}, **options)
    with pytest.raises(ValueError, match="an optimizer of your own has its own"):
        fit(
            explainer(),
            (X, Y),
            weight_decay={"selector": 0.1},
            optimizer=torch.optim.Adam,
            **QUIET,
        )
