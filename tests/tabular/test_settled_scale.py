"""The scale of a given regressor, which its explanation weighs rows by."""

import pytest
import torch
from torch import nn

from lexppl.evaluation import fit_predictor
from lexppl.models import BernoulliLikelihood, Grouping, NormalLikelihood, Predictor
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.fit_plan import plan_for
from lexppl.tabular.reference_fits import fit_full_predictor, settle_scale


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
