"""The encode-meter: the value of laws that are known, none of honest masks, and its refusals."""

import math

import pytest
import torch

from lexppl.evaluation import encode_meter, fit_evalx, stripe_x
from lexppl.evaluation.encode_meter import EncodeMeter, MaskedRows
from lexppl.inference.objective.objective import Linear
from lexppl.models import Grouping
from tests.refusals import refusals, refused

SMALL = {
    "hidden": (16,),
    "folds": 2,
    "epochs": 25,
    "batch_size": 500,
    "learning_rate": Linear(2e-2, 0.0, begin=0.2),
}
ROWS = 1500


def normal(seed=0, features=4):
    return torch.randn(ROWS, features, generator=torch.Generator().manual_seed(seed))


def one_hot(x, place):
    return torch.zeros_like(x).scatter(1, place[:, None], 1.0)


def test_it_is_that_of_a_law_that_is_listed():
    """x1 alone makes y; x2 is kept where x1 = 1, else x3, nine times of ten: to know which is kept
    is to know x1 nine times of ten, so that y is told by .9² + .1² in the place of ½."""
    points = torch.tensor([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)]).double()
    generator = torch.Generator().manual_seed(1)
    x = points[torch.randint(8, (ROWS,), generator=generator)]
    up = 0.1 + 0.8 * x[:, 0]
    y = torch.multinomial(torch.stack([1 - up, up], 1), 1, generator=generator).squeeze(1)
    chosen = torch.multinomial(torch.stack([up, 1 - up], 1), 1, generator=generator).squeeze(1)
    found = encode_meter(x.float(), y, one_hot(x, 1 + chosen).float(), **SMALL)
    told = 0.9**2 + 0.1**2
    truth = math.log(2) + told * math.log(told) + (1 - told) * math.log(1 - told)
    # The labels' own chance is in the figure: the exact ratio at them is what it estimates.
    exact = torch.where(y == (chosen == 0).long(), told, 1 - told).log() - math.log(0.5)
    assert abs(found.value - float(exact.mean())) < 0.03
    assert found.lower < truth < found.upper
    assert found.tells
    assert truth > 0.15
    assert found.kept == pytest.approx(-math.log(2), abs=0.02)


def test_a_response_is_told_by_its_variance():
    x = normal()
    noise = 0.5 * torch.randn(ROWS, generator=torch.Generator().manual_seed(9))
    y = 10.0 + 3.0 * (x[:, 0] + noise)
    told = one_hot(x, torch.where(x[:, 0] > 0, 2, 3))
    found = encode_meter(x, y, told, **SMALL)
    wanted = 0.5 * math.log(1.25 / (1 - 2 / math.pi + 0.25))
    assert abs(found.value - wanted) < 0.06
    assert found.tells
    honest = encode_meter(x, y, told[torch.randperm(ROWS)], **SMALL)
    assert not honest.tells
    assert abs(honest.value) < 0.03


@pytest.mark.complete
def test_masks_of_what_matters_and_random_ones_tell_nothing():
    x = normal(1)
    y = (x[:, 0] + 0.5 * x[:, 1] > 0).long()
    truth = torch.zeros_like(x)
    truth[:, :2] = 1.0
    draws = torch.bernoulli(torch.full((2, *x.shape), 0.5), generator=torch.Generator())
    for masks in (truth, draws):
        found = encode_meter(x, y, masks, **SMALL)
        assert found.lower < 0.002
        assert abs(found.value) < 0.02
        assert found.by_row.shape == (ROWS,)


@pytest.mark.complete
def test_eval_x_does_not_see_what_the_meter_sees():
    x = normal(2)
    y = (x[:, 0] > 0).long()
    cheat = one_hot(x, torch.where(x[:, 0] > 0, 2, 3))
    twin = one_hot(x, torch.randint(2, 4, (ROWS,), generator=torch.Generator().manual_seed(0)))
    judge = fit_evalx((x, y), hidden=(16,), epochs=5, progress=False)
    eval_x = [judge.scores(x, y, masks).log_likelihood for masks in (cheat, twin)]
    assert abs(eval_x[0] - eval_x[1]) < 0.02
    meters = [encode_meter(x, y, masks, **SMALL) for masks in (cheat, twin)]
    assert meters[0].value > 0.5
    assert not meters[1].tells
    assert stripe_x(eval_x[0], meters[0]) < stripe_x(eval_x[1], meters[1]) - 4.0


