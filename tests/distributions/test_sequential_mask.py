"""SequentialMask: exact probabilities, draws by them, and no leak."""

import itertools
import math
import sys

import pytest
import torch
from pyro import poutine
from scipy.stats import chi2
from torch._subclasses.fake_tensor import FakeTensorMode

from lexppl.distributions import SequentialMask
from lexppl.distributions.sequential_mask import ChosenMask, may_choose_rows
from lexppl.inference import LeaveOneOut, NestedIWAE, ScoreFunction
from lexppl.inference.contexts import seeded
from lexppl.models import MLP, ConstantImputer, Grouping, KSubsetSelector, SizePenalty
from lexppl.models.lex import SequentialLEX
from lexppl.models.predictor import table_predictor
from lexppl.models.selectors import SequentialSelector, StepPolicy
from tests.refusals import refusals, refused

G = 4


def policy(seed=0, features=G, entries=G):
    return StepPolicy(MLP(features + entries, entries + 1, (16,), "tanh", seed=seed)).double()


def law(x, most=3, **options):
    return SequentialMask(policy(), x, G, most, **options)


def sequences(most=3):
    """Every sequence of at most so many of G entries, `(M, T, G)`."""
    found = []
    for k in range(most + 1):
        for order in itertools.permutations(range(G), k):
            steps = torch.zeros(most, G, dtype=torch.float64)
            for t, j in enumerate(order):
                steps[t, j] = 1.0
            found.append(steps)
    return torch.stack(found)


