"""Values have one fingerprint if and only if they are alike."""

import subprocess
import sys
from functools import partial

import numpy as np
import pandas as pd
import pyro.distributions as dist
import pytest
import torch
from sklearn.tree import DecisionTreeClassifier

from lexppl.fingerprint import fingerprint
from lexppl.models import MLP, ConstantImputer, with_prior
from lexppl.systems import lex


def scaled(x, by=2):
    return x * by


def closing(over):
    return lambda x: x + over


def tree(depth):
    x = np.arange(20.0)[:, None]
    return DecisionTreeClassifier(max_depth=depth, random_state=0).fit(x, x[:, 0] > 9)


DIFFERENT = [
    *(None, 0, 0.0, False, "0", b"0", float("nan"), [], (), {}),
    *([[1], 2], [1, [2]], [12], [1, 2], ["1", "2"], ["12"]),
    *({"a": 1, "b": 2}, {"a": 1, "b": 3}, {1, 2}, range(3)),
    *(np.zeros(2), np.zeros(2, dtype=np.float32), np.zeros((2, 1))),
    *(torch.zeros(2), torch.zeros(2, dtype=torch.float64), torch.zeros(1, 2), torch.float32),
    *(pd.DataFrame({"a": [1.0]}), pd.DataFrame({"b": [1.0]}), pd.DataFrame({"a": [2.0]})),
    *(MLP(2, 1, (3,), seed=0), MLP(2, 1, (3,), seed=1), MLP(2, 1, (4,), seed=0)),
    *(ConstantImputer(torch.zeros(2)), ConstantImputer(torch.ones(2))),
    *(lex, partial(lex, 3), partial(lex, 4)),
    *(lex(3, classes=2, k=1), lex(3, classes=2, k=2), lex(3, classes=2, penalty=0.1)),
    *(scaled, closing(1), closing(2), int, tree(1), tree(2)),
]


def test_what_differs_has_another():
    found = [fingerprint(value) for value in DIFFERENT]
    assert len(set(found)) == len(DIFFERENT)


def test_priors_tell_programs_apart():
    def drawn(law):
        return with_prior(MLP(2, 1, (3,), seed=0), law(0.0, 1.0))

    found = [fingerprint(drawn(law)) for law in (dist.Normal, dist.Laplace)]
    assert len({*found, fingerprint(MLP(2, 1, (3,), seed=0))}) == 3
    used = drawn(dist.Normal)
    used(torch.zeros(1, 2))
    assert fingerprint(used) == found[0]


LAWS = {
    "probs": lambda: dist.Bernoulli(probs=torch.tensor([0.3])),
    "logits": lambda: dist.Bernoulli(logits=torch.tensor([0.3])),
    "covariance": lambda: dist.MultivariateNormal(torch.zeros(2), 2 * torch.eye(2)),
    "scale": lambda: dist.MultivariateNormal(torch.zeros(2), scale_tril=2 * torch.eye(2)),
    "low rank": lambda: dist.LowRankMultivariateNormal(*map(torch.ones, (2, (2, 1), 2))),
    "counts": lambda: dist.NegativeBinomial(3.0, logits=torch.tensor(0.1)),
    "relaxed": lambda: dist.RelaxedBernoulli(torch.tensor(0.5), logits=torch.tensor(0.3)),
    "log-normal": lambda: dist.LogNormal(0.0, 1.0),
    "mixture": lambda: dist.MixtureSameFamily(
        dist.Categorical(logits=torch.zeros(2)), dist.LogNormal(torch.zeros(2), 1.0)
    ),
    "inverse": lambda: dist.TransformedDistribution(
        dist.LogNormal(0.0, 1.0), [dist.transforms.ExpTransform(cache_size=1).inv]
    ),
}


@pytest.mark.parametrize("of", LAWS)
def test_a_law_that_was_used_is_the_one_it_was(of):
    law = LAWS[of]()
    before = fingerprint(law)
    law.log_prob(law.sample())
    for name in ("probs", "logits", "covariance_matrix", "precision_matrix", "scale_tril"):
        getattr(law, name, None)
    assert fingerprint(law) == before == fingerprint(LAWS[of]())


def test_what_is_alike_has_the_same():
    assert fingerprint(MLP(2, 1, (3,), seed=0)) == fingerprint(MLP(2, 1, (3,), seed=0))
    assert fingerprint(closing(1)) == fingerprint(closing(1))
    assert fingerprint(torch.arange(6)[::2]) == fingerprint(torch.tensor([0, 2, 4]))
    assert fingerprint(lex(3, classes=2, k=1)) == fingerprint(lex(3, classes=2, k=1))
    assert fingerprint(tree(2)) == fingerprint(tree(2))


def classes():
    class Ruled:
        def rule(self, x):
            return x > 0

    first = Ruled

    class Ruled:
        def rule(self, x):
            return x < 0

    return first, Ruled


def test_a_class_of_ones_own_is_told_by_its_code():
    first, second = classes()
    assert first.__qualname__ == second.__qualname__
    assert fingerprint(first()) != fingerprint(second())
    assert fingerprint(first()) == fingerprint(classes()[0]())
    below = type("Below", (first,), {}), type("Below", (second,), {})
    assert fingerprint(below[0]()) != fingerprint(below[1]())


def test_functions_with_any_constant_are_told():
    found = [
        fingerprint(one)
        for one in (
            lambda x: x[..., 0],
            lambda x: x[..., 1],
            lambda x: x + 1j,
            lambda x: x in {1, 2},
            lambda x: x in {1, 3},
        )
    ]
    assert len(set(found)) == 5


@pytest.mark.complete
def test_it_is_the_same_in_another_process():
    value = "(partial(lex, 3, classes=2), {'b', 'a', 'c'}, MLP(2, 1, (3,), seed=0))"
    code = (
        "from functools import partial\nfrom lexppl.systems import lex\n"
        "from lexppl.models import MLP\nfrom lexppl.fingerprint import fingerprint\n"
        f"print(fingerprint({value}))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = fingerprint((partial(lex, 3, classes=2), {"b", "a", "c"}, MLP(2, 1, (3,), seed=0)))
    assert ended.stdout.strip() == expected


def test_what_cannot_be_identified_is_named():
    with pytest.raises(TypeError, match=r"it\.rows\.1 is a generator"):
        fingerprint({"rows": [1, (i for i in range(3))]})
