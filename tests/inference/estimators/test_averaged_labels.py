"""The advantage expected over labels: by hand and by enumeration; what it leaves alone."""

import itertools
import math
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import nn

from lexppl.data import synthetic
from lexppl.distributions import KSubset
from lexppl.effects import MASK_KIND, FoldShift, label_expectation
from lexppl.inference import Enumerate, LeaveOneOut, NestedIWAE, annealed, fit
from lexppl.inference.contexts import program_settings, seeded
from lexppl.inference.estimators.leave_one_out import averaged_advantage
from lexppl.inference.objective.bound import BoundSpec, BoundTerms
from lexppl.inference.objective.program import ParticleProgram
from lexppl.inference.replicates import Replicates
from lexppl.inference.stages import LossTerm, Stage, TrainingModules
from lexppl.inference.training.cross_fitting import CrossFitted
from lexppl.models import (
    LEX,
    MLP,
    BernoulliLikelihood,
    BernoulliSelector,
    CategoricalLikelihood,
    ConstantImputer,
    GaussianImputer,
    Grouping,
    KSubsetSelector,
    MaxConcreteSelector,
    NormalLikelihood,
    Predictor,
    SizePenalty,
    imputation_particles,
    mask_particles,
)
from lexppl.systems import lex
from tests import small_models
from tests.refusals import refused

AVERAGED = LeaveOneOut(labels="averaged")
X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.double)
Y = torch.tensor([0, 1, 2, 2, 1, 0])
pytestmark = pytest.mark.usefixtures("local_parameters")


def explainer(selector=None, classes=3, imputer=None, likelihood=None, seed=0, **options):
    """A small LEX in double precision, whose predictor is far from even."""
    model = small_models.explainer(
        selector or BernoulliSelector, imputer or ConstantImputer(0.25), likelihood,
        outputs=classes, seed=seed, **options,
    )  # fmt: skip
    with torch.no_grad():
        for parameter in model.predictor.network.parameters():
            parameter.mul_(3.0)
    return model.double()


THREE = BoundSpec(masks=3)


def signal(model, spec=THREE, y=Y):
    """The terms of a run, and the advantage of its masks."""
    program = ParticleProgram(model, None, (X, y))
    with seeded(0):
        terms = BoundTerms(program.run(spec.particles, spec.imputations), spec)
        return terms, averaged_advantage(program, terms).value


def gradients(estimator, model, x=X, y=Y, guide=None, seed=0, **options):
    """The loss and its gradient in the selector and in the predictor, from one seed."""
    objective = NestedIWAE(**{"masks": 3, "estimator": estimator, **options})
    with seeded(seed):
        loss = objective.differentiable_loss(model, guide, x, y)
    parts = [list(model.selector.parameters()), list(model.predictor.parameters())]
    return loss, *(torch.autograd.grad(loss, part, retain_graph=True) for part in parts)


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


# -- the signal, written out


def by_hand(log_p, probability, samples, scale):
    """`Σ_y p̄(y) (ℒ(y) − ℒ_{−l}(y)) · scale / S` of `log_p` `(C, K, M, B)`, mask after mask."""
    classes, imputations, particles, rows = log_p.shape
    masks = particles // samples
    found = torch.zeros(particles, rows, dtype=log_p.dtype)
    for label, s, row in itertools.product(range(classes), range(samples), range(rows)):
        block = log_p[label, :, s * masks : (s + 1) * masks, row]
        log_w = [torch.logsumexp(block[:, m], 0) - math.log(imputations) for m in range(masks)]
        bound = torch.logsumexp(torch.stack(log_w), 0) - math.log(masks)
        for m in range(masks):
            others = [log_w[j] for j in range(masks) if j != m]
            stand_in = torch.stack(others).mean()
            without = torch.logsumexp(torch.stack([*others, stand_in]), 0) - math.log(masks)
            gain = scale * (bound - without) / samples
            found[s * masks + m, row] += probability[label, row] * gain
    return found