def row(seed=0):
    return torch.randn(G, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


EXPLORING = pytest.mark.parametrize(
    "options", [{}, {"explore": 0.3}, {"explore_stop": 0.4}, {"explore": 1.0, "explore_stop": 1.0}]
)


@pytest.mark.smoke
@EXPLORING
@pytest.mark.parametrize("most", [1, 3, 4])
def test_probabilities_of_all_sequences_sum_to_one(options, most):
    with torch.no_grad():
        total = law(row(), most, **options).log_prob(sequences(most)).exp().sum()
    assert abs(float(total) - 1.0) < 1e-12


@EXPLORING
def test_draws_have_these_probabilities(options):
    every, count = sequences(), 40_000
    one = law(row(), **options)
    with torch.no_grad(), seeded(1):
        expected = one.log_prob(every).exp() * count
        drawn = one.sample((count,))
    same = (drawn[:, None] == every).all(-1).all(-1)
    assert bool((same.sum(1) == 1).all())
    statistic = float(((same.sum(0) - expected).square() / expected).sum())
    assert chi2.sf(statistic, len(every) - 1) > 1e-4


def test_what_cannot_be_drawn_has_no_probability():
    twice = torch.zeros(3, G, dtype=torch.float64)
    twice[0, 1] = twice[1, 1] = 1.0
    two_at_once = torch.zeros(3, G, dtype=torch.float64)
    two_at_once[0, :2] = 1.0
    gap = torch.zeros(3, G, dtype=torch.float64)
    gap[0, 1] = gap[2, 2] = 1.0
    with torch.no_grad():
        found = law(row()).log_prob(torch.stack([twice, two_at_once, gap]))
    assert bool(found.isneginf().all())


def of_nothing(going, most):
    """`log u` of every sequence: it goes on at this rate, to any entry that is left."""
    found = []
    for k in [int(n) for n in sequences(most).sum((1, 2))]:
        entries = -sum(math.log(G - t) for t in range(k))
        found.append(k * math.log(going) + entries + (math.log1p(-going) if k < most else 0.0))
    return torch.tensor(found, dtype=torch.float64)


@EXPLORING
@pytest.mark.parametrize(("most", "going"), [(1, 0.5), (3, 0.9), (4, 0.3)])
def test_the_divergences_of_its_steps_are_that_of_the_law(options, most, going):
    one, every = law(row(), most, **options), sequences(most)
    with torch.no_grad():
        log_p = one.log_prob(every)
        exact = (log_p.exp() * (log_p - of_nothing(going, most))).sum()
        found = (log_p.exp() * one.divergence_along(every, going)).sum()
        other = (log_p.exp() * one.divergence_along(every, going + 0.05)).sum()
    assert abs(float(found - exact)) < 1e-12
    assert abs(float(other - exact)) > 1e-3


def hidden_changed(x, kept, generator):
    other = torch.randn(x.shape, dtype=x.dtype, generator=generator)
    return torch.where(kept == 1, x, other)


def test_hidden_features_do_not_move_the_law():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(500, G, dtype=torch.float64, generator=generator)
    with torch.no_grad(), seeded(2):
        one = law(x)
        steps = one.sample()
        mask = steps.sum(-2)
        other = law(hidden_changed(x, mask, generator))
        assert torch.equal(one.log_prob(steps), other.log_prob(steps))
        assert torch.equal(one.set_log_prob(mask), other.set_log_prob(mask))
        # A change of what is kept does move it.
        moved = law(x + mask)
        kept = mask.sum(-1) > 0
        assert bool((one.log_prob(steps) != moved.log_prob(steps))[kept].all())


class CountedPolicy(torch.nn.Module):
    """A policy, how often it is called, and with how many rows."""

    def __init__(self):
        super().__init__()
        self.inner, self.times, self.rows = policy(), 0, 0

    def forward(self, kept, mask):
        self.times += 1
        self.rows += mask.shape[:-1].numel()
        return self.inner(kept, mask)


@pytest.mark.parametrize("most", [1, 3, 4])
def test_the_policy_is_counted_once_for_the_start_and_then_of_rows_that_go_on(most):
    counted, x = CountedPolicy(), torch.stack([row(seed) for seed in range(40)])
    with torch.no_grad(), seeded(6):
        one = SequentialMask(counted, x, G, most)
        steps = one.sample((5,))
        at_draws, counted.rows = counted.rows, 0
        one.log_prob(steps)
    expected = 1 + int(steps.sum(-1)[..., :-1].sum())
    assert at_draws == counted.rows == expected
    assert most == 1 or expected < steps.shape[:-1].numel()


@EXPLORING
def test_the_last_draw_is_judged_as_any_value_without_another_call_of_the_policy(options):
    network = CountedPolicy()
    one = SequentialMask(network, torch.stack([row(seed) for seed in range(30)]), G, 3, **options)
    with seeded(8):
        steps = one.sample((4,))
    rows = network.rows
    first = [one.divergence_along(steps, 0.8), one.log_prob(steps)]
    assert network.rows == rows
    for again in (steps, steps.clone()):
        other = [one.divergence_along(again, 0.8), one.log_prob(again)]
        assert network.rows > rows or options.get("explore") == 1.0
        for found, same in zip(first, other, strict=True):
            assert torch.allclose(found, same, rtol=0, atol=1e-12)
            if options.get("explore") == 1.0:
                continue
            for a, b in zip(*(gradients(f.sum(), network) for f in (found, same)), strict=True):
                assert bool(a.isfinite().all())
                assert torch.allclose(a, b, rtol=1e-9, atol=1e-10)


def gradients(value, module):
    return torch.autograd.grad(value, list(module.parameters()), retain_graph=True)


def test_a_step_asks_the_policy_once_and_no_step_later_reads_what_it_said():
    network = CountedPolicy()
    one = SequentialMask(network, torch.stack([row(seed) for seed in range(40)]), G, 3)
    with seeded(6):
        steps = one.sample((5,))
    rows = network.rows
    before = one.log_prob(steps)
    assert network.rows == rows
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1
    assert not torch.allclose(one.log_prob(steps), before)
    with seeded(6):
        changed = one.sample((5,))
    changed.zero_()
    assert torch.allclose(one.log_prob(changed), one.log_prob(torch.zeros_like(steps)))
    with torch.no_grad(), seeded(6):
        later = one.sample((5,))
        before = one.log_prob(later)
        for parameter in network.parameters():
            parameter += 0.1
        assert not torch.allclose(one.log_prob(later), before)


@EXPLORING
def test_rows_that_have_stopped_are_left_out_or_counted_with_the_others_to_the_same_end(
    options, monkeypatch
):
    x, every = torch.stack([row(seed) for seed in range(30)]), sequences()
    module = sys.modules[SequentialMask.__module__]

    def found():
        network = policy()
        one = SequentialMask(network, x, G, 3, **options)
        with seeded(7):
            steps = one.sample((4,))
        found_again = one.log_prob(torch.cat([steps.flatten(0, 1)[:60:2, None], every[:, None]]))
        total = one.log_prob(steps).sum() + found_again[found_again.isfinite()].square().sum()
        if total.requires_grad:
            total.backward()
        return steps, found_again, [p.grad for p in network.parameters()]

    steps, found_again, grads = found()
    monkeypatch.setattr(module, "may_choose_rows", lambda which: False)
    all_steps, all_found_again, all_grads = found()
    assert torch.equal(steps, all_steps)
    assert torch.allclose(found_again, all_found_again, rtol=0, atol=1e-12)
    for one, other in zip(grads, all_grads, strict=True):
        if one is None or other is None:
            assert one is other
            continue
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-9)


