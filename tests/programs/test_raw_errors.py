"""What Pyro and torch would refuse in words of their own, or let pass, is refused by its name."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import NUTS
from pyro.infer.autoguide import AutoNormal
from pyro.nn import PyroParam
from pyro.poutine import block, lift, scale
from torch import nn

from lexppl import explain, fit
from lexppl.effects import imputation_particles, mask_particles, penalty
from lexppl.inference import SGLD, Enumerate, NestedIWAE
from lexppl.inference.contexts import keep_parameters_local
from tests.programs.builders import Explainer, G, Guide, X, Y, coin
from tests.refusals import refusals, refused

QUICK = {"epochs": 1, "progress": False, "objective": NestedIWAE(1, samples=2)}
EXACT = NestedIWAE(math.inf, estimator=Enumerate())


class SecondDimension(Explainer):
    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-2), mask_particles():
            return self.respond(pyro.sample("mask", self.law(x)), x, y)


class NoEvent(Explainer):
    def law(self, x):
        return dist.Bernoulli(logits=self.selector(x))


class Tempered(Explainer):
    def respond(self, mask, x, y):
        with scale(scale=0.3):
            return super().respond(mask, x, y)


def test_responses_of_one_column():
    """With one mask (B, 1) against (1, B) would pass, as B² responses."""
    with pytest.raises(ValueError, match=r"site 'y' observes values of shape \(32, 1\).*y\[:, 0\]"):
        fit(Explainer, (X, Y[:, None]), **QUICK)
    fit(Explainer, (X, Y), **QUICK)


test_arguments_of_a_fit = refusals(
    ({"optimizer": torch.optim.Adam([torch.zeros(1)])}, "must be a function.*instance of Adam"),
    ({"optimizer": pyro.optim.Adam({"lr": 0.1})}, "must be a function.*instance of PyroOptim"),
    ({"optimizer": 0.1}, "must be a function.*instance of float"),
    ({"training": {"patience": 2}}, r"must be TrainingOptions\(patience=20, …\); it is {'pat"),
    of=lambda options: fit(Explainer, (X, Y), **QUICK, **options),
    error=TypeError,
)


@pytest.mark.parametrize("model", [Explainer, Explainer()])
def test_replicates_start_from_networks_of_a_guide_of_their_own(model):
    given = Guide()
    still = {**QUICK, "learning_rate": 0.0, "guide": given}
    result = fit(model, (X, Y), replicates=2, **still)
    first = [guide.network.layers[0].weight for guide in result.guides]
    assert not torch.equal(*first)
    assert torch.equal(result.guides[0].shift, result.guides[1].shift)
    alone = fit(model, (X, Y), **still).guides[0]
    assert torch.equal(alone.network.layers[0].weight, given.network.layers[0].weight)


def test_what_is_beneath_a_handler_learns():
    given = Guide()
    before = given.shift.clone()
    result = fit(Explainer, (X, Y), guide=block(given, hide=["nothing"]), **QUICK)
    assert not torch.equal(result.guides[0].program.shift, before)
    assert torch.equal(given.shift, before)
    model = Explainer()
    result = fit(scale(model, scale=0.5), (X, Y), **QUICK)
    one, other = result.model.program.selector.layers[0].weight, model.selector.layers[0].weight
    assert not torch.equal(one, other)


@pytest.mark.parametrize("words", [{"hide": ["mask"]}, {"expose": ["y"]}])
def test_a_latent_that_a_handler_hides_is_refused(words):
    with pytest.raises(ValueError, match=r"site 'mask' is hidden.*poutine\.block.*do not hide"):
        fit(block(Explainer(), **words), (X, Y), **QUICK)
    with pytest.raises(ValueError, match="site 'mask' is hidden"):
        fit(Explainer, (X, Y), guide=block(Guide(), hide=["mask"]), **QUICK)


def test_a_parameter_that_is_lifted_within_plates_is_refused():
    class Shifted(Explainer):
        def __init__(self):
            super().__init__()
            self.shift = PyroParam(torch.zeros(G))

        def law(self, x):
            return coin(self.selector(x) + self.shift)

    lifted = lift(Shifted(), prior={"shift": dist.Normal(0.0, 1.0).expand([G]).to_event(1)})
    refused(r"'shift' has one value in all plates \['data'.*before", fit, lifted, (X, Y), **QUICK)


def test_a_scale_of_the_response_tempers_what_is_learned_and_not_what_is_explained():
    plain, tempered = Explainer(), Tempered()
    for model in (plain, tempered):
        keep_parameters_local(model)
    loss, of_tempered = (EXACT.loss(model, None, X, Y) for model in (plain, tempered))
    assert of_tempered == pytest.approx(0.3 * loss, rel=1e-5)
    # All masks listed: p(z | x, y) ∝ p(z | x) p(y | x, z), the power 1.
    masks = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * G)
    with torch.no_grad():
        prior = dist.Bernoulli(logits=plain.selector(X)).to_event(1).log_prob(masks[:, None])
        logits = plain.predictor(X * masks[:, None])[..., 0]
        likelihood = dist.Bernoulli(logits=logits).log_prob(Y)
        weights = (prior + likelihood).softmax(0)
        means = torch.einsum("zb,zg->bg", weights, masks)
        powered = torch.einsum("zb,zg->bg", (prior + 0.3 * likelihood).softmax(0), masks)
    shown = explain(tempered, X, Y, draws=2, proposals=math.inf)["sample_stats"]
    found = torch.as_tensor(shown["selection_probability_given_y"].values[0])
    torch.testing.assert_close(found, means, rtol=0, atol=1e-5)
    assert float((found - powered).abs().max()) > 1e-3


class OffsetHeld(Explainer):
    """An offset of each row that is no column of x."""

    def logits(self, kept):
        return super().logits(kept) + X[:, 0]


class AllRows(Explainer):
    def forward(self, x, y=None):
        with pyro.plate("data", len(X), dim=-1), mask_particles():
            return self.respond(pyro.sample("mask", self.law(x)), x, y)


@pytest.mark.parametrize("options", [{"guide": AutoNormal}, {"inference": NUTS}])
def test_so_is_it_before_a_posterior_of_what_rows_share(options):
    class Shifted(OffsetHeld):
        def forward(self, x, y=None):
            pyro.sample("shift", dist.Normal(0.0, 1.0))
            return super().forward(x, y)

    with pytest.raises(ValueError, match=r"what it holds of each row.*must be columns of x"):
        fit(Shifted, (X, Y), progress=False, **options)


def test_groups_that_are_counted_from_the_rows_are_refused_before_a_chain():
    def program(x, y=None):
        group = (x[:, 0] > 0).long()
        with pyro.plate("groups", int(group.max()) + 1, dim=-1):
            shift = pyro.sample("shift", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", coin(x))
            pyro.sample("y", dist.Normal((mask * x).sum(-1) + shift[group], 1.0), obs=y)

    rows = X[X[:, 0].argsort()]
    message = r"'shift' has shape \(1,\) in a run on one row and \(2,\) on all"
    refused(message, fit, program, (rows, Y), inference=NUTS, progress=False)


class Halving(Explainer):
    def forward(self, x, y=None):
        x *= 0.5
        return super().forward(x, y)


class Counting(Explainer):
    calls = 0

    def respond(self, mask, x, y):
        self.calls += 1
        pyro.sample(f"call_{self.calls}", dist.Bernoulli(logits=mask.sum(-1)))
        return super().respond(mask, x, y)


class SeesY(Explainer):
    """Masks drawn given the response, as a guide may and a model may not."""

    def forward(self, x, y=None):
        self.seen = 0.0 if y is None else y[:, None]
        return super().forward(x, y)

    def law(self, x):
        return dist.Bernoulli(logits=self.selector(x) + self.seen).to_event(1)


BOTH_AT = "plates 'mask_particles' and 'data' are both at dim -2.*rows is at dim=-1"


@pytest.mark.parametrize(
    ("program", "y", "message"),
    [
        (SecondDimension, Y, BOTH_AT),
        (NoEvent, Y, r"'mask' has 3 entries at dim -1 of its batch shape.*'data' has.*to_event"),
        (Explainer, Y.long(), r"'y' observes zeros and ones of torch.int64, which have no density"),
        (Explainer, Y.bool(), r"'y' observes zeros and ones of torch.bool.*as by y\.float\(\)"),
        (OffsetHeld, Y, r"ends with 'The size .*': .* some of the rows.*columns of x$"),
        (AllRows, Y, r"'data' has 40: a plate over rows has len\(x\) entries"),
        (Halving, Y, r"changes its argument 0, of shape \(\d+, 3\), in place"),
        (Counting, Y, r"site 'call_\d+' is in one run of the program and not in the next"),
        (SeesY, Y, "distribution of site 'mask' depends on y.*let a guide see y"),
    ],
)
def test_a_fit_and_an_explanation_refuse_it_and_leave_the_rows(program, y, message):
    x, given = X.clone(), y.clone()
    refused(message, fit, program, (x, given), **QUICK)
    refused(message, explain, program(), x, given, draws=2)
    assert torch.equal(x, X) and torch.equal(given, y)


class Subsampled(Explainer):
    """Of the rows of a batch at most so many."""

    size = 4

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), subsample_size=self.size, dim=-1) as own, mask_particles():
            seen = None if y is None else y[own]
            return self.respond(pyro.sample("mask", self.law(x[own])), x[own], seen)


class AtMostFour(Subsampled):
    def forward(self, x, y=None):
        self.size = min(4, len(x))
        return super().forward(x, y)


@pytest.mark.parametrize("kind", [Subsampled, AtMostFour])
def test_rows_that_a_program_takes_itself_are_fitted_and_not_explained(kind):
    result = fit(kind, (X, Y), batch_size=16, **QUICK)
    message = "a plate takes 4 of the rows, by subsample_size: leave it out to explain"
    for program in (kind(), result):
        for draws, y in ((2, None), (0, None), (2, Y)):
            refused(message, explain, program, X, y, draws=draws)


@pytest.mark.parametrize("how", ["subsample_size", "subsample"])
def test_a_plate_of_all_rows_takes_those_of_a_batch(how):
    """As Pyro's own loops write it, which have to scale a batch up."""

    class OfAll(Explainer):
        def forward(self, x, y=None):
            part = {how: len(x) if how == "subsample_size" else torch.arange(len(x))}
            with pyro.plate("data", 40, dim=-1, **part), mask_particles():
                return self.respond(pyro.sample("mask", self.law(x)), x, y)

    with pytest.raises(ValueError, match=r"'data' has 40 entries, of which the 8 .*len\(x\)"):
        fit(OfAll, (X, Y), batch_size=8, valid=None, **QUICK)
    fit(OfAll, (X, Y), valid=None, **QUICK)


