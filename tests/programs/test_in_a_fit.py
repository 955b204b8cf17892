"""Programs that a fit, or an explanation, used to refuse or to misreport."""

import itertools
import math
import random
import warnings
from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import NUTS
from pyro.infer.autoguide import AutoNormal
from pyro.infer.reparam import LocScaleReparam
from pyro.nn import PyroModule
from pyro.poutine import reparam, scale
from torch import nn

from lexppl import explain, load, save
from lexppl.distributions import TopKMask
from lexppl.effects import mask_particles
from lexppl.evaluation import log_marginal_likelihood, predictive, predictive_log_likelihood
from lexppl.inference import (
    MCMC,
    REBAR,
    CollapseWarning,
    Enumerate,
    LeaveOneOut,
    NestedIWAE,
    annealed,
    fit,
)
from lexppl.inference.contexts import keep_parameters_local
from lexppl.inference.pyro_parameters import is_program
from lexppl.models import MLP
from tests.gradients.enumeration import threshold
from tests.programs.builders import Explainer, G, Guide, X, Y, coin
from tests.refusals import refused

QUICK = {"epochs": 2, "progress": False}


class Orders(Explainer):
    def law(self, x):
        return TopKMask(self.selector(x), 2)


@pytest.mark.parametrize("replicates", [1, 2])
@pytest.mark.parametrize(
    ("model", "law"), [(Explainer, coin), (Orders, lambda logits: TopKMask(logits, 2))]
)
def test_rebar_with_a_guide(model, law, replicates):
    options = {"objective": NestedIWAE(2, estimator=REBAR()), "replicates": replicates, **QUICK}
    result = fit(model, (X, Y), guide=Guide(law), **options)
    assert np.isfinite(result.history.train).all()


@pytest.mark.smoke
def test_a_loop_over_times():
    class Repeated(Explainer):
        def respond(self, mask, x, y):
            logits = self.logits(mask * x)
            for t in pyro.plate("time", 3):
                pyro.sample(f"y_{t}", dist.Bernoulli(logits=logits + 0.1 * t), obs=y)

    fit(Repeated, (X, Y), objective=annealed(), **QUICK)


def test_a_global_discrete_latent():
    class Included(Explainer):
        def forward(self, x, y=None):
            self.included = pyro.sample("included", dist.Bernoulli(torch.tensor(0.5)))
            super().forward(x, y)

        def logits(self, kept):
            return self.included * super().logits(kept)

    class Switch(nn.Module):
        def __init__(self):
            super().__init__()
            self.logit = nn.Parameter(torch.zeros(()))

        def forward(self, x, y=None):
            pyro.sample("included", dist.Bernoulli(logits=self.logit))

    result = fit(Included, (X, Y), guide=Switch(), objective=annealed(), **QUICK)
    assert float(result.guides[0].logit.detach()) != 0.0
    assert explain(result, X[:4], draws=3)["predictions"]["mask"].shape == (1, 3, 4, 3)


class OneMask(Explainer):
    """One mask for every row, by construction."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.tensor([4.0, -4.0, 4.0]))

    def reset_parameters(self):
        nn.init.constant_(self.bias, 4.0)

    def law(self, x):
        return coin(self.bias.expand(len(x), 3))


class Still(Explainer):
    """One mask for every row, though it could be otherwise."""

    def __init__(self):
        super().__init__()
        with torch.no_grad():
            last = self.selector.layers[-1]
            last.weight.zero_()
            last.bias.copy_(torch.tensor([4.0, -4.0, 4.0]))


def test_a_mask_that_is_global_by_construction_raises_no_alarm():
    still = {"objective": NestedIWAE(2), "learning_rate": 1e-6, **QUICK}
    with warnings.catch_warnings():
        warnings.simplefilter("error", CollapseWarning)
        assert fit(OneMask, (X, Y), **still).collapse == [None]
    with pytest.warns(CollapseWarning, match="one mask for every row"):
        fit(Still, (X, Y), **still)


# A partial likelihood


class Cox(PyroModule):
    """Survival times by Cox's partial likelihood, with a mask of two entries a row."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([0.4, -0.3]))
        self.effect = nn.Parameter(torch.tensor([1.2, -0.7]))

    def reset_parameters(self):
        nn.init.zeros_(self.logits)

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", coin(self.logits * x))
        if y is not None:
            with mask_particles():
                pyro.factor("partial", self.partial(mask * x, y).unsqueeze(-1))

    def partial(self, kept, times):
        risk = (kept * self.effect).sum(-1)[..., times.argsort(descending=True)]
        return (risk - risk.logcumsumexp(-1)).sum(-1)