@pytest.mark.parametrize("selector", [BernoulliSelector, partial(KSubsetSelector, k=2)])
@pytest.mark.parametrize("likelihood", [CategoricalLikelihood(), BernoulliLikelihood()])
@pytest.mark.parametrize(("imputations", "samples", "scale"), [(1, 1, 1.0), (2, 2, 7.5)])
def test_the_signal_is_that_of_every_label(selector, likelihood, imputations, samples, scale):
    classes = 3 if isinstance(likelihood, CategoricalLikelihood) else 1
    y = Y if classes == 3 else Y.clamp(max=1)
    model = explainer(selector, classes, GaussianImputer(), likelihood)

    def scaled(x, y):
        with pyro.poutine.scale(scale=scale):
            return model(x, y)

    spec = BoundSpec(masks=3, imputations=imputations, samples=samples)
    terms, value = signal(scaled, spec, y)
    with torch.no_grad():
        imputed = terms.run.sites["x_imputed"].value
        drawn, kept = model.predictor(imputed), model.predictor(X)
        labels = torch.arange(max(classes, 2))
        if classes == 1:
            labels = labels.double()
        log_p = torch.stack([drawn.log_prob(label) for label in labels])
        probability = torch.stack([kept.log_prob(label).exp() for label in labels])
    torch.testing.assert_close(probability.sum(0), torch.ones(6).double())
    expected = by_hand(log_p, probability, samples, scale)
    torch.testing.assert_close(value, expected[None])
    assert float(expected.abs().max()) > 1e-3


@pytest.mark.smoke
def test_a_label_that_is_certain_is_as_if_it_were_observed():
    class Certain(nn.Module):
        """Sure of label 2 where nothing is hidden."""

        def __init__(self, linear):
            super().__init__()
            self.linear = linear

        def forward(self, x):
            whole = (x != 0.25).all(-1, keepdim=True)
            sure = torch.tensor([0.0, 0.0, 1e3]).double()
            return torch.where(whole, sure, self.linear(x))

    model = explainer()
    model.predictor = Predictor(Certain(MLP(3, 3, (4,), seed=1).double()), CategoricalLikelihood())
    averaged = gradients(AVERAGED, model, samples=2)[1]
    observed = gradients(LeaveOneOut(), model, y=torch.full((6,), 2), samples=2)[1]
    other = gradients(LeaveOneOut(), model, samples=2)[1]
    for a, b, c in zip(averaged, observed, other, strict=True):
        torch.testing.assert_close(a, b)
        assert not torch.allclose(a, c)


# -- its mean over masks, by summing over all of them


@dataclass(frozen=True)
class Given(LeaveOneOut):
    """Masks that are given, not drawn."""

    masks: torch.Tensor | None = None

    def draw(self, site):
        shape = (*site.distribution.batch_shape, *site.distribution.event_shape)
        return self.masks.unsqueeze(-2).expand(shape)


def summed_over_masks(model, x, y, particles, **options):
    """The expected gradient: every tuple of masks of one row by its probability."""
    support = [torch.tensor(z).double() for z in itertools.product((0.0, 1.0), repeat=3)]
    parts = [list(model.selector.parameters()), list(model.predictor.parameters())]
    total = [[torch.zeros_like(p) for p in part] for part in parts]
    for chosen in itertools.product(support, repeat=particles):
        masks = torch.stack(chosen)
        probability = model.selector(x).log_prob(masks.unsqueeze(1)).sum().exp().detach()
        estimator = Given(labels=options["labels"], masks=masks)
        objective = NestedIWAE(estimator=estimator, **options["bound"])
        loss = objective.differentiable_loss(model, None, x, y)
        for sums, part in zip(total, parts, strict=True):
            found = torch.autograd.grad(-loss, part, retain_graph=True, allow_unused=True)
            for place, gradient in enumerate(found):
                if gradient is not None:
                    sums[place] += probability * gradient
    return total


BOUNDS = [{"masks": 2, "penalty": 0.5, "entropy": 0.1}, {"masks": 1, "samples": 2}]


@pytest.mark.parametrize("bound", BOUNDS)
def test_its_mean_is_the_gradient_of_what_it_says(bound):
    model = explainer(penalties=[SizePenalty(0.1)])
    x, y = X[:1], Y[:1]
    selector, predictor = summed_over_masks(model, x, y, 2, labels="averaged", bound=bound)
    exact = {"estimator": Enumerate(), **bound, "samples": 1}
    probability = model.predictor(x).probs.detach()

    def enumerated(labels, weights, part):
        losses = [
            NestedIWAE(**exact).differentiable_loss(model, None, x, label[None]) for label in labels
        ]
        # The entropy and the penalty are in each label's bound, and the weights add up to one.
        value = sum(w * -loss for w, loss in zip(weights, losses, strict=True))
        return torch.autograd.grad(value, list(part.parameters()), allow_unused=True)

    expected = enumerated(torch.arange(3), probability[0], model.selector)
    of_observed = enumerated(y, torch.ones(1).double(), model.selector)
    for a, b, c in zip(selector, expected, of_observed, strict=True):
        torch.testing.assert_close(a, b)
        assert not torch.allclose(a, c, rtol=1e-2)
    of_observed = enumerated(y, torch.ones(1).double(), model.predictor)
    for a, b in zip(predictor, of_observed, strict=True):
        torch.testing.assert_close(a, b)
    # Had p̄ a gradient, the predictor's would be another.
    through = enumerated(torch.arange(3), model.predictor(x).probs[0], model.predictor)
    assert not all(torch.allclose(a, b) for a, b in zip(predictor, through, strict=True))


