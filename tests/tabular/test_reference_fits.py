"""What stands beside a table's fit: the scale of residuals, and some rows of many."""

import numpy as np
import pytest
import torch
from torch import nn

from lexppl.choices.settings import AUTO
from lexppl.evaluation import fit_predictor
from lexppl.evaluation.folds import Folds
from lexppl.inference import TrainingOptions
from lexppl.models import (
    BernoulliLikelihood,
    Grouping,
    NormalLikelihood,
    PoissonLikelihood,
    Predictor,
)
from lexppl.systems.fit_plan import plan_for
from lexppl.tabular import table_fit
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.predictors import best_full_predictor, fit_full_predictor, settle_scale
from lexppl.tabular.table_fit import fit_table
from tests.refusals import refused


def rows(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 10, generator=generator)
    return x, 0.9 * x[:, 4] + 0.44 * torch.randn(count, generator=generator)


def test_the_scale_is_that_of_weighted_residuals():
    predictor = Predictor(nn.Identity(), NormalLikelihood())
    y, weights = torch.tensor([1.0, 2.0, 5.0]), torch.tensor([1.0, 2.0, 0.0])
    settle_scale(predictor, torch.zeros(3, 1), y, weights)
    assert float(predictor.likelihood.log_scale.exp().detach()) ** 2 == pytest.approx((1 + 8) / 3)


@pytest.mark.parametrize("likelihood", [BernoulliLikelihood(), NormalLikelihood(2.0, False)])
def test_what_has_no_scale_to_learn_is_left_alone(likelihood):
    predictor = Predictor(nn.Identity(), likelihood)
    before = {name: value.clone() for name, value in predictor.state_dict().items()}
    settle_scale(predictor, torch.zeros(2, 1), torch.tensor([1.0, 0.0]))
    after = predictor.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_no_residual_leaves_the_scale_and_a_mistake_is_refused():
    predictor = Predictor(nn.Identity(), NormalLikelihood())
    settle_scale(predictor, torch.zeros(2, 1), torch.zeros(2))
    assert float(predictor.likelihood.log_scale) == 0.0
    refused("finite and not all zero", predictor.likelihood.settle, torch.tensor([float("nan")]))


def test_a_given_regressor_s_scale_is_the_noise_that_it_leaves():
    """160 rows, whose network overfits before a scale of 1 has come down to the noise's 0.44."""
    train, valid = rows(160, 0), rows(400, 1)
    data = EncodedRows(train, valid, Grouping(list(range(10))), tuple("abcdefghij"), None)
    plan = plan_for(160, 10, "q_fit", epochs=60)
    full = fit_full_predictor(plan, data).predictor
    with torch.no_grad():
        stated = float(full(valid[0]).stddev[0])
        residual = float((valid[1] - full(valid[0]).mean).square().mean().sqrt())
    assert stated == pytest.approx(residual, rel=1e-4)
    plain = fit_predictor(
        train, valid=valid, hidden=plan.predictor_hidden, epochs=plan.epochs,
        batch_size=plan.batch_size, learning_rate=plan.schedule, training=TrainingOptions(),
        progress=False,
    ).predictor  # fmt: skip
    assert float(plain(valid[0]).stddev[0].detach()) > 1.2 * residual


