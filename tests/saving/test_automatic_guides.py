"""Automatic guides of Pyro, saved and loaded: the same posterior, or a refusal."""

from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.autoguide import (
    AutoDelta,
    AutoDiagonalNormal,
    AutoGuideList,
    AutoIAFNormal,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)
from pyro.nn import PyroModule, PyroSample

from lexppl import explain, fit, load, save
from lexppl.arviz_compatibility import group_of
from lexppl.effects import mask_particles
from lexppl.inference import NestedIWAE
from lexppl.models import ConstantImputer
from lexppl.saving import UnreadableFileError
from lexppl.systems import lex
from tests.refusals import over, refused
from tests.saving.changed import change_description, description_of

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y = X[:, 0] - X[:, 1]
KINDS = {
    "normal": AutoNormal,
    "scaled": partial(AutoNormal, init_scale=0.2),
    "diagonal": AutoDiagonalNormal,
    "multivariate": AutoMultivariateNormal,
    "low rank": partial(AutoLowRankMultivariateNormal, rank=2),
    "delta": AutoDelta,
}


class Line(PyroModule):
    """Two slopes, an intercept read first, and a scale; `order` is that of its priors."""

    ORDER = ("slope", "level", "scale")
    SIZE = 2

    def __init__(self):
        super().__init__()
        priors = {
            "slope": dist.Normal(torch.zeros(self.SIZE), 1.0).to_event(1),
            "level": dist.Normal(torch.zeros(2), 1.0).to_event(1),
            "scale": self.scale_prior(),
        }
        for name in self.ORDER:
            setattr(self, name, PyroSample(priors[name]))

    def scale_prior(self):
        return dist.HalfNormal(torch.tensor(1.0))

    def forward(self, x, y=None):
        level = self.level
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(torch.full((3,), 0.5)).to_event(1))
            mean = (mask[..., :2] * x[:, :2] * self.slope[:2]).sum(-1) + level.sum()
            return pyro.sample("y", dist.Normal(mean, self.scale), obs=y)


class Swapped(Line):
    ORDER = ("level", "slope", "scale")


class Longer(Line):
    SIZE = 3


class Bounded(Line):
    def scale_prior(self):
        return dist.Uniform(torch.tensor(0.0), 2.0)


class OfSites(PyroModule):
    """An effect of each of three sites, about a mean of them: names of plates and of parts."""

    def __init__(self):
        super().__init__()
        self.part = PyroModule()
        self.part.centre = PyroSample(dist.Normal(torch.zeros(()), 1.0))

    def forward(self, x, y):
        centre = self.part.centre
        with pyro.plate("sites", 3, dim=-1):
            effect = pyro.sample("effect", dist.Normal(centre, 1.0))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            pyro.sample("mask", dist.Bernoulli(torch.full((3,), 0.5)).to_event(1))
            pyro.sample("y", dist.Normal(effect[x.argmax(-1)], 0.5), obs=y)


def fitted(model, guide, rows=(X, Y), **options):
    options = {"objective": NestedIWAE(2), "batch_size": 40, "epochs": 2, **options}
    return fit(model, rows, valid=None, guide=guide, progress=False, **options)


def same(one, other, x=X):
    """Hold the posteriors of two fits against each other, to the bit."""
    found = [explain(result, x[:4], draws=5, seed=3) for result in (one, other)]
    for group in ("posterior", "predictions"):
        first, second = (dict(group_of(each, group)) for each in found)
        assert first and set(first) == set(second)
        for name, values in first.items():
            assert np.array_equal(values.values, second[name].values), (group, name)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_same_posterior_to_the_bit(tmp_path, kind):
    result = fitted(Line, kind, replicates=2)
    save(result, tmp_path)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    again = load(tmp_path, model=Line)
    assert torch.equal(before, torch.get_rng_state())
    assert [type(guide) for guide in again.guides] == [type(guide) for guide in result.guides]
    assert not list(pyro.get_param_store())
    same(result, again)
    # A second journey, of what was loaded.
    save(again, tmp_path / "again")
    same(result, load(tmp_path / "again", model=Line))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_plates_parts_and_types_of_numbers(tmp_path, dtype):
    rows = (X.to(dtype), Y.to(dtype))
    for kind in (AutoNormal, AutoMultivariateNormal):
        result = fitted(OfSites, kind, rows)
        save(result, tmp_path / kind.__name__)
        again = load(tmp_path / kind.__name__, model=OfSites)
        assert {t.dtype for t in again.guides[0].state_dict().values()} == {dtype}
        draws = []
        for guide in (result.guides[0], again.guides[0]):
            torch.manual_seed(1)
            draws.append(guide(*rows))
        assert draws[0]["effect"].shape == (3,) and draws[0]["effect"].dtype == dtype
        assert all(torch.equal(draws[0][name], draws[1][name]) for name in draws[0])


