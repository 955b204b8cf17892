"""The one training loop: what it learns, what it restores, what it refuses."""

import math
from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule, PyroParam
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lexppl.distributions import KSubset
from lexppl.inference import (
    CollapseWarning,
    Enumerate,
    LeaveOneOut,
    Linear,
    LossTerm,
    NestedIWAE,
    Stage,
    TrainingOptions,
    annealed,
    fit,
)
from lexppl.inference.contexts import keep_parameters_local, program_settings
from lexppl.inference.replicates import Replicates, reinitialised
from lexppl.inference.stages import TrainingModules
from lexppl.inference.training.diagnostics import collapse
from lexppl.inference.training.fit import WATCHED_ROWS
from lexppl.models import GaussianImputer, KSubsetSelector, SizePenalty, mask_particles, penalty
from tests.small_models import explainer


def rows(count=400, seed=0, dtype=torch.float32):
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return x, (x[:, 0] + 0.1 * x[:, 1] > 0).long()


def lex(k=1, imputer=None):
    imputer = imputer or GaussianImputer()
    return explainer(partial(KSubsetSelector, k=k), imputer, features=4, hidden=(16,), seed=None)


def penalised(weight):
    return explainer(features=4, hidden=(8,), seed=None, penalties=[SizePenalty(weight)])


def quick(model, data, **options):
    options = {"epochs": 2, "progress": False, "objective": NestedIWAE(masks=3), **options}
    return fit(model, data, **options)


def weights(result):
    return [torch.cat([p.flatten() for p in m.parameters()]) for m in result.models]


@pytest.mark.complete
def test_learns_which_feature_counts():
    result = fit(lex, rows(2000), epochs=40, seed=3, progress=False, batch_size=200)
    x, _ = rows(500, seed=9)
    with torch.no_grad():
        selection = result.model.selector(x).mean.mean(0)
    assert selection[0] > 0.9
    losses = result.history.valid[:, 0]
    assert result.best_epoch[0] == losses.argmin()
    assert result.best_valid[0] == losses.min()


def test_same_seed_same_bits_and_global_state_untouched():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    numpy_before = np.random.get_state()[1].copy()  # noqa: NPY002
    settings = pyro.settings.get()
    first, again = (quick(lex, rows(), seed=1, replicates=2) for _ in range(2))
    other = quick(lex, rows(), seed=2, replicates=2)
    for a, b, c in zip(weights(first), weights(again), weights(other), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)
    assert (first.history.train == again.history.train).all()
    assert torch.equal(before, torch.get_rng_state())
    assert (numpy_before == np.random.get_state()[1]).all()  # noqa: NPY002
    assert pyro.settings.get() == settings
    assert len(pyro.get_param_store()) == 0


def test_given_model_is_left_as_it_is():
    model = lex()
    before = {n: p.clone() for n, p in model.state_dict().items()}
    result = quick(model, rows())
    assert all(torch.equal(before[n], p) for n, p in model.state_dict().items())
    assert any(not torch.equal(before[n], p) for n, p in result.model.state_dict().items())


@pytest.mark.parametrize("masks", [1, math.inf])
def test_replicates_take_the_steps_that_each_would_take_alone(masks):
    """With nothing drawn, R vectorised fits are R fits: values, gradients and Adam's steps."""
    x, y = rows(dtype=torch.float64)
    selector, penalties = partial(KSubsetSelector, k=2), [SizePenalty(0.1)]
    model = explainer(selector, features=4, hidden=(8,), penalties=penalties).double()
    objective = NestedIWAE(masks, estimator=Enumerate(), entropy=0.1)
    terms = TrainingModules([Stage([LossTerm(model, objective)])])
    keep_parameters_local(terms)
    torch.manual_seed(0)
    copies = [reinitialised(terms) for _ in range(3)]
    alone = []
    with program_settings(validate=False):
        for one in copies:
            term = one.stages[0].terms[0]
            own = reinitialised(one)
            own.load_state_dict(one.state_dict())
            optimizer = torch.optim.Adam(own.parameters(), fused=True)
            for _ in range(3):
                optimizer.zero_grad()
                own(own.stages[0].terms[0], objective, (x, y)).backward()
                optimizer.step()
            alone.append(own.state_dict())
        together = Replicates(copies)
        optimizer = torch.optim.Adam(together.parameters.values(), fused=True)
        term = together.template.stages[0].terms[0]
        for _ in range(3):
            losses = together.losses(term, objective, (x, y))
            gradients = torch.autograd.grad(losses.sum(), list(together.parameters.values()))
            for p, g in zip(together.parameters.values(), gradients, strict=True):
                p.grad = g.contiguous()
            optimizer.step()
    for r, one in enumerate(together.separated()):
        for name, value in one.state_dict().items():
            assert torch.allclose(value, alone[r][name], rtol=0, atol=1e-9), name


