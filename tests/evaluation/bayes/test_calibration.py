"""Exact posteriors have uniform ranks; others are caught, at the stated rate."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.autoguide import AutoNormal
from pyro.nn import PyroModule
from scipy import stats

from lexppl.effects import mask_particles, penalty
from lexppl.evaluation import GuideFits, calibration
from lexppl.evaluation.bayes.calibration import Calibration, UniformRanks
from lexppl.inference import NestedIWAE, Pathwise
from lexppl.inference.contexts import seeded
from lexppl.inference.posterior.global_draws import GlobalDraws, SamplerRecord
from lexppl.systems import lex, q_fit, real_x
from tests.evaluation.bayes.conjugate import Line, X, moments
from tests.refusals import refusals


def conjugate(x, y, seed, width=1.0, shift=0.0, draws=99):
    """The exact posterior of :class:`Line`, with another width and place."""
    mean, covariance = moments(x, y)
    noise = torch.randn(draws, x.shape[1], generator=torch.Generator().manual_seed(seed % 2**60))
    return {"slope": mean + (width * noise + shift) @ torch.linalg.cholesky(covariance).T}


def altered(**how):
    return lambda x, y, seed: conjugate(x, y, seed, **how)


def run(infer, program=None, x=X, **options):
    program = Line() if program is None else program
    return calibration(program, x, infer, progress=False, **options)


def test_the_exact_posterior_has_uniform_ranks_and_nominal_coverage():
    found = run(conjugate, exact=conjugate, simulations=1000)
    assert found.alarms() == {}
    assert found.coverage()["z"].abs().max() < stats.norm.isf(1e-4)
    table = found.table
    assert (table["mean_z"].abs() < 4 * table["mean_z_error"]).all()
    # Two estimates of a sd from 99 normal draws each, in 1000 data sets.
    error = np.sqrt(2 / (2 * 98) / 1000)
    assert (np.log(table["sd_ratio"]).abs() < 4 * error).all()
    assert set(table["verdict"]) == {"consistent"}


def expected_coverage(level, width=1.0, shift=0.0):
    """Of the central interval of N(shift, width²) for a standard normal truth."""
    half = width * stats.norm.isf((1 - level) / 2)
    return stats.norm.cdf(shift + half) - stats.norm.cdf(shift - half)


@pytest.mark.complete(but=1)
@pytest.mark.parametrize(
    ("how", "verdict"),
    [
        ({"width": 0.5}, "too narrow"),
        ({"width": 1.5}, "too wide"),
        ({"shift": 0.5}, "too high"),
        ({"shift": -0.5}, "too low"),
    ],
)
def test_a_posterior_that_is_wrong_is_caught(how, verdict):
    found = run(altered(**how), exact=conjugate, simulations=500)
    assert found.alarms()["slope[0]"] == verdict
    assert found.table.loc["slope[0]", "verdict"] == verdict
    assert found.table.loc["slope[0]", "p_value"] < 0.001
    held = found.coverage().set_index(["quantity", "level"])["coverage"]["slope[0]"]
    for level in (0.5, 0.8, 0.9):
        # Of 99 draws in place of their distribution, intervals are off by less than .02.
        wanted = expected_coverage(level, **how)
        error = np.sqrt(wanted * (1 - wanted) / 500)
        assert abs(held[level] - wanted) < 0.02 + 4 * error
    ratio = found.table.loc["slope[0]", "sd_ratio"]
    assert abs(np.log(ratio / how.get("width", 1.0))) < 4 * np.sqrt(2 / (2 * 98) / 500)


@pytest.mark.complete
def test_the_prior_in_place_of_the_posterior_is_found_by_what_reads_the_data():
    def prior(x, y, seed):
        return {"slope": torch.randn(99, 2, generator=torch.Generator().manual_seed(seed % 2**60))}

    assert run(prior).alarms() == {}
    quantities = {"fit": lambda samples, x, y: -(y - samples["slope"] @ x.T).square().sum(-1)}
    assert run(prior, quantities=quantities).alarms() == {"fit": "too low"}
    assert run(conjugate, quantities=quantities).alarms() == {}


def test_a_posterior_inference_is_run_on_one_data_set_after_another():
    class Exact:
        def run(self, model, rows, *, seed, progress):
            draws = conjugate(*rows, seed, draws=100)["slope"]
            samples = {"slope": draws.unflatten(0, (2, 50))}
            return GlobalDraws(samples, SamplerRecord("exact", are_chains=False), model)

    found = run(Exact(), simulations=200)
    assert found.method == "Exact"
    assert found.alarms() == {}


@pytest.mark.complete
def test_a_guide_is_fitted_to_many_data_sets_at_once_and_its_false_width_is_seen():
    # One feature, so that the guide's family has the posterior in it.
    program = Line(features=1)
    guide = AutoNormal(pyro.poutine.block(program, hide=["mask"]), init_scale=0.3)
    options = {"epochs": 80, "learning_rate": 0.1, "objective": NestedIWAE(1, estimator=Pathwise())}
    x = X[:, :1]
    found = run(GuideFits(guide, 50, options), program, x, simulations=100, exact=conjugate)
    assert found.alarms() == {}
    assert abs(np.log(found.table.loc["slope[0]", "sd_ratio"])) < 0.1
    few = {**options, "epochs": 1}
    unfitted = run(GuideFits(AutoNormal, 100, few), program, x, simulations=100)
    assert unfitted.alarms() != {}


def test_the_global_importance_of_q_fit_is_checked_as_a_system():
    from lexppl.models.predictor import table_predictor

    with seeded(0):
        predictor = table_predictor(2, 2, (4,))
        with torch.no_grad():
            predictor.network.layers[-1].bias += torch.tensor([-2.0, 2.0])
    system = q_fit(2, predictor, scope="global")
    # Of eight labels some sets have one class alone, which leaves the posterior its prior.
    found = run(GuideFits(options={"epochs": 2}), system, simulations=30, draws=19)
    assert found.names == ("importance[0]", "importance[1]")
    assert found.ranks.shape == (30, 2)


def test_masks_are_ranked_where_infer_gives_them():
    program = lex(2, classes=2, k=1, hidden=(4,), predictor_hidden=(4,), folds=1).program()

    def prior(x, y, seed):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**60)
            logits = program.selector.network(x)
            return {"mask": program.selector(x).sample((99,)).reshape(99, len(x), 2) + 0 * logits}

    found = run(prior, program, simulations=60)
    assert found.ranks.shape == (60, 16)
    assert found.alarms() == {}


def masks_of_all_rows(x, y, seed, likelihood=1.0, draws=99):
    """Exact draws of the mask of :func:`shared_mask`, of which every one is listed."""
    listed = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 2)
    log = dist.Normal(listed @ x.T, 1.0).log_prob(y).sum(-1) * likelihood
    log = log + dist.Bernoulli(RATES).log_prob(listed).sum(-1)
    generator = torch.Generator().manual_seed(seed % 2**60)
    return {"mask": listed[log.softmax(0).multinomial(draws, True, generator=generator)]}


RATES = torch.tensor([0.5, 0.3])


def shared_mask(x, y=None):
    with mask_particles():
        mask = pyro.sample("mask", dist.Bernoulli(RATES).to_event(1))
        with pyro.plate("data", len(x), dim=-1):
            pyro.sample("y", dist.Normal((mask * x).sum(-1), 1.0), obs=y)


def test_a_mask_of_all_rows_is_simulated_and_checked():
    """One vector of entries; the prior is caught by the log-likelihood."""
    x = torch.tensor([[0.5, 0.2], [-0.4, 0.6], [0.3, -0.5]])

    def log_likelihood(samples, x, y):
        return dist.Normal(samples["mask"] @ x.T, 1.0).log_prob(y).sum(-1)

    quantities = {"log likelihood": log_likelihood, "size": lambda s, x, y: s["mask"].sum(-1)}
    exact = run(masks_of_all_rows, shared_mask, x, quantities=quantities, simulations=400)
    assert exact.alarms() == {}

    def prior(x, y, seed):
        return masks_of_all_rows(x, y, seed, likelihood=0.0)

    wrong = run(prior, shared_mask, 3 * x, quantities=quantities, simulations=400)
    assert "log likelihood" in wrong.alarms()
    assert set(run(masks_of_all_rows, shared_mask, x, simulations=5).names) == {
        "mask[0]",
        "mask[1]",
    }


@pytest.mark.smoke
def test_the_same_seed_gives_the_same_ranks_and_global_state_stays():
    state = torch.random.get_rng_state()
    first, again = run(conjugate, simulations=20), run(conjugate, simulations=20)
    other = run(conjugate, simulations=20, seed=1)
    assert np.array_equal(first.ranks, again.ranks)
    assert not np.array_equal(first.ranks, other.ranks)
    assert torch.equal(state, torch.random.get_rng_state())


def test_the_summary_and_the_histograms():
    found = run(conjugate, simulations=100)
    assert "100 simulated data sets, 99 draws each" in repr(found)
    assert "consistent" in repr(found)
    histograms = found.histograms()
    assert histograms.shape == (20, 2) and histograms.sum().tolist() == [100, 100]


def test_ties_are_broken_at_random():
    def constant(x, y, seed):
        return {"slope": torch.zeros(99, 2)}

    class Half(PyroModule):
        def forward(self, x, y=None):
            slope = pyro.sample("slope", dist.Delta(torch.zeros(2), event_dim=1))
            with pyro.plate("data", len(x)):
                pyro.sample("y", dist.Normal(x @ slope, 1.0), obs=y)

    found = run(constant, Half())
    assert found.alarms() == {}
    assert np.isnan(found.z).all()


def penalised(x, y=None):
    pyro.sample("slope", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        mask = pyro.sample("mask", dist.Bernoulli(torch.full((2,), 0.5)).to_event(1))
        penalty("size", mask.sum(-1))
        pyro.sample("y", dist.Normal((mask * x).sum(-1), 1.0), obs=y)


def silent(x, y=None):
    pyro.sample("slope", dist.Normal(0.0, 1.0))


def improper(x, y=None):
    slope = pyro.sample("slope", dist.Normal(0.0, float("inf")))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(slope, 1.0), obs=y)


def latentless(x, y=None):
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(x[:, 0], 1.0), obs=y)


test_what_cannot_be_checked_is_refused = refusals(
    (penalised, conjugate, {}, "penalties .'size'"),
    (silent, conjugate, {}, "must draw a response 'y'"),
    (improper, conjugate, {}, FloatingPointError, "improper"),
    (latentless, conjugate, {}, "no latents"),
    (Line(), conjugate, {"simulations": 0}, "simulations"),
    (Line(), conjugate, {"draws": 200}, "gave 99 draws of 'slope'"),
    (Line(), lambda x, y, s: {"slop": torch.zeros(99)}, {}, r"\['slope'\]"),
    (Line(), lambda x, y, s: {"slope": torch.zeros(99)}, {}, "shape"),
    (Line(), lambda x, y, s: torch.zeros(99, 2), {}, TypeError, "by site"),
    (Line(), altered(width=float("nan")), {}, FloatingPointError, "slope"),
    (Line(), "nuts", {}, TypeError, "infer must be"),
    (Line(), GuideFits(), {}, "needs a guide"),
    (real_x(2, classes=2, hidden=(4,)), conjugate, {}, "2 terms"),
    (Line(), conjugate, {"x": X.numpy()}, TypeError, "x must"),
    (Line(), conjugate, {"x": X / 0.0}, "x must be finite"),
    (Line(), conjugate, {"x": X[:0]}, r"x must .* \(N, …\), none of them 0"),
    ("line", conjugate, {}, TypeError, "program must be"),
    (Line(), conjugate, {"quantities": {"a": lambda s, x, y: y}}, "quantity 'a'"),
    (None, GuideFits, {"options": {"seed": 1}}, "'seed'"),
    of=lambda program, infer, options: (
        run(infer, program, **{"simulations": 3, **options}) if program else infer(**options)
    ),
)


def test_more_than_one_quantity_does_not_raise_more_alarms():
    generator = np.random.default_rng(0)
    alarms = 0
    for _ in range(100):
        ranks = generator.integers(0, 10, (60, 20))
        none = np.zeros(ranks.shape)
        names = tuple(map(str, range(20)))
        alarms += bool(Calibration(names, ranks, 9, none, none, None, "exact").alarms(0.05))
    assert stats.binom.sf(alarms - 1, 100, 0.05) > 1e-3


def test_among_many_quantities_a_wrong_one_is_found():
    """Beyond 100 a p-value of 1 / 10,000, the least of the simulation, is no alarm."""
    ranks = np.random.default_rng(0).integers(0, 10, (200, 150))
    ranks[:, 3] = np.random.default_rng(1).choice([0, 9], 200)
    none, names = np.zeros(ranks.shape), tuple(map(str, range(150)))
    found = Calibration(names, ranks, 9, none, none, None, "wrong")
    assert found.alarms() == {"3": "too narrow"} and found.table.loc["3", "p_value"] < 1e-9


SETS = 2000


def random_ranks(draws, count, sets=SETS, seed=1):
    return np.random.default_rng(seed).integers(0, draws + 1, (sets, count))


@pytest.mark.parametrize(("count", "draws"), [(200, 99), (50, 9), (500, 1)])
def test_uniform_ranks_raise_an_alarm_no_more_often_than_stated(count, draws):
    null = UniformRanks(count, draws)
    values = np.array([null.p_value(ranks) for ranks in random_ranks(draws, count)])
    for level in (0.01, 0.05, 0.2):
        found = (values <= level).sum()
        assert stats.binom.sf(found - 1, SETS, level) > 1e-4
    if draws == 99:
        # The statistic has so many values that its level is also reached.
        found = (values <= 0.2).sum()
        assert stats.binom.cdf(found, SETS, 0.2) > 1e-4


def test_the_band_holds_whole_distribution_functions_as_often_as_it_says():
    null = UniformRanks(300, 49)
    low, high = null.band(0.9)
    inside = 0
    for ranks in random_ranks(49, 300):
        reached = null.reached(ranks)
        inside += bool(((reached >= low - 1e-12) & (reached <= high + 1e-12)).all())
    assert stats.binom.cdf(inside, SETS, 0.9) > 1e-4
    assert stats.binom.sf(inside - 1, SETS, 0.95) > 1e-4


def test_the_statistic_is_the_smallest_tail():
    ranks = np.array([0, 0, 1, 3, 2, 3, 3, 0])
    null = UniformRanks(8, 3)
    tails = []
    for i in range(3):
        z, reached = (i + 1) / 4, int((ranks <= i).sum())
        tails += [stats.binom.cdf(reached, 8, z), stats.binom.sf(reached - 1, 8, z)]
    statistic = null._statistic(null._counts(ranks)[None])[0]
    assert statistic == pytest.approx(2 * min(tails))


def test_distances_have_their_usual_size():
    null = UniformRanks(400, 99)
    apart = np.array([null.distance(ranks) for ranks in random_ranks(99, 400)])
    above = (apart > null.usual_distance()).sum()
    assert stats.binom.sf(above - 1, SETS, 0.05) > 1e-4
    assert null.usual_distance() == pytest.approx(stats.kstwobign.isf(0.05) / 20, rel=0.1)


test_what_are_no_ranks_is_refused = refusals(
    (np.zeros(4, int), "shape"),
    (np.array([0, 1, 2, 3, 10]), "ranks must be 0 … 9"),
    (np.array([0.0, 1.0, 2.0, 3.0, 4.0]), "ranks must be 0 …"),
    of=UniformRanks(5, 9).p_value,
)