def test_rows_are_chosen_where_nothing_waits_for_them():
    seen, some = [], torch.tensor([True, False])
    torch.func.vmap(lambda one: seen.append(may_choose_rows(one)) or one)(some)
    with FakeTensorMode() as mode:
        seen.append(may_choose_rows(mode.from_tensor(some)))
    seen += [may_choose_rows(some.to("meta")), may_choose_rows(some[0])]
    assert seen == [False] * 4
    assert may_choose_rows(some)


def explainer(penalty=0.3):
    with seeded(4):
        model = SequentialLEX(
            SequentialSelector(policy(), G, most=3),
            ConstantImputer().double(),
            table_predictor(G, 2, (5,)).double(),
            [SizePenalty(penalty)],
        )
    return model


def exact_objective(model, x, y, entropy, going):
    """`Σ_n E[log p(y | x_z) − λ |z|] − β KL(p ‖ u)` over all sequences; and a wrong one: half of
    it, or with the probabilities of a divergence's steps held, as if no draw were judged by it."""
    every, log_u = sequences(), of_nothing(going, 3)
    total, held = 0.0, 0.0
    for one, label in zip(x, y, strict=True):
        distribution = model.selector(one[None])
        log_p = distribution.log_prob(every[:, None]).squeeze(-1)
        mask = every.sum(1)
        fit = model.predictor(one * mask).log_prob(label.expand(len(mask)))
        gain = (log_p.exp() * (fit - model.penalties[0].weight * mask.sum(-1))).sum()
        total = total + gain - entropy * (log_p.exp() * (log_p - log_u)).sum()
        along = distribution.divergence_along(every[:, None], going).squeeze(-1)
        held = held + gain - entropy * (log_p.exp().detach() * along).sum()
    return total, held if entropy else 0.5 * total


@pytest.mark.complete(but=2)
@pytest.mark.parametrize("entropy", [0.0, 0.7])
@pytest.mark.parametrize("estimator", [LeaveOneOut(), ScoreFunction()])
def test_the_bound_and_its_gradient_are_those_of_all_sequences(estimator, entropy):
    model, going = explainer(), 0.8
    x, y = torch.stack([row(1), row(2)]), torch.tensor([0, 1])
    total, wrong = exact_objective(model, x, y, entropy, going)
    exact, other = (torch.cat([g.flatten() for g in gradients(f, model)]) for f in (total, wrong))
    objective = NestedIWAE(1, samples=50, estimator=estimator, entropy=entropy, towards=going)
    each, losses = [], []
    with seeded(5):
        for _ in range(300):
            loss = objective.differentiable_loss(model, None, x, y)
            each.append(torch.cat([-g.flatten() for g in gradients(loss, model)]))
            losses.append(-loss.detach())
    found, values = torch.stack(each), torch.stack(losses)
    error = (found.std(0) / math.sqrt(len(found))).clamp_min(1e-12)
    z = (found.mean(0) - exact) / error
    assert float(z.abs().max()) < 4.8
    assert float(z.square().mean()) < 1.6
    z_value = (values.mean() - total.detach()) / (values.std() / math.sqrt(len(values)))
    assert abs(float(z_value)) < 4.0
    assert float(((found.mean(0) - other) / error).abs().max()) > 10.0


test_wrong_numbers_are_refused = refusals(
    ({"most": 0}, "most must be"),
    ({"most": 5}, "most must be"),
    ({"explore": 1.5}, "explore must be a share"),
    ({"explore_stop": -0.1}, "explore_stop must be a share"),
    of=lambda options: SequentialMask(policy(), row(), G, **options),
)