def test_replicates_each_keep_their_own_best_epoch():
    result = quick(lex, rows(), epochs=8, replicates=3, learning_rate=0.05)
    valid = result.history.valid
    assert (result.best_epoch == valid.argmin(0)).all()
    assert np.allclose(result.best_valid, valid.min(0))


def test_validation_is_under_the_final_objective():
    """A penalty that has not grown yet counts in full when the best epoch is chosen."""
    options = {"epochs": 1, "seed": 0, "learning_rate": 1e-9}
    build = partial(penalised, 5.0)
    growing = quick(build, rows(), objective=annealed(masks=3), **options)
    full = quick(build, rows(), objective=NestedIWAE(masks=3), **options)
    assert np.allclose(growing.history.valid, full.history.valid, atol=1e-5)
    assert growing.history.train[0, 0] < full.history.train[0, 0] - 3


class OwnExplainer(PyroModule):
    """A statistician's own program, with a constrained parameter and a prior."""

    def __init__(self, features=4):
        super().__init__()
        self.selector = nn.Linear(features, features)
        self.predictor = nn.Linear(features, 1)
        self.sharpness = PyroParam(torch.tensor(1.0), constraint=dist.constraints.positive)

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", KSubset(self.selector(x), k=2))
            penalty("spread", 0.01 * (mask[..., 0] - mask[..., 1]) ** 2)
            logits = self.sharpness * self.predictor(x * mask).squeeze(-1)
            return pyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


@pytest.mark.smoke
def test_a_program_of_ones_own_with_a_constrained_parameter():
    x, y = rows()
    result = quick(OwnExplainer, (x, y.float()), epochs=5)
    assert result.model.sharpness.item() != 1.0
    assert result.model.sharpness.item() > 0.0
    two = quick(OwnExplainer, (x, y.float()), replicates=2)
    assert two.replicates == 2


def test_through_svi_and_as_an_elbo_module():
    x, y = rows()
    model = OwnExplainer()
    pyro.clear_param_store()
    try:
        adam = pyro.optim.Adam({"lr": 0.01})
        svi = pyro.infer.SVI(model, lambda *_: None, adam, loss=NestedIWAE(masks=4))
        torch.manual_seed(0)
        losses = [svi.step(x, y.float()) for _ in range(60)]
        assert losses[-1] < losses[0]
    finally:
        pyro.clear_param_store()
    with pyro.settings.context(module_local_params=True):
        loss = NestedIWAE(masks=4)(OwnExplainer(), None)
        optimizer, losses = torch.optim.Adam(loss.parameters(), lr=0.01), []
        for _ in range(60):
            optimizer.zero_grad()
            losses.append(loss(x, y.float()))
            losses[-1].backward()
            optimizer.step()
        assert losses[-1] < losses[0]
        assert len(pyro.get_param_store()) == 0


def test_plain_pyro_inference_reads_the_same_program():
    """In Trace_ELBO the particle plates have size one and the penalty is a log factor."""
    x, y = rows(50)
    model = OwnExplainer()
    torch.manual_seed(0)
    ours = NestedIWAE(masks=1).loss(model, None, x, y.float())
    torch.manual_seed(0)
    trace = pyro.poutine.trace(model).get_trace(x, y.float())
    mask = trace.nodes["mask"]
    theirs = mask["fn"].log_prob(mask["value"]).sum() - trace.log_prob_sum()
    assert ours == pytest.approx(float(theirs), rel=1e-5)


def test_stages_and_terms_move_only_what_they_say():
    x, y = rows()
    model = lex()
    objective = NestedIWAE(masks=3)
    selecting = LossTerm(model, objective, learns=[model.selector])
    predicting = LossTerm(model, objective, learns=[model.predictor], weight=0.0)
    sgd = partial(torch.optim.SGD, lr=0.1)
    stages = [
        Stage([LossTerm(model, NestedIWAE(masks=2), learns=[model.predictor])], epochs=2),
        Stage([selecting, predicting], epochs=2, optimizer=sgd),
    ]
    result = fit(None, (x, y), stages=stages[:1], progress=False)
    old, new = model.state_dict(), result.model.state_dict()
    assert all(torch.equal(old[n], new[n]) for n in old if n.startswith("selector"))
    assert any(not torch.equal(old[n], new[n]) for n in old if n.startswith("predictor"))
    both = fit(None, (x, y), stages=stages, progress=False)
    assert both.history.stage.tolist() == [0, 0, 1, 1]
    later = both.model.state_dict()
    assert any(not torch.equal(old[n], later[n]) for n in old if n.startswith("selector"))


