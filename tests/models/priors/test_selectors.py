"""Selectors with priors of their own: rates, sizes, sparse weights, sites, costs."""

import copy
import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.autoguide import AutoNormal
from torch import nn
from torch.distributions import kl_divergence

from lexppl import explain, fit, load, save
from lexppl.distributions import beta_binomial_sizes
from lexppl.effects import weights_with_priors
from lexppl.explanation.reading.masks import masks_of
from lexppl.inference import Enumerate, NestedIWAE
from lexppl.inference.contexts import keep_parameters_local, program_settings
from lexppl.models import (
    LEX,
    MLP,
    BernoulliSelector,
    BetaBernoulliSelector,
    CategoricalLikelihood,
    ConstantImputer,
    CostPenalty,
    HorseshoeLinear,
    KSubsetSelector,
    NormalLikelihood,
    Predictor,
    PriorLogits,
    RandomSizeSelector,
    SiteOffsets,
)
from lexppl.saving.description import describe
from tests.refusals import refusals

G = 3
EXACT = NestedIWAE(math.inf, estimator=Enumerate())
WEIGHTS = torch.tensor([[1.0, -2.0, 1.5]]).double()
NOISE = 0.5
SITE = torch.arange(40).remainder(4).unsqueeze(-1)
SITED = torch.cat([SITE, torch.randn(40, 3, generator=torch.Generator().manual_seed(0))], 1)
Y = (SITED[:, 1] > 0).long()


class Silent(nn.Module):
    """A network that says 0."""

    def forward(self, x):
        return torch.zeros_like(x)


def linear_explainer(selector):
    """y ~ Normal(Σ_g z_g w_g x_g, s) with known w and s."""
    layer = nn.Linear(G, 1, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(WEIGHTS)
    likelihood = NormalLikelihood(NOISE, learn_scale=False).double()
    model = LEX(selector, ConstantImputer(0.0), Predictor(layer, likelihood)).double()
    model.requires_grad_(False)
    keep_parameters_local(model)
    return model


def simulated(rate, rows, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, G, generator=generator).double()
    z = (torch.rand(rows, G, generator=generator) < rate).double()
    y = (z * x * WEIGHTS).sum(-1) + NOISE * torch.randn(rows, generator=generator).double()
    return x, y


def at_rate(rate):
    def guide(x, y=None):
        pyro.sample("selector.rate", dist.Delta(rate))

    return guide


# The rate of inclusion


def log_marginal(x, y, log_odds):
    """Σ_n log Σ_z Π_g Bernoulli(z_g) p(y_n | z), by listing masks here."""
    masks = torch.tensor([[(c >> g) & 1 for g in range(G)] for c in range(2**G)]).double()
    mean = (masks.unsqueeze(1) * x * WEIGHTS).sum(-1)
    log_y = dist.Normal(mean, NOISE).log_prob(y)
    log_z = dist.Bernoulli(logits=log_odds).log_prob(masks).sum(-1, keepdim=True)
    return (log_y + log_z).logsumexp(0).sum()


@pytest.mark.smoke
@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_the_bound_at_a_rate_is_the_listed_one(rate):
    x, y = simulated(0.3, 5, 0)
    model = linear_explainer(BetaBernoulliSelector(Silent(), 2.0, 5.0))
    value = torch.tensor(rate).double()
    with program_settings(validate=True):
        found = -EXACT.loss(model, at_rate(value), x, y)
    prior = dist.Beta(torch.tensor(2.0).double(), 5.0).log_prob(value)
    assert found == pytest.approx(float(log_marginal(x, y, value.logit()) + prior), rel=1e-9)


@pytest.mark.complete(but=1)
@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (2.0, 5.0)])
def test_with_the_rate_summed_out_sizes_are_beta_binomial(a, b):
    """One row: ∫ Beta(π) Σ_z p(z | π) p(y | z) dπ by quadrature is the size-then-subset law's."""
    x, y = simulated(0.3, 1, 3)
    model = linear_explainer(BetaBernoulliSelector(Silent(), a, b))
    log_odds = torch.linspace(-25, 25, 201).double()
    with program_settings(validate=True):
        at = [-EXACT.loss(model, at_rate(o.sigmoid()), x, y) for o in log_odds]
        sized = linear_explainer(RandomSizeSelector(Silent(), beta_binomial_sizes(G, a, b)))
        summed = -EXACT.loss(sized, None, x, y)
        other = linear_explainer(RandomSizeSelector(Silent(), beta_binomial_sizes(G, a, b + 1.0)))
        wrong = -EXACT.loss(other, None, x, y)
    p = log_odds.sigmoid()
    evidence = torch.trapezoid(torch.tensor(at).double().exp() * p * (1 - p), log_odds).log()
    assert summed == pytest.approx(float(evidence), abs=1e-5)
    assert abs(wrong - float(evidence)) > 1e-2


