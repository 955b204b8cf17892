"""Products in bf16: of layers that learn and of nothing else, and fits as good as in float32."""

import re
from copy import deepcopy
from functools import partial

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import NUTS
from pyro.infer.autoguide import AutoNormal
from torch import nn
from torch.nn.functional import linear
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lexppl.inference import REBAR, Enumerate, LeaveOneOut, TrainingOptions, annealed, fit
from lexppl.inference.contexts import seeded
from lexppl.inference.mixed_precision import MixedPrecision, refuse_rounded_away
from lexppl.inference.training.compiled import disagreement
from lexppl.inference.training.step import TermGradients, TrainingStep
from lexppl.models import (
    LEX,
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    ChainSelector,
    ConstantImputer,
    GapImputer,
    KSubsetSelector,
    NormalLikelihood,
    Predictor,
    frozen,
    images,
    texts,
    tree_predictor,
    with_prior,
)
from lexppl.systems import fastshap, invase, l2x, lex, real_x, senn
from tests import small_models
from tests.refusals import refused
from tests.small_models import quick

BF16 = torch.bfloat16
UNIT = 2.0**-8
"""Of rounding to bf16: the largest relative error."""
MIXED = {"training": TrainingOptions(precision="bf16-mixed")}
X = torch.randn(120, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 1).long()
FIT = {"epochs": 1, "batch_size": 60, "valid": None, "progress": False}
SMALL = {"hidden": (6,), "predictor_hidden": (6, 6)}
PIXELS = torch.rand(24, 1, 8, 8, generator=torch.Generator().manual_seed(1))
WORDS = torch.randint(1, 9, (24, 6), generator=torch.Generator().manual_seed(2)).float()
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward"}
MOVES = {
    *("_to_copy", "t", "view", "_unsafe_view", "transpose", "permute", "expand", "reshape"),
    *("clone", "detach", "alias", "unsqueeze", "squeeze", "slice", "select", "cat", "copy_"),
    *("slice_backward", "empty_like", "new_empty_strided", "constant_pad_nd", "select_backward"),
}
"""What sums nothing."""