# -- what it leaves alone


@pytest.mark.parametrize("options", [{}, {"samples": 2, "imputations": 2}])
def test_value_and_predictors_gradient_stay(options):
    model = explainer(imputer=GaussianImputer())
    value, selector, predictor = gradients(LeaveOneOut(), model, **options)
    averaged = gradients(AVERAGED, model, **options)
    assert torch.equal(value, averaged[0])
    assert same(predictor, averaged[2])
    assert not same(selector, averaged[1])
    losses = []
    for estimator in (LeaveOneOut(), AVERAGED):
        with seeded(0):
            losses += [
                NestedIWAE(4, estimator=estimator).loss(model, None, X, Y),
                float(torch.rand(())),
            ]
    assert losses[:2] == losses[2:]


def test_it_begins_where_it_is_said_to():
    model = explainer()
    for share, begins in ((0.2, 0.2), (0.0, 0.0), (0.6, 0.6)):
        estimator = LeaveOneOut(labels="averaged", labels_from=share)
        objective = NestedIWAE(3, estimator=estimator)
        assert objective.settled == begins
        for progress in (0.0, 0.19, 0.2, 0.59, 0.6, 1.0):
            found = []
            for one in (objective, NestedIWAE(3, estimator=LeaveOneOut())):
                with seeded(0):
                    loss = one.at(progress).differentiable_loss(model, None, X, Y)
                found.append(torch.autograd.grad(loss, list(model.selector.parameters())))
            assert same(*found) == (progress < begins)


class Counting(nn.Module):
    """A predictor's network that counts the rows that it has seen in training."""

    def __init__(self):
        super().__init__()
        self.linear, self.seen = nn.Linear(3, 3).double(), 0

    def forward(self, x):
        self.seen += x[..., 0].numel() * self.training
        return self.linear(x)


def test_the_predictor_is_asked_as_it_predicts():
    seen = []
    for estimator in (LeaveOneOut(), AVERAGED):
        model = explainer()
        model.predictor = Predictor(Counting(), CategoricalLikelihood())
        gradients(estimator, model)
        seen.append(model.predictor.network.seen)
        assert model.predictor.network.training
    assert seen == [18, 18]


def test_of_cross_fitted_predictors_the_one_that_has_not_seen_the_row_is_asked():
    model = explainer()
    each = [explainer(seed=10 * s).predictor for s in (1, 2)]
    model.predictor = CrossFitted(each)
    for context, swapped in ((FoldShift(0), False), (FoldShift(1), True), (nullcontext(), None)):
        with context:
            terms, value = signal(model)
            with torch.no_grad():
                imputed = terms.run.sites["x_imputed"].value
                log_p = model.predictor(imputed).logits.movedim(-1, 0)
                first, second = each[::-1] if swapped else each
                if swapped is None:
                    kept = (each[0](X).probs + each[1](X).probs) / 2
                else:
                    kept = torch.cat([first(X[:3]).probs, second(X[3:]).probs])
        expected = by_hand(log_p, kept.T, 1, 1.0)
        torch.testing.assert_close(value, expected[None])


@pytest.mark.parametrize("shift", [0, 1])
def test_of_a_cross_fitted_fits_terms_the_selectors_alone_has_need_of_it(shift):
    model = explainer()
    model.predictor = CrossFitted([explainer(seed=10 * s).predictor for s in (1, 2)])
    with FoldShift(shift):
        averaged, observed = gradients(AVERAGED, model), gradients(LeaveOneOut(), model)
    assert same(averaged[1], observed[1]) == (shift == 1)
    assert same(averaged[2], observed[2])


