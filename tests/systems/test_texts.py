"""Systems on texts whose one telling word is known."""

import numpy as np
import pytest
import torch
from torch import nn

from lexppl import explain, fit
from lexppl.data.texts import texts_of
from lexppl.evaluation import fidelity_scores, fit_predictor
from lexppl.inference import LeaveOneOut, NestedIWAE
from lexppl.inference.contexts import seeded
from lexppl.models import BigramImputer, PaddingImputer, UnigramImputer, texts
from lexppl.systems import fastshap, invase, l2x, lex, meed, q_fit, rationale, real_x, senn, vibi
from lexppl.systems.meed import FadingPrior
from tests.refusals import refusals, refused

PLAIN = ("a", "film", "the", "it", "was", "is")
TELLING = (("bad", "dull"), ("good", "fine"))


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    written, labels = [], []
    for n in range(300):
        words = [str(w) for w in generator.choice(PLAIN, generator.integers(2, 6))]
        words.insert(int(generator.integers(len(words) + 1)), str(generator.choice(TELLING[n % 2])))
        written.append(" ".join(words))
        labels.append(n % 2)
    return texts_of(written, labels)


@pytest.fixture(scope="module")
def telling(data):
    known = {word for words in TELLING for word in words}
    return torch.tensor(
        [[word in known for word in row] + [False] * (data.length - len(row)) for row in data.words]
    )


@pytest.fixture(scope="module")
def architecture(data):
    return texts(len(data.vocabulary), data.length, embedding=8, filters=16, hidden=16, dropout=0.0)


@pytest.fixture(scope="module")
def box(data, architecture):
    options = {"epochs": 15, "batch_size": 20, "learning_rate": 1e-2, "progress": False}
    return fit_predictor((data.x, data.y), network=architecture.predictor(2, seed=0), **options)


def probabilities(result, x):
    stats = explain(result, x, draws=5)["sample_stats"]
    name = next(n for n in ("selection_probability", "mask_mean", "attribution") if n in stats)
    return torch.tensor(stats[name].values[0])


def trained(system, x, y, epochs=12, **options):
    usual = {"batch_size": 20, "learning_rate": 3e-3, "weight_decay": 0.0, "progress": False}
    return fit(system, (x, y), epochs=epochs, **usual, **options)


def test_l2x_finds_the_telling_word_and_it_carries_the_prediction(data, architecture, box, telling):
    x = data.x
    system = l2x(architecture, classes=2, k=1, temperature=0.5)
    kept = probabilities(trained(system, x, box.predict(x)), x)
    assert torch.equal(kept.sum(-1), torch.ones(len(x), dtype=kept.dtype))
    assert kept[telling].mean() > 0.95
    scores = fidelity_scores(box.predictor, x, kept)
    assert scores.fs_m > 0.95 and scores.fu_m < 0.7
    # The control: a word at random says little.
    with seeded(0):
        places = (torch.rand_like(x) * (x != 0)).argmax(-1, keepdim=True)
    random = torch.zeros_like(x).scatter(-1, places, 1.0)
    assert fidelity_scores(box.predictor, x, random).fs_m < 0.8


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("imputer", ["padding", "unigram", "bigram"])
def test_lex_finds_it_whatever_hides_the_other_words(data, architecture, telling, imputer):
    size = len(data.vocabulary)
    chosen = {
        "padding": None,
        "unigram": UnigramImputer.fit(data.x, size),
        "bigram": BigramImputer.fit(data.x, size, classes=3),
    }[imputer]
    bound = NestedIWAE(4, estimator=LeaveOneOut())
    system = lex(architecture, classes=2, k=1, folds=1, imputer=chosen, objective=bound)
    kept = probabilities(trained(system, data.x, data.y, epochs=15), data.x)
    assert kept[telling].mean() > 0.9
    assert not kept[data.x == 0].any()


def systems(architecture, box):
    return {
        "vibi": vibi(architecture, classes=2, k=2),
        "rationale": rationale(architecture, classes=2),
        "real_x": real_x(architecture, classes=2),
        "invase": invase(architecture, classes=2),
        "fastshap": fastshap(architecture, classes=2),
        "q_fit": q_fit(architecture, box.predictor),
    }


