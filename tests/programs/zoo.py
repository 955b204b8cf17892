"""Small programs of every kind that a statistician may write, short enough to be enumerated."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.poutine import mask as seen_rows
from pyro.poutine import scale

from lexppl.distributions import KSubset
from lexppl.effects import imputation_particles, label_expectation, mask_particles, penalty
from tests.programs.enumeration import Case

X = torch.tensor([[0.9, -0.6], [-0.4, 1.2]]).double()
Y = torch.tensor([1.0, 0.0]).double()
WEIGHTS = torch.tensor([0.5, 2.0]).double()
SEEN = torch.tensor([False, True])
TIMES = torch.tensor([0.2, -0.6]).double().reshape(2, 1, 1, 1)
PARAMETERS = {
    "a": [0.4, -0.7],
    "b": [0.3, 0.8],
    "w": [1.3, -0.9],
    "q": [-0.2, 0.5],
    "r": [0.6, -0.4],
}

BERNOULLI_ONLY = {"DisARM": "LeaveOneOut works for any distribution"}
NO_RELAXATION = {**BERNOULLI_ONLY, "REBAR": "no relaxation is registered|needs the noise"}
LEARNED = {"Enumerate": "learned and not reparameterised"}
DEPENDENT = {"DisARM": "depends on another mask"}


@dataclass(frozen=True)
class Program:
    """One program with the particles it is tried with.

    Args:
        model, guide: functions of the parameters.
        masks, imputations, samples: L, K and S.
        entropy, penalty: factors of the objective.
        refuses: by estimator's name, what its refusal says.
    """

    model: Callable[[dict], Any]
    guide: Callable[[dict], Any] | None = None
    masks: int = 2
    imputations: int = 1
    samples: int = 1
    entropy: float = 0.0
    penalty: float = 1.0
    refuses: dict[str, str] = field(default_factory=dict)

    def case(self, dtype=torch.double) -> Case:
        values = {name: torch.tensor(v, dtype=dtype) for name, v in PARAMETERS.items()}
        return Case(self.model, values, self.guide)


ZOO: dict[str, Program] = {}


def program(guide=None, **options):
    """Keep a model under its own name, in words."""

    def keep(model):
        ZOO[model.__name__.replace("_", " ")] = Program(model, guide, **options)
        return model

    return keep


SUM = {"masks": 1, "samples": 2}
"""An average of single-mask bounds: every site has its own plates and scale."""


def rows(size=2):
    return pyro.plate("data", size, dim=-1)


def coin(logits):
    return dist.Bernoulli(logits=logits).to_event(1)


def of_rows(logits, x=X):
    """One entry a row."""
    return coin((logits * x).sum(-1, keepdim=True))


def respond(p, effect, name="y", y=Y, **words):
    return pyro.sample(name, dist.Bernoulli(logits=effect + 0.4 * X[: len(y), 1]), obs=y, **words)


def masks_of(logits, name="mask", of=of_rows):
    def guide(p):
        with rows(), mask_particles():
            pyro.sample(name, of(p[logits]))

    return guide


GUIDE = masks_of("q")


# Distributions of one mask


@program()
def plain_rows(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        respond(p, p["w"][0] * z[..., 0])


@program(masks=3)
def a_batch_of_one(p):
    with rows(1), mask_particles():
        z = pyro.sample("mask", coin(p["a"] * X[:1]))
        respond(p, (p["w"] * z).sum(-1), y=Y[:1])


@program(samples=2)
def two_entries_and_two_samples(p):
    with rows(1), mask_particles():
        z = pyro.sample("mask", coin(p["a"] * X[:1]))
        respond(p, (p["w"] * z).sum(-1) + z.prod(-1), y=Y[:1])


@program(refuses=NO_RELAXATION)
def subsets_of_one(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", KSubset(p["a"] * X, 1))
        respond(p, (p["w"] * z).sum(-1))


@program(refuses=NO_RELAXATION)
def a_category_in_place_of_a_mask(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", dist.Categorical(logits=p["a"] * X))
        respond(p, p["w"][z])


@program(GUIDE)
def a_guide(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        respond(p, p["w"][0] * z[..., 0])


@program(GUIDE, **SUM)
def a_guide_and_a_sum_of_logs(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        respond(p, p["w"][0] * z[..., 0])


# Plates


def masks_outermost_guide(p):
    with mask_particles(), rows():
        pyro.sample("mask", of_rows(p["q"]))


@program()
def rows_that_share_a_log(p):
    with mask_particles(), rows():
        z = pyro.sample("mask", of_rows(p["a"]))
        respond(p, p["w"][0] * z[..., 0])


@program(masks_outermost_guide)
def rows_that_share_a_log_with_a_guide(p):
    with mask_particles(), rows():
        z = pyro.sample("mask", of_rows(p["a"]))
        respond(p, p["w"][0] * z[..., 0])


@program()
def a_mask_of_the_whole_batch_in_one_log(p):
    with mask_particles():
        z = pyro.sample("mask", coin(p["a"]))
        with rows():
            respond(p, (p["w"] * z).sum(-1))


@program(**SUM)
def a_mask_of_the_whole_batch_in_a_sum(p):
    with mask_particles():
        z = pyro.sample("mask", coin(p["a"]))
    with rows(), mask_particles():
        respond(p, (p["w"] * z).sum(-1))


@program()
def a_plate_around_everything(p):
    with pyro.plate("time", 2, dim=-4), rows(1), mask_particles():
        z = pyro.sample("mask", coin(p["a"][0] + TIMES.unsqueeze(-1)))
        respond(p, p["w"][0] * z[..., 0] + TIMES, y=Y[:1])


@program(**SUM)
def repeated_measures_with_a_log_each(p):
    data = rows()
    with data, mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
    with pyro.plate("time", 2, dim=-4), data, mask_particles():
        respond(p, p["w"][0] * z[..., 0] + TIMES)


@program()
def repeated_measures_in_one_log(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        with pyro.plate("time", 2, dim=-4):
            respond(p, p["w"][0] * z[..., 0] + TIMES)


@program(GUIDE)
def repeated_measures_in_one_log_with_a_guide(p):
    repeated_measures_in_one_log(p)


@program()
def a_loop_inside(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        for t in pyro.plate("time", 3):
            respond(p, p["w"][0] * z[..., 0] + 0.3 * t, f"y_{t}")


@program(**SUM)
def a_loop_outside(p):
    data = rows()
    with data, mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
    for t in pyro.plate("time", 2):
        with data, mask_particles():
            respond(p, p["w"][0] * z[..., 0] + 0.3 * t, f"y_{t}")


@program(GUIDE, **SUM)
def a_loop_outside_with_a_guide(p):
    a_loop_outside(p)


@program()
def masks_in_a_loop(p):
    with rows(1), mask_particles():
        effect = 0.0
        for t in pyro.plate("time", 2):
            z = pyro.sample(f"mask_{t}", coin(p["a"][t : t + 1]))
            effect = effect + p["w"][t] * z[..., 0]
        respond(p, effect, y=Y[:1])


@program(imputations=2)
def a_plate_inside_the_imputations(p):
    with rows(1), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"], X[:1]))
        with imputation_particles(), pyro.plate("time", 2, dim=-4):
            fill = pyro.sample("fill", dist.Bernoulli(torch.full((2, 1, 1, 1), 0.5).double()))
            respond(p, p["w"][0] * z[..., 0] + fill * TIMES, y=Y[:1])


@program()
def rows_by_another_name(p):
    with pyro.plate("patients", 2, dim=-1), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        respond(p, p["w"][0] * z[..., 0])


# Masks of groups


def group_masks(logits, groups):
    with pyro.plate("groups", groups, dim=-1), mask_particles():
        return pyro.sample("mask", coin(logits[:groups].unsqueeze(-1)))


@program(**SUM)
def as_many_groups_as_rows(p):
    z = group_masks(p["a"], 2)
    with rows(), mask_particles():
        respond(p, p["w"][0] * z[..., torch.tensor([1, 0]), 0])


@program(**SUM)
def fewer_groups_than_rows(p):
    z = group_masks(p["a"], 1)
    with rows(), mask_particles():
        respond(p, p["w"] * z[..., torch.tensor([0, 0]), 0])


@program(lambda p: group_masks(p["q"], 2), **SUM)
def groups_with_a_guide(p):
    as_many_groups_as_rows(p)


@program(**SUM, entropy=0.3)
def groups_and_rows_with_masks(p):
    group = group_masks(p["a"], 2)
    with rows(), mask_particles():
        z = pyro.sample("row_mask", of_rows(p["b"]))
        respond(p, p["w"][0] * z[..., 0] + p["w"][1] * group[..., torch.tensor([1, 1]), 0])


@program(**SUM)
def rows_within_groups(p):
    with pyro.plate("groups", 2, dim=-4):
        with mask_particles():
            z = pyro.sample("mask", coin(p["a"].reshape(2, 1, 1, 1, 1)))
        with rows(), mask_particles():
            respond(p, p["w"][0] * z[..., 0])


@program()
def groups_by_index_in_one_log(p):
    with mask_particles():
        with pyro.plate("groups", 2, dim=-1):
            z = pyro.sample("mask", coin(p["a"].unsqueeze(-1)))
        with rows():
            respond(p, p["w"] * z[..., torch.tensor([1, 1]), 0])


@program()
def rows_of_a_group_in_one_log(p):
    with pyro.plate("groups", 2, dim=-4), mask_particles():
        z = pyro.sample("mask", coin(p["a"].reshape(2, 1, 1, 1, 1)))
        with rows():
            respond(p, p["w"][0] * z[..., 0])


# Scales


@program()
def a_number_on_everything(p):
    with scale(scale=2.5), rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        respond(p, p["w"][0] * z[..., 0])


def weighted_guide(p):
    with scale(scale=WEIGHTS):
        GUIDE(p)


@program(weighted_guide, entropy=0.2)
def row_weights_on_everything(p):
    with scale(scale=WEIGHTS), rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        penalty("size", 0.3 * z.sum(-1))
        respond(p, p["w"][0] * z[..., 0])


@program(penalty=0.5, entropy=0.2)
def class_weights_on_the_response(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        penalty("size", 0.3 * z.sum(-1))
        with scale(scale=torch.where(Y == 1, 3.0, 1.0).double()):
            respond(p, p["w"][0] * z[..., 0])


@program(**SUM)
def a_weight_on_one_of_two_responses(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        with scale(scale=torch.tensor(3.0).double()):
            respond(p, p["w"][0] * z[..., 0])
        respond(p, p["w"][1] * z[..., 0], "other")


@program(**SUM)
def a_weight_on_the_other_of_two_responses(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        respond(p, p["w"][0] * z[..., 0])
        with scale(scale=torch.tensor(3.0).double()):
            respond(p, p["w"][1] * z[..., 0], "other")


def annealed_guide(p):
    with scale(scale=torch.tensor(0.3).double()):
        GUIDE(p)


@program(annealed_guide, **SUM)
def an_annealed_divergence(p):
    with rows(), mask_particles():
        with scale(scale=torch.tensor(0.3).double()):
            z = pyro.sample("mask", of_rows(p["a"]))
        respond(p, p["w"][0] * z[..., 0])


def scaled_guide(p):
    with scale(scale=0.3):
        GUIDE(p)


@program(scaled_guide, **SUM)
def a_scale_in_the_guide_alone(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        respond(p, p["w"][0] * z[..., 0])


@program(**SUM)
def weights_within_a_log(p):
    with mask_particles(), rows():
        z = pyro.sample("mask", of_rows(p["a"]))
        with scale(scale=WEIGHTS):
            respond(p, p["w"][0] * z[..., 0])


# Rows that are not seen


@program()
def a_response_not_seen(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        with seen_rows(mask=SEEN):
            respond(p, p["w"][0] * z[..., 0])


@program(entropy=0.3)
def a_row_not_seen(p):
    with seen_rows(mask=SEEN), rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        penalty("size", 0.3 * z.sum(-1))
        respond(p, p["w"][0] * z[..., 0])


@program()
def a_latent_without_density(p):
    with rows(), mask_particles():
        with seen_rows(mask=SEEN):
            z = pyro.sample("mask", of_rows(p["a"]))
        respond(p, p["w"][0] * z[..., 0])


@program(refuses={"DisARM": "any distribution", "REBAR": "."})
def a_response_partly_observed(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"], X))
        distribution = dist.Bernoulli(logits=p["w"][0] * z[..., 0])
        y = pyro.sample("y", distribution, obs=Y, obs_mask=SEEN)
        pyro.sample("after", dist.Bernoulli(logits=p["w"][1] * y), obs=Y)


# Factors and penalties


@program()
def a_factor_by_row(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        pyro.factor("fit", -((p["w"][0] * z[..., 0] - X[:, 1]) ** 2))


def partial_likelihood(p, z):
    """Cox: the second row dies first, both at risk."""
    risk = p["w"][0] * z[..., 0] + p["w"][1] * X[:, 1]
    return risk[..., 1:] - risk.logsumexp(-1, keepdim=True)


@program()
def a_partial_likelihood(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
    with mask_particles():
        pyro.factor("cox", partial_likelihood(p, z))


@program(**SUM)
def a_partial_likelihood_beside_labels(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        respond(p, p["w"][1] * z[..., 0])
    with mask_particles():
        pyro.factor("cox", partial_likelihood(p, z))


@program(masks_outermost_guide)
def a_partial_likelihood_and_labels_in_one_log(p):
    with mask_particles():
        with rows():
            z = pyro.sample("mask", of_rows(p["a"]))
            respond(p, p["w"][1] * z[..., 0])
        pyro.factor("cox", partial_likelihood(p, z))


@program()
def a_factor_of_the_weights(p):
    pyro.factor("prior", -0.5 * (p["w"] ** 2).sum())
    plain_rows(p)


@program(penalty=0.4, entropy=0.3)
def a_penalty_by_draw(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        penalty("size", 0.7 * z.sum(-1) * (1 + p["w"][1] ** 2))
        respond(p, p["w"][0] * z[..., 0])


@program(penalty=0.4)
def a_penalty_on_the_law(p):
    with rows(), mask_particles():
        distribution = of_rows(p["a"])
        z = pyro.sample("mask", distribution)
        penalty("size", 0.7 * distribution.mean.sum(-1))
        respond(p, p["w"][0] * z[..., 0])


@program(penalty=0.4)
def a_penalty_outside_the_mask_plate(p):
    with rows():
        distribution = of_rows(p["a"])
        penalty("size", 5.0 * distribution.mean.sum(-1))
        with mask_particles():
            z = pyro.sample("mask", distribution)
            respond(p, p["w"][0] * z[..., 0])


@program(penalty=0.4)
def a_penalty_outside_all_plates(p):
    penalty("weights", 0.5 * (p["w"] ** 2).sum())
    plain_rows(p)


@program(penalty=0.4, imputations=2, refuses=LEARNED)
def a_penalty_on_the_imputation(p):
    with rows(1), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"], X[:1]))
        with imputation_particles():
            fill = pyro.sample("fill", dist.Bernoulli(logits=p["b"][:1]))
            penalty("roughness", (fill - p["w"][0] * z[..., 0]) ** 2)
            respond(p, p["w"][0] * z[..., 0] + fill, y=Y[:1])


@program(penalty=0.4)
def a_penalty_of_the_whole_batch(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        respond(p, p["w"][0] * z[..., 0])
    with mask_particles():
        penalty("size", (z.sum((-1, -2)) ** 2).unsqueeze(-1))


def named_guide(p):
    with rows(), mask_particles():
        logits = pyro.deterministic("guide_logits", p["q"] * X, event_dim=1)
        pyro.sample("mask", coin(logits.sum(-1, keepdim=True)))


@program(named_guide)
def statements_without_density(p):
    pyro.deterministic("strength", p["w"])
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        kept = pyro.deterministic("kept", z, event_dim=1)
        respond(p, p["w"][0] * kept[..., 0])


# Several masks


@program(entropy=0.3)
def two_masks(p):
    with rows(1), mask_particles():
        a = pyro.sample("mask", coin(p["a"][:1]))[..., 0]
        b = pyro.sample("other", coin(p["b"][:1]))[..., 0]
        respond(p, p["w"][0] * a + p["w"][1] * b + a * b, y=Y[:1])


@program(entropy=0.5, refuses=DEPENDENT)
def masks_that_depend_on_each_other(p):
    with rows(1), mask_particles():
        a = pyro.sample("mask", coin(p["a"][:1]))[..., 0]
        b = pyro.sample("other", coin((3.0 * a + p["b"][0]).unsqueeze(-1)))[..., 0]
        respond(p, p["w"][0] * a + p["w"][1] * b, y=Y[:1])


def chain_guide(p):
    with rows(1), mask_particles():
        a = pyro.sample("mask", coin(p["q"][:1]))[..., 0]
        pyro.sample("other", coin((p["r"][0] - a).unsqueeze(-1)))


@program(chain_guide, entropy=0.5, refuses=DEPENDENT)
def masks_that_depend_on_each_other_with_a_guide(p):
    masks_that_depend_on_each_other(p)


@program(masks_of("q", of=lambda logits: coin(logits[:1])), **SUM, entropy=0.4, refuses=DEPENDENT)
def a_guide_of_one_mask_of_two(p):
    with rows(), mask_particles():
        a = pyro.sample("mask", coin(p["a"][:1]))[..., 0]
        b = pyro.sample("other", coin((a + p["b"][0]).unsqueeze(-1)))[..., 0]
        respond(p, p["w"][0] * a + p["w"][1] * b)


@program(entropy=0.2, **SUM, refuses=DEPENDENT)
def a_chain_of_three_masks(p):
    with rows(1), mask_particles():
        a = pyro.sample("mask", coin(p["a"][:1]))[..., 0]
        b = pyro.sample("second", coin((2.0 * a + p["b"][0]).unsqueeze(-1)))[..., 0]
        c = pyro.sample("third", coin((b - a + p["b"][1]).unsqueeze(-1)))[..., 0]
        respond(p, p["w"][0] * a + p["w"][1] * c, y=Y[:1])


# Several responses, black boxes, mixtures


@program()
def two_responses(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        respond(p, p["w"][0] * z[..., 0])
        pyro.sample("size", dist.Normal(p["w"][1] * z[..., 0], 1.0), obs=X[:, 0])


@program(GUIDE)
def labels_of_a_black_box(p):
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        with label_expectation(torch.tensor([[0.3, 0.7], [0.9, 0.1]]).double()) as labels:
            distribution = dist.Bernoulli(logits=p["w"][0] * z[..., 0])
            pyro.sample("y", distribution, obs=labels.double())


@program(GUIDE, **SUM)
def labels_of_a_black_box_in_a_sum(p):
    labels_of_a_black_box(p)


@program(refuses=NO_RELAXATION)
def a_mixture_of_predictors(p):
    with rows(1), mask_particles():
        z = pyro.sample("mask", coin(p["a"][:1]))[..., 0]
        which = pyro.sample("component", dist.Categorical(logits=p["b"]))
        respond(p, p["w"][which] * z + 0.2 * which, y=Y[:1])


@program(imputations=2, refuses=LEARNED)
def a_learned_imputation(p):
    with rows(1), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"], X[:1]))
        with imputation_particles():
            fill = pyro.sample("fill", dist.Bernoulli(logits=p["b"][0] + z[..., 0]))
            respond(p, p["w"][0] * z[..., 0] + p["w"][1] * fill * (1 - z[..., 0]), y=Y[:1])


@program(entropy=0.3, penalty=0.4, imputations=2, samples=1)
def everything_in_one(p):
    with scale(scale=WEIGHTS[1:]), rows(1), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"], X[:1]))
        penalty("size", 0.7 * z.sum(-1))
        with imputation_particles():
            fill = pyro.sample("fill", dist.Bernoulli(torch.full((1,), 0.4).double()))
            respond(p, p["w"][0] * z[..., 0] + 0.6 * fill, y=Y[:1])
            pyro.factor("fit", -0.1 * (z[..., 0] - fill) ** 2)