# The size


# Sparse weights


def test_the_horseshoe_is_that_of_its_formula():
    network = HorseshoeLinear(3, 2, scale=0.1, intercept_scale=2.0)
    keep_parameters_local(network)
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    with torch.random.fork_rng(), program_settings(validate=True):
        torch.manual_seed(0)
        trace = pyro.poutine.trace(network).get_trace(x)
    value = {n: v["value"] for n, v in trace.nodes.items() if v["type"] == "sample"}
    assert {n: tuple(v.shape) for n, v in value.items()} == {
        "global_scale": (),
        "local_scale": (2, 3),
        "effect": (2, 3),
        "intercept": (2,),
    }
    weight = value["global_scale"] * value["local_scale"] * value["effect"]
    expected = value["intercept"] + x @ weight.T
    assert torch.allclose(trace.nodes["_RETURN"]["value"], expected, atol=1e-6)

    def half_cauchy(v, scale):
        return (math.log(2 / math.pi / scale) - (1 + (v / scale) ** 2).log()).sum()

    def normal(v, scale):
        return (-0.5 * (v / scale) ** 2 - math.log(scale * math.sqrt(2 * math.pi))).sum()

    density = half_cauchy(value["global_scale"], 0.1) + half_cauchy(value["local_scale"], 1.0)
    density = density + normal(value["effect"], 1.0) + normal(value["intercept"], 2.0)
    assert float(trace.log_prob_sum()) == pytest.approx(float(density), rel=1e-5)


# Sites


def test_offsets_are_those_of_the_rows_site():
    network = SiteOffsets(MLP(3, 2, (4,), seed=0), sites=4, outputs=2, column=0, scale=2.0)
    keep_parameters_local(network)
    with torch.random.fork_rng(), program_settings(validate=True):
        trace = pyro.poutine.trace(network).get_trace(SITED)
        spread, effect = (trace.nodes[n]["value"] for n in ("spread", "effect"))
        expected = network.network(SITED[:, 1:]) + spread * effect[SITED[:, 0].long()]
    assert torch.allclose(trace.nodes["_RETURN"]["value"], expected, atol=1e-6)
    assert effect.shape == (4, 2) and float(trace.nodes["spread"]["fn"].scale) == 2.0


@pytest.mark.parametrize("site", [4.0, -1.0, 0.5, math.nan])
def test_a_site_that_is_none_is_refused(site):
    network = SiteOffsets(MLP(3, 2, (4,), seed=0), sites=4, outputs=2, column=0)
    keep_parameters_local(network)
    rows = SITED.clone()
    rows[3, 0] = site
    with program_settings(validate=True), pytest.raises(ValueError, match="column 0 must hold"):
        network(rows)


# Single features