def test_rows_of_other_features_are_refused():
    refused("x must have 4 features", SequentialMask, policy(), torch.zeros(2, 3), G)
    selector = SequentialSelector(policy(features=3, entries=2), 2, grouping=Grouping([0, 0, 1]))
    refused("is of 3 features", selector, torch.zeros(2, 4))


def test_what_cannot_be_summed_is_refused():
    with pytest.raises(ValueError, match="explore_stop"):
        law(row(), explore_stop=0.5).set_log_prob(torch.ones(G, dtype=torch.float64))
    with pytest.raises(NotImplementedError, match="over the sequences"):
        _ = ChosenMask(torch.zeros(2, 3)).mean


def test_exploration_follows_the_fit_and_ends_with_training():
    from lexppl.effects import Progress

    selector = SequentialSelector(policy(), G, explore=0.05, explore_stop=0.1)
    x = row()[None]
    shares = []
    for t in (0.0, 0.05, 0.15, 1.0):
        with Progress(t):
            one = selector(x)
        shares.append((one.explore, one.explore_stop))
    # .995 an epoch of 1,000: 100 epochs after the fiftieth.
    assert shares[:2] == [(1.0, 1.0), (1.0, 1.0)]
    assert shares[2] == pytest.approx((0.995**100,) * 2)
    assert shares[3] == (0.05, 0.1)
    with Progress(0.0):
        still = selector.eval()(x)
    assert (still.explore, still.explore_stop) == (0.0, 0.0)


def test_lex_with_a_constant_imputer_leaks():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(500, G, dtype=torch.float64, generator=generator)
    selector = KSubsetSelector(MLP(G, G, (16,), seed=0).double(), k=2)
    with torch.no_grad(), seeded(2):
        mask = selector(x).sample()
        before = selector(x).log_prob(mask)
        after = selector(hidden_changed(x, mask, generator)).log_prob(mask)
    assert float((before != after).double().mean()) > 0.99


def test_groups_are_kept_together():
    grouping = Grouping([0, 0, 1])
    x = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    asked = policy(features=3, entries=2)
    with torch.no_grad(), seeded(0):
        one = SequentialMask(asked, x, 2, carry=grouping)
        steps = one.sample()
        kept = grouping(steps.sum(-2))
        other = SequentialMask(asked, hidden_changed(x, kept, None), 2, carry=grouping)
        assert torch.equal(one.log_prob(steps), other.log_prob(steps))


def of_context(kept, mask, context):
    """A policy that reads one number of the context as its temperature."""
    logits, stop = policy()(kept, mask)
    return logits * context[..., :1], stop - context[..., 0]


START = torch.tensor([[0.0, 1, 0, 0], [1, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]]).double()
CONTEXT = torch.tensor([[0.5], [2.0], [1.0], [3.0]], dtype=torch.float64)


def started(most=3, **options):
    x = torch.stack([row(seed) for seed in range(4)])
    return SequentialMask(of_context, x, G, most, start=START, context=CONTEXT, **options)


@pytest.mark.smoke
@pytest.mark.parametrize("explore", [0.0, 0.3])
@pytest.mark.parametrize("most", [1, 2, 4])
def test_from_what_is_known_it_goes_on_to_other_entries_alone(most, explore):
    """By hand, one row at a time: a policy of the rest, with certain stop where nothing is left."""
    one, every = started(most, explore=explore), sequences(most)
    with torch.no_grad():
        found = one.log_prob(every[:, None].expand(-1, 4, -1, -1)).exp()
        for place, x in enumerate(one.x):
            expected = torch.stack([by_hand(x, place, steps, explore) for steps in every])
            torch.testing.assert_close(found[:, place], expected, rtol=0, atol=1e-14)
        assert torch.allclose(found.sum(0), torch.ones(4).double(), atol=1e-13)
        drawn = started(most).sample((7,))
    masks = one.mask_of(drawn)
    assert bool(((masks == 0) | (masks == 1)).all() and (masks >= START).all())