class BatchCentred(Explainer):
    """The mask, the imputation or the response by the mean of the batch."""

    def __init__(self, where):
        super().__init__()
        self.where = where

    def centred(self, x, where):
        return x - x.mean(0) if self.where in (where, None) else x

    def forward(self, x, y=None):
        seen, shown = (self.centred(x, where) for where in ("mask", "y"))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", self.law(seen))
            with imputation_particles():
                hidden = dist.Normal(x - self.centred(x, "x_imputed"), 0.1).to_event(1)
                drawn = pyro.sample("x_imputed", hidden)
                kept = mask * shown + (1 - mask) * drawn
                pyro.sample("y", dist.Bernoulli(logits=self.logits(kept)), obs=y)


@pytest.mark.parametrize("where", ["mask", "x_imputed", "y"])
def test_a_row_that_depends_on_its_batch_is_refused(where):
    message = (
        f"site '{where}' in a row depends on the other rows of its batch.*from all rows before"
    )
    program, quick = BatchCentred(where), {**QUICK, "valid": None}
    for rows in (X, X[:2]):
        refused(message, explain, program, rows, draws=2)
    refused(f"{message}, or give batch_size=40", fit, program, (X, Y), batch_size=16, **quick)
    fit(program, (X, Y), batch_size=40, **quick)
    explain(BatchCentred("nowhere"), X, draws=2)


