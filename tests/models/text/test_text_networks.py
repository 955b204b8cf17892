"""Networks of texts: what is hidden is read as padding, and padding is never kept."""

import pytest
import torch

from lexppl.distributions import KSubset, MaxConcrete
from lexppl.inference.contexts import program_settings, seeded
from lexppl.models import (
    BernoulliSelector,
    ChainSelector,
    ConstantImputer,
    KLPenalty,
    KSubsetSelector,
    MaxConcreteSelector,
    PaddingImputer,
)
from lexppl.models.architectures.texts import BagOfWords, TextCNN, TextSelector
from lexppl.models.imputers.simple import ComplementImputer
from tests.refusals import refusals

V, T = 9, 6
X = torch.tensor(
    [[4.0, 7.0, 2.0, 8.0, 1.0, 5.0], [3.0, 3.0, 0, 0, 0, 0], [6.0, 2.0, 5.0, 4.0, 0, 0]]
)
WORDS = X != 0
NETWORKS = {
    "bag": lambda length=T: BagOfWords(V, length, 2, 5, (4,)),
    "cnn": lambda length=T: TextCNN(V, length, 2, 5, 4, 3, 4).eval(),
}


def selector(length=T, outputs=None, shown=0):
    network = TextSelector(V, length, outputs or length, 5, 4, shown=shown)
    return network.eval()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_hidden_word_is_read_as_padding(name):
    network = NETWORKS[name]()
    with seeded(0):
        masks = torch.rand(5, 3, T).round()
    told = PaddingImputer()(X, masks).sample()
    plain = ConstantImputer(0.0)(X, masks).sample()
    assert told.shape == (5, 3, 2 * T) and plain.shape == (5, 3, T)
    assert torch.allclose(network(told.flatten(0, 1)), network(plain.flatten(0, 1)), atol=1e-6)
    other = ComplementImputer(PaddingImputer())(X, masks).sample()
    assert torch.equal(other[..., T:], 1 - masks)


@pytest.mark.smoke
@pytest.mark.parametrize("name", NETWORKS)
def test_masks_have_the_gradient_of_the_difference(name):
    network = NETWORKS[name]().double()
    x = X.double()
    with seeded(0):
        # clear of the kinks of ReLU and of the largest value
        keep = (torch.rand(3, T, dtype=torch.float64) * 0.8 + 0.1).requires_grad_()
    value = network(PaddingImputer()(x, keep).rsample()).sum()
    (gradient,) = torch.autograd.grad(value, keep)
    assert torch.equal(gradient[~WORDS], torch.zeros_like(gradient[~WORDS]))
    step = 1e-6
    for place in [(0, 0), (0, 3), (1, 1), (2, 2)]:
        up, down = keep.detach().clone(), keep.detach().clone()
        up[place] += step
        down[place] -= step
        with torch.no_grad():
            ends = [network(PaddingImputer()(x, k).sample()).sum() for k in (up, down)]
        expected = float(ends[0] - ends[1]) / (2 * step)
        assert float(gradient[place]) == pytest.approx(expected, rel=1e-4, abs=1e-8)


def test_padding_is_never_kept():
    network = selector()
    with torch.no_grad(), seeded(0):
        bernoulli = BernoulliSelector(network, 0.8)(X)
        subset = KSubsetSelector(network, 3)(X)
        concrete = MaxConcreteSelector(network, 3, 0.5).train()(X)
        top = MaxConcreteSelector(network, 3).eval()(X)
        chain = ChainSelector(network, 2.0)(X)
        draws = {
            "bernoulli": bernoulli.sample((200,)),
            "subset": subset.sample((200,)),
            "concrete": concrete.rsample((200,)),
            "top": top.sample((200,)),
            "chain": chain.sample((200,)),
        }
    for name, masks in draws.items():
        assert not masks[:, ~WORDS].any(), name
    assert not bernoulli.mean[~WORDS].any() and not subset.mean[~WORDS].any()
    sizes = torch.tensor([3.0, 2.0, 3.0])
    assert torch.equal(draws["subset"].sum(-1), sizes.expand(200, 3))
    assert torch.equal(draws["top"].sum(-1), sizes.expand(200, 3))
    # The control: without what the network says of padding, it is kept.
    assert KSubset(network(X).detach(), 3).mean[~WORDS].min() > 0.05


def test_k_of_the_words_is_the_law_of_the_words_alone():
    logits = torch.randn(3, T, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    class Given(torch.nn.Module):
        def __init__(self, values):
            super().__init__()
            self.values = torch.nn.Parameter(values)

        def possible_entries(self, x):
            return x != 0

        def forward(self, x):
            return self.values

    given = Given(logits.clone())
    distribution = KSubsetSelector(given, 2)(X.double())
    for row in (0, 2):
        words = WORDS[row]
        mask = torch.zeros(T, dtype=torch.float64)
        mask[:2] = 1.0
        own = logits[row, words].clone().requires_grad_()
        expected = KSubset(own, 2)
        found = distribution.log_prob(mask.expand(3, T))[row]
        assert torch.allclose(found, expected.log_prob(mask[words]), rtol=1e-9)
        (gradient,) = torch.autograd.grad(found, given.values, retain_graph=True)
        (gradient_of_words,) = torch.autograd.grad(expected.log_prob(mask[words]), own)
        assert torch.allclose(gradient[row, words], gradient_of_words)
        assert not gradient[row, ~words].any()
        assert torch.allclose(distribution.entropy()[row], expected.entropy())
    # of two words both are kept, for certain
    assert distribution.mean[1].tolist() == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert abs(distribution.entropy()[1].item()) < 1e-9


def test_the_divergence_from_uniform_words_counts_words():
    logits = torch.where(WORDS, 0.0, -1000.0)
    divergence = KLPenalty(1.0)(MaxConcrete(0.5, logits, 2), torch.zeros(3, T))
    assert torch.allclose(divergence, torch.zeros(3), atol=1e-6)


def validated(call):
    with program_settings(validate=True):
        call()


test_wrong_input = refusals(
    (
        lambda: NETWORKS["bag"]()(X[:, :4]),
        r"texts must have shape \(N, 6\), or \(N, 12\); the shape is \(3, 4\)",
    ),
    (lambda: NETWORKS["cnn"]()(X + 3.0), "from 0 to 8; there is 10"),
    (lambda: NETWORKS["cnn"]()(X * 0.5), r"there is 3\.5: fractional masks"),
    (lambda: selector()(X[:, :4]), r"texts must have shape \(N, 6\), of 6 word numbers"),
    (lambda: selector(shown=2)(X), "and 2 numbers behind them"),
    (lambda: TextSelector(V, T, 7), "a multiple of 6 words; it is 7"),
    (lambda: TextCNN(1, T, 2), "vocabulary_size must be a whole number of at least 2"),
    (lambda: TextCNN(V, T, 2, dropout=1.0), "dropout must"),
    (lambda: PaddingImputer()(X[None], torch.ones(1, 3, T)), r"x must have shape \(B, T\), of"),
    of=validated,
)