def by_hand(x, place, steps, explore):
    mask, total = START[place].clone(), torch.ones((), dtype=torch.float64)
    for step in steps:
        logits, stop = of_context(x * mask, mask, CONTEXT[place])
        end = stop.sigmoid() if bool((mask == 0).any()) else torch.ones(()).double()
        if not bool(step.any()):
            return total * end
        j = int(step.argmax())
        if mask[j] == 1:
            return torch.zeros((), dtype=torch.float64)
        choice = logits.masked_fill(mask == 1, -math.inf).softmax(-1)[j]
        total = total * (1 - end) * ((1 - explore) * choice + explore / float((mask == 0).sum()))
        mask[j] = 1.0
    return total


def test_a_started_masks_probability_divergence_and_gradients():
    one, every = started(4), sequences(4)
    steps = every[:, None].expand(-1, 4, -1, -1)
    masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=G)), dtype=torch.float64)
    with torch.no_grad():
        each = one.log_prob(steps).exp()
        same = (one.mask_of(steps)[:, None] == masks[:, None]).all(-1).double()
        summed = torch.einsum("mkb,mb->kb", same, each)
        found = one.set_log_prob(masks[:, None].expand(-1, 4, -1).contiguous()).exp()
        torch.testing.assert_close(found, summed, rtol=0, atol=1e-13)
        # From nothing, as the third row, is without a start.
        plain = SequentialMask(of_context, one.x, G, 4, context=CONTEXT)
        alone = plain.set_log_prob(masks[:, None].expand(-1, 4, -1).contiguous()).exp()
        assert torch.equal(alone[:, 2], found[:, 2])
        assert torch.equal(plain.log_prob(steps).exp()[:, 2], each[:, 2])
        going = 0.7
        left = G - START.sum(-1)
        exact = 0.0
        for m, sequence in enumerate(every):
            k = int(sequence.sum())
            log_u = torch.full((4,), k * math.log(going), dtype=torch.float64)
            for t in range(k):
                log_u = log_u - (left - t).clamp_min(1).log()
            log_u = log_u + (left > k).double() * (math.log1p(-going) if k < 4 else 0.0)
            exact = exact + torch.where(each[m] > 0, each[m] * (each[m].log() - log_u), 0.0)
        along = (each * one.divergence_along(steps, going)).sum(0)
        torch.testing.assert_close(along, exact, rtol=0, atol=1e-12)
    scale = CONTEXT.clone().requires_grad_()
    again = SequentialMask(of_context, one.x, G, 3, start=START, context=scale)
    with seeded(0):
        again.log_prob(again.sample()).sum().backward()
    assert bool(scale.grad.isfinite().all()) and bool((scale.grad[:3] != 0).all())
    assert float(scale.grad[3]) == 0.0


def test_a_start_is_of_all_rows_or_one_and_its_program_keeps_it():
    x = torch.stack([row(1), row(2), row(3)])
    first = torch.tensor([0.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    one = law(x, start=first).expand((5, 3))
    with torch.no_grad(), seeded(0):
        assert bool((one.mask_of(one.sample())[..., 2] == 1).all())

    class Asked(SequentialSelector):
        def forward(self, x):
            return SequentialMask(self.policy, x, self.entries, 2, start=first)

    model = explainer()
    model.selector = Asked(policy(), G)
    with torch.no_grad(), seeded(0):
        trace = poutine.trace(model).get_trace(x, torch.tensor([0, 1, 0]))
    mask = trace.nodes["mask"]["value"]
    assert bool((mask[..., 2] == 1).all())
    charged = -trace.nodes["SizePenalty"]["fn"].log_prob(trace.nodes["SizePenalty"]["value"])
    torch.testing.assert_close(charged, 0.3 * mask.sum(-1))


test_a_wrong_start_is_refused = refusals(
    ({"start": torch.zeros(3)}, r"start must have shape \(2, 4\)"),
    ({"start": torch.zeros(5, 4)}, r"the shape is \(5, 4\)"),
    ({"context": torch.zeros(3, 1)}, r"context must have shape \(2, C\), or \(C,\)"),
    ({"start": torch.full((4,), 0.5), "validate_args": True}, "must hold 0 and 1"),
    ({"start": torch.zeros(4), "explore_stop": 0.1}, "leave start out"),
    of=lambda options: SequentialMask(policy(), torch.zeros(2, 4).double(), G, **options),
)