def test_a_guide_and_a_sampler_whose_rows_depend_on_their_batch_are_refused():
    class Centred(Guide):
        def forward(self, x, y=None):
            super().forward(x - x.mean(0), y)

    message = "site 'mask' in a row depends on the other rows of its batch"
    refused(message, fit, Explainer, (X, Y), guide=Centred(), batch_size=16, **QUICK)

    def program(x, y=None):
        w = pyro.sample("w", dist.Normal(torch.zeros(G), 1.0).to_event(1))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", coin(w * (x - x.mean(0))))
            pyro.sample("y", dist.Normal((x * mask).sum(-1), 1.0), obs=y)

    with pytest.raises(ValueError, match=f"{message}.* or give batch_size=40"):
        fit(program, (X, Y), inference=SGLD(batch_size=8, samples=2, warmup=2), progress=False)


class Normed(Explainer):
    """Rows that depend on their batch in training, and not when they are explained."""

    def __init__(self, **options):
        super().__init__()
        self.norm = nn.BatchNorm1d(G, **options)

    def law(self, x):
        return super().law(self.norm(x))


class PenalisedInTraining(Explainer):
    def forward(self, x, y=None):
        if self.training:
            penalty("size", 0.1 * self.selector.layers[0].weight.square().sum())
        return super().forward(x, y)


