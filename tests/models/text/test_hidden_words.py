"""Laws of hidden words against the enumeration of all texts."""

import itertools
import math

import pytest
import torch
from pyro.infer.util import is_validation_enabled

from lexppl.inference.contexts import program_settings, seeded
from lexppl.models import BigramImputer, UnigramImputer
from lexppl.models.imputers.words import fitted_chain, word_pairs
from tests.refusals import refusals, refused

V, C = 4, 3
X = torch.tensor([[2.0, 3.0, 1.0, 2.0], [3.0, 1.0, 0.0, 0.0]])
DRAWS = 20_000


def laws(classes=C, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    to_class = torch.rand(V, classes, generator=generator, dtype=torch.float64) ** 3 + 0.01
    words = torch.rand(classes, V, generator=generator, dtype=torch.float64) ** 3 + 0.01
    words[:, 0] = 0.0
    rows = [law / law.sum(-1, keepdim=True) for law in (to_class, words)]
    return [law.to(dtype) for law in rows]


def bigrams(to_class, words):
    return (to_class @ words).tolist()


def enumerated(table, row, kept):
    """`{text: p(text | kept words)}` by the sum over all texts."""
    places = [t for t, word in enumerate(row) if word != 0]
    found = {}
    for words in itertools.product(range(1, V), repeat=len(places)):
        if any(kept[t] and words[t] != row[t] for t in places):
            continue
        text = [*words, *[0] * (len(row) - len(words))]
        before = [0, *words[:-1]]
        found[tuple(text)] = math.prod(table[a][b] for a, b in zip(before, words, strict=True))
    total = sum(found.values())
    return {text: p / total for text, p in found.items()}


def all_masks():
    return torch.tensor(list(itertools.product([0.0, 1.0], repeat=4)), dtype=torch.float64)


@pytest.mark.smoke
@pytest.mark.parametrize("classes", [1, 2, C])
def test_log_probabilities_are_those_of_the_enumeration(classes):
    to_class, words = laws(classes)
    imputer = BigramImputer(to_class, words)
    table = bigrams(to_class, words)
    x = X.double()
    for mask in all_masks():
        distribution = imputer(x, mask)
        for b, row in enumerate(X.tolist()):
            expected = enumerated(table, [int(w) for w in row], mask.tolist())
            for text, p in expected.items():
                value = x.clone()
                value[b] = torch.tensor(text, dtype=torch.float64)
                assert float(distribution.log_prob(value)[b].exp()) == pytest.approx(p, rel=1e-9)


def worst_z(draws, row, mask, table):
    """The largest z-score of the draws' frequencies, and whether all texts can be."""
    expected = enumerated(table, [int(w) for w in row], mask)
    seen, counts = draws.long().unique(dim=0, return_counts=True)
    found = {tuple(text): n for text, n in zip(seen.tolist(), counts.tolist(), strict=True)}
    assert set(found) <= set(expected)
    n = len(draws)
    return max(
        abs(found.get(text, 0) - n * p) / math.sqrt(max(n * p * (1 - p), 1e-12))
        for text, p in expected.items()
        if n * p * (1 - p) > 5
    )


@pytest.mark.parametrize("mask", [(0, 0, 0, 0), (0, 1, 0, 0), (1, 0, 0, 1), (0, 0, 1, 0)])
def test_draws_have_the_frequencies_of_the_enumeration(mask):
    to_class, words = laws()
    imputer = BigramImputer(to_class, words)
    with seeded(1):
        draws = imputer(X.double(), torch.tensor(mask, dtype=torch.float64)).sample((DRAWS,))
        independent = UnigramImputer(torch.tensor([0.0, 1.0, 1.0, 1.0], dtype=torch.float64) / 3)(
            X.double(), torch.tensor(mask, dtype=torch.float64)
        ).sample((DRAWS,))
    table = bigrams(to_class, words)
    for b, row in enumerate(X.tolist()):
        if all(m for m, w in zip(mask, row, strict=True) if w):
            continue
        assert worst_z(draws[:, b], row, mask, table) < 4.5
        assert worst_z(independent[:, b], row, mask, table) > 10


@pytest.mark.parametrize("imputer", ["unigram", "bigram"])
def test_kept_words_and_padding_stay(imputer):
    to_class, words = laws(dtype=torch.float32)
    law = UnigramImputer(words[0]) if imputer == "unigram" else BigramImputer(to_class, words)
    for mask in all_masks().float():
        for keep in (mask, mask.bool()):
            with seeded(0):
                drawn = law(X, keep).sample((20,))
            assert drawn.dtype == X.dtype
            assert torch.equal(drawn == 0, (X == 0).expand(20, 2, 4))
            assert torch.equal(drawn[..., mask == 1], X[:, mask == 1].expand(20, -1, -1))


def test_long_runs_lose_no_mass():
    to_class, words = laws(dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(1, V, (2, 400), generator=generator).float()
    keep = torch.zeros(400)
    keep[[0, 250, 399]] = 1.0
    single = BigramImputer(to_class, words)(x, keep).log_prob(x)
    double = BigramImputer(to_class.double(), words.double())(x.double(), keep.double())
    assert single.isfinite().all()
    assert torch.allclose(single.double(), double.log_prob(x.double()), rtol=1e-3)
    with seeded(0):
        assert BigramImputer(to_class, words)(x, keep).sample().min() >= 1


def test_em_raises_the_likelihood_and_finds_alternating_words():
    generator = torch.Generator().manual_seed(0)
    start = torch.randint(0, 2, (50, 1), generator=generator)
    # words 2 and 3 take turns, 1 stands now and then
    x = ((torch.arange(8) + start) % 2 + 2).float()
    x[torch.rand(50, 8, generator=generator) < 0.1] = 1.0
    pairs = word_pairs(x, V)
    before, after, count = pairs
    found = []
    for steps in (1, 5, 40):
        to_class, words = fitted_chain(pairs, V, 2, steps, 1e-3, seed=0)
        p = (to_class[before] * words.mT[after]).sum(-1).double()
        found.append(float((count * p.log()).sum()))
    assert found[0] < found[1] < found[2]
    table = BigramImputer.fit(x, V, classes=2, steps=40, smoothing=1e-3)
    bigram = table.to_class @ table.words
    assert bigram[2, 3] > 0.8 and bigram[2, 2] < 0.2


def law_of(**changes):
    to_class, words = laws()
    return {"to_class": to_class, "words": words, **changes}


test_wrong_laws = refusals(
    (lambda: BigramImputer(**law_of(words=torch.ones(2, 5))), r"to_class must have shape \(5, 2\)"),
    (lambda: BigramImputer(**law_of(to_class=torch.ones(V, C))), "to_class must have prob"),
    (lambda: BigramImputer(**law_of(words=torch.full((C, V), 1 / V))), "words must give padding"),
    (lambda: UnigramImputer(torch.ones(3)), "frequency must have probabilities"),
    (lambda: UnigramImputer(torch.ones(3) / 3), "frequency must give padding"),
    (lambda: BigramImputer.fit(X, V, classes=5), "classes must be a whole number from 1 to 4"),
    (lambda: BigramImputer.fit(X, 10_000, classes=64), "take at most 40 classes"),
    (lambda: BigramImputer.fit(X, 3), "from 0 to 2; there is 3"),
    (lambda: BigramImputer.fit(torch.zeros(2, 3), V, classes=2), "it has padding only"),
    (lambda: UnigramImputer.fit(X[0], V), r"x must have shape \(N, T\), of word numbers"),
    (lambda: UnigramImputer.fit(X.long(), V), "x must be floating word numbers"),
)


def test_soft_masks_are_refused():
    imputer = UnigramImputer.fit(X, V)
    refused("a drawn word has no gradient", imputer, X, torch.ones(4, requires_grad=True))
    with program_settings(validate=True):
        assert is_validation_enabled()
        refused("is kept or a drawn word", imputer, X, torch.full((4,), 0.5))
        refused("there is 6", imputer, X + 4.0, torch.ones(4))