def test_a_cost_is_of_each_entry():
    costs, weight = [0.0, 1.0, 5.0], 0.3
    logits = torch.tensor([[0.4, -1.0, 2.0]]).double()
    masks = dist.Bernoulli(logits=logits).to_event(1)
    cost = CostPenalty(costs, weight)(masks, masks.sample())
    expected = weight * (logits.sigmoid() * torch.tensor(costs).double()).sum()
    assert float(cost) == pytest.approx(float(expected))
    # As its docstring says: the divergence from independent entries of prior log-odds −λc.
    prior = -weight * torch.tensor([costs]).double()
    divergence = kl_divergence(
        torch.distributions.Bernoulli(logits=logits), torch.distributions.Bernoulli(logits=prior)
    ).sum(-1)
    expected = divergence + masks.entropy() - torch.log1p(prior.exp()).sum()
    assert float(cost) == pytest.approx(float(expected))


# In fits and files


SELECTORS = {
    "rate": lambda: BetaBernoulliSelector(MLP(4, 4, (4,)), 1.0, 4.0),
    "size": lambda: RandomSizeSelector(MLP(4, 4, (4,)), [0.0, 0.5, 0.3, 0.2]),
    "horseshoe": lambda: BernoulliSelector(HorseshoeLinear(4, 4, 0.1)),
    "sites": lambda: KSubsetSelector(SiteOffsets(MLP(3, 4, (4,)), 4, 4), 2),
    "known": lambda: BernoulliSelector(PriorLogits(MLP(4, 4, (4,)), [1.0, 0.0, 0.0, -1.0])),
    "all of it": lambda: BetaBernoulliSelector(SiteOffsets(HorseshoeLinear(3, 4), 4, 4)),
}


@pytest.mark.complete(but=7)
@pytest.mark.parametrize("replicates", [1, 2])
@pytest.mark.parametrize("name", SELECTORS)
def test_a_fit_and_its_files(name, replicates, tmp_path):
    predictor = Predictor(MLP(4, 2, (4,)), CategoricalLikelihood())
    model = LEX(SELECTORS[name](), ConstantImputer(0.0), predictor, [CostPenalty([0.01] * 4)])
    latents = weights_with_priors(model)
    guide = AutoNormal(pyro.poutine.block(model, expose=latents)) if latents else None
    options = {"objective": NestedIWAE(2), "epochs": 2, "progress": False}
    result = fit(model, (SITED, Y), guide=guide, replicates=replicates, **options)
    save(result, tmp_path)
    again = load(tmp_path, guide=(lambda: copy.deepcopy(guide)) if guide else None)
    assert describe(again.model) == describe(result.model)
    masks = [masks_of(explain(r, SITED[:5], draws=3))["mask"].values for r in (result, again)]
    assert masks[0].shape == (replicates, 3, 5, 4) and (masks[0] == masks[1]).all()


test_what_cannot_be_is_refused = refusals(
    (lambda: BetaBernoulliSelector(Silent(), 0.0), "a must be"),
    (lambda: RandomSizeSelector(Silent(), []), "probability above 0"),
    (lambda: RandomSizeSelector(Silent(), [0.5, -0.5]), "a probability of sizes"),
    (lambda: RandomSizeSelector(Silent(), [1.0] * 4)(torch.zeros(1, 2)), "at most G = 2"),
    (lambda: PriorLogits(Silent(), [math.inf]), "a log-odds"),
    (
        lambda: PriorLogits(Silent(), [1.0])(torch.zeros(1, 2)),
        r"output must have shape \(…, 1\); the shape is \(1, 2\)",
    ),
    (lambda: HorseshoeLinear(2, 2, scale=0.0), "scale"),
    (lambda: SiteOffsets(Silent(), 4, 2, column=-1), "column"),
    (lambda: CostPenalty([]), "none is given"),
    (lambda: CostPenalty([-1.0]), "a cost"),
    (
        lambda: CostPenalty([1.0])(dist.Bernoulli(torch.full((1, 2), 0.5)).to_event(1), None),
        r"masks must have shape \(…, 1\), an entry for each of costs; the shape is \(1, 2\)",
    ),
)