def test_a_site_of_training_alone_is_no_site_of_other_rows():
    explain(fit(PenalisedInTraining, (X, Y), batch_size=16, **QUICK), X, draws=2)


def test_batch_norm_is_of_the_batch_in_training_alone():
    result = fit(Normed, (X, Y), batch_size=16, replicates=2, **QUICK)
    explain(result, X, draws=2)
    explain(Normed().train(), X, Y, draws=2)
    fit(scale(Normed(), scale=0.5), (X, Y), batch_size=16, **QUICK)
    with pytest.raises(ValueError, match="site 'mask' in a row depends on the other rows"):
        fit(Normed(track_running_stats=False), (X, Y), batch_size=16, **QUICK)


def test_y_is_not_changed_in_place():
    def program(x, y=None):
        if y is not None:
            y += 1.0
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(torch.full((G,), 0.5)).to_event(1))
            pyro.sample("y", dist.Normal((x * mask).sum(-1), 1.0), obs=y)

    y = Y.clone()
    refused(r"changes its argument 1, .* in place", explain, program, X, y, draws=2)
    assert torch.equal(y, Y)


def test_pyro_module_of_a_part_is_left_out():
    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.selector = nn.Linear(G, G)

        def forward(self, x, y=None):
            pyro.module("network", self.selector)
            with pyro.plate("data", len(x), dim=-1), mask_particles():
                mask = pyro.sample("mask", dist.Bernoulli(logits=self.selector(x)).to_event(1))
                pyro.sample("y", dist.Normal((x * mask).sum(-1), 1.0), obs=y)

    refused(r"pyro.module\('network'\).*leave it out", fit, Part(), (X, Y), **QUICK)


