"""Replicates with numbers, given tensors and rows of their own, and draws that differ."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule
from torch import nn

from lexppl import explain, load, save
from lexppl.distributions import KSubset
from lexppl.inference import (
    Enumerate,
    LeaveOneOut,
    LossTerm,
    NestedIWAE,
    Pathwise,
    ReplicateData,
    Stage,
    System,
    fit,
)
from lexppl.inference.replicates import OutOfPlaceDraws
from lexppl.models import ConstantImputer, SizePenalty, frozen, mask_particles
from lexppl.systems import l2x, lex, real_x, xtab
from tests import small_models
from tests.refusals import refusals, refused
from tests.small_models import SMALL

EXACT = NestedIWAE(math.inf, estimator=Enumerate())
QUIET = {"progress": False, "valid": None, "epochs": 3}


def explainer(constant=0.0, penalty=0.0, seed=0, given=None):
    given = None if given is None else frozen(given)
    penalties, imputer = [SizePenalty(penalty)], ConstantImputer(constant)
    return small_models.explainer(imputer=imputer, seed=seed, predictor=given, penalties=penalties)


def data(seed, rows=40):
    x = torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] * x[:, 1] > 0).long()


def same_models(together, alone):
    for one, other in zip(together, alone, strict=True):
        small_models.same_models(one, other, rtol=1e-4, atol=1e-5)


NUMBERS = [explainer(-1.0, 0.05), explainer(0.5, 0.2, seed=5), explainer(3.0, 0.0, seed=9)]
GIVEN = [explainer(given=small_models.explainer(seed=20 + s).predictor, seed=5 * s) for s in (0, 1)]


@pytest.mark.parametrize(
    ("models", "sets", "other"),
    [
        (NUMBERS, None, (explainer(0.5, 0.05, 5), data(0))),
        ([explainer(), explainer(seed=5)], [data(0), data(1)], (explainer(seed=5), data(0))),
        (GIVEN, None, (explainer(given=GIVEN[0].predictor, seed=5), data(0))),
    ],
    ids=["numbers and constants", "rows", "given predictors"],
)
def test_what_differs_is_each_replicates_own(models, sets, other):
    """The exact objective has no draws, so that fits together and alone must end alike; the second
    with what is another's ends elsewhere."""
    held = [(m.penalties[0].weight, float(m.imputer.value)) for m in models]
    options = {**QUIET, "objective": EXACT, "batch_size": 40}
    together = fit(models, data(0) if sets is None else ReplicateData(sets), **options).models
    rows = [data(0)] * len(models) if sets is None else sets
    same_models(together, [fit(*pair, **options).model for pair in zip(models, rows, strict=True)])
    for found in (together, models):  # Those that were given are left as they were.
        assert [(m.penalties[0].weight, float(m.imputer.value)) for m in found] == held
    with pytest.raises(AssertionError):
        same_models(together[1:2], [fit(*other, **options).model])


@pytest.mark.smoke
def test_k_may_differ_between_replicates():
    objective = NestedIWAE(2, estimator=LeaveOneOut())
    sizes = {"hidden": (8,), "predictor_hidden": (8,)}
    models = [lex(6, classes=2, k=k, objective=objective, **sizes) for k in (1, 3, 6)]
    x = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    result = fit(models, (x, (x[:, 0] > 0).long()), epochs=2, progress=False)
    for model, k in zip(result.models, (1, 3, 6), strict=True):
        distribution = model.selector(x)
        assert isinstance(distribution, KSubset)
        assert model.selector.k == k
        assert distribution.k == k


def test_numbers_survive_saving(tmp_path):
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    rows = (x, (x[:, 0] > 0).long())
    both = ((1, -1.0), (4, 2.0))
    models = [lex(4, classes=2, k=k, **SMALL, imputer=ConstantImputer(c)) for k, c in both]
    result = fit(models, rows, epochs=1, progress=False)
    save(result, tmp_path)
    again = load(tmp_path)
    assert [m.selector.k for m in again.models] == [1, 4]
    assert [float(m.imputer.value) for m in again.models] == [-1.0, 2.0]
    kept = explain(again, x, draws=2)["predictions"]["mask"].sum("feature")
    assert (kept[0] == 1).all()
    assert (kept[1] == 4).all()


class Branching(PyroModule):
    """What `torch.func.vmap` refuses: a branch by a number or a value, a shape, a sum in place, a
    gradient taken inside."""

    def __init__(self, way, power=1, seed=0):
        super().__init__()
        self.way, self.power = way, power
        self.selector = small_models.explainer(seed=seed).selector
        self.predictor = small_models.explainer(seed=seed).predictor

    def moved(self, kept):
        weight = next(self.predictor.parameters())
        if self.way == "number" and self.power > 1:
            return kept**2
        if self.way == "shape":
            return kept + torch.ones(self.power, 1, 1, 3).sum(0)
        if self.way == "value" and float(weight.detach().sum()) > 0:
            return kept + 1.0
        if self.way == "in place":
            total = torch.zeros(weight.shape)
            total += weight
            return kept * total.mean()
        if self.way == "gradient":
            with torch.enable_grad():
                return kept * torch.autograd.grad(weight.square().sum(), weight)[0].mean()
        return kept

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", self.selector(x))
            return pyro.sample("y", self.predictor(self.moved(mask * x)), obs=y)