def encoded(train: int, valid: int, weighted: bool = False) -> EncodedRows:
    """Rows whose first column is their number, the first row alone of its class."""

    def part(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(count, 3, generator=torch.Generator().manual_seed(count))
        x[:, 0] = torch.arange(count) / count
        y = (x[:, 1] > 0).long()
        y[-1] = 2
        return x, y

    parts = part(train), part(valid)
    weights = tuple(1.0 + x[:, 0] for x, _ in parts) if weighted else None
    names = ("a", "b", "c")
    return EncodedRows(*parts, Grouping((0, 1, 2), names), names, ("no", "yes", "rare"), weights)


def test_some_rows_are_drawn_with_their_weights_and_every_label():
    rows = encoded(3000, 900, weighted=True)
    few = rows.with_valid_at_most(200, seed=1)
    (x, y), weights = few.valid, few.weights[1]
    assert len(x) == len(y) == len(weights) == len(x[:, 0].unique()) == 200
    assert torch.equal(weights, 1.0 + x[:, 0])
    assert (y == 2).sum() == 1
    # Uniform numbers: their mean is within five standard errors of a half.
    assert abs(float(x[:, 0].mean()) - 0.5) < 5 * np.sqrt(1 / 12 / 200)
    assert few.train is rows.train and few.weights[0] is rows.weights[0]
    assert torch.equal(rows.with_valid_at_most(200, seed=1).valid[0], x)
    assert not torch.equal(rows.with_valid_at_most(200, seed=2).valid[0], x)
    assert rows.with_valid_at_most(900, seed=1) is rows
    assert encoded(300, 90).with_valid_at_most(20, seed=0).weights is None


def test_of_many_rows_some_choose_the_penalty(monkeypatch):
    monkeypatch.setattr(table_fit, "PATH_ROWS", 100)
    given, path_of = [], table_fit.penalty_path

    def paths(result, x, y, **settings):
        given.append((len(x), len(y), len(settings["sample_weight"])))
        return path_of(result, x, y, **settings)

    monkeypatch.setattr(table_fit, "penalty_path", paths)
    plan = plan_for(600, 3, penalty=AUTO, epochs=2, hidden=(4,), predictor_hidden=(4,))
    fit_table(plan, encoded(600, 300, weighted=True))
    # And once more where logits were rescaled.
    assert set(given) == {(100, 100, 100)} and len(given) <= 2


LAWS = {
    "a linear model": lambda x: 1.5 * x.sum(1),
    "boosted trees": lambda x: (
        4.0 * ((x[:, 0] > 0) & (x[:, 1] > -0.5)) + 3.0 * (x[:, 2].abs() < 0.7) - 3.0
    ),
}


def drawn(law, kind, count, seed):
    """Rows, and y with its log-density by the law."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 6, generator=generator)
    score = LAWS[law](x).float()
    if kind == "classes":
        y = (torch.rand(count, generator=generator) < score.sigmoid()).long()
        return x, y, torch.distributions.Bernoulli(logits=score).log_prob(y.float())
    if kind == "counts":
        rate = torch.distributions.Poisson((score / 3.0).clamp(max=3.0).exp())
        y = torch.poisson(rate.rate, generator=generator)
        return x, y, rate.log_prob(y)
    y = score + 0.3 * torch.randn(count, generator=generator)
    return x, y, torch.distributions.Normal(score, 0.3).log_prob(y)


def held_out(full, folds, x, y):
    """Log-likelihood of rows by the fits that have not seen them, or by the only one."""
    each = torch.zeros(len(y), dtype=torch.float64)
    with torch.no_grad():
        for number, model in enumerate(full.result.models):
            rows = torch.arange(len(y)) if folds is None else folds.rows(number)
            each[rows] = model.predictor(x[rows]).log_prob(y[rows]).double()
    return each


@pytest.mark.parametrize("in_folds", [True, False])
@pytest.mark.parametrize("kind", ["classes", "numbers", "counts"])
@pytest.mark.parametrize("law", LAWS)
def test_a_reference_is_the_best_of_three(law, kind, in_folds):
    """Against a network that has hardly learned, and the law."""
    x, y, by_law = drawn(law, kind, 900, 0)
    folds = Folds.of(y, 3) if in_folds else None
    names, valid = tuple("abcdef"), None
    train = x, y
    if not in_folds:
        train, valid = (x[:700], y[:700]), (x[700:], y[700:])
    classes = ("no", "yes") if kind == "classes" else None
    rows = EncodedRows(train, valid, Grouping(range(6)), names, classes, folds=folds)
    likelihood = PoissonLikelihood() if kind == "counts" else None
    network = fit_predictor(
        train, valid=None, row_weights=None if folds is None else folds.weights, hidden=(4,),
        epochs=1, likelihood=likelihood, progress=False,
    )  # fmt: skip
    best = best_full_predictor(network, plan_for(900, 6, penalty=AUTO), rows)
    assert best.kind == law
    new = (x, y, by_law) if in_folds else drawn(law, kind, 900, 1)
    found, before = (held_out(one, folds, *new[:2]) for one in (best, network))
    less = (new[2].double() - found).mean()
    assert less < {"classes": 0.3, "numbers": 0.8, "counts": 0.3}[kind]
    assert (found - before).mean() > 0.05


def test_a_network_that_is_as_good_stays_and_no_row_sets_its_own_scale():
    x, y = rows(600, 0)
    folds, names = Folds.of(y, 3), tuple("abcdefghij")
    data = EncodedRows((x, y), None, Grouping(range(10)), names, None, folds=folds)
    plan = plan_for(600, 10, penalty=AUTO, replicates=3, in_folds=True)
    network = torch.nn.Linear(10, 1)
    with torch.no_grad():
        network.weight.copy_(0.9 * (torch.arange(10) == 4).float())
        network.bias.zero_()
    full = fit_predictor(
        (x, y), valid=None, row_weights=folds.weights, network=network, epochs=1,
        learning_rate=1e-12, progress=False,
    )  # fmt: skip
    for model in full.result.models:
        model.predictor.network.load_state_dict(network.state_dict())
    best = best_full_predictor(full, plan, data)
    assert best.kind == "a network"
    with torch.no_grad():
        residual = y - network(x)[:, 0]
        for number, model in enumerate(best.result.models):
            others = residual[folds.part != number].square().mean().sqrt()
            assert float(model.predictor(x[:1]).stddev) == pytest.approx(float(others), rel=1e-4)
    assert float(full.predictor(x[:1]).stddev.detach()) == pytest.approx(float(y.std()), rel=1e-3)


def test_a_reference_reads_gaps_levels_and_weights_and_without_judged_rows_stays():
    x = torch.randn(400, 4, generator=torch.Generator().manual_seed(3))
    x[:, 1:3] = torch.nn.functional.one_hot((x[:, 1] > 0).long(), 2).float()
    x[:, 3] = (torch.arange(400) % 5 == 0).float()
    x[x[:, 3] == 1, 0] = 0.0
    y = ((x[:, 0].abs() < 0.7) & (x[:, 1] > 0)).long()
    wrong = torch.arange(400) % 2 == 1
    y[wrong] = 1 - y[wrong]
    weights = torch.where(wrong, 1e-4, 1.0)
    grouping, names = Grouping([0, 1, 1], ["a", "b"]), ("a", "b=0", "b=1", "a is missing")
    parts = (x[:300], y[:300]), (x[300:], y[300:])
    data = EncodedRows(*parts, grouping, names, ("no", "yes"), (weights[:300], weights[300:]),
                       markers=(3, -1, -1, 3))  # fmt: skip
    network = fit_predictor(parts[0], valid=None, hidden=(4,), epochs=1, progress=False)
    plan = plan_for(300, 2, penalty=AUTO)
    best = best_full_predictor(network, plan, data)
    seen = (x[300:, 3] == 0) & ~wrong[300:]
    assert best.kind == "boosted trees"
    assert best.scores(x[300:][seen], y[300:][seen]).accuracy > 0.95
    alone = EncodedRows(parts[0], None, grouping, names, ("no", "yes"), markers=(3, -1, -1, 3))
    assert best_full_predictor(network, plan, alone) is network