def test_warm_up_on_random_masks_leaves_the_selector_alone():
    model = lex()
    objective = NestedIWAE(masks=3, random_masks=0.9)
    x, y = rows()
    loss = objective.at(0.5).differentiable_loss(model, None, x, y)
    loss.backward()
    assert all((p.grad is None) or bool((p.grad == 0).all()) for p in model.selector.parameters())
    assert any(bool((p.grad != 0).any()) for p in model.predictor.parameters())
    model.zero_grad()
    objective.at(0.95).differentiable_loss(model, None, x, y).backward()
    assert any(bool((p.grad != 0).any()) for p in model.selector.parameters())


def test_schedules_reach_the_objective():
    objective = NestedIWAE(masks=2, entropy=Linear(0.2, 0.0, end=0.5), penalty=Linear(0, 1))
    assert objective.at(0.25).spec.entropy == pytest.approx(0.1)
    assert objective.at(0.25).spec.penalty == pytest.approx(0.25)
    assert (objective.spec.entropy, objective.spec.penalty) == (0.0, 1.0)
    assert objective.settled == 1.0


def test_loader_callbacks_patience_and_ctrl_c():
    x, y = rows()
    loader = DataLoader(TensorDataset(x, y), batch_size=100, shuffle=True)
    seen = []
    result = quick(
        lex, loader, valid=rows(seed=1), epochs=3, training=TrainingOptions(callbacks=[seen.append])
    )
    assert [e.number for e in seen] == [0, 1, 2]
    stopped = quick(
        lex, (x, y), epochs=9, training=TrainingOptions(callbacks=[lambda epoch: epoch.number == 1])
    )
    assert len(stopped.history) == 2 and stopped.interrupted

    def ctrl_c(epoch):
        if epoch.number == 2:
            raise KeyboardInterrupt

    ended = quick(lex, (x, y), epochs=9, training=TrainingOptions(callbacks=[ctrl_c]))
    assert ended.interrupted and len(ended.history) == 3
    assert ended.best_valid[0] == ended.history.valid.min()
    patient = quick(
        lex, (x, y), epochs=50, training=TrainingOptions(patience=2), learning_rate=1e-9
    )
    assert len(patient.history) < 50
    assert result.labels is None


@pytest.mark.parametrize("replicates", [1, 2])
def test_clipping_and_scheduler(replicates):
    def moved_at(rate, **more):
        optimizer = partial(torch.optim.SGD, lr=rate)
        options = {"epochs": 1, "batch_size": 400, "valid": None, "replicates": replicates}
        return quick(lex, rows(), optimizer=optimizer, **options, **more)

    scheduler = partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5)
    result, start = (
        moved_at(1.0, training=TrainingOptions(clip_norm=1e-3, scheduler=scheduler)),
        moved_at(1e-12),
    )
    for moved, still in zip(weights(result), weights(start), strict=True):
        assert float((moved - still).detach().norm()) == pytest.approx(1e-3, rel=0.05)


class WithoutDensity(dist.Delta):
    """A distribution that is drawn from, and states neither a density nor a reparameterisation."""

    has_rsample = False

    def expand(self, batch_shape, _instance=None):
        shape = (*batch_shape, *self.event_shape)
        return WithoutDensity(self.v.expand(shape), event_dim=1)

    def sample(self, sample_shape=()):
        return self.v.detach()

    def log_prob(self, value):
        raise NotImplementedError


class ZeroImputer(nn.Module):
    def forward(self, x, keep):
        return WithoutDensity(x * keep, event_dim=1)


@pytest.mark.parametrize("estimator", [Enumerate(), LeaveOneOut()])
def test_an_imputation_without_a_density_is_only_drawn(estimator):
    x, y = rows(50)
    model = lex(imputer=ZeroImputer())
    objective = NestedIWAE(masks=1, samples=2, estimator=estimator)
    objective.differentiable_loss(model, None, x, y).backward()
    assert any(bool((p.grad != 0).any()) for p in model.selector.parameters())


class BySign(PyroModule):
    """Keeps one of two features, by the sign of the first."""

    def __init__(self):
        super().__init__()
        self.price = nn.Parameter(torch.zeros(()))

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            kept = 30.0 * x[:, :1].sign() * torch.tensor([1.0, -1.0])
            mask = pyro.sample("mask", dist.Bernoulli(logits=kept).to_event(1))
            return pyro.sample("y", dist.Bernoulli(logits=self.price + mask[..., 0]), obs=y)


@pytest.mark.parametrize("order", ["sorted", "mixed"])
def test_a_collapse_is_looked_for_in_rows_from_everywhere(order):
    x = torch.linspace(-1.0, 1.0, 3 * WATCHED_ROWS).unsqueeze(1).expand(-1, 2)
    if order == "mixed":
        x = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))]
    rows = x, (x[:, 0] > 0.0).float()
    result = fit(BySign, rows, valid=rows, epochs=1, batch_size=3000, progress=False)
    assert result.collapse == [None]