ROWS = torch.tensor([[0.9, -0.6], [-0.4, 1.2], [1.5, 0.3]])
TIMES = torch.tensor([0.7, 2.0, 1.1])


def fitted_cox():
    return fit(Cox, (ROWS, TIMES), valid=None, objective=NestedIWAE(2), learning_rate=1e-6, **QUICK)


def test_masks_given_survival_times_are_those_of_bayes():
    """All rows' masks together: 64 of them, each with its prior and its partial likelihood."""
    result = fitted_cox()
    model = result.model
    draws = 4000
    posterior = explain(result, ROWS, TIMES, draws=draws, proposals=20, seed=1)
    drawn = torch.as_tensor(np.asarray(posterior["posterior"]["mask"].values))[0].float()
    every = torch.tensor(list(itertools.product((0.0, 1.0), repeat=6))).reshape(-1, 3, 2)
    with torch.no_grad():
        prior = dist.Bernoulli(logits=model.logits * ROWS).to_event(2).log_prob(every)
        log_p = prior + model.partial(every * ROWS, TIMES)
    exact = torch.softmax(log_p, 0)
    mean = (exact[:, None, None] * every).sum(0)
    error = (mean * (1 - mean) / draws).sqrt()
    assert ((drawn.mean(0) - mean).abs() / error).max() < threshold(6 * 3)
    # Together: a pair of rows' masks, and not only each by itself.
    pair = (exact * every[:, 0, 0] * every[:, 1, 1]).sum()
    found = (drawn[:, 0, 0] * drawn[:, 1, 1]).mean()
    assert abs(float(found - pair)) < threshold(3) * math.sqrt(float(pair * (1 - pair)) / draws)
    prior_mean = torch.sigmoid(model.logits.detach() * ROWS)
    assert ((prior_mean - mean).abs() / error).max() > 2 * threshold(18)
    stats = posterior["sample_stats"]
    assert "weight_ess" in stats and "log_evidence" not in stats
    assert len(set(np.asarray(stats["weight_ess"].values).ravel().tolist())) == 1


def test_its_rows_have_no_likelihood_of_their_own():
    result = fitted_cox()
    refused("observes all rows together", predictive_log_likelihood, result, ROWS, TIMES)


def test_masks_of_groups_are_not_taken_for_rows():
    class Grouped(Explainer):
        def forward(self, x, y=None):
            with pyro.plate("groups", 3, dim=-1), mask_particles():
                mask = pyro.sample("mask", coin(self.selector(x[:1])[0].unsqueeze(-1)))
            with pyro.plate("data", len(x), dim=-1), mask_particles():
                self.respond(mask[..., torch.arange(len(x)) % 3, :], x, y)

    with pytest.raises(ValueError, match=r"'mask' is .*shared by several logs"):
        fit(Grouped, (X, Y), objective=NestedIWAE(2, estimator=LeaveOneOut()), **QUICK)
    average = NestedIWAE(1, samples=2, estimator=LeaveOneOut())
    posterior = explain(fit(Grouped, (X, Y), objective=average, **QUICK), X, draws=2)
    assert posterior["predictions"]["mask"].dims == ("chain", "draw", "groups", "feature")


# Responses that are not one site of a row's plate


class Read(Explainer):
    """With a response of its own, and y `(B, 2)`."""

    def respond(self, mask, x, y):
        logits = self.logits(mask * x)
        first, second = (None, None) if y is None else y.unbind(-1)
        return self.observe(logits, first, second)