class Rounded(TorchDispatchMode):
    """The operations that take or give bf16."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        leaves = tree_leaves((args, kwargs, made))
        if any(isinstance(leaf, torch.Tensor) and leaf.dtype == BF16 for leaf in leaves):
            self.seen.add(func._schema.name.removeprefix("aten::"))
        return made


@pytest.mark.smoke
@pytest.mark.parametrize(
    "layer, x",
    [
        (nn.Linear(7, 5), torch.randn(3, 2, 7)),
        (nn.Conv1d(3, 4, 3, padding="same"), torch.randn(2, 3, 9)),
        (nn.Conv2d(3, 4, 3, stride=2, padding=1), torch.randn(2, 3, 9, 9)),
        (nn.Conv3d(2, 2, 2, groups=2), torch.randn(1, 2, 4, 4, 4)),
        (nn.Conv2d(2, 2, 1), torch.randn(2, 4, 4)),
    ],
)
def test_a_product_is_that_of_torch_autocast_and_the_bias_whole(layer, x):
    names = [name for name, _ in layer.named_parameters()]
    x.requires_grad_()
    with MixedPrecision(layer, names):
        ours = layer(x)
    bias = layer.bias.detach().clone()
    with torch.no_grad():
        layer.bias.zero_()
    with torch.autocast("cpu", BF16):
        theirs = layer(x)
    places = [1] * len(getattr(layer, "kernel_size", ()))
    wide = bias.reshape(-1, *places)
    assert ours.dtype == torch.float32 and theirs.dtype == BF16
    assert torch.equal(ours, theirs.float() + wide)
    moved = [x, layer.weight]
    weights = torch.randn(ours.shape).to(BF16).float()
    found = torch.autograd.grad((ours * weights).sum(), moved)
    expected = torch.autograd.grad((theirs.float() * weights).sum(), moved)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def explainer(selector=BernoulliSelector):
    return small_models.explainer(selector, features=4, outputs=3, hidden=(16, 16))


def gradients_of(model, precision, objective, rows=(X, Y)):
    """Loss and gradients of the first step, by a fit."""
    found = []

    def run(self, rows):
        for moved in self.terms:
            found.append(self.evaluate(moved, rows, moved.term.objective.at(rows.at)))
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TrainingStep, "run", run)
        with pytest.raises(InterruptedError):
            training = TrainingOptions(precision=precision)
            fit(model, rows, objective=objective, training=training, **FIT)
    (one,) = found
    return one.loss, torch.cat([g.flatten() for g in one.learned])


@pytest.mark.parametrize("selector", [BernoulliSelector, partial(KSubsetSelector, k=2)])
def test_loss_and_gradient_differ_by_rounding(selector):
    """By enumeration, so that no draw hides the difference."""
    objective = annealed(float("inf"), estimator=Enumerate())
    whole, gradient = gradients_of(explainer(selector), None, objective)
    loss, rounded = gradients_of(explainer(selector), "bf16-mixed", objective)
    assert loss.dtype == rounded.dtype == torch.float32
    assert 0.0 < float(abs(loss / whole - 1)) < UNIT
    cosine = torch.cosine_similarity(rounded, gradient, 0)
    length = rounded.norm() / gradient.norm()
    assert not torch.equal(rounded, gradient)
    assert float(cosine) > 0.999 and abs(float(length) - 1) < 4 * UNIT


def cases():
    objective = annealed(2, estimator=LeaveOneOut())
    yield "lex", lambda: lex(4, classes=3, **SMALL), (X, Y), {}
    yield "lex by REBAR", explainer, (X, Y), {"objective": annealed(2, estimator=REBAR())}
    yield "k-subset", partial(explainer, partial(KSubsetSelector, k=2)), (X, Y), {}
    yield "chain", partial(explainer, ChainSelector), (X, Y), {"objective": objective}
    yield "l2x", lambda: l2x(4, classes=3, k=2, **SMALL), (X, Y), {}
    yield "invase", lambda: invase(4, classes=3, **SMALL), (X, Y), {}
    yield "real_x", lambda: real_x(4, classes=3, **SMALL), (X, Y), {}
    yield "fastshap", lambda: fastshap(4, classes=3, **SMALL), (X, Y), {}
    yield "senn", lambda: senn(4, classes=3, hidden=(6,)), (X, Y), {}
    pixels = images((1, 8, 8), patches=4, blocks=(2,), levels=1, width=2)
    yield "images", lambda: lex(pixels, classes=2), (PIXELS, torch.arange(24) % 2), {}
    words = texts(9, 6, embedding=4, filters=4, hidden=4)
    yield "texts", lambda: lex(words, classes=2), (WORDS, torch.arange(24) % 2), {}


@pytest.mark.complete(but=6)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("replicates", [1, 2])
@pytest.mark.parametrize("name, model, rows, options", [pytest.param(*c, id=c[0]) for c in cases()])
def test_nothing_but_products_has_bf16(name, model, rows, options, replicates):
    with seeded(0):
        made = model() if replicates == 1 or not isinstance(model, partial) else model
        with Rounded() as watch:
            fit(made, rows, replicates=replicates, **FIT, **MIXED, **options)
    assert watch.seen & PRODUCTS, name
    # Of a loss that holds a network's derivative, autograd adds the two products' gradients.
    known = PRODUCTS | MOVES | ({"add"} if name == "senn" else set())
    assert watch.seen <= known, watch.seen - known


def test_the_watch_sees_what_a_program_sums_in_bf16():
    with Rounded() as watch:
        linear(X.to(BF16), X.to(BF16)).log_softmax(-1).sum()
    assert not watch.seen <= PRODUCTS | MOVES


def test_a_given_model_is_asked_in_its_own_precision():
    given = frozen(Predictor(MLP(4, 3, (6,), seed=5), CategoricalLikelihood()))
    learned = [n for n, p in given.named_parameters() if p.requires_grad]
    assert MixedPrecision(given, learned).layers == []
    whole = LEX(BernoulliSelector(MLP(4, 4, (6,), seed=0)), ConstantImputer(), given)
    learned = [n for n, p in whole.named_parameters() if p.requires_grad]
    assert len(MixedPrecision(whole, learned).layers) == 2


def test_weights_moments_and_validation_stay_float32_and_nothing_is_left_behind():
    optimizers = []

    def still(parameters):
        optimizers.append(torch.optim.Adam(parameters, lr=0.0))
        return optimizers[-1]

    options = {"valid": (X[:30] + 0.1, Y[:30]), "optimizer": still}
    whole, mixed = (quick(explainer(), (X, Y), **options, **more) for more in ({}, MIXED))
    assert {p.dtype for p in mixed.model.parameters()} == {torch.float32}
    held = [v for one in optimizers[-1].state.values() for v in one.values()]
    assert len(held) > 10 and all(value.dtype == torch.float32 for value in held)
    # Weights that do not move are judged the same, and learned from otherwise.
    assert (whole.history.valid == mixed.history.valid).all()
    assert not (whole.history.train == mixed.history.train).all()
    for part in mixed.model.modules():
        assert not {"forward", "_conv_forward"} & set(vars(part))
    with torch.no_grad():
        assert torch.equal(mixed.model.selector.network(X), whole.model.selector.network(X))


def test_an_error_within_leaves_nothing_behind():
    layer = nn.Sequential(nn.Linear(4, 4), nn.Conv1d(4, 4, 1))
    names = [name for name, _ in layer.named_parameters()]
    mixed = MixedPrecision(layer, names)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="shapes"), mixed:
            layer[0](torch.zeros(3, 7))
        assert not any({"forward", "_conv_forward"} & set(vars(part)) for part in layer)
    assert torch.equal(deepcopy(layer)[0](X), layer[0](X))


def test_a_layer_with_a_call_of_its_own_keeps_it():
    class Shifted(nn.Linear):
        def forward(self, x):
            return super().forward(x) + 1.0

    class Doubled(nn.Conv1d):
        def forward(self, x):
            return 2.0 * super().forward(x)

    assert MixedPrecision(nn.Sequential(Shifted(2, 2)), ["0.weight"]).layers == []
    doubled, x = Doubled(2, 2, 1), torch.randn(3, 2, 5)
    with MixedPrecision(doubled, ["weight"]) as mixed:
        ours = doubled(x)
    assert mixed.layers == [doubled]
    around = nn.Conv1d(2, 2, 3, padding=1, padding_mode="circular")
    assert MixedPrecision(around, ["weight"]).layers == []
    assert 0.0 < float((ours - doubled(x)).detach().abs().max()) < 0.1


def held_out_nats(precision, replicates=8):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(900, 4, generator=generator)
    y = (torch.where(x[:, 0] > 0, x[:, 1], x[:, 2]) > 0).long()
    system = lex(4, classes=2, hidden=(32, 32), predictor_hidden=(32, 32), folds=1)
    options = {"epochs": 30, "batch_size": 100, "learning_rate": 1e-2, "replicates": replicates}
    options |= {"valid": (x[600:], y[600:]), "training": TrainingOptions(precision=precision)}
    result = fit(system, (x[:600], y[:600]), progress=False, **options)
    return np.asarray(result.history.valid)[-5:].mean(0)


@pytest.mark.complete
@pytest.mark.filterwarnings("ignore")
def test_fits_reach_the_same_quality():
    """Of eight seeds: far below the log 2 of knowing nothing, and not worse than in float32."""
    whole, mixed = held_out_nats(None), held_out_nats("bf16-mixed")
    assert whole.shape == mixed.shape == (8,)
    assert not np.array_equal(whole, mixed)
    assert mixed.max() < 0.45
    error = np.sqrt(whole.var(ddof=1) / 8 + mixed.var(ddof=1) / 8)
    assert abs(mixed.mean() - whole.mean()) < 3.5 * error


def test_a_graph_has_the_same_bits():
    options = [TrainingOptions(compile=c, precision="bf16-mixed") for c in (False, "graph")]
    eager, graph = (fit(explainer(), (X, Y), training=o, **{**FIT, "epochs": 4}) for o in options)
    assert graph.compiled.traced > 0 and not graph.compiled.reasons
    assert (eager.history.train == graph.history.train).all()


def test_a_compiled_gradient_may_be_the_next_number_of_bf16_and_no_other():
    def gap(gradient, rounded, loss=1.0):
        ours = TermGradients(torch.ones(1), [torch.tensor([1.0, 0.5])])
        return disagreement(ours, TermGradients(torch.tensor([loss]), [gradient]), rounded=rounded)

    following = torch.tensor([1.0 + 2.0**-7, 0.5])
    assert gap(following, BF16) <= 1.0 < gap(following, None)
    assert gap(torch.tensor([1.0 + 2.0**-6, 0.5]), BF16) > 1.0
    assert gap(following, BF16, loss=1.0 + 2.0**-7) > 1.0


@pytest.mark.parametrize("asked", ["bf16", "float32", torch.bfloat16, True, 16])
def test_other_precisions_are_refused(asked):
    refused(re.escape(f"it is {asked!r}"), TrainingOptions, precision=asked)


class Scores(nn.Module):
    """The same scores for every row, learned without a product."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))

    def forward(self, x):
        return self.weight.expand(len(x), 4)


