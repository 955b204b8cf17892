"""Of an adapted model the batch norms learn, and nothing else moves."""

import pytest
import torch
from torch import nn

from lexppl.inference import fit
from lexppl.inference.contexts import seeded
from lexppl.models import CategoricalLikelihood, Predictor
from lexppl.models.predictor import table_predictor
from lexppl.models.regimes import adapted_normalisation
from lexppl.systems import q_fit
from tests.systems.discrete import X, Y, stages_of

NORMS = (1, 4)
QUIET = {"epochs": 3, "progress": False, "valid": None, "weight_decay": 0.0}


def network():
    with seeded(3):
        return nn.Sequential(
            nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Linear(6, 6), nn.ReLU(), nn.BatchNorm1d(6),
            nn.Dropout(0.5), nn.Linear(6, 2),
        ).eval()  # fmt: skip


@pytest.fixture
def given():
    return Predictor(network(), CategoricalLikelihood())


@pytest.fixture
def rows():
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 1] > 0).long()


def held(predictor):
    return {name: value.clone() for name, value in predictor.state_dict().items()}


def moved(before, after):
    return {name for name, value in before.items() if not torch.equal(after[name], value)}


def of_the_norms(kinds):
    return {f"network.{place}.{kind}" for place in NORMS for kind in kinds}


@pytest.mark.parametrize("scope", ["local", "global"])
def test_the_norms_alone_learn_and_the_given_model_stays(given, rows, scope):
    before = held(given)
    system = q_fit(3, given, scope=scope, adapt="normalisation", hidden=(4,), samples=2)
    result = fit(system, rows, **QUIET)
    after = result.model.predictor.module.state_dict()
    kinds = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    assert moved(before, after) == of_the_norms(kinds)
    assert not moved(before, given.state_dict())
    assert not any(p.requires_grad for p in result.model.predictor.module.network[0].parameters())


def test_each_replicate_has_norms_of_its_own(given, rows):
    system = q_fit(3, given, adapt="normalisation", hidden=(4,), samples=2)
    first, second = fit(system, rows, replicates=2, **QUIET).models
    differ = moved(first.predictor.state_dict(), second.predictor.state_dict())
    kinds = ("weight", "bias", "running_mean", "running_var")
    assert differ == {f"module.{name}" for name in of_the_norms(kinds)}


def test_training_normalises_by_all_draws_together_and_prediction_by_what_was_seen(given):
    """The loss by hand: both draws' rows as one batch, then each as a batch of its own."""
    system = q_fit(3, given, adapt="normalisation", hidden=(4,), samples=2, kl_weight=0.5)
    term = stages_of(system)[0].terms[0]
    law = term.model.selector(X)
    drawn = []
    kept = type(law).rsample

    def remembered(self, shape=()):
        drawn.append(kept(self, shape))
        return drawn[-1]

    with pytest.MonkeyPatch.context() as patch, seeded(5):
        patch.setattr(type(law), "rsample", remembered)
        loss = float(term.objective.differentiable_loss(term.model, None, X, Y).detach())
    shares = drawn[-1]  # After the look at whether rows depend on each other.
    shares = shares.reshape(-1, *X.shape).detach()
    assert len(shares) == 2
    fresh = network().double()
    for place in NORMS:
        fresh[place].train()
    divergence = term.model.penalties[0](law, None).sum()

    def by_hand(parts):
        scores = torch.cat([fresh(part.flatten(0, 1)) for part in parts])
        log_p = scores.log_softmax(-1)[torch.arange(4), Y.repeat(2)]
        return float((divergence - log_p.sum() / 2).detach())

    assert loss == pytest.approx(by_hand([shares * X]), abs=1e-10)
    assert loss != pytest.approx(by_hand(list((shares * X).unsqueeze(1))), abs=1e-3)

    adapted = term.model.predictor.eval()
    whole = adapted(X).probs.detach()
    assert torch.allclose(adapted(X[:1]).probs.detach(), whole[:1], atol=1e-12)
    assert not torch.allclose(whole, network().double()(X).softmax(-1).detach(), atol=1e-3)


def test_what_cannot_adapt_is_refused(given):
    with pytest.raises(
        ValueError, match=r"adapt must be one of .None, 'normalisation'.; it is 'all'"
    ):
        q_fit(3, given, adapt="all")
    with pytest.raises(ValueError, match="no batch norm to adapt: leave it frozen"):
        q_fit(3, table_predictor(3, 2, (4,)), adapt="normalisation")
    with pytest.raises(TypeError, match=r"takes an nn\.Module, not function"):
        adapted_normalisation(lambda x: x)