class TwoResponses(Read):
    def observe(self, logits, first, second):
        pyro.sample("y_size", dist.Normal(logits, 0.8), obs=first)
        pyro.sample("y_count", dist.Poisson(logits.exp()), obs=second)


class Censored(Read):
    """Times, and whether each was seen to end: a factor for those that were not."""

    def observe(self, logits, first, second):
        if first is not None:
            law, seen = dist.Exponential(logits.exp()), second > 0
            with pyro.poutine.mask(mask=seen):
                pyro.sample("y", law, obs=first)
            with pyro.poutine.mask(mask=~seen):
                pyro.factor("beyond", -first * law.rate)


class Repeated(Read):
    """Two times in a plate of their own."""

    def observe(self, logits, first, second):
        y = None if first is None else torch.stack([first, second])[:, None, None]
        shift = torch.tensor([0.0, 1.0]).reshape(2, 1, 1, 1)
        with pyro.plate("time", 2, dim=-4):
            pyro.sample("y", dist.Normal(logits + shift, 0.8), obs=y)


def log_likelihoods(model, masks, x, y):
    """log p(y | x, z) by mask and row, by Pyro's trace of the model with all rows' masks set."""
    every = []
    for mask in masks:
        given = pyro.condition(model, data={"mask": mask.expand(1, len(x), -1)})
        trace = pyro.poutine.trace(given).get_trace(x, y)
        trace.compute_log_prob()
        names = [name for name in trace.observation_nodes if name != "mask"]
        terms = [trace.nodes[name]["log_prob"] for name in names]
        every.append(sum(term.reshape(-1, len(x)).sum(0) for term in terms))
    return torch.stack(every)


MASKS = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * G)


def listed(model, x, y, likelihood):
    """An explanation by all masks; evidence and p(z | x, y) are those of `log p(y | x, z)`."""
    keep_parameters_local(model)
    with torch.no_grad():
        log_p = model.law(x).log_prob(MASKS[:, None]) + likelihood()
    posterior = explain(model, x, y, draws=4, proposals=math.inf)
    found, mean = posterior["sample_stats"], torch.einsum("zb,zg->bg", log_p.softmax(0), MASKS)
    np.testing.assert_allclose(found["log_evidence"].values[0], log_p.logsumexp(0), atol=1e-5)
    np.testing.assert_allclose(found["selection_probability_given_y"].values[0], mean, atol=1e-5)
    return posterior


@pytest.mark.parametrize("program", [TwoResponses, Censored, Repeated])
def test_rows_have_a_likelihood_of_all_that_they_observe(program):
    model, x = program(), ROWS.repeat(2, 1)[:, [0, 1, 0]]
    y = torch.tensor([[0.7, 1.0], [2.0, 0.0], [1.1, 3.0]]).repeat(2, 1)
    posterior = listed(model, x, y, lambda: log_likelihoods(model, MASKS, x, y))
    assert posterior["log_likelihood"]["y"].shape == (1, 4, 6)
    assert "y" not in posterior["predictions"] and "y" not in explain(model, x)["predictions"]


def test_numbers_of_numpy_and_python_are_those_of_the_seed():
    class Noisy(Explainer):
        def logits(self, kept):
            return super().logits(kept + float(np.random.rand()) + random.random())  # noqa: NPY002

    def state():
        return np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002

    before = state()
    one, other = (fit(Noisy, (X, Y), objective=NestedIWAE(2), **QUICK) for _ in range(2))
    assert np.array_equal(one.history.train, other.history.train) and state() == before
    found = [explain(one, X, Y, draws=3)["sample_stats"]["log_evidence"] for _ in range(2)]
    assert np.array_equal(*found) and state() == before


# Programs that are no module themselves