def test_what_has_no_such_product_is_refused():
    with pytest.raises(ValueError, match="keeps weights and sums in float32"):
        fit(explainer().double(), (X.double(), Y), **FIT, **MIXED)
    model = explainer()
    trees = tree_predictor(X, 3, trees=2, copies=2)
    fit(lex(4, classes=3, predictor=trees, hidden=(6,)), (X, Y), **FIT, **MIXED)
    scores = LEX(BernoulliSelector(Scores()), GapImputer(), trees)
    refused("there is none here", fit, scores, (X, Y), **FIT, **MIXED)
    priors = with_prior(model, dist.Normal(0.0, 1.0))
    refused("there is none here", fit, priors, (X, Y), guide=AutoNormal, **FIT, **MIXED)
    with pytest.raises(ValueError, match="precision= mean nothing beside inference="):
        fit(priors, (X, Y), inference=NUTS, **MIXED)


def test_columns_that_bf16_cannot_tell_apart_are_refused():
    year = torch.cat([X[:, :3], 2000.0 + (torch.arange(120.0) % 25).unsqueeze(-1)], 1)
    refused(r"of columns \[3\] of x keep too little", fit, explainer(), (year, Y), **FIT, **MIXED)
    fit(explainer(), (X, Y), **FIT, **MIXED)
    constant = torch.cat([X[:, :3], torch.full((120, 1), 0.1)], 1)
    refuse_rounded_away(constant, explainer())
    refuse_rounded_away(1000.0 + torch.arange(6.0).reshape(-1, 1), nn.Embedding(2000, 3))


def test_a_normal_response_in_its_units():
    """A scale of 0.01 about a mean of 1,000 is met, as biases and likelihoods are float32."""
    y = 1000.0 + X[:, 0]
    model = small_models.explainer(
        likelihood=NormalLikelihood(), features=4, outputs=1, hidden=(6,)
    )
    with torch.no_grad():
        model.predictor.network.layers[-1].bias.fill_(1000.0)
    result = fit(model, (X, y), **FIT, **MIXED)
    assert float(np.asarray(result.history.train).ravel()[-1]) < 5.0
