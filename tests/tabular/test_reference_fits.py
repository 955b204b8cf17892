"""What stands beside a table's fit: the scale of residuals, and some rows of many."""

import numpy as np
import pytest
import torch
from torch import nn

from lexppl.choices.settings import AUTO
from lexppl.evaluation import fit_predictor
from lexppl.models import BernoulliLikelihood, Grouping, NormalLikelihood, Predictor
from lexppl.tabular import table_fit
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.fit_plan import plan_for
from lexppl.tabular.predictors import fit_full_predictor, settle_scale
from lexppl.tabular.table_fit import fit_table


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
    with pytest.raises(ValueError, match="finite and not all zero"):
        predictor.likelihood.settle(torch.tensor([float("nan")]))


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
        batch_size=plan.batch_size, learning_rate=plan.schedule, patience=None, progress=False,
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
    few = rows.at_most(500, 200, seed=1)
    for (x, y), weights, count in (
        (few.train, few.weights[0], 500),
        (few.valid, few.weights[1], 200),
    ):
        assert len(x) == len(y) == len(weights) == count
        assert len(x[:, 0].unique()) == count
        assert torch.equal(weights, 1.0 + x[:, 0])
        assert (y == 2).sum() == 1
        # Uniform numbers: their mean is within five standard errors of a half.
        assert abs(float(x[:, 0].mean()) - 0.5) < 5 * np.sqrt(1 / 12 / count)
    again = rows.at_most(500, 200, seed=1)
    assert torch.equal(again.train[0], few.train[0])
    assert not torch.equal(rows.at_most(500, 200, seed=2).train[0], few.train[0])
    assert rows.at_most(None, 900, seed=1).train[0] is rows.train[0]
    assert encoded(300, 90).at_most(50, 20, seed=0).weights is None


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