class Methods(Explainer):
    """Model and guide are methods of one module, as in Pyro's examples."""

    def __init__(self):
        super().__init__()
        self.encoder = MLP(G + 1, G, (4,), seed=2)
        self.selector = nn.Sequential(MLP(G, G, (4,), seed=0), nn.Dropout(0.5))

    def model(self, x, y=None):
        return Explainer.forward(self, x, y)

    def guide(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            pyro.sample("mask", coin(self.encoder(torch.cat([x, y[:, None]], -1))))


def test_methods_are_learned_and_explained_as_their_module_is():
    given = Methods()
    options = {**QUICK, "objective": NestedIWAE(2)}
    one, other = (fit(program, (X, Y), **options) for program in (given, given.model))
    assert np.array_equal(one.history.train, other.history.train)
    explained = [explain(each, X, draws=0) for each in (given, given.model, scale(given, scale=2))]
    probability, *others = (each["sample_stats"]["selection_probability"] for each in explained)
    assert all(np.array_equal(probability, each) for each in others)  # Without dropout
    guided = fit(given.model, (X, Y), guide=given.guide, **options)
    held = guided.model.program
    assert held is guided.guides[0].program
    assert not torch.equal(held.encoder.layers[0].weight, given.encoder.layers[0].weight)


@pytest.mark.parametrize(
    "program", [lambda *rows: None, lambda x=None, y=None: None, partial(Still().forward)]
)
def test_functions_of_rows_by_their_arguments(program):
    assert is_program(program)


@pytest.mark.parametrize("builder", [Still, lambda features=2: Still(), lambda **options: Still()])
def test_functions_that_build_a_module_take_no_rows(builder):
    assert not is_program(builder)


class Weighted(PyroModule):
    """A weight that all rows share, and masks without parameters."""

    def forward(self, x, y=None):
        weight = pyro.sample("weight", dist.Normal(1.0, 2.0).expand([G]).to_event(1))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", coin(torch.zeros(G)))
            pyro.sample("y", dist.Normal((mask * x * weight).sum(-1), 1.0), obs=y)


@pytest.mark.parametrize("centered", [0.0, None])
def test_a_weight_that_a_handler_reparameterises(centered):
    program = reparam(Weighted(), config={"weight": LocScaleReparam(centered)})
    result = fit(program, (X, Y), guide=AutoNormal, objective=NestedIWAE(2), **QUICK)
    posterior = explain(result, X, Y, draws=5)["posterior"]
    assert "weight_decentered" in posterior and "weight" not in posterior


def test_a_sampled_module_beneath_a_handler_is_left_as_it_is():
    given = Weighted()
    sampler = MCMC(NUTS, 4, warmup=1, chains=1)
    fit(scale(given, scale=1.0), (X, Y), inference=sampler, progress=False)
    assert not given._forward_pre_hooks and not given._modules


class Both(PyroModule):
    """An automatic guide of what all rows share, and masks given x and y."""

    def __init__(self, model):
        super().__init__()
        self.shared = AutoNormal(pyro.poutine.block(model, expose=["weight"]))
        self.masks = Guide()

    def forward(self, x, y=None):
        self.shared(x, y)
        self.masks(x, y)


@pytest.mark.parametrize("replicates", [1, 2])
def test_an_automatic_guide_is_a_part_of_a_guide(replicates):
    model = Weighted()
    given = Both(model)
    options = {**QUICK, "objective": NestedIWAE(2), "replicates": replicates}
    result = fit(model, (X, Y), guide=given, **options)
    learned = dict(result.guides[0].named_parameters())
    assert {"shared.locs.weight_unconstrained", "masks.shift"} <= set(learned)
    assert float(learned["shared.locs.weight_unconstrained"].abs().sum()) > 0
    assert given.shared.model is not None
    drawn = explain(result, X, Y, draws=5)["posterior"]["weight"]
    assert drawn.shape == (replicates, 5, G) and float(drawn.std("draw").min()) > 0


# Rows that know their place


def test_a_batch_of_all_rows_is_in_their_order():
    seen = []

    class Noting(Still):
        def forward(self, x, y=None):
            seen.append(x)
            return super().forward(x, y)

    fit(Noting, (X, Y), valid=None, objective=NestedIWAE(2), **QUICK)
    assert all(torch.equal(x, X) for x in seen if len(x) == len(X))
    seen.clear()
    fit(Noting, (X, Y), valid=None, objective=NestedIWAE(2), batch_size=len(X) - 1, **QUICK)
    assert not torch.equal(seen[-2], X[:-1])


# Responses that are observed for some rows


class SomeObserved(Explainer):
    """The response of a row is observed where its first column is positive."""

    handled = True

    def respond(self, mask, x, y):
        law, seen = dist.Bernoulli(logits=self.logits(mask * x)), x[:, 0] > 0
        if self.handled:
            with pyro.poutine.mask(mask=seen):
                return pyro.sample("y", law, obs=y)
        return pyro.sample("y", law, obs=y, obs_mask=seen)


def test_an_observed_share_of_a_response_is_that_of_a_handler():
    given = [SomeObserved(), SomeObserved()]
    given[1].handled = False
    keep_parameters_local(*given)
    exact = NestedIWAE(math.inf, estimator=Enumerate())
    assert exact.loss(given[0], None, X, Y) == pytest.approx(exact.loss(given[1], None, X, Y))
    listed = [explain(one, X, Y, draws=2, proposals=math.inf)["sample_stats"] for one in given]
    for name in ("log_evidence", "selection_probability_given_y"):
        np.testing.assert_allclose(*(each[name] for each in listed), atol=1e-5)


class Numbers(SomeObserved):
    def respond(self, mask, x, y):
        law = dist.Normal(self.logits(mask * x), 1.0)
        return pyro.sample("y", law, obs=y, obs_mask=x[:, 0] > 0)


class SeveralNumbers(SomeObserved):
    def respond(self, mask, x, y):
        law = dist.Normal(mask * x, 1.0).to_event(1)
        pyro.sample("y_also", law, obs=y)
        return pyro.sample("y", law, obs=y, obs_mask=x[:, 0] > 0)


def test_responses_are_no_masks():
    for y in (None, X):
        shown = explain(SeveralNumbers(), X, y, draws=2)["predictions"]
        assert set(shown.data_vars) == {"mask", "importance", "size", "y"}
    # What obs_mask leaves unobserved is summed out.
    loss = NestedIWAE(math.inf, estimator=Enumerate()).loss(Numbers(), None, X, Y)
    assert loss == pytest.approx(-log_marginal_likelihood(Numbers(), X, Y).log, rel=1e-5)


# Responses that a program makes of y


class Unknown(Explainer):
    """Labels of which −1 is unknown, by `obs_mask` or by a handler."""

    handled = False

    def respond(self, mask, x, y):
        law = dist.Bernoulli(logits=self.logits(mask * x))
        label, known = (None, True) if y is None else (y.clamp(min=0.0), y >= 0)
        if not self.handled:
            return pyro.sample("y", law, obs=label, obs_mask=None if y is None else known)
        with pyro.poutine.mask(mask=known):
            return pyro.sample("y", law, obs=label)


class UnknownByHandler(Unknown):
    handled = True


class WithWeights(Explainer):
    """Labels beside weights of the likelihood."""

    def respond(self, mask, x, y):
        label, weight = (None, 1.0) if y is None else y.unbind(-1)
        with scale(scale=weight):
            return super().respond(mask, x, label)


@pytest.mark.parametrize("program", [Unknown, UnknownByHandler, WithWeights])
def test_a_response_that_a_program_makes_of_y(program):
    model, x = program(), X[:6]
    known = torch.tensor([True, False, True, True, True, False])
    weighs = program is WithWeights
    y = torch.stack([Y[:6], 0.5 + Y[:6]], -1) if weighs else torch.where(known, Y[:6], -1.0)

    def likelihood():
        value = dist.Bernoulli(logits=model.logits(x * MASKS[:, None])).log_prob(Y[:6])
        return value if weighs else torch.where(known, value, 0.0)

    posterior = listed(model, x, y, likelihood)
    assert np.array_equal(posterior["observed_data"]["y"].values, y)
    wrong = y + 3.0
    refused(r"labels must be|y has labels|y holds probabilities", explain, model, x, wrong, draws=4)


# Counts, and masks of levels


class Trials(Explainer):
    """Counts of trials, whose number is a column of x."""

    def respond(self, mask, x, y):
        law = dist.Binomial(x[:, 2].abs().ceil(), logits=self.logits(mask * x))
        return pyro.sample("y", law, obs=y)


def test_counts_of_trials_whose_number_differs_by_row_are_no_labels():
    """The first row's number was that of all: probabilities were 0, and larger counts refused."""
    x = X[X[:, 2].abs().argsort()]
    trials, y = x[:, 2].abs().ceil(), x[:, 2].abs().floor()
    result = fit(Trials, (x, y), objective=NestedIWAE(2), **QUICK)
    assert float(y.max()) > float(trials[0]) and result.labels is None
    masks = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * G)
    with torch.no_grad():
        p = torch.sigmoid(result.model.logits(x * masks[:, None]))
        prior = result.model.law(x).log_prob(masks[:, None])
    ways = torch.lgamma(trials + 1) - torch.lgamma(y + 1) - torch.lgamma(trials - y + 1)
    exact = (prior + ways + y * p.log() + (trials - y) * (1 - p).log()).logsumexp(0)
    posterior = explain(result, x, y, draws=4, proposals=math.inf)
    np.testing.assert_allclose(
        posterior["sample_stats"]["log_evidence"].values[0], exact, atol=1e-5
    )
    assert "y_probability" not in posterior["posterior_predictive"]
    draws, mean = 4000, (prior.exp() * trials * p).sum(0)
    error = math.sqrt(float(trials.max())) * float(trials.max()) / math.sqrt(draws)
    assert float((predictive(result, x, masks=draws)[0] - mean).abs().max()) < 4 * error