@pytest.mark.parametrize("way", ["number", "shape", "value", "in place", "gradient"])
def test_programs_that_cannot_run_at_once_run_one_by_one(way):
    models = [Branching(way, 1), Branching(way, 3, seed=5)]
    options = {**QUIET, "objective": EXACT, "batch_size": 40}
    with pytest.warns(UserWarning, match=r"2 replicates run one by one.*a branch by a value"):
        together = fit(models, data(0), **options)
    same_models(together.models, [fit(model, data(0), **options).model for model in models])
    assert [model.power for model in together.models] == [1, 3]


def test_systems_that_cannot_run_at_once_differ_in_their_numbers():
    systems = [l2x(3, classes=2, k=k, **SMALL) for k in (1, 2)]
    noisy = [
        xtab(3, classes=2, noise=n, encoder_hidden=(4,), predictor_hidden=(4,)) for n in (0.1, 0.2)
    ]
    with pytest.warns(UserWarning, match="one by one"):
        assert [m.selector.k for m in fit(systems, data(0), **QUIET).models] == [1, 2]
    with pytest.warns(UserWarning, match="one by one"):
        assert len(fit(noisy, data(0), **QUIET).models) == 2


@pytest.mark.complete
def test_systems_may_differ_in_their_penalty():
    systems = [real_x(3, classes=2, penalty=p, hidden=(8,)) for p in (0.0, 5.0)]
    options = {"epochs": 60, "batch_size": 50, "learning_rate": 1e-2, "seed": 1}
    result = fit(systems, data(0, 300), progress=False, **options)
    with torch.no_grad():
        sizes = [float(m.selector(data(0)[0]).mean.sum(-1).mean()) for m in result.models]
    assert sizes[1] < 0.2 < sizes[0]


def test_one_model_on_several_data_sets_draws_weights_of_its_own():
    sets = ReplicateData([data(0), data(1)])
    result = fit(explainer(), sets, **{**QUIET, "epochs": 1}, objective=EXACT)
    first, second = (m.selector.network.layers[0].weight for m in result.models)
    assert result.replicates == 2
    assert not torch.allclose(first, second)


class Named(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, x, y=None):
        return dist.Normal(self.weight, 1.0)


test_refused_before_any_training = refusals(
    ([explainer(), explainer()], ReplicateData([data(0)] * 3), "2 models, 3 data sets"),
    ([], data(0), "empty"),
    ([explainer(), Named("a")], data(0), "same parts"),
    ([Named("a"), Named("b")], data(0), "they differ in 'kind' of Named"),
    ([explainer(), lex(3, classes=2, k=1, **SMALL).program()], data(0), "same parts"),
    ([lex(3, classes=2, k=1, hidden=(width,)) for width in (4, 5)], data(0), "differ in"),
    (explainer(), ReplicateData([data(0), data(1, rows=30)]), r"alike.*\(40, 3\), \(30, 3\)"),
    (explainer(), ReplicateData([data(0), data(1)[:1]]), r"the same columns.*\[2, 1\]"),
    of=lambda models, train: fit(models, train, **QUIET),
)


def test_another_number_of_replicates_than_of_models_is_refused():
    with pytest.raises(ValueError, match="3 replicates, 2 models"):
        fit([explainer(), explainer()], data(0), replicates=3, **QUIET)


def test_objectives_must_be_one():
    def system(*given, **options):
        objective = NestedIWAE(*given, **options)
        return System(lambda: [Stage([LossTerm(explainer(), objective)])])

    temperatures = [system(2, estimator=Pathwise(t)) for t in (0.3, 0.5)]
    for systems in ([system(2), system(4)], temperatures):
        refused("same objective", fit, systems, data(0), **QUIET)


def test_data_sets_come_in_a_list():
    refused("a list of data sets", ReplicateData, data(0), error=TypeError)
    refused("none", ReplicateData, [])


IN_PLACE = ("normal_", "uniform_", "exponential_", "cauchy_")


def drawn(name):
    return lambda x: x + getattr(torch.empty(4), name)()


@pytest.mark.parametrize("name", IN_PLACE)
def test_replicates_have_draws_of_their_own(name):
    """Torch itself refuses them, and so gives no replicates the same draws."""
    with pytest.raises(RuntimeError, match="inplace randomness"):
        torch.func.vmap(drawn(name), randomness="different")(torch.zeros(3))
    with OutOfPlaceDraws():
        made = torch.func.vmap(drawn(name), randomness="different")(torch.zeros(3))
    assert made.shape == (3, 4)
    assert all((made[0] != other).all() for other in made[1:])


class Noisy(PyroModule):
    """A program whose noise is drawn in place, by torch's own exponential, or is not."""

    def __init__(self, law=None) -> None:
        super().__init__()
        self.slope = nn.Linear(1, 1)
        self.law = law or dist.Exponential(torch.tensor(1.0))

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            noise = pyro.sample("noise", self.law)
            return pyro.sample("y", dist.Normal(self.slope(x)[:, 0] + noise, 1.0), obs=y)


@pytest.mark.parametrize(("law", "looked"), [(None, True), (dist.Uniform(0.0, 1.0), False)])
def test_a_fit_of_replicates_looks_for_draws_in_place_where_there_are_some(
    law, looked, monkeypatch
):
    entered, enter = [], OutOfPlaceDraws.__enter__
    monkeypatch.setattr(OutOfPlaceDraws, "__enter__", lambda self: entered.append(1) or enter(self))
    x = torch.randn(60, 1, generator=torch.Generator().manual_seed(0))
    options = {"objective": NestedIWAE(masks=2), "epochs": 3, "progress": False}
    result = fit(Noisy(law), (x, x[:, 0]), replicates=3, **options)
    assert len({float(model.slope.weight.detach()) for model in result.models}) == 3
    assert bool(entered) is looked