def test_collapse_is_named():
    assert collapse(torch.zeros(5, 3)) == "all off"
    assert collapse(torch.ones(5, 3)) == "all on"
    assert collapse(torch.ones(5, 1)) is None
    assert collapse(torch.tensor([[0.9, 0.1]]).expand(5, 2)) == "one mask for every row"
    assert collapse(torch.eye(4)) is None
    with pytest.warns(CollapseWarning, match="all off.*lower the penalty"):
        result = quick(partial(penalised, 50.0), rows(), epochs=30, learning_rate=0.1)
    assert result.collapse == ["all off"]


def refused(build, data, match, error=ValueError, **options):
    with pytest.raises(error, match=match):
        quick(build, data, **options)


def test_bad_input_is_refused_before_any_training():
    x, y = rows()
    broken = x.clone()
    broken[3, 1] = float("nan")
    refused(lex, (broken, y), r"x of train must be finite; 1 of its \d+ values")
    refused(lex, (x, torch.zeros_like(y)), "one class only")
    refused(lex, (x[:0], y[:0]), "train has no rows")
    refused(lex, (x, y[:10]), r"as many rows each; they have \[400, 10\]")
    refused(lex, "table", "must be a data set", TypeError)
    refused(lex, (x, y), "epochs must be a whole number", epochs=0)
    refused(lex, (x, y), "replicates must be", replicates=0)
    refused(lex, (x, y), r"share of the rows in \(0, 1\)", valid=2.0)
    refused(lex, (x.double(), y), "x is torch.float64 and the model torch.float32")
    refused(lambda: lex(k=9), (x, y), "k")
    refused(lambda: lex().requires_grad_(False), (x, y), "nothing to learn")
    refused(lex, (x, y), "LeaveOneOut needs at least 2 draws", objective=NestedIWAE(masks=1))
    refused(lex, (x, y), "differentiable_loss", TypeError, objective=3)
    with pytest.raises(ValueError, match="either a model or stages"):
        fit(None, (x, y))


def test_reset_is_needed_for_replicates_of_a_given_module():
    class Bare(OwnExplainer):
        def __init__(self):
            super().__init__()
            self.extra = nn.Parameter(torch.zeros(2))

    x, y = rows()
    refused(Bare(), (x, y.float()), "give fit a function that builds the model", replicates=2)


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("unread option", "infer options .'baseline'. that this objective does not read"),
        ("no rows", "shared by several logs"),
        ("global", "no guide draws"),
        ("nothing observed", "observes nothing inside mask_particles"),
        ("two names", "two sites named 'mask'"),
    ],
)
def test_programs_that_the_objective_cannot_read(body, match):
    def model(x):
        distribution = dist.Bernoulli(torch.full((len(x), 2), 0.5)).to_event(1)
        if body == "global":
            pyro.sample("rate", dist.Beta(1.0, 1.0))
        if body == "no rows":
            with mask_particles():
                pyro.sample("mask", dist.Bernoulli(torch.full((2,), 0.5)).to_event(1))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            infer = {"baseline": 1} if body == "unread option" else {}
            mask = torch.zeros(len(x), 2)
            if body != "no rows":
                mask = pyro.sample("mask", distribution, infer=infer)
            if body == "two names":
                pyro.sample("mask", distribution)
            if body != "nothing observed":
                pyro.sample("y", dist.Normal(0.0, 1.0 + 0 * mask.sum(-1)), obs=torch.zeros(len(x)))

    with pytest.raises(ValueError, match=match):
        NestedIWAE(masks=2).loss(model, None, torch.zeros(3, 2))


def test_counts_and_factors_are_checked():
    for options in ({"masks": 0}, {"imputations": 0}, {"samples": 1.5}):
        with pytest.raises(ValueError, match="whole number of at least 1"):
            NestedIWAE(**options)
    with pytest.raises(ValueError, match="entropy must be finite"):
        NestedIWAE(entropy=-1.0)
    with pytest.raises(ValueError, match="share of the fit"):
        NestedIWAE(random_masks=1.0)
    with pytest.raises(TypeError, match="GradientEstimator"):
        NestedIWAE(estimator=LeaveOneOut)
    with pytest.raises(ValueError, match="0 <= begin < end"):
        Linear(0, 1, begin=0.5, end=0.5)


def test_a_closed_divergence_that_there_is_not_is_refused():
    def model():
        mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
        with pyro.plate("data", 3, dim=-1), mask_particles():
            pyro.sample("y", dist.Normal(mean, 1.0), obs=torch.zeros(3))

    def student():
        pyro.sample("mean", dist.StudentT(5.0, 0.0, 1.0), infer={"closed_kl": True})

    with pytest.raises(ValueError, match="no closed form is registered for KL"):
        NestedIWAE(1).loss(model, student)
