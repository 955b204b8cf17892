"""Selectors for every penalty of a range: the law, what each row is charged, and refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from pyro import poutine
from scipy import stats
from torch import nn

import lexppl
from lexppl.distributions import SequentialMask
from lexppl.effects import RowPenalties, row_penalties
from lexppl.explanation import explain, mask_means
from lexppl.inference import annealed, fit
from lexppl.models import (
    LEX,
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    ConstantImputer,
    GaussianImputer,
    KSubsetSelector,
    PenaltyConditioned,
    PenaltyRangeSelector,
    Predictor,
    SequentialLEX,
    SizePenalty,
)
from lexppl.systems import invase, lex, real_x
from lexppl.tabular.missing_values import with_missing
from tests.refusals import refusals, refused

LOW, HIGH = 0.005, 0.32


def selector(rate=0.8, **options):
    return PenaltyConditioned(
        BernoulliSelector(MLP(3, 9, (5,), seed=0), rate), LOW, HIGH, **options
    )


def program(chosen=None):
    predictor = Predictor(MLP(3, 2, (4,), seed=1), CategoricalLikelihood())
    return LEX(chosen or selector(), ConstantImputer(), predictor, [SizePenalty(1.0)])


def rows(count=6):
    x = torch.randn(count, 3, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long()


@pytest.mark.smoke
def test_logits_are_linear_on_either_side_of_the_middle():
    x, _ = rows()
    given = selector().eval()
    outputs = given.selector.network(x)
    for penalty in (LOW, 0.04, HIGH):
        u = math.log2(penalty / math.sqrt(LOW * HIGH))
        slope = outputs[:, 3:6] if u < 0 else outputs[:, 6:]
        logits = outputs[:, :3] + u * slope + math.log(4.0)
        given.penalty = penalty
        torch.testing.assert_close(given(x).mean, torch.sigmoid(logits))


def test_a_middle_of_its_own():
    x, _ = rows()
    system = lex(3, classes=2, penalty=(LOW, 0.02, HIGH), hidden=(4,), predictor_hidden=(4,))
    given = system.program().selector.eval()
    assert (given.low, given.middle, given.high, given.penalty) == (LOW, 0.02, HIGH, 0.02)
    at = given.selector.network(x)[:, :3]
    torch.testing.assert_close(given(x).mean, torch.sigmoid(at + math.log(4.0)))
    refused(r"to 0\.32 nats; 0\.5 is outside", lex, 3, classes=2, penalty=(LOW, 0.5, HIGH))


def test_levels_are_log_uniform_while_it_learns_and_one_afterwards():
    given = selector()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = given.row_penalties(torch.zeros(4000, 3)).log().numpy()
    uniform = stats.uniform(math.log(LOW), math.log(HIGH / LOW))
    assert stats.kstest(drawn, uniform.cdf).pvalue > 1e-3
    # The control: the rate itself is not uniform.
    other = stats.uniform(LOW, HIGH - LOW)
    assert stats.kstest(np.exp(drawn), other.cdf).pvalue < 1e-9
    assert given.eval().row_penalties(torch.zeros(2, 3)).tolist() == pytest.approx([0.04, 0.04])


def test_each_row_pays_its_own_penalty():
    x, y = rows()
    model = program()
    levels = torch.linspace(LOW, HIGH, 6)
    model.selector.row_penalties = lambda _: levels
    trace = poutine.trace(model).get_trace(x, y)
    charged = -trace.nodes["SizePenalty"]["fn"].log_prob(trace.nodes["SizePenalty"]["value"])
    with RowPenalties(levels):
        means = model.selector(x).mean
    torch.testing.assert_close(charged.flatten(), levels * means.sum(-1))
    own = [selector(penalty=float(level)).eval()(x).mean[row] for row, level in enumerate(levels)]
    torch.testing.assert_close(means, torch.stack(own))


def test_a_selector_within_another_learns_the_same_range():
    """Where values are missing the selector is wrapped: its rows pay the λ that it was given."""
    system = lex(2, classes=2, penalty=(LOW, HIGH), hidden=(4,), predictor_hidden=(4,))
    model = with_missing(system, [-1, 2, 2]).program().train()
    levels, seen = torch.linspace(LOW, HIGH, 6), []
    inner = model.selector.selector
    inner.row_penalties = lambda _: levels
    law = inner.selector.law
    inner.selector.law = lambda logits: seen.append(row_penalties()) or law(logits)
    trace = poutine.trace(model).get_trace(torch.ones(6, 3), rows()[1])
    charged = -trace.nodes["SizePenalty"]["fn"].log_prob(trace.nodes["SizePenalty"]["value"])
    kept = trace.nodes["mask"]["fn"].mean.sum(-1)
    torch.testing.assert_close(charged.flatten(), (levels * kept).flatten())
    assert len(seen) == 1 and torch.equal(seen[0], levels)


def test_a_program_that_does_not_charge_by_row_is_refused():
    x, _ = rows()
    refused("charges each row its own: LEX does", selector(), x)
    assert selector().eval()(x).event_shape == (3,)


@pytest.mark.parametrize("system", [lex, real_x, invase])
def test_systems_take_a_range_and_are_saved(system, tmp_path):
    x, y = rows(40)
    built = system(3, classes=2, penalty=(LOW, HIGH), hidden=(4,), predictor_hidden=(4,))
    result = fit(built, (x, y), epochs=2, replicates=2, progress=False)
    at = result.at(0.1)
    assert at.penalty_range == (LOW, HIGH)
    assert [model.selector.penalty for model in at.models] == [0.1, 0.1]
    assert result.model.selector.penalty == pytest.approx(0.04)
    lexppl.save(at, tmp_path / "fitted")
    again = lexppl.load(tmp_path / "fitted")
    means = [mask_means(explain(one, x, draws=0)).values for one in (at, again)]
    np.testing.assert_array_equal(*means)
    other = mask_means(explain(again, x, draws=0, penalty=0.01)).values
    np.testing.assert_array_equal(
        other, mask_means(explain(result, x, draws=0, penalty=0.01)).values
    )
    assert np.abs(other - means[0]).max() > 1e-4
    alone = mask_means(explain(result.models[0], x, draws=0, penalty=0.01)).values
    np.testing.assert_allclose(alone[0], other[0])


def test_one_fit_is_as_good_as_its_own_at_each_penalty():
    """Two columns of three, of which one tells more: what each λ keeps."""
    x = torch.randn(1000, 3, generator=torch.Generator().manual_seed(1))
    draw = torch.rand(1000, generator=torch.Generator().manual_seed(2))
    y = (draw < torch.sigmoid(3.0 * x[:, 0] + 1.0 * x[:, 1])).long()
    settings = {"epochs": 40, "batch_size": 125, "learning_rate": 5e-3, "progress": False}
    sizes = {"hidden": (16,), "predictor_hidden": (16,), "imputer": GaussianImputer()}
    every = fit(lex(3, classes=2, penalty=(0.005, 0.32), **sizes), (x, y), valid=None, **settings)
    for penalty in (0.01, 0.16):
        alone = fit(lex(3, classes=2, penalty=penalty, **sizes), (x, y), valid=None, **settings)
        kept = [
            mask_means(explain(one, x, draws=0)).values.mean((0, 1))
            for one in (every.at(penalty), alone)
        ]
        np.testing.assert_allclose(*kept, atol=0.15)
        assert kept[0][0] > 0.75 and (kept[0][1] > 0.6) == (penalty == 0.01)
        assert kept[0][2] < 0.3


def ranged(chosen, low=LOW):
    return PenaltyConditioned(chosen, low, HIGH)


def plain():
    return program(BernoulliSelector(MLP(3, 3)))


test_refusals = refusals(
    (lambda: selector(penalty=1.0), r"from 0\.005 to 0\.32 nats; 1 is outside"),
    (lambda: ranged(KSubsetSelector(MLP(3, 6), 2)), TypeError, "KSubsetSelector is given"),
    (lambda: ranged(BernoulliSelector(MLP(3, 6)), 0.5), "high must be"),
    (lambda: lex(3, classes=2, penalty=(0.1,)).build(), "its two ends"),
    (lambda: explain(plain(), rows()[0], penalty=0.1), "fitted for one alone"),
)


class Sequential(PenaltyRangeSelector):
    """Takes the column that its scores name, as long as it is worth its λ, and then the next."""

    def __init__(self, scores, low=LOW, high=HIGH):
        super().__init__(low, high)
        self.scores = nn.Parameter(scores)

    def forward(self, x):
        def policy(kept, mask, context):
            worth = self.scores.log2() - context
            left = worth.masked_fill(mask == 1, -torch.inf)
            return 50.0 * left, (-50.0 * left.amax(-1)).clamp(-50.0, 50.0)

        u = self.levels(x)
        # In its own units again: log2 λ.
        return SequentialMask(policy, x, 3, context=(u + math.log2(self.middle))[:, None])


def sequential_program(scores):
    predictor = Predictor(MLP(3, 2, (4,), seed=1), CategoricalLikelihood())
    return SequentialLEX(Sequential(scores), ConstantImputer(), predictor, [SizePenalty(1.0)])


def result_of(model, x):
    return replace(
        fit(plain(), (x, rows(len(x))[1]), epochs=1, valid=None, progress=False),
        models=[model.eval()],
    )


SCORES = torch.tensor([0.04, 0.16, 0.01])


@pytest.mark.parametrize("law", ["independent", "sequential"])
def test_entries_are_in_the_order_in_which_a_rising_penalty_lets_them_go(law):
    """Each is kept below a λ of its own, and not beyond."""
    x = rows(12)[0]
    model = sequential_program(SCORES)
    if law == "independent":
        network = nn.Linear(3, 9)
        logit = 200.0 * (SCORES.log2() - math.log2(math.sqrt(LOW * HIGH)))
        with torch.no_grad():
            network.weight.zero_()
            network.bias.copy_(torch.cat([logit, torch.full((6,), -200.0)]))
        model = program(PenaltyConditioned(BernoulliSelector(network), LOW, HIGH))
    result = result_of(model, x)
    state = torch.get_rng_state()
    assert result.order(x).tolist() == [[2, 0, 1]] * 12
    assert torch.equal(torch.get_rng_state(), state)
    assert model.selector.penalty == pytest.approx(0.04)
    for penalty, kept in ((0.007, [1, 1, 1]), (0.02, [1, 1, 0]), (0.1, [0, 1, 0])):
        means = mask_means(explain(result, x, draws=8, penalty=penalty)).values
        np.testing.assert_allclose(means[0], [kept] * 12, atol=1e-3)


def test_of_replicates_the_order_is_that_of_their_mean():
    x = rows(4)[0]
    models = [
        sequential_program(torch.tensor(s)).eval() for s in ([0.3, 0.04, 0.01], [0.01, 0.05, 0.02])
    ]
    result = replace(result_of(models[0], x), models=models, guides=[None, None])
    # Octaves above the lowest λ: 5.9 and 1, 3 and 3.3, 1 and 2.
    assert result.order(x).tolist() == [[2, 1, 0]] * 4


def test_a_sequential_law_learns_at_the_penalty_that_each_row_pays():
    """Its gradient reaches the policy, and rows of another λ have another law."""
    x, y = rows(200)
    model = sequential_program(torch.tensor([0.04, 0.04, 0.04]))
    settings = {"epochs": 2, "valid": None, "progress": False, "objective": annealed(4)}
    result = fit(model, (x, y), **settings)
    assert not torch.equal(result.model.selector.scores, model.selector.scores)
    levels = torch.linspace(LOW, HIGH, 6)
    model.selector.row_penalties = lambda _: levels
    trace = poutine.trace(model).get_trace(x[:6], y[:6])
    charged = -trace.nodes["SizePenalty"]["fn"].log_prob(trace.nodes["SizePenalty"]["value"])
    torch.testing.assert_close(charged, levels * trace.nodes["mask"]["value"].sum(-1))
    with RowPenalties(levels):
        torch.testing.assert_close(model.selector(x[:6]).context[:, 0], levels.log2())
    refused("charges each row its own", sequential_program(SCORES).train().selector, x)


def test_a_fit_of_one_penalty_has_no_order():
    x, y = rows(20)
    result = fit(plain(), (x, y), epochs=1, valid=None, progress=False)
    refused("fitted for one alone", result.order, x)