def test_masks_of_groups_and_of_two_sites():
    grouping = Grouping([0, 1, 1])
    model = explainer(lambda _: BernoulliSelector(MLP(3, 2, (4,), seed=0)), grouping=grouping)
    assert not same(gradients(AVERAGED, model)[1], gradients(LeaveOneOut(), model)[1])

    class Two(LEX):
        def forward(self, x, y=None):
            with pyro.plate("data", len(x), dim=-1), mask_particles():
                first = pyro.sample("first", self.selector(x))
                second = pyro.sample("second", self.selector(x * first))
                with imputation_particles():
                    return pyro.sample("y", self.predictor(x * first * second), obs=y)

    one = explainer()
    model = Two(one.selector, one.imputer, one.predictor)
    terms, value = signal(model)
    with torch.no_grad():
        kept = terms.run.sites["first"].value * terms.run.sites["second"].value
        log_p = model.predictor(X * kept).logits.unsqueeze(0).movedim(-1, 0)
        expected = by_hand(log_p, model.predictor(X).probs.T, 1, 1.0)
    torch.testing.assert_close(value, expected[None])


def test_a_label_outside_the_imputations():
    one = explainer()

    def model(x, y):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", one.selector(x))
            pyro.sample("y", one.predictor(mask * x), obs=y)

    terms, value = signal(model)
    with torch.no_grad():
        log_p = one.predictor(X * terms.run.sites["mask"].value).logits.unsqueeze(0).movedim(-1, 0)
        expected = by_hand(log_p, one.predictor(X).probs.T, 1, 1.0)
    torch.testing.assert_close(value, expected[None])


# -- in a fit


def test_replicates_are_the_single_programs():
    masks = (torch.rand(4, 3, generator=torch.Generator().manual_seed(1)) > 0.5).double()
    objective = NestedIWAE(4, estimator=Given(labels="averaged", masks=masks))

    def stages(seed):
        return TrainingModules([Stage([LossTerm(explainer(seed=seed), objective)])])

    runner = Replicates([stages(0), stages(7)])
    (term,) = runner.template.stages[0].terms
    names = sorted(runner.parameters)
    with program_settings(validate=False):
        losses = runner.losses(term, objective, (X, Y))
        together = torch.autograd.grad(losses.sum(), [runner.parameters[n] for n in names])
        for place, seed in enumerate((0, 7)):
            alone = stages(seed)
            (term,) = alone.stages[0].terms
            loss = alone(term, objective, (X, Y))
            own = dict(alone.named_parameters())
            found = torch.autograd.grad(loss, [own[n] for n in names])
            torch.testing.assert_close(losses[place], loss)
            for a, b in zip(together, found, strict=True):
                torch.testing.assert_close(a[place], b)


@pytest.mark.parametrize("options", [{}, {"k": 2}, {"folds": 1, "imputations": 2}])
def test_lex_takes_it(options):
    data = synthetic("S1", rows=120, seed=0)
    small = {"hidden": (4,), "predictor_hidden": (4,), "classes": 2, **options}
    system = lex(11, labels="averaged", **small)
    (stage,) = system.build()
    assert stage.terms[0].objective.estimator == AVERAGED
    quick = {"epochs": 2, "batch_size": 50, "progress": False, "replicates": 2}
    averaged = fit(system, data, **quick)
    observed = fit(lex(11, **small), data, **quick)
    assert not same(
        averaged.models[0].selector.parameters(), observed.models[0].selector.parameters()
    )


def test_lex_refuses_labels_that_there_are_not():
    refused("labels must be one of", lex, 3, classes=2, labels="soft")
    with pytest.raises(ValueError, match=r"needs classes: of responses leave labels='observed'"):
        lex(3, classes=None, labels="averaged")
    with pytest.raises(ValueError, match=r"objective.*LeaveOneOut\(labels='averaged'\)"):
        lex(3, classes=2, labels="averaged", objective=annealed())


# -- what is refused


def test_arguments():
    assert not AVERAGED.unbiased
    refused(r"labels must be one of.*'both'", LeaveOneOut, labels="both")
    for share in (1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match=r"labels_from must be a share of the fit in \[0, 1\)"):
            LeaveOneOut(labels="averaged", labels_from=share)


SOFT = torch.full((6, 3), 1 / 3, dtype=torch.double)


