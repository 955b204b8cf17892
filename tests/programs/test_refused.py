"""What the objective would misread is refused by the site's name, with what to write instead."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.poutine import scale

from lexppl.effects import imputation_particles, mask_particles
from lexppl.inference import (
    REBAR,
    DisARM,
    Enumerate,
    LeaveOneOut,
    NestedIWAE,
    PlugInMean,
    ScoreFunction,
    Unscored,
)
from tests.programs.zoo import GUIDE, PARAMETERS, SUM, WEIGHTS, ZOO, X, coin, of_rows, respond, rows


def loss(model, guide=None, masks=2, **options):
    p = {name: torch.tensor(v).double().requires_grad_() for name, v in PARAMETERS.items()}
    return NestedIWAE(masks, **options).differentiable_loss(model, guide, p)


def asks(estimator):
    def model(p):
        with rows(), mask_particles():
            z = pyro.sample("mask", of_rows(p["a"]), infer={"estimator": estimator})
            respond(p, p["w"][0] * z[..., 0])

    return model


LOGS = ZOO["a weight on one of two responses"].model


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a weight on one of two responses", r"share one scale.*'y' has a tensor.*'other' has 1"),
        ("a weight on the other of two responses", "share one scale.*samples=L"),
        ("an annealed divergence", "share one scale"),
        ("a scale in the guide alone", "share one scale.*0.3"),
        ("weights within a log", r"'y' differs within its log, at dims \[-1\].*pyro.factor"),
        ("a partial likelihood beside labels", r"'y' and 'cox' have no log in common.*\['data'\]"),
        ("groups with a guide", "'mask' and 'y' have no log in common|no log in common"),
        ("a loop outside with a guide", "no log in common"),
        ("as many groups as rows", r"'mask' is .*shared by several logs.*enter mask_particles"),
        ("rows within groups", "shared by several logs"),
        ("a loop outside", "shared by several logs"),
        ("repeated measures with a log each", r"shared by several logs.*\['time'\]"),
        ("a mask of the whole batch in a sum", "shared by several logs"),
    ],
)
def test_what_has_no_log_in_common(name, message):
    program = ZOO[name]
    loss(program.model, program.guide, 1, samples=2)
    with pytest.raises(ValueError, match=message) as refused:
        loss(program.model, program.guide, 2)
    assert "masks=1" in str(refused.value)
    with pytest.raises(ValueError, match=f"{message}|imputations=2"):
        loss(program.model, program.guide, 1, imputations=2, samples=2)


@pytest.mark.parametrize("estimator", ["nonsense", LeaveOneOut(), REBAR()])
def test_an_estimator_at_a_site_that_the_guide_draws(estimator):
    with pytest.raises(ValueError, match=r"the guide draws 'mask'.*at the guide's statement"):
        loss(asks(estimator), GUIDE, estimator=ScoreFunction())


def test_the_guides_own_estimator_is_read():
    def guide(p):
        with rows(), mask_particles():
            pyro.sample("mask", of_rows(p["q"]), infer={"estimator": DisARM()})

    with pytest.raises(ValueError, match="samples must be even"):
        loss(asks(DisARM()), guide, samples=1)
    loss(asks(DisARM()), guide, samples=2)


@pytest.mark.parametrize("estimator", ["nonsense", Enumerate(), 3])
def test_an_estimator_that_is_none(estimator):
    with pytest.raises(ValueError, match="'mask' asks for the estimator"):
        loss(asks(estimator))


def test_an_estimator_beside_enumerate():
    with pytest.raises(ValueError, match=r"'mask' asks for.*Enumerate\(\), chosen for the whole"):
        loss(asks(PlugInMean()), estimator=Enumerate())


def test_an_estimator_of_what_is_observed():
    def model(p):
        with rows(), mask_particles():
            z = pyro.sample("mask", of_rows(p["a"]))
            respond(p, z[..., 0], infer={"estimator": LeaveOneOut()})

    with pytest.raises(
        ValueError, match="'y' chooses an estimator, and the model does not draw it"
    ):
        loss(model)


def test_a_law_that_learns_is_not_left_unscored():
    plain = ZOO["plain rows"].model
    with pytest.raises(ValueError, match=r"'mask' learns, and Unscored\(\) gives it no gradient"):
        loss(plain, estimator=Unscored())

    def still(p):
        plain({**p, "a": p["a"].detach()})

    values = []
    for estimator in (Unscored(), ScoreFunction()):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            values.append(loss(still, estimator=estimator))
    assert torch.equal(*values)


def test_undeclared_dimensions():
    def model(p):
        with mask_particles():
            z = pyro.sample("mask", coin(p["a"] * X))
            respond(p, z.sum(-1))

    with pytest.raises(ValueError, match=r"'mask' has batch shape \(2, 2\), and no plate declares"):
        loss(model)


def test_a_guide_in_other_plates():
    def model(p):
        weight = pyro.sample("weight", dist.Normal(torch.zeros(()).double(), 1.0))
        with rows(), mask_particles():
            z = pyro.sample("mask", of_rows(p["a"]))
            respond(p, weight * z[..., 0])

    def guide(p):
        with rows():
            pyro.sample("weight", dist.Normal(p["q"], 1.0))

    with pytest.raises(
        ValueError,
        match=r"'weight' is given by the guide with shape \(2,\).*the same plates in both",
    ):
        loss(model, guide)


def test_a_plate_of_two_sizes():
    def model(p):
        with pyro.plate("data", 1, dim=-4), mask_particles():
            z = pyro.sample("mask", coin(p["a"]))
        with pyro.plate("rows", 2, dim=-1), mask_particles():
            respond(p, p["w"][0] * z[..., 0, :, :, 0])

    def doubled(p):
        with mask_particles():
            for size, name in ((1, "mask"), (2, "other")):
                plate = pyro.poutine.indep_messenger.IndepMessenger("data", size, dim=-1)
                with plate:
                    pyro.sample(name, coin(p["a"][:1] * torch.ones(size, 1).double()))
            respond({"w": p["w"]}, 0.0)

    with pytest.raises(ValueError, match="plate 'data' has 1 entries at one site and 2 at 'other'"):
        loss(doubled)


def test_a_guides_factor():
    def guide(p):
        with rows(), mask_particles():
            pyro.sample("mask", of_rows(p["q"]))
            pyro.factor("more", p["q"], has_rsample=False)

    with pytest.raises(ValueError, match="'more'"):
        loss(asks(LeaveOneOut()), guide)


def test_scales_that_differ_between_particles():
    def model(p):
        with rows(), mask_particles():
            z = pyro.sample("mask", of_rows(p["a"]))
            with scale(scale=1.0 + z[..., 0].detach()):
                respond(p, p["w"][0] * z[..., 0])

    with pytest.raises(ValueError, match=r"'y' differs within its log, at dims \[-2\]"):
        loss(model)
    loss(model, **{k: v for k, v in SUM.items() if k != "masks"}, masks=1)


def test_labels_whose_weights_are_not_the_rows():
    program = ZOO["labels of a black box"]

    def model(p):
        with scale(scale=WEIGHTS):
            program.model(p)

    with pytest.raises(ValueError, match=r"share one scale|add up to that of"):
        loss(model, program.guide)


def test_too_many_joint_masks():
    def model(p):
        with mask_particles(), rows(12) as index:
            z = pyro.sample("mask", coin(p["a"] * torch.ones(12, 2).double()))
            pyro.sample("y", dist.Bernoulli(logits=z.sum(-1)), obs=(index % 2).double())

    with pytest.raises(ValueError, match=r"4\^12 values of 'mask' stand in one log.*65,536"):
        loss(model, estimator=Enumerate())


def test_imputations_before_masks():
    def model(p):
        with rows(), imputation_particles():
            pyro.sample("x_imputed", dist.Normal(torch.zeros(2).double(), 1.0))

    with pytest.raises(
        ValueError, match=r"inside imputation_particles.. but outside mask_particles"
    ):
        loss(model)
