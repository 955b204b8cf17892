"""XTab is its paper's equations; its average is of parameters; subsets lose no column."""

import pytest
import torch

from lexppl.inference import averaged, fit
from lexppl.inference.contexts import seeded
from lexppl.models import MLP
from lexppl.systems import xtab
from lexppl.systems.xtab import NoisyFeatures, SubsetNetwork, subset_width
from tests.refusals import refusals
from tests.systems.discrete import X, Y, gradients_of, stages_of

SIZES = {"encoder_hidden": (4,), "predictor_hidden": (5,)}


def classified(model, rows):
    """Subsets by hand, one encoder, the mean of its codes, the classifier."""
    network = model.predictor.network
    (layer,) = (part for part in network.encoder.modules() if isinstance(part, torch.nn.Linear))
    codes = [
        torch.nn.functional.leaky_relu(layer(rows[:, [c % 3 for c in columns]]))
        for columns in ((0, 1, 2), (2, 3, 4))
    ]
    return network.network(torch.stack(codes).mean(0)).log_softmax(-1)


def loss_by_hand(model, m):
    """Eqs. 4 and 5: cross-entropy, Gini impurity and the mean of the mask."""
    cross_entropy = -classified(model, m.square() * X)[torch.arange(2), Y]
    gini = (1 - m.square() - (1 - m).square()).mean(-1)
    return (cross_entropy + gini + m.mean(-1)).sum()


def term_of(**options):
    quiet = {"noise": 0.0, "dropout": 0.0, "overlap": 0.5}
    term = stages_of(xtab(3, classes=2, **quiet, **SIZES, **options))[0].terms[0]
    return term, term.objective.differentiable_loss(term.model, None, X, Y)


def check(term, loss, m):
    by_hand = loss_by_hand(term.model, m)
    assert float(loss.detach()) == pytest.approx(float(by_hand.detach()), abs=1e-10)
    selector = term.model.selector
    learned = [p for p in selector.parameters() if p.requires_grad]
    ours = torch.autograd.grad(loss, learned, retain_graph=True)
    expected = torch.autograd.grad(by_hand, learned)
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(ours, expected, strict=True))


@pytest.mark.smoke
def test_round_one_is_its_loss():
    term, loss = term_of()
    check(term, loss, torch.sigmoid(term.model.selector.network(X)))
    assert gradients_of(loss, term.model.predictor).abs().max() > 0


def test_the_final_round_adds_the_global_mask_and_scales_by_the_largest():
    with seeded(1):
        shared = MLP(3, 3, (3,), "leaky_relu").double()
    term, loss = term_of(shared=shared)
    both = torch.sigmoid(shared(X)) + torch.sigmoid(term.model.selector.network.local(X))
    mask = term.model.selector(X).mean
    assert torch.allclose(mask, both / both.max(), atol=2e-6)
    assert (mask.amax(-1) < 0.999).any()
    check(term, loss, mask)
    assert not any(p.requires_grad for p in term.model.selector.network.shared.parameters())


def test_the_global_mask_is_the_mean_of_parameters_over_replicates():
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    data = (x, (x[:, 0] > 0).long())
    first = fit(xtab(3, classes=2, **SIZES), data, epochs=2, replicates=3, progress=False)
    mean = averaged(first.models).selector.network
    for name, value in mean.named_parameters():
        every = [dict(m.selector.network.named_parameters())[name] for m in first.models]
        assert torch.allclose(value, torch.stack(every).mean(0))
    second = fit(
        xtab(3, classes=2, shared=mean, **SIZES), data, epochs=2, replicates=2, progress=False
    )
    for model in second.models:
        held = model.selector.network.shared.state_dict()
        expected = {f"module.{n}": v for n, v in mean.state_dict().items()}
        assert all(torch.equal(held[n], v) for n, v in expected.items())


def test_each_subset_has_noise_of_its_own():
    """All columns are in both subsets: one noise for both would leave their codes alike."""
    program = xtab(2, classes=2, subsets=2, overlap=1.0, noise=0.5, **SIZES).program()
    network, x = program.predictor.network, torch.ones(200, 2)
    seen = []
    network.encoder.network.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    with seeded(0):
        network.train()(x)
    (pieces,) = seen
    first, second = (
        piece[:, columns.argsort()] != 1.0
        for piece, columns in zip(pieces.unbind(1), network.columns, strict=True)
    )
    # Changed in one and not in the other with probability ¼ if apart, and never if together.
    assert abs(float((first & ~second).double().mean()) - 0.25) < 5 * (0.25 * 0.75 / 400) ** 0.5


@pytest.mark.parametrize(
    ("features", "subsets", "overlap"), [(10, 3, 0.0), (7, 4, 0.75), (5, 5, 1.0), (280, 7, 0.75)]
)
def test_no_column_is_lost(features, subsets, overlap):
    width = subset_width(features, subsets, overlap)
    network = SubsetNetwork(features, subsets, overlap, MLP(width, 2, ()), MLP(2, 2, ()))
    assert set(network.columns.flatten().tolist()) == set(range(features))
    assert network.columns.shape == (subsets, width)


def test_noise_falls_on_the_given_share_of_entries_and_only_in_training():
    x = torch.arange(40_000.0).reshape(10_000, 4)
    with seeded(0):
        drawn = NoisyFeatures(torch.nn.Identity(), 0.3, scale=0.5)(x)
    share = 0.3
    changed = (drawn != x).double().mean()
    deviation = (share * (1 - share) / x.numel()) ** 0.5
    assert abs(float(changed) - share) < 5 * deviation + share * 1e-4
    replaced = drawn[drawn != x]
    assert abs(float(replaced.std()) - 0.5) < 0.02
    assert torch.equal(NoisyFeatures(torch.nn.Identity(), 1.0).eval()(x), x)


test_bad_input_is_refused = refusals(
    (
        lambda: xtab(3, classes=2, subsets=4),
        "subsets must be a whole number from 1 to 3, the features; it is 4",
    ),
    (lambda: xtab(3, classes=2, overlap=1.5), r"overlap must be a share in \[0, 1\]; it is 1.5"),
    (lambda: xtab(3, classes=2, noise=-0.1, **SIZES), r"share must .* in \[0, 1\]; it is -0.1"),
    (lambda: xtab(3, classes=1, **SIZES), "classes must be a whole number of at least 2"),
    (lambda: xtab(3, classes=2, encoder_hidden=()), "encoder_hidden must have at least one"),
    (lambda: averaged([]), "at least one model"),
    (
        lambda: averaged([torch.nn.Linear(1, 1), torch.nn.Linear(2, 1)]),
        "parameters of the same names and shapes",
    ),
)