def test_modules_that_a_function_calls_are_to_be_its_parts():
    """One of Pyro is refused; of one of torch nothing would learn."""
    given = Explainer()
    message = "calls a Pyro module that is no part of it: write the program as a module"
    for run in (fit, explain):
        refused(message, run, lambda x, y=None: given(x, y), *(((X, Y),) if run is fit else (X,)))

    def program(x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            return given.respond(pyro.sample("mask", coin(given.selector(x))), x, y)

    refused(r"nothing to learn.*a module that has them as parts", fit, program, (X, Y), **QUICK)


# A batch of rows that no plate at dim -1 holds would weigh as much as all rows


def weighed(x, y, name=""):
    mask = pyro.sample(f"mask{name}", dist.Bernoulli(torch.full((G,), 0.5)).to_event(1))
    pyro.sample(f"y{name}", dist.Normal((x * mask).sum(-1) + weighed.w, 1.0), obs=y)


def rows_in_a_loop(x, y):
    for row in pyro.plate("data", len(x)):
        with mask_particles():
            weighed(x[row], y[row], f"_{row}")


def rows_further_left(x, y):
    with pyro.plate("data", len(x), dim=-4), mask_particles():
        weighed(x[:, None, None, None], y[:, None, None, None])


def rows_twice(x, y):
    with pyro.plate("sizes", len(x), dim=-1):
        pyro.sample("size", dist.Normal(weighed.w, 1.0), obs=x[:, 0])
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        weighed(x, y)


def rows_of_one_event(x, y):
    pyro.sample("sizes", dist.Normal(weighed.w.expand(len(x)), 1.0).to_event(1), obs=x[:, 0])
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        weighed(x, y)


@pytest.mark.parametrize(
    ("rows", "site"),
    [
        (rows_in_a_loop, r"mask_\d+"),
        (rows_further_left, "mask"),
        (rows_twice, "size"),
        (rows_of_one_event, "sizes"),
    ],
)
def test_a_batch_stands_for_all_rows_by_their_plate(rows, site):
    def program(x, y=None):
        weighed.w = pyro.sample("w", dist.Normal(0.0, 1.0))
        rows(x, y)

    data, message = (X[:8], Y[:8]), f"'{site}' has an entry for each row .* batch_size=8"
    options = {**QUICK, "guide": AutoNormal, "valid": None}
    for size in (1, 4):
        refused(message, fit, program, data, batch_size=size, **options)
    fit(program, data, batch_size=8, **options)
    with pytest.raises(ValueError, match=message):
        fit(program, data, inference=SGLD(batch_size=4, samples=2, warmup=2), progress=False)


def test_a_latent_with_an_entry_for_each_row_has_no_posterior_of_new_rows():
    def process(x, y=None):
        covariance = torch.exp(-torch.cdist(x, x)) + 0.01 * torch.eye(len(x))
        f = pyro.sample("f", dist.MultivariateNormal(torch.zeros(len(x)), covariance))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", coin(f[:, None].expand(-1, G)))
            pyro.sample("y", dist.Normal((x * mask).sum(-1), 1.0), obs=y)

    for options in ({**QUICK, "guide": AutoNormal}, {"inference": NUTS, "progress": False}):
        refused(r"'f' is outside .* each row has its own", fit, process, (X, Y), **options)


@pytest.mark.parametrize("name", ["row", "size", "importance", "chain"])
def test_names_of_the_explanation(name):
    def program(x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            pyro.sample(name, coin(x))

    refused(f"site '{name}' has a name of the explanation's own", explain, program, X, draws=2)


# What a program does with y, and what it does without


class NeedsY(Explainer):
    def respond(self, mask, x, y):
        return super().respond(mask, x, y[:, 0])


class Unsampled(dist.TorchDistribution):
    arg_constraints, support = {}, dist.constraints.real

    def __init__(self, centre):
        self.centre = centre
        super().__init__(centre.shape, validate_args=False)

    def expand(self, batch_shape, _instance=None):
        return Unsampled(self.centre.expand(batch_shape))

    def log_prob(self, value):
        return -(value - self.centre).abs()


class WithoutDraws(Explainer):
    def respond(self, mask, x, y):
        return pyro.sample("y", Unsampled(self.logits(mask * x)), obs=y)


@pytest.mark.parametrize(
    ("program", "y", "message"),
    [
        (NeedsY, Y[:, None], "ends with TypeError 'NoneType'.*obs=None if y is None else y"),
        (WithoutDraws, Y, "ends with NotImplementedError: .*has a sample method"),
    ],
)
def test_a_program_that_draws_no_response(program, y, message):
    result = fit(program, (X, y), **QUICK)
    for given in (None, y):
        refused(rf"called as program\(x, None\).*{message}", explain, result, X, given, draws=2)


def test_a_value_outside_its_distribution_is_of_a_named_site():
    class Waiting(Explainer):
        def forward(self, x, y=None):
            with pyro.plate("data", len(x), dim=-1), mask_particles():
                pyro.sample("mask", dist.Bernoulli(torch.full((G,), 0.5)).to_event(1))
                pyro.sample("y", dist.Exponential(torch.ones(())), obs=y)

    refused(r"site 'y' cannot have its value: .*support", fit, Waiting, (X, Y - 1.0), **QUICK)
    with pytest.raises(ValueError, match="labels must be 0 … 1 for classes=2; y has 2 in row"):
        fit(Explainer, (X, Y + 1.0), **QUICK)


def test_a_third_array_of_rows_is_refused():
    """A program that has a default for it was explained as if there were none."""

    class Shifted(Explainer):
        def forward(self, x, y=None, offset=0.0):
            self.offset = offset
            return super().forward(x, y)

    with pytest.raises(ValueError, match=r"train has 3 arrays.*x and y alone.*columns of x"):
        fit(Shifted, (X, Y, X[:, 0]), **QUICK)


def test_rows_of_different_lengths():
    with pytest.raises(ValueError, match="train has rows of different lengths: pad them to one"):
        fit(Explainer, ([[1.0, 2.0, 3.0], [1.0, 2.0]], [0.0, 1.0]), **QUICK)
