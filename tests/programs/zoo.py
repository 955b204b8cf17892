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
from lexppl.inference import NestedIWAE
from tests.programs.builders import coin
from tests.programs.enumeration import Case, exact

X = torch.tensor([[0.9, -0.6], [-0.4, 1.2]]).double()
Y = torch.tensor([1.0, 0.0]).double()
WEIGHTS = torch.tensor([0.5, 2.0]).double()
SEEN = torch.tensor([False, True])
TIMES = torch.tensor([0.2, -0.6]).double().reshape(2, 1, 1, 1)
PARAMETERS = {
    **{"a": [0.4, -0.7], "b": [0.3, 0.8], "w": [1.3, -0.9]},
    **{"q": [-0.2, 0.5], "r": [0.6, -0.4]},
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
        values: of the parameters.
    """

    model: Callable[[dict], Any]
    guide: Callable[[dict], Any] | None = None
    masks: int = 2
    imputations: int = 1
    samples: int = 1
    entropy: float = 0.0
    penalty: float = 1.0
    refuses: dict[str, str] = field(default_factory=dict)
    values: dict[str, list] = field(default_factory=lambda: PARAMETERS)

    def case(self, dtype=torch.double) -> Case:
        values = {name: torch.tensor(v, dtype=dtype) for name, v in self.values.items()}
        return Case(self.model, values, self.guide)

    def objective(self, estimator, samples=None) -> NestedIWAE:
        return NestedIWAE(
            self.masks, self.imputations, samples=samples or self.samples, entropy=self.entropy,
            penalty=self.penalty, estimator=estimator
        )  # fmt: skip

    def truth(self):
        """Value and gradient by the sum over all draws."""
        factors = {"entropy": self.entropy, "penalty": self.penalty}
        return exact(self.case(), self.masks, self.imputations, **factors)


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


def of_rows(logits, x=X):
    """One entry a row."""
    return coin((logits * x).sum(-1, keepdim=True))


def respond(p, effect, name="y", y=Y, **words):
    return pyro.sample(name, dist.Bernoulli(logits=effect + 0.4 * X[: len(y), 1]), obs=y, **words)


def kept(p, logits="a", x=X):
    """The mask of each row, one entry, without its dimension."""
    return pyro.sample("mask", of_rows(p[logits], x))[..., 0]


def respond_to_mask(p, **words):
    """The statements of most programs: a mask of each row, and a response of its effect."""
    respond(p, p["w"][0] * kept(p), **words)


def guide_of_rows(p):
    with rows(), mask_particles():
        kept(p, "q")


GUIDE = guide_of_rows


# Distributions of one mask


@program()
def plain_rows(p):
    with rows(), mask_particles():
        respond_to_mask(p)


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
        respond(p, (p["w"] * pyro.sample("mask", KSubset(p["a"] * X, 1))).sum(-1))


@program(refuses=NO_RELAXATION)
def a_category_in_place_of_a_mask(p):
    with rows(), mask_particles():
        respond(p, p["w"][pyro.sample("mask", dist.Categorical(logits=p["a"] * X))])


ZOO["a guide"] = Program(plain_rows, GUIDE)
ZOO["a guide and a sum of logs"] = Program(plain_rows, GUIDE, **SUM)


# Plates


def masks_outermost_guide(p):
    with mask_particles(), rows():
        kept(p, "q")


@program()
def rows_that_share_a_log(p):
    with mask_particles(), rows():
        respond_to_mask(p)


ZOO["rows that share a log with a guide"] = Program(rows_that_share_a_log, masks_outermost_guide)


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
        z = kept(p)
    with pyro.plate("time", 2, dim=-4), data, mask_particles():
        respond(p, p["w"][0] * z + TIMES)


@program()
def repeated_measures_in_one_log(p):
    with rows(), mask_particles():
        z = kept(p)
        with pyro.plate("time", 2, dim=-4):
            respond(p, p["w"][0] * z + TIMES)


ZOO["repeated measures in one log with a guide"] = Program(repeated_measures_in_one_log, GUIDE)


@program()
def a_loop_inside(p):
    with rows(), mask_particles():
        z = kept(p)
        for t in pyro.plate("time", 3):
            respond(p, p["w"][0] * z + 0.3 * t, f"y_{t}")


@program(**SUM)
def a_loop_outside(p):
    data = rows()
    with data, mask_particles():
        z = kept(p)
    for t in pyro.plate("time", 2):
        with data, mask_particles():
            respond(p, p["w"][0] * z + 0.3 * t, f"y_{t}")


ZOO["a loop outside with a guide"] = Program(a_loop_outside, GUIDE, **SUM)


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
        z = kept(p, x=X[:1])
        with imputation_particles(), pyro.plate("time", 2, dim=-4):
            fill = pyro.sample("fill", dist.Bernoulli(torch.full((2, 1, 1, 1), 0.5).double()))
            respond(p, p["w"][0] * z + fill * TIMES, y=Y[:1])


@program()
def rows_by_another_name(p):
    with pyro.plate("patients", 2, dim=-1), mask_particles():
        respond_to_mask(p)


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


ZOO["groups with a guide"] = Program(
    as_many_groups_as_rows, lambda p: group_masks(p["q"], 2), **SUM
)


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


def plain_rows_with_a_penalty(p):
    with rows(), mask_particles():
        z = kept(p)
        penalty("size", 0.3 * z)
        respond(p, p["w"][0] * z)


ANNEALED = torch.tensor(0.3).double()
ZOO["a number on everything"] = Program(scale(plain_rows, scale=2.5))
ZOO["row weights on everything"] = Program(
    scale(plain_rows_with_a_penalty, scale=WEIGHTS), scale(GUIDE, scale=WEIGHTS), entropy=0.2
)
ZOO["a scale in the guide alone"] = Program(plain_rows, scale(GUIDE, scale=0.3), **SUM)


@program(penalty=0.5, entropy=0.2)
def class_weights_on_the_response(p):
    with rows(), mask_particles():
        z = kept(p)
        penalty("size", 0.3 * z)
        with scale(scale=torch.where(Y == 1, 3.0, 1.0).double()):
            respond(p, p["w"][0] * z)


def two_weighted_responses(one, other):
    def model(p):
        with rows(), mask_particles():
            z = kept(p)
            with scale(scale=one):
                respond(p, p["w"][0] * z)
            with scale(scale=other):
                respond(p, p["w"][1] * z, "other")

    return model


THREE = torch.tensor(3.0).double()
ZOO["a weight on one of two responses"] = Program(two_weighted_responses(THREE, 1.0), **SUM)
ZOO["a weight on the other of two responses"] = Program(two_weighted_responses(1.0, THREE), **SUM)


@program(scale(GUIDE, scale=ANNEALED), **SUM)
def an_annealed_divergence(p):
    with rows(), mask_particles():
        with scale(scale=ANNEALED):
            z = kept(p)
        respond(p, p["w"][0] * z)


@program(**SUM)
def weights_within_a_log(p):
    with mask_particles(), rows():
        z = kept(p)
        with scale(scale=WEIGHTS):
            respond(p, p["w"][0] * z)


# Rows that are not seen


ZOO["a row not seen"] = Program(seen_rows(plain_rows_with_a_penalty, mask=SEEN), entropy=0.3)


@program()
def a_response_not_seen(p):
    with rows(), mask_particles():
        z = kept(p)
        with seen_rows(mask=SEEN):
            respond(p, p["w"][0] * z)


@program()
def a_latent_without_density(p):
    with rows(), mask_particles():
        with seen_rows(mask=SEEN):
            z = kept(p)
        respond(p, p["w"][0] * z)


@program(refuses={"DisARM": "any distribution", "REBAR": "."})
def a_response_partly_observed(p):
    with rows(), mask_particles():
        distribution = dist.Bernoulli(logits=p["w"][0] * kept(p))
        y = pyro.sample("y", distribution, obs=Y, obs_mask=SEEN)
        pyro.sample("after", dist.Bernoulli(logits=p["w"][1] * y), obs=Y)


# Factors and penalties


@program()
def a_factor_by_row(p):
    with rows(), mask_particles():
        pyro.factor("fit", -((p["w"][0] * kept(p) - X[:, 1]) ** 2))


def cox(p, z):
    """A partial likelihood: the second row dies first, both at risk."""
    risk = p["w"][0] * z + p["w"][1] * X[:, 1]
    pyro.factor("cox", risk[..., 1:] - risk.logsumexp(-1, keepdim=True))


@program()
def a_partial_likelihood(p):
    with rows(), mask_particles():
        z = kept(p)
    with mask_particles():
        cox(p, z)


@program(**SUM)
def a_partial_likelihood_beside_labels(p):
    with rows(), mask_particles():
        z = kept(p)
        respond(p, p["w"][1] * z)
    with mask_particles():
        cox(p, z)


@program(masks_outermost_guide)
def a_partial_likelihood_and_labels_in_one_log(p):
    with mask_particles():
        with rows():
            z = kept(p)
            respond(p, p["w"][1] * z)
        cox(p, z)


@program()
def a_factor_of_the_weights(p):
    pyro.factor("prior", -0.5 * (p["w"] ** 2).sum())
    plain_rows(p)


@program(penalty=0.4, entropy=0.3)
def a_penalty_by_draw(p):
    with rows(), mask_particles():
        z = kept(p)
        penalty("size", 0.7 * z * (1 + p["w"][1] ** 2))
        respond(p, p["w"][0] * z)


@program(penalty=0.4)
def a_penalty_on_the_law(p):
    with rows(), mask_particles():
        penalty("size", 0.7 * of_rows(p["a"]).mean.sum(-1))
        respond_to_mask(p)


@program(penalty=0.4)
def a_penalty_outside_the_mask_plate(p):
    with rows():
        penalty("size", 5.0 * of_rows(p["a"]).mean.sum(-1))
        with mask_particles():
            respond_to_mask(p)


@program(penalty=0.4)
def a_penalty_outside_all_plates(p):
    penalty("weights", 0.5 * (p["w"] ** 2).sum())
    plain_rows(p)


@program(penalty=0.4, imputations=2, refuses=LEARNED)
def a_penalty_on_the_imputation(p):
    with rows(1), mask_particles():
        z = kept(p, x=X[:1])
        with imputation_particles():
            fill = pyro.sample("fill", dist.Bernoulli(logits=p["b"][:1]))
            penalty("roughness", (fill - p["w"][0] * z) ** 2)
            respond(p, p["w"][0] * z + fill, y=Y[:1])


@program(penalty=0.4)
def a_penalty_of_the_whole_batch(p):
    with rows(), mask_particles():
        z = kept(p)
        respond(p, p["w"][0] * z)
    with mask_particles():
        penalty("size", z.sum(-1, keepdim=True) ** 2)


def named_guide(p):
    with rows(), mask_particles():
        logits = pyro.deterministic("guide_logits", p["q"] * X, event_dim=1)
        pyro.sample("mask", coin(logits.sum(-1, keepdim=True)))


@program(named_guide)
def statements_without_density(p):
    pyro.deterministic("strength", p["w"])
    with rows(), mask_particles():
        z = pyro.sample("mask", of_rows(p["a"]))
        respond(p, p["w"][0] * pyro.deterministic("kept", z, event_dim=1)[..., 0])


# Several masks


def one_entry(name, logits):
    return pyro.sample(name, coin(logits if logits.dim() == 1 else logits.unsqueeze(-1)))[..., 0]


@program(entropy=0.3)
def two_masks(p):
    with rows(1), mask_particles():
        a, b = one_entry("mask", p["a"][:1]), one_entry("other", p["b"][:1])
        respond(p, p["w"][0] * a + p["w"][1] * b + a * b, y=Y[:1])


@program(entropy=0.5, refuses=DEPENDENT)
def masks_that_depend_on_each_other(p):
    with rows(1), mask_particles():
        a = one_entry("mask", p["a"][:1])
        b = one_entry("other", 3.0 * a + p["b"][0])
        respond(p, p["w"][0] * a + p["w"][1] * b, y=Y[:1])


def chain_guide(p):
    with rows(1), mask_particles():
        one_entry("other", p["r"][0] - one_entry("mask", p["q"][:1]))


ZOO["masks that depend on each other with a guide"] = Program(
    masks_that_depend_on_each_other, chain_guide, entropy=0.5, refuses=DEPENDENT
)


def one_mask_of_two(p):
    with rows(), mask_particles():
        one_entry("mask", p["q"][:1])


@program(one_mask_of_two, **SUM, entropy=0.4, refuses=DEPENDENT)
def a_guide_of_one_mask_of_two(p):
    with rows(), mask_particles():
        a = one_entry("mask", p["a"][:1])
        b = one_entry("other", a + p["b"][0])
        respond(p, p["w"][0] * a + p["w"][1] * b)


@program(entropy=0.2, **SUM, refuses=DEPENDENT)
def a_chain_of_three_masks(p):
    with rows(1), mask_particles():
        a = one_entry("mask", p["a"][:1])
        b = one_entry("second", 2.0 * a + p["b"][0])
        c = one_entry("third", b - a + p["b"][1])
        respond(p, p["w"][0] * a + p["w"][1] * c, y=Y[:1])


# Several responses, black boxes, mixtures


@program()
def two_responses(p):
    with rows(), mask_particles():
        z = kept(p)
        respond(p, p["w"][0] * z)
        pyro.sample("size", dist.Normal(p["w"][1] * z, 1.0), obs=X[:, 0])


@program(GUIDE)
def labels_of_a_black_box(p):
    with rows(), mask_particles():
        z = kept(p)
        with label_expectation(torch.tensor([[0.3, 0.7], [0.9, 0.1]]).double()) as labels:
            pyro.sample("y", dist.Bernoulli(logits=p["w"][0] * z), obs=labels.double())


ZOO["labels of a black box in a sum"] = Program(labels_of_a_black_box, GUIDE, **SUM)


@program(refuses=NO_RELAXATION)
def a_mixture_of_predictors(p):
    with rows(1), mask_particles():
        z = one_entry("mask", p["a"][:1])
        which = pyro.sample("component", dist.Categorical(logits=p["b"]))
        respond(p, p["w"][which] * z + 0.2 * which, y=Y[:1])


@program(imputations=2, refuses=LEARNED)
def a_learned_imputation(p):
    with rows(1), mask_particles():
        z = kept(p, x=X[:1])
        with imputation_particles():
            fill = pyro.sample("fill", dist.Bernoulli(logits=p["b"][0] + z))
            respond(p, p["w"][0] * z + p["w"][1] * fill * (1 - z), y=Y[:1])


@program(entropy=0.3, penalty=0.4, imputations=2, samples=1)
def everything_in_one(p):
    with scale(scale=WEIGHTS[1:]), rows(1), mask_particles():
        z = kept(p, x=X[:1])
        penalty("size", 0.7 * z)
        with imputation_particles():
            fill = pyro.sample("fill", dist.Bernoulli(torch.full((1,), 0.4).double()))
            respond(p, p["w"][0] * z + 0.6 * fill, y=Y[:1])
            pyro.factor("fit", -0.1 * (z - fill) ** 2)


@program(entropy=0.3, penalty=0.7, refuses=DEPENDENT)
def weighted_rows_of_two_masks_in_part_unseen(p):
    with scale(scale=WEIGHTS), seen_rows(mask=SEEN), rows(), mask_particles():
        a = kept(p)
        b = one_entry("other", 1.2 * a + p["b"][0])
        effect = p["w"][0] * a + p["w"][1] * b * (1.0 + a)
        penalty("cost", 0.4 * (effect - 0.3) ** 2)
        with pyro.plate("time", 2, dim=-4):
            respond(p, effect + TIMES)
        pyro.sample("second", dist.Normal(0.7 * effect, 1.0), obs=X[:, 0])


@program(lambda p: group_masks(p["q"], 2), **SUM, entropy=0.3)
def groups_and_weighted_rows_with_a_factor_of_the_batch(p):
    shared = group_masks(p["a"], 2)[..., torch.tensor([1, 0]), 0]
    with scale(scale=WEIGHTS), rows(), mask_particles():
        effect = p["w"][0] * shared + p["w"][1] * pyro.sample("own", of_rows(p["b"]))[..., 0]
        pyro.factor("by_row", -0.3 * (effect - X[:, 0]) ** 2)
        respond(p, effect)
    with mask_particles():
        pyro.factor("batch", -0.2 * (effect.sum(-1, keepdim=True) - 0.5) ** 2)


@program(imputations=2, refuses={**NO_RELAXATION, **LEARNED})
def learned_imputations_of_subsets_with_two_weighted_responses(p):
    with rows(1), mask_particles():
        z = pyro.sample("mask", KSubset(p["a"] * X[:1], 1))[..., 0]
        with imputation_particles(), scale(scale=WEIGHTS[1:]):
            fill = pyro.sample("fill", dist.Bernoulli(logits=p["b"][0] - z))
            effect = p["w"][0] * z + p["w"][1] * fill * (1.0 - 0.4 * z)
            for t in pyro.plate("time", 2):
                respond(p, effect + 0.5 * t, f"y_{t}", y=Y[:1])