@pytest.mark.smoke
def test_the_seed_gives_the_same_and_leaves_the_global_state():
    x = normal()[:200]
    y = (x[:, 0] > 0).long()
    masks = one_hot(x, torch.where(x[:, 1] > 0, 2, 3))
    state = torch.get_rng_state()
    few = {**SMALL, "epochs": 2, "folds": 2}
    first, again = (encode_meter(x, y, masks, seed=3, **few) for _ in range(2))
    assert torch.equal(first.by_row, again.by_row)
    assert torch.equal(torch.get_rng_state(), state)
    assert encode_meter(x, y, masks, seed=4, **few).value != first.value


def test_a_hidden_value_is_not_read():
    x = normal()
    masks = one_hot(x, torch.zeros(ROWS, dtype=torch.long))
    rows = MaskedRows.of(x, (x[:, 0] > 0).long(), masks, None)
    moved = x.clone()
    moved[:, 1:] = 99.0
    other = MaskedRows.of(moved, (x[:, 0] > 0).long(), masks, None)
    index = torch.arange(ROWS)
    assert torch.equal(rows.packed(index, True), other.packed(index, True))


def test_masks_that_are_dealt_are_other_rows_masks_each_as_often():
    x = normal()
    masks = torch.bernoulli(torch.full_like(x, 0.3), generator=torch.Generator().manual_seed(1))
    rows = MaskedRows.of(x, (x[:, 0] > 0).long(), masks, None)
    dealt = rows.dealt(torch.arange(ROWS), 3, torch.Generator().manual_seed(0))
    given = dealt.rows[:, 4:8]
    assert torch.equal(dealt.of, torch.arange(ROWS).repeat(3))
    assert torch.equal(given.sum(0), 3 * masks.sum(0))
    odds = torch.where(given[:, 0] == 1, 20.0, 1e-6).double()
    likely = dealt.likely(odds, 1000, torch.Generator().manual_seed(0))
    assert float(likely.rows[:, 4].mean()) > 0.9


@pytest.mark.parametrize("seed", [0, 1])
def test_one_mask_for_all_rows_tells_nothing_however_few_they_are(seed):
    """Rows drawn one by one, unevenly, made its interval .3 wide and more."""
    x = normal(seed)[:200]
    y = x[:, 0] + 0.5 * x[:, 1]
    masks = torch.zeros_like(x)
    masks[:, :2] = 1.0
    found = encode_meter(x, y, masks, seed=seed, **SMALL)
    assert abs(found.value) < 0.02
    assert found.upper - found.lower < 0.1


def test_entries_of_several_features():
    x = normal()
    y = (x[:, 0] > 0).long()
    grouping = Grouping([0, 0, 1, 1])
    told = torch.stack([y, 1 - y], 1).float()
    found = encode_meter(x[:, [2, 3, 1, 3]], y, told, grouping=grouping, **SMALL)
    assert found.value > 0.5


def test_stripe_x_charges_what_is_told():
    meter = EncodeMeter(0.1, 0.05, 0.15, -0.6, -0.5, torch.zeros(1))
    assert stripe_x(-0.5, meter, weight=2.0) == pytest.approx(-0.7)
    assert stripe_x(-0.5, -0.02) == -0.5
    refused("weight", stripe_x, -0.5, meter, weight=-1.0)
    refused("meter", stripe_x, -0.5, math.nan)


X = normal()
Y = (X[:, 0] > 0).long()
MASKS = torch.ones_like(X)


def metered(change):
    given = {"x": X, "y": Y, "masks": MASKS, **change}
    return encode_meter(*[given.pop(name) for name in ("x", "y", "masks")], **given)


test_wrong_input_is_refused = refusals(
    ({"masks": 0.5 * MASKS}, "masks must hold 0 and 1 only"),
    ({"y": Y[:5]}, "y must have shape"),
    ({"y": Y > 0}, TypeError, "labels"),
    ({"y": 0 * Y}, "C ≥ 2, not"),
    ({"x": X * math.nan}, "finite"),
    ({"folds": 1}, "folds"),
    ({"copies": 0}, "copies"),
    ({"x": X[:3], "y": Y[:3], "masks": MASKS[:3]}, "needs 40 rows"),
    ({"rate": 3}, TypeError, "unexpected keyword argument .rate."),
    of=metered,
)


@pytest.mark.complete
def test_few_of_a_label_are_in_every_part_or_refused():
    x = normal(5, 3)[:400]
    masks = one_hot(x, torch.arange(400) % 3)
    first, last = torch.zeros(2, 400, dtype=torch.long)
    first[:7], last[-12:] = 1, 1
    quick = {"epochs": 1, "hidden": (2,), "replicates": 1}
    for seed in range(5):
        for y, folds in ((first, 8), (last, 2)):
            assert math.isfinite(encode_meter(x, y, masks, folds=folds, seed=seed, **quick).value)
    first[0] = 0
    refused(r"folds=8 needs 7 rows.* y has 6", encode_meter, x, first, masks, folds=8)