@pytest.mark.parametrize("law", [dist.Poisson, partial(dist.Normal, scale=1.0)])
def test_whole_numbers_that_are_no_labels_may_be_others_than_in_the_fit(law):
    class Whole(Explainer):
        def respond(self, mask, x, y):
            return pyro.sample("y", law(self.logits(mask * x).exp()), obs=y)

    ages = torch.arange(len(X)) % 4
    result = fit(Whole, (X, ages), objective=NestedIWAE(2), **QUICK)
    new = torch.full((3,), 9)
    found, expected = (explain(result, X[:3], y, draws=2) for y in (new, new.float()))
    for name in ("log_evidence", "selection_probability_given_y"):
        assert np.array_equal(*(each["sample_stats"][name] for each in (found, expected)))
    unseen = fit(Explainer, (X, Y), objective=NestedIWAE(2), **QUICK)
    unseen.labels = (0, 1)
    with pytest.raises(ValueError, match="labels must be 0 … 1 for classes=2; y has 9 in row 0"):
        explain(unseen, X[:3], new, draws=2)


class Levels(Explainer):
    """Each entry is hidden, seen, or counted twice."""

    def law(self, x):
        logits = self.selector(x).unsqueeze(-1) * torch.tensor([0.0, 1.0, -1.0])
        return dist.Categorical(logits=logits).to_event(1)