class Program(nn.Module):
    """A program with one thing that is not as it should be."""

    def __init__(self, odd):
        super().__init__()
        self.odd = odd
        self.logits = nn.Parameter(torch.zeros(3).double())

    def masks(self):
        if self.odd == "geometric":
            return dist.Geometric(logits=self.logits).to_event(1)
        if self.odd == "index":
            return dist.Categorical(logits=self.logits)
        return dist.Bernoulli(logits=self.logits).to_event(1)

    def forward(self, x, y):
        if self.odd == "rows inside":
            with mask_particles(), pyro.plate("data", len(x), dim=-1):
                return self.body(x, y)
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            return self.body(x, y)

    def body(self, x, y):
        infer = {MASK_KIND: "share"} if self.odd == "share" else {}
        mask = pyro.sample("mask", self.masks(), infer=infer).double()
        if self.odd == "index":
            mask = mask.unsqueeze(-1)
        if self.odd == "fill beside the mask":
            fill = pyro.sample("fill", dist.Normal(torch.zeros(3).double(), 1.0).to_event(1))
            x = x + fill
        if self.odd == "own estimator":
            infer = {"estimator": AVERAGED}
            with imputation_particles():
                pyro.sample("fill", dist.Bernoulli(logits=self.logits[0]), infer=infer)
        law = dist.Categorical(logits=mask * x)
        if self.odd == "soft":
            with label_expectation(SOFT) as labels:
                return pyro.sample("y", law, obs=labels)
        if self.odd == "two":
            pyro.sample("y2", law, obs=y)
        if self.odd == "factor":
            pyro.factor("cost", -mask.sum(-1))
        if self.odd == "normal":
            law, y = dist.Normal((mask * x).sum(-1), 1.0), y.double()
        if self.odd == "several":
            law = dist.Bernoulli(logits=mask * x).to_event(1)
            y = torch.ones(len(y), 3).double()
        return pyro.sample("y", law, obs=y)


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ("soft", r"'y' is an expectation over them already.*labels='observed'"),
        ("two", r"one observed site.*'y2', 'y'.*labels='observed'"),
        ("factor", r"one observed site.*'cost', 'y'.*labels='observed'"),
        ("normal", r"'y' is Normal: choose labels='observed'"),
        ("several", r"'y' is Independent: choose labels='observed'"),
        ("rows inside", r"'y' has those of plates \['data'\]: enter them before mask_particles"),
        ("share", r"'mask' has mask_kind 'share': choose labels='observed'"),
        ("geometric", r"'mask' inside mask_particles\(\) is Independent.*labels='observed'"),
        ("index", r"'mask' inside mask_particles\(\) is Categorical.*labels='observed'"),
        ("fill beside the mask", r"'fill'.*is Independent.*inside imputation_particles\(\)"),
        ("own estimator", r"'fill' is drawn anew for each imputation: leave its own estimator"),
    ],
)
def test_a_program_that_it_would_misread_is_refused_before_the_first_step(odd, message):
    options = {"epochs": 1, "progress": False, "valid": None}
    with pytest.raises(ValueError, match=message):
        fit(Program(odd), (X, Y), objective=NestedIWAE(2, estimator=AVERAGED), **options)
    if odd not in ("own estimator", "index"):
        NestedIWAE(2, estimator=LeaveOneOut()).differentiable_loss(Program(odd), None, X, Y)


def test_the_same_program_without_it_is_taken():
    loss = NestedIWAE(2, estimator=AVERAGED).differentiable_loss(Program(""), None, X, Y)
    assert torch.isfinite(loss)


def test_relaxed_masks_and_guides_are_refused():
    relaxed = explainer(partial(MaxConcreteSelector, k=2))
    refused(r"'mask'.*MaxConcrete.*labels='observed'", gradients, AVERAGED, relaxed)

    def guide(x, y):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            pyro.sample("mask", dist.Bernoulli(logits=y[..., None] + 0.0 * x).to_event(1))

    with pytest.raises(ValueError, match=r"the guide covers \['mask'\].*leave them out"):
        gradients(AVERAGED, explainer(), guide=guide)
    with pytest.raises(ValueError, match=r"'y' is Normal"):
        gradients(AVERAGED, explainer(classes=1, likelihood=NormalLikelihood()), y=Y.double())
    refused("LeaveOneOut needs at least 2", gradients, AVERAGED, explainer(), masks=1)


def test_a_guide_of_weights_is_kept_for_the_second_run():
    """The unmasked run is under the weights that were drawn, not under others."""
    drawn = []
    one = explainer()

    def model(x, y):
        shift = pyro.sample("shift", dist.Normal(torch.zeros(()).double(), 1.0))
        drawn.append(float(shift))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", KSubset(one.selector.network(x), 2))
            with imputation_particles():
                pyro.sample("y", one.predictor(mask * x + shift), obs=y)

    def guide(x, y):
        pyro.sample("shift", dist.Normal(torch.zeros(()).double(), 1.0))

    with seeded(0):
        NestedIWAE(3, estimator=AVERAGED).differentiable_loss(model, guide, X, Y)
    assert len(drawn) > 2 and drawn[-2] == drawn[-1]
