"""What the program observes in each regime, and that a given predictor stays as it is."""

import copy
import pickle

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from lexppl.inference import Enumerate, NestedIWAE
from lexppl.models import CategoricalLikelihood, Predictor
from lexppl.models.black_box import black_box
from lexppl.models.regimes import Frozen, Regime, frozen, regime_targets
from tests.refusals import refusals
from tests.small_models import explainer, quick

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
FITTED = LogisticRegression().fit(X.numpy(), Y.numpy())


class Normed(nn.Module):
    """A network whose evaluation differs from its training, and which training moves."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(8, 2)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.norm(self.first(x)))))


def predictor(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        given = Predictor(Normed(), CategoricalLikelihood())
        given.network.norm.running_mean.normal_()
        return given


def test_the_four_regimes():
    assert [r.value for r in Regime] == [
        "free in-situ",
        "fixed in-situ",
        "self post-hoc",
        "surrogate post-hoc",
    ]
    assert [r.learns_predictor for r in Regime] == [True, False, False, True]
    assert [r.post_hoc for r in Regime] == [False, False, True, True]


@pytest.mark.parametrize("regime", [Regime.FREE_IN_SITU, "fixed in-situ"])
def test_in_situ_observes_labels(regime):
    assert regime_targets(regime, X, Y, predictor=predictor()) is Y


def test_surrogate_post_hoc_observes_the_black_box():
    targets = regime_targets(Regime.SURROGATE_POST_HOC, X, Y, black_box=FITTED)
    assert targets.shape == (60, 2)
    torch.testing.assert_close(targets, black_box(FITTED).targets(X))
    wrapped = regime_targets("surrogate post-hoc", X, black_box=black_box(FITTED))
    assert torch.equal(wrapped, targets)


def test_the_expectation_over_labels_is_exact():
    model = explainer(predictor=predictor().eval()).double()
    exact = NestedIWAE(1, estimator=Enumerate())
    x = X.double()
    targets = regime_targets("surrogate post-hoc", x, black_box=FITTED)

    @torch.no_grad()
    def losses(y):
        return torch.stack(
            [exact.differentiable_loss(model, None, x[n : n + 1], y[n : n + 1]) for n in range(5)]
        )

    by_label = torch.stack([losses(torch.full((60,), c)) for c in range(2)], 1)
    torch.testing.assert_close(losses(targets), (targets[:5] * by_label).sum(1))
    drawn = losses(targets.argmax(1))
    assert float((drawn - losses(targets)).abs().max()) > 0.01


test_missing_and_surplus_pieces_are_refused = refusals(
    ({"regime": "post-hoc"}, "regime must be one of"),
    ({"regime": "free in-situ", "y": None}, "of labels or responses: .* it is None"),
    ({"regime": "fixed in-situ", "y": None}, "of labels or responses: .* it is None"),
    ({"regime": "free in-situ", "black_box": FITTED}, "regime has no black box"),
    ({"regime": "self post-hoc", "black_box": FITTED}, "regime has no black box"),
    ({"regime": "self post-hoc"}, "give predictor="),
    ({"regime": "surrogate post-hoc"}, "give black_box="),
    ({"regime": "surrogate post-hoc", "black_box": FITTED, "y": Y[1:]}, "x has 60 rows and y"),
    ({"regime": "free in-situ", "y": torch.eye(60)}, "post-hoc observe probabilities"),
    ({"regime": "free in-situ", "y": Y / 0.0}, "y must be finite"),
    ({"regime": "surrogate post-hoc", "black_box": nn.Linear(3, 2)}, "say what Linear returns"),
    of=lambda options: regime_targets(**{"x": X, "y": Y, **options}),
)


def test_a_frozen_module_is_a_copy_in_evaluation_for_good():
    given = predictor().train()
    held = nn.ModuleList([frozen(given)])
    for mode in (True, False, True):
        held.train(mode)
        assert not any(part.training for part in held[0].modules())
    assert not any(p.requires_grad for p in held.parameters())
    assert given.training and all(p.requires_grad for p in given.parameters())
    before = {n: b.clone() for n, b in held.state_dict().items()}
    held[0](X)
    assert all(torch.equal(b, before[n]) for n, b in held.state_dict().items())
    given(X)
    moved = given.network.norm.running_mean
    assert not torch.equal(moved, before["0.module.network.norm.running_mean"])


def test_a_frozen_module_has_what_the_module_has_and_can_be_copied():
    held = frozen(predictor())
    assert held.event_dim == 1 and isinstance(held.likelihood, CategoricalLikelihood)
    with pytest.raises(AttributeError):
        _ = held.nothing_of_the_kind
    expected = held(X).probs
    for other in (copy.deepcopy(held), pickle.loads(pickle.dumps(held)), Frozen(**held.config())):
        other.train()
        assert not other.module.training
        assert torch.equal(other(X).probs, expected)


def fitted_with(part, replicates):
    options = {"epochs": 2, "batch_size": 20, "learning_rate": 0.1, "replicates": replicates}
    return quick(lambda: explainer(seed=None, predictor=part), (X, Y), **options)


@pytest.mark.smoke
@pytest.mark.parametrize("replicates", [1, 2])
def test_a_fit_leaves_a_frozen_predictor_as_it_was(replicates):
    given = predictor()
    result = fitted_with(frozen(given), replicates)
    for model in result.models:
        after = model.predictor.module.state_dict()
        assert all(torch.equal(after[name], v) for name, v in given.state_dict().items())
    learned = [model.selector.network.layers[0].weight for model in result.models]
    assert len(learned) == replicates
    assert replicates == 1 or not torch.equal(*learned)
