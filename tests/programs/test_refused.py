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
from tests.programs.builders import coin
from tests.programs.zoo import GUIDE, PARAMETERS, WEIGHTS, ZOO, X, kept, of_rows, respond, rows
from tests.refusals import refused


def loss(model, guide=None, masks=2, **options):
    p = {name: torch.tensor(v).double().requires_grad_() for name, v in PARAMETERS.items()}
    return NestedIWAE(masks, **options).differentiable_loss(model, guide, p)


def asks(estimator):
    def model(p):
        with rows(), mask_particles():
            z = pyro.sample("mask", of_rows(p["a"]), infer={"estimator": estimator})
            respond(p, p["w"][0] * z[..., 0])

    return model


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


def test_the_guides_own_estimator_is_read():
    def guide(p):
        with rows(), mask_particles():
            pyro.sample("mask", of_rows(p["q"]), infer={"estimator": DisARM()})

    refused("samples must be even", loss, asks(DisARM()), guide, samples=1)
    loss(asks(DisARM()), guide, samples=2)


def test_a_law_that_does_not_learn_may_be_left_unscored():
    def still(p):
        ZOO["plain rows"].model({**p, "a": p["a"].detach()})

    values = []
    for estimator in (Unscored(), ScoreFunction()):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            values.append(loss(still, estimator=estimator))
    assert torch.equal(*values)


# Programs that are refused whatever the estimator


def estimator_of_a_response(p):
    with rows(), mask_particles():
        respond(p, kept(p), infer={"estimator": LeaveOneOut()})


def undeclared_dimensions(p):
    with mask_particles():
        respond(p, pyro.sample("mask", coin(p["a"] * X)).sum(-1))


def of_a_weight(p):
    weight = pyro.sample("weight", dist.Normal(torch.zeros(()).double(), 1.0))
    with rows(), mask_particles():
        respond(p, weight * kept(p))


def guide_in_other_plates(p):
    with rows():
        pyro.sample("weight", dist.Normal(p["q"], 1.0))


def a_plate_of_two_sizes(p):
    with mask_particles():
        for size, name in ((1, "mask"), (2, "other")):
            with pyro.poutine.indep_messenger.IndepMessenger("data", size, dim=-1):
                pyro.sample(name, coin(p["a"][:1] * torch.ones(size, 1).double()))
        respond({"w": p["w"]}, 0.0)


def guide_with_a_factor(p):
    with rows(), mask_particles():
        kept(p, "q")
        pyro.factor("more", p["q"], has_rsample=False)


def scaled_by_particle(p):
    with rows(), mask_particles():
        z = kept(p)
        with scale(scale=1.0 + z.detach()):
            respond(p, p["w"][0] * z)


def too_many_joint_masks(p):
    with mask_particles(), rows(12) as index:
        z = pyro.sample("mask", coin(p["a"] * torch.ones(12, 2).double()))
        pyro.sample("y", dist.Bernoulli(logits=z.sum(-1)), obs=(index % 2).double())


def imputations_before_masks(p):
    with rows(), imputation_particles():
        pyro.sample("x_imputed", dist.Normal(torch.zeros(2).double(), 1.0))


PLAIN, LABELS = ZOO["plain rows"].model, ZOO["labels of a black box"]
AT_THE_GUIDES = r"the guide draws 'mask'.*at the guide's statement"
NO_ESTIMATOR = "'mask' asks for the estimator"
REFUSED = [
    *((asks(e), GUIDE, AT_THE_GUIDES, ScoreFunction()) for e in ("none", LeaveOneOut(), REBAR())),
    *((asks(estimator), None, NO_ESTIMATOR, None) for estimator in ("nonsense", Enumerate(), 3)),
    (asks(PlugInMean()), None, r"'mask' asks for.*Enumerate\(\), chosen for the", Enumerate()),
    (estimator_of_a_response, None, "'y' chooses an estimator, and the model does not draw", None),
    (PLAIN, None, r"'mask' learns, and Unscored\(\) gives it no gradient", Unscored()),
    (undeclared_dimensions, None, r"'mask' has batch shape \(2, 2\), and no plate declares", None),
    (
        of_a_weight,
        guide_in_other_plates,
        r"'weight' is given by the guide with shape \(2,\).*the same plates in both",
        None,
    ),
    (a_plate_of_two_sizes, None, "'data' has 1 entries at one site and 2 at 'other'", None),
    (asks(LeaveOneOut()), guide_with_a_factor, "'more'", None),
    (scaled_by_particle, None, r"'y' differs within its log, at dims \[-2\]", None),
    (scale(LABELS.model, scale=WEIGHTS), LABELS.guide, r"share one scale|add up to that of", None),
    (too_many_joint_masks, None, r"4\^12 values of 'mask' stand in one log.*65,536", Enumerate()),
    (imputations_before_masks, None, r"inside imputation_particles.. but outside mask_part", None),
]


@pytest.mark.parametrize(("model", "guide", "message", "estimator"), REFUSED)
def test_what_the_objective_would_misread_is_refused(model, guide, message, estimator):
    refused(message, loss, model, guide, **{} if estimator is None else {"estimator": estimator})


def test_a_sum_of_logs_has_a_scale_for_each_particle():
    loss(scaled_by_particle, masks=1, samples=2)