def test_a_list_of_guides_is_built_again_by_its_user(tmp_path):
    def build():
        model = Line()
        guide = AutoGuideList(model)
        guide.append(AutoMultivariateNormal(pyro.poutine.block(model, expose=["scale", "level"])))
        guide.append(AutoDelta(pyro.poutine.block(model, expose=["slope"])))
        return guide

    guide = build()
    result = fitted(guide.model, guide)
    save(result, tmp_path)
    refused(r"the guide is a AutoGuideList.*give guide= to load", load, tmp_path, model=Line)
    again = load(tmp_path, model=Line, guide=build)
    assert [type(part) for part in again.guides[0]] == [AutoMultivariateNormal, AutoDelta]
    same(result, again)


class Both(PyroModule):
    """An automatic guide of what all rows share, of a model of its own, and masks by row."""

    def __init__(self, model, kind=AutoNormal):
        super().__init__()
        self.shared = kind(pyro.poutine.block(model, expose=["slope", "level", "scale"]))
        self.shift = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x, y=None):
        self.shared(x, y)
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            pyro.sample("mask", dist.Bernoulli(logits=self.shift).to_event(1))


@pytest.mark.parametrize("kind", [AutoNormal, AutoMultivariateNormal])
def test_a_guide_of_ones_own_that_holds_an_automatic_one(tmp_path, kind):
    model = Line()
    result = fitted(model, Both(model, kind), replicates=2)
    save(result, tmp_path)
    refused("the guide is a Both.*give guide= to load", load, tmp_path, model=Line)
    again = load(tmp_path, model=Line, guide=lambda: Both(Line(), kind))
    same(result, again)
    save(again, tmp_path / "again")
    same(result, load(tmp_path / "again", model=Line, guide=lambda: Both(Line(), kind)))
    swapped = partial(load, tmp_path, model=Swapped, guide=lambda: Both(Swapped(), kind))
    refused("site 1 of the guide was 'slope' .* and is 'level'", swapped)


def test_the_recipe_of_the_readme_needs_nothing_but_the_folder(tmp_path):
    """Priors on all weights of a factory's program."""
    prior = dist.Normal(0.0, 1.0)
    system = lex(
        3, classes=2, k=1, hidden=(3,), predictor_hidden=(), imputer=ConstantImputer(), prior=prior
    )
    how = {"epochs": 2, "replicates": 2, "progress": False}
    result = fit(system, (X, (Y > 0).long()), guide=AutoNormal, **how)
    save(result, tmp_path)
    same(result, load(tmp_path))


# What is refused


@over(
    (Swapped, r"site 1 of the guide was 'slope' \(2,\).* and is 'level' \(2,\)"),
    (Longer, r"site 1 of the guide was 'slope' \(2,\).* and is 'slope' \(3,\)"),
    (Bounded, r"site 3 .* 'scale' \(\), GreaterThan.* and is 'scale' \(\), Interval"),
)
@pytest.mark.parametrize("kind", [AutoMultivariateNormal, AutoNormal])
@pytest.mark.parametrize("given", [False, True])
def test_other_sites_are_refused(model, words, tmp_path, kind, given):
    """Without their order in the file the weights of the first two would change places."""
    save(fitted(Line, kind), tmp_path)
    error = refused(words, load, tmp_path, model=model, **{"guide": kind} if given else {})
    assert "\n" not in str(error)


def test_other_classes_are_given_as_fit_took_them(tmp_path):
    kind = partial(AutoIAFNormal, hidden_dim=[6])
    result = fitted(Line, kind)
    save(result, tmp_path)
    refused(r"the guide is a AutoIAFNormal.*give guide= to load", load, tmp_path, model=Line)
    same(result, load(tmp_path, model=Line, guide=kind))
    refused("site 1 of the guide was", load, tmp_path, model=Swapped, guide=kind)
    with pytest.raises(ValueError, match="are not those of the guide that guide= gives"):
        load(tmp_path, model=Line, guide=AutoNormal)


@over(
    (("automatic",), "AutoCallable", "'AutoCallable', and must be one of"),
    (("automatic",), "AutoDiagonalNormal", "unexpected keyword argument 'rank'"),
    (("settings",), None, "cannot be read"),
    (("settings", "rank"), 4, "rank 4, which its weights are not"),
    (("settings", "rank"), 10**12, "rank = 1000000000000, which its weights do not fill"),
    (("sites",), [], "site 1 of the guide was none and is 'slope'"),
    (("sites", 0, "shape"), [3], "site 1 of the guide was 'slope'"),
    (("sites", 2, "support"), "Real()", "site 3 of the guide was 'scale'"),
)
def test_files_that_were_changed_are_refused(at, value, words, tmp_path):
    save(fitted(Line, partial(AutoLowRankMultivariateNormal, rank=1)), tmp_path)
    described = description_of(tmp_path)
    place = described["guide"]
    for key in at[:-1]:
        place = place[key]
    place[at[-1]] = value
    change_description(tmp_path, described)
    error = refused(words, load, tmp_path, model=Line, error=UnreadableFileError)
    assert "\n" not in str(error)