def test_masks_of_levels_have_the_mean_of_their_draws():
    """`Categorical` states NaN for its mean."""
    model = Levels()
    with torch.no_grad():
        levels = model.law(X).base_dist.probs @ torch.arange(3.0)
    mean = explain(model, X, draws=2000)["sample_stats"]["selection_probability"].values[0]
    assert float((torch.tensor(mean) - levels).abs().max()) < threshold(levels.numel()) / 2000**0.5
    refused(r"draws=0 .* \['mask'\] states no mean", explain, model, X, draws=0)


# Programs beneath handlers, given or built


@pytest.mark.parametrize("handler", [pyro.poutine.trace, partial(scale, scale=2.0)])
def test_a_handled_program_is_built_for_each_replicate_and_loaded(handler, tmp_path):
    given = handler(Explainer())
    explain(fit(given, (X, Y), objective=NestedIWAE(2), **QUICK), X, draws=2)
    result = fit(
        lambda: handler(Explainer()), (X, Y), objective=NestedIWAE(2), replicates=2, **QUICK
    )
    save(result, tmp_path)
    again = load(tmp_path, model=lambda: handler(Explainer()))
    means = [
        explain(r, X, draws=0)["sample_stats"]["selection_probability"] for r in (result, again)
    ]
    assert np.array_equal(*means)