@pytest.mark.parametrize("name", ["vibi", "rationale", "real_x", "invase", "fastshap", "q_fit"])
def test_every_system_takes_texts_and_keeps_no_padding(name, data, architecture, box):
    result = trained(systems(architecture, box)[name], data.x, data.y, epochs=1, replicates=2)
    kept = probabilities(result, data.x)
    assert kept.shape == data.x.shape and bool(kept.isfinite().all())
    assert kept[data.x == 0].abs().max() < 1e-3
    if name == "fastshap":
        explainer = result.models[0]
        everything, none = (explainer.surrogate(rows).probs for rows in (data.x, 0 * data.x))
        total = explainer.attributions(data.x).sum(-1)
        assert torch.allclose(total, everything - none, atol=1e-5)


def test_what_multiplies_word_numbers_is_refused(architecture):
    refused("no network of a coefficient for each feature", senn, architecture, classes=2)


class Scored(nn.Module):
    """`Σ_t z_t s(w_t)` as the logit of label 1, of rows `(N, 2T)`."""

    def __init__(self, scores):
        super().__init__()
        self.register_buffer("scores", scores)

    def forward(self, x):
        words, keep = x.chunk(2, -1)
        logit = (self.scores[words.long()] * keep).sum(-1)
        return torch.distributions.Categorical(
            logits=torch.stack([torch.zeros_like(logit), logit], -1)
        )


def test_the_fading_prior_s_attributions_are_those_of_the_kept_words():
    model = Scored(torch.tensor([0.0, 0.5, 2.0, -1.0]))
    x = torch.tensor([[2.0, 3.0, 1.0], [3.0, 1.0, 0.0]])
    prior = FadingPrior(1.0, model, epochs=3, imputer=PaddingImputer())
    total = torch.tensor([2.0 - 1.0 + 0.5, -1.0 + 0.5])
    # d/ds log max(σ(s), σ(−s)) = σ(−|s|) times the sign of s
    slope = torch.sigmoid(-total.abs()).unsqueeze(-1)
    expected = slope * torch.tensor([[2.0, 1.0, 0.5], [1.0, 0.5, 0.0]])
    assert torch.allclose(prior.attributions(x), expected)


test_wrong_architectures = refusals(
    (lambda: texts(1, 5), "vocabulary_size must be a whole number of at least 2"),
    (lambda: texts(9, 0), "length must be a whole number of at least 1"),
    (lambda: texts(9, 5, predictor="rnn"), r"one of \['bag', 'cnn'\].*it is 'rnn'"),
    (lambda: texts(9, 5, filters=0), "filters must be a whole number of at least 1"),
    (lambda: texts(9, 5, dropout=1.5), "dropout must"),
    (lambda: l2x(texts(9, 5), classes=2, k=6), "k must be a whole number from 1 to 5"),
)


@pytest.mark.parametrize("make", [l2x, meed])
def test_rows_that_are_no_texts_are_refused_by_fit_and_by_explain(make, architecture, data, box):
    given = (box.predictor,) if make is meed else ()
    result = trained(make(architecture, *given, classes=2, k=1), data.x, data.y, epochs=1)
    empty, unknown = data.x[:3].clone(), data.x[:3].clone()
    empty[1] = 0.0
    unknown[2, 0] = len(data.vocabulary)
    longer = torch.cat([data.x[:3], data.x[:3]], 1)
    for x, message in (
        (empty, "^row 1 is a text without words$"),
        (unknown, f"whole and from 0 to {len(data.vocabulary) - 1}; there is "),
        (longer, f"x must have {data.length} features, as in fit; it has {2 * data.length}"),
    ):
        refused(message, explain, result, x)
    with pytest.raises(ValueError, match=r"^rows to learn from: row 1 is a text without words$"):
        trained(make(architecture, *given, classes=2, k=1), empty, data.y[:3], valid=None, epochs=1)
