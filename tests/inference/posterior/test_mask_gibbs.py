"""Masks that rows share, sampled, against sums over all of them."""

import itertools
import math
import warnings
from functools import partial

import arviz
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import NUTS
from pyro.infer.autoguide.initialization import init_to_uniform
from pyro.nn import PyroModule, PyroSample
from scipy.special import softmax
from scipy.stats import norm

from lexppl import explain, fit, load, save
from lexppl.arviz_compatibility import group_of
from lexppl.distributions import KSubset, RandomSizeSubset, geometric_sizes
from lexppl.effects import mask_particles, penalty
from lexppl.evaluation import loo
from lexppl.explanation import selection_table
from lexppl.inference import MaskGibbs, SamplerWarning
from lexppl.inference.contexts import seeded
from lexppl.inference.posterior.global_draws import SamplerRecord, warn_of, with_convergence
from lexppl.inference.posterior.mask_gibbs import MaskedDensity
from lexppl.inference.posterior.mask_moves import MaskMoves, Peaks, State
from tests.refusals import refusals, refused

KEPT, SLAB, NOISE = 0.3, 1.0, 0.8
SHALLOW = partial(NUTS, max_tree_depth=3)


def data(rows, columns, seed=0):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, columns))
    slopes = np.where(np.arange(columns) % 3 == 0, 0.6, 0.0)
    return x, x @ slopes + NOISE * draw.normal(size=rows)


def coins(like, columns, kept=KEPT):
    return dist.Bernoulli(torch.full((columns,), kept, dtype=like.dtype)).to_event(1)


def sampled(x, y=None):
    slope = pyro.sample("slope", dist.Normal(x.new_zeros(x.shape[-1]), SLAB).to_event(1))
    with mask_particles():
        z = pyro.sample("mask", coins(x, x.shape[-1]))
        with pyro.plate("data", len(x), dim=-1):
            mean = ((z * slope) @ x.mT).squeeze(-2)
            pyro.sample("y", dist.Normal(mean, NOISE), obs=y)


def integrated(x, y=None):
    with mask_particles():
        z = pyro.sample("mask", coins(x, x.shape[-1]))
        kept = x * z.unsqueeze(-2)
        covariance = NOISE**2 * torch.eye(len(x), dtype=x.dtype) + SLAB**2 * kept @ kept.mT
        pyro.sample("y", dist.MultivariateNormal(x.new_zeros(len(x)), covariance), obs=y)


def model_probabilities(x, y, kept=KEPT):
    """Every mask and p(z | x, y), by the normal equations of its own columns."""
    masks = np.array(list(itertools.product((0.0, 1.0), repeat=x.shape[1])))
    log_p = []
    for mask in masks.astype(bool):
        own, size = x[:, mask], mask.sum()
        precision = own.T @ own / NOISE**2 + np.eye(size) / SLAB**2
        mean = np.linalg.solve(precision, own.T @ y / NOISE**2)
        log_p.append(
            norm.logpdf(y, 0, NOISE).sum()
            + 0.5 * (mean @ precision @ mean - np.linalg.slogdet(precision)[1])
            + size * (math.log(kept) - math.log(1 - kept) - math.log(SLAB))
        )
    return masks, softmax(log_p)


def z_scores(values, expected):
    """Of means of chains `(C, S, K)`, by their effective draws."""
    ess = arviz.ess({"value": values}, method="mean")["value"].values
    spread = np.sqrt(expected * (1 - expected))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num((values.mean((0, 1)) - expected) / spread * np.sqrt(ess))


def run(program, rows, seed=0, **settings):
    settings = {"kernel": SHALLOW, "samples": 150, "warmup": 100, "chains": 2, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        return fit(program, rows, inference=MaskGibbs(**settings), seed=seed, progress=False)


def draws_of(result, site):
    return np.stack([guide.sites[site].numpy() for guide in result.guides])


# Moves, by a density in one line


def closed_form(x, y, kept=KEPT):
    """log p(slopes, z, y) of many states, as a program's density is given to the moves."""
    x, y = torch.tensor(x), torch.tensor(y)

    def log_density(numbers):
        place, z = numbers["place"], numbers["masks"]
        slope = place[:, :-1]
        residual = (y - (z * slope) @ x.mT) / NOISE
        log_odds = math.log(kept / (1 - kept))
        return log_odds * z.sum(-1) - 0.5 * (residual**2).sum(-1) - 0.5 * (place**2).sum(-1)

    return log_density


def chains_of_moves(x, y, sweeps, chains=20, kind=MaskMoves, kept=KEPT):
    """Masks `(C, S, G)` of chains of flips and swaps alone."""
    return chains_of(closed_form(x, y, kept), x.shape[1], sweeps, chains, kind)


def chains_of(log_density, columns, sweeps, chains, kind=MaskMoves):
    with seeded(0):
        place, masks = torch.randn(chains, columns + 1), torch.zeros(chains, columns)
        start = State(place.double(), masks.double())
        moves = kind(log_density, torch.arange(columns)[:, None], start, warmup=20)
        drawn = []
        for _ in range(sweeps + 20):
            moves.sweep()
            drawn.append(moves.state.masks.numpy())
    return np.stack(drawn[20:], 1)


class Uncorrected(MaskMoves):
    """Flips and swaps that are always taken."""

    def taken(self, log_ratio):
        return torch.ones_like(log_ratio, dtype=torch.bool)


class PriorSlab(MaskMoves):
    """Slabs that are draws of their prior, with a ratio that does not have their density."""

    def peaks(self, *states):
        found = super().peaks(*states)
        return WithoutDensity(found.mean * 0, found.scale * 0 + SLAB, *found[2:])


class WithoutDensity(Peaks):
    def normal(self, chosen, side):
        law = super().normal(chosen, side)
        law.log_prob = lambda numbers: numbers.new_zeros(len(numbers))
        return law


def largest_z(kind, sweeps=100):
    x, y = data(12, 3, seed=2)
    masks, p = model_probabilities(x, y)
    drawn = chains_of_moves(x, y, sweeps, kind=kind)
    models = (drawn[..., None, :] == masks).all(-1).astype(float)
    return abs(z_scores(models, p)).max(), abs(z_scores(drawn, p @ masks)).max()


def test_flips_and_swaps_draw_every_mask_as_often_as_it_is_probable():
    assert max(largest_z(MaskMoves)) < 4


@pytest.mark.parametrize("kind", [Uncorrected, PriorSlab])
def test_flips_without_their_correction_are_caught(kind):
    assert max(largest_z(kind)) > 6


@pytest.mark.parametrize(("kind", "right"), [(MaskMoves, True), (PriorSlab, False)])
def test_slabs_that_are_far_from_normal_are_corrected(kind, right):
    """Labels that two columns separate nearly, against a grid of both slopes."""
    slab = 5.0
    x = torch.tensor([[1.0, 0.3], [0.8, -0.2], [-1.0, 0.1], [-0.4, -0.9], [0.2, 1.0]]).double()
    y = torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0]).double()

    def log_density(numbers):
        place, z = numbers["place"], numbers["masks"]
        eta = (z * place[:, :-1]) @ x.mT
        likelihood = (y * eta - torch.nn.functional.softplus(eta)).sum(-1)
        prior = -0.5 * (place[:, :-1] / slab).square().sum(-1) - 0.5 * place[:, -1].square()
        return likelihood + prior

    line = torch.linspace(-30, 30, 201).double()
    grid = torch.cartesian_prod(line, line)
    masks = np.array(list(itertools.product((0.0, 1.0), repeat=2)))
    log_p = [
        torch.logsumexp(
            log_density(
                {
                    "place": torch.cat([grid, torch.zeros(len(grid), 1).double()], 1),
                    "masks": torch.tensor(mask).expand(len(grid), -1),
                }
            ),
            0,
        )
        for mask in masks
    ]
    drawn = chains_of(log_density, 2, 120, 30, kind)
    models = (drawn[..., None, :] == masks).all(-1).astype(float)
    largest = abs(z_scores(models, softmax(log_p))).max()
    assert largest < 4 if right else largest > 6


def test_copies_take_turns_in_each_chain():
    x, y = data(40, 4, seed=1)
    x[:, 1] = x[:, 0]
    y = y + x[:, 0]
    # Both are seldom in: to come out of that takes a kernel's draws beside the moves.
    drawn = chains_of_moves(x, y, 250, chains=4, kept=0.02)
    masks, p = model_probabilities(x, y, kept=0.02)
    assert abs((p @ masks)[0] - (p @ masks)[1]) < 1e-9
    assert abs(drawn[..., :2].mean(1) - (p @ masks)[:2]).max() < 0.1
    assert drawn[..., :2].any(-1).mean(1).min() > 0.99


def test_a_peak_is_that_of_a_normal_conditional():
    x, y = data(12, 3)
    place = torch.randn(1, 4, generator=torch.Generator().manual_seed(0)).double()
    state = State(place, torch.ones(1, 3).double())
    moves = MaskMoves(closed_form(x, y), torch.arange(3)[:, None], state, warmup=0)
    peaks = moves.peaks(state, torch.arange(3)[None], state)
    slope = place[0, :3].numpy()
    for j in range(3):
        rest = y - x @ np.where(np.arange(3) == j, 0.0, slope)
        precision = x[:, j] @ x[:, j] / NOISE**2 + 1
        mean = x[:, j] @ rest / NOISE**2 / precision
        assert peaks.mean[0, j].flatten().tolist() == pytest.approx([0.0, mean], abs=1e-6)
        scale = peaks.scale[0, j].flatten().tolist()
        assert scale == pytest.approx([1.0, precision**-0.5], rel=1e-6)
        gain = math.log(KEPT / (1 - KEPT)) + 0.5 * (mean**2 * precision - math.log(precision))
        mass = peaks.log_mass[0, j].tolist()
        assert mass[1] - mass[0] == pytest.approx(gain, abs=1e-6)


# The density


class Hierarchical(PyroModule):
    """A scale, a level with a prior as a weight, a slope and a second number of each entry."""

    def __init__(self):
        super().__init__()
        self.level = PyroSample(dist.Normal(0.0, 2.0))

    def forward(self, x, y=None):
        scale = pyro.sample("scale", dist.HalfNormal(x.new_ones(())))
        slope = pyro.sample("slope", dist.Normal(x.new_zeros(3), scale).to_event(1))
        other = pyro.sample("other", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        with mask_particles():
            z = pyro.sample("mask", coins(x, 3))
            with pyro.plate("data", len(x), dim=-1):
                mean = self.level + ((z * slope) @ x.mT).squeeze(-2) + x @ other
                pyro.sample("y", dist.Normal(mean, NOISE), obs=y)


def of_hierarchy():
    x, y = map(torch.tensor, data(7, 3))
    return MaskedDensity(Hierarchical().eval(), (x, y), 0), x, y


def test_the_density_is_the_sum_by_hand():
    density, x, y = of_hierarchy()
    assert density.globals.names == ("level", "scale", "slope", "other")
    u = torch.randn(8, generator=torch.Generator().manual_seed(0)).double()
    z = torch.tensor([1.0, 0.0, 1.0]).double()
    level, scale, slope, other = u[0], u[1].exp(), u[2:5], u[5:]
    expected = (
        dist.Normal(0.0, 2.0).log_prob(level)
        + dist.HalfNormal(1.0).log_prob(scale)
        + u[1]
        + dist.Normal(0.0, scale).log_prob(slope).sum()
        + dist.Normal(0.0, 1.0).log_prob(other).sum()
        + dist.Bernoulli(torch.tensor(KEPT).double()).log_prob(z).sum()
        + dist.Normal(level + x @ (z * slope + other), NOISE).log_prob(y).sum()
    )
    assert float(density(u, z)) == pytest.approx(float(expected), abs=1e-6)


def test_a_latent_is_paired_where_the_mask_leaves_it_out():
    density, *_ = of_hierarchy()
    with seeded(0):
        start = density.start(init_to_uniform)
    # Of slope, and not of the other latent of its shape.
    assert density.pairs(start.place[:-1]).tolist() == [[2], [3], [4]]


def declared(mask, columns=3):
    def program(x, y=None):
        prior = dist.Normal(x.new_zeros(columns), 1.0).to_event(1)
        slope = pyro.sample("slope", prior, infer={"with_mask": mask})
        with mask_particles():
            z = pyro.sample("mask", coins(x, 3))
            with pyro.plate("data", len(x), dim=-1):
                mean = ((z * slope[:3] + slope[:3]) @ x.mT).squeeze(-2)
                pyro.sample("y", dist.Normal(mean, NOISE), obs=y)

    return program


def test_a_pair_can_be_declared():
    rows = tuple(map(torch.tensor, data(7, 3)))
    density = MaskedDensity(declared("mask"), rows, 0)
    with seeded(0):
        start = density.start(init_to_uniform)
    assert density.pairs(start.place[:-1]).tolist() == [[0], [1], [2]]
    refused(
        "'slope', of shape .* is declared with the mask 'z'; it needs", run, declared("z"), rows
    )
    refused(r"'slope', of shape \(4,\), .* \(3,\)", run, declared("mask", 4), rows)


# Programs


@pytest.mark.parametrize("program", [sampled, integrated])
def test_a_program_has_the_probabilities_of_all_its_masks(program):
    x, y = data(20, 4, seed=3)
    # Without slopes the moves of all chains are evaluated at once, and no kernel's draws.
    counts = (2, 80) if program is sampled else (10, 30)
    settings = dict(zip(("chains", "samples"), counts, strict=True))
    result = run(program, (torch.tensor(x), torch.tensor(y)), warmup=30, **settings)
    masks, p = model_probabilities(x, y)
    drawn = draws_of(result, "mask")
    assert drawn.shape == (*counts, 4)
    assert abs(z_scores(drawn, p @ masks)).max() < 4
    # Another response would be noticed.
    masks, p = model_probabilities(x, y[::-1])
    assert abs(z_scores(drawn, p @ masks)).max() > 4
    stats = result.sampler.sample_stats
    assert stats["flip_acceptance"].shape == counts and stats["flip_acceptance"].mean() > 0.4
    changed = (drawn[:, 1:] != drawn[:, :-1]).any(-1)
    assert (stats["masks_changed"][:, 1:] == changed).all()


def of_groups(x, y=None):
    group = x[:, -1].long()
    with mask_particles():
        with pyro.plate("group", 3, dim=-1):
            z = pyro.sample("mask", coins(x, 2))
        with pyro.plate("data", len(x), dim=-1):
            mean = (x[:, :2] * z[..., group, :] * x.new_tensor([0.8, -0.6])).sum(-1)
            pyro.sample("y", dist.Normal(mean, NOISE), obs=y)


def of_coins(x, y=None):
    with mask_particles():
        with pyro.plate("features", 2, dim=-1):
            z = pyro.sample("mask", dist.Bernoulli(x.new_tensor(KEPT)))
        with pyro.plate("data", len(x), dim=-1):
            mean = (z * x.new_tensor([0.8, -0.6])) @ x[:, :2].mT
            pyro.sample("y", dist.Normal(mean, NOISE), obs=y)


@pytest.mark.parametrize("program", [of_groups, of_coins])
def test_masks_of_groups_and_coins_of_a_plate(program):
    x, y = data(30, 3)
    x[:, 2] = np.arange(30) % 3
    result = run(program, (torch.tensor(x), torch.tensor(y)), samples=30, warmup=20, chains=10)
    groups = [x[:, 2] == j for j in range(3)] if program is of_groups else [np.full(30, True)]
    masks = np.array(list(itertools.product((0.0, 1.0), repeat=2)))
    expected = []
    for own in groups:
        mean = x[own, :2] @ (masks * [0.8, -0.6]).T
        log_p = norm.logpdf(y[own, None], mean, NOISE).sum(0)
        expected.append(softmax(log_p + masks.sum(1) * math.log(KEPT / (1 - KEPT))) @ masks)
    drawn = draws_of(result, "mask")
    assert drawn.shape[2:] == ((3, 2) if program is of_groups else (2,))
    assert abs(z_scores(drawn, np.array(expected).reshape(drawn.shape[2:]))).max() < 4


def test_a_prior_of_sizes_is_read():
    """Without rows that say anything the masks have their prior."""

    def program(x, y=None):
        with mask_particles():
            sizes = geometric_sizes(0.5, 2).to(x).log()
            pyro.sample("mask", RandomSizeSubset(x.new_zeros(4), sizes))
            with pyro.plate("data", len(x), dim=-1):
                pyro.sample("y", dist.Normal(x[:, 0], 1.0), obs=y)

    rows = torch.zeros(2, 4), torch.zeros(2)
    result = run(program, rows, samples=30, warmup=20, chains=10)
    size = draws_of(result, "mask").sum(-1)
    assert size.max() == 2
    expected = geometric_sizes(0.5, 2).numpy()
    counts = (size[..., None] == np.arange(3)).astype(float)
    assert abs(z_scores(counts, expected)).max() < 4


# What is read of the draws


SHORT = {"kernel": partial(NUTS, max_tree_depth=2), "samples": 20, "warmup": 5}


@pytest.fixture(scope="module")
def fitted():
    x, y = data(20, 13, seed=3)
    rows = torch.tensor(x), torch.tensor(y)
    return run(sampled, rows, **SHORT), rows


def test_the_posterior_has_the_draws_and_what_follows(fitted):
    result, (x, y) = fitted
    posterior = explain(result, x, y, draws=20, entry_names=[f"a{i}" for i in range(13)])
    own = group_of(posterior, "posterior")
    assert own["mask"].dims == ("chain", "draw", "feature")
    assert np.array_equal(own["mask"].values, draws_of(result, "mask"))
    assert np.array_equal(own["size"].values, draws_of(result, "mask").sum(-1))
    either = draws_of(result, "mask")[..., [3, 7]].any(-1).mean()
    assert float(own["mask"][..., [3, 7]].any("feature").mean()) == pytest.approx(either)
    assert "by MaskGibbs" in own.attrs["draws"]
    given = group_of(posterior, "sample_stats")["selection_probability_given_y"]
    np.testing.assert_allclose(given.values, draws_of(result, "mask").mean(1), atol=1e-6)
    slope = draws_of(result, "slope")
    mean = np.einsum("cdg,ng->cdn", draws_of(result, "mask") * slope, x.numpy())
    likelihood = group_of(posterior, "log_likelihood")
    np.testing.assert_allclose(likelihood["y"].values, norm.logpdf(y, mean, NOISE), atol=1e-9)
    assert "summed out" not in likelihood.attrs["draws"]
    drawn = group_of(posterior, "posterior_predictive")["y"].values
    assert abs((drawn - mean).std() / NOISE - 1) < 0.1
    prior = group_of(posterior, "prior")["mask"].values
    assert abs(prior.mean() - KEPT) < 4 * math.sqrt(KEPT * (1 - KEPT) / prior.size)
    stats = group_of(posterior, "sample_stats")
    assert {"flip_acceptance", "swap_acceptance", "masks_changed"} <= set(stats.data_vars)
    assert "weight_ess" not in stats


def test_new_rows_are_predicted_by_the_masks_that_were_drawn(fitted):
    result, (x, _) = fitted
    new = torch.zeros_like(x[:4])
    new[:, 0] = 50.0
    posterior = explain(result, new, draws=10)
    own = group_of(posterior, "posterior")
    assert np.array_equal(own["mask"].values, draws_of(result, "mask")[:, ::2])
    kept = (own["mask"].values * own["slope"].values)[..., 0]
    drawn = group_of(posterior, "predictions")["y"].values
    assert abs(drawn - 50 * kept[..., None]).max() < 5 * NOISE
    table = selection_table(posterior)["selection_probability"].to_numpy()
    expected = own["mask"].values.mean((0, 1))
    np.testing.assert_allclose(np.sort(table), np.sort(expected), atol=1e-6)
    refused("masks are draws of a sampler", explain, result, new, draws=0)


def test_rows_share_what_would_be_left_out_with_one_of_them(fitted):
    refused("rows share a mask.*arviz.loo", loo, fitted[0], *fitted[1])


def test_a_saved_fit_has_its_masks(fitted, tmp_path):
    result, _ = fitted
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save(result, tmp_path / "fit.lexppl")
        back = load(tmp_path / "fit.lexppl", model=result.model)
    assert back.guides[0].masks == ("mask",)
    assert torch.equal(back.guides[1].sites["mask"], result.guides[1].sites["mask"])


def test_the_same_seed_has_the_same_draws(fitted):
    result, rows = fitted
    torch.manual_seed(5)
    before = torch.get_rng_state()
    again = run(sampled, rows, **SHORT)
    assert torch.equal(torch.get_rng_state(), before)
    for site in ("mask", "slope"):
        assert np.array_equal(draws_of(again, site), draws_of(result, site))
    assert not np.array_equal(draws_of(result, "mask")[0], draws_of(result, "mask")[1])


def test_the_note_has_what_was_taken_and_left(fitted):
    note = fitted[0].sampler.note
    assert "flips taken in" in note and "left after" in note


def test_what_all_chains_agree_on_is_no_number_and_what_differs_has_its_name():
    draw = np.random.default_rng(0)
    mask = torch.tensor(draw.integers(0, 2, (2, 400, 3))).double()
    mask[..., 0] = 1.0
    record = with_convergence(SamplerRecord("MaskGibbs", True), {"mask": mask})
    assert record.r_hat < 1.02 and record.ess > 200
    mask[0, :, 2], mask[1, :, 2] = 0.0, 1.0
    stuck = with_convergence(SamplerRecord("MaskGibbs", True), {"mask": mask})
    assert stuck.r_hat > 1.5
    with pytest.warns(SamplerWarning, match=r"disagree: .*(mask\[2\]|size of mask)"):
        warn_of(stuck)
    assert with_convergence(record, {"mask": mask[..., :1]}).r_hat == record.r_hat


# Refused, in one line each


def of_rows(x, y=None):
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        z = pyro.sample("mask", coins(x, x.shape[-1]))
        pyro.sample("y", dist.Normal((x * z).sum(-1), NOISE), obs=y)


def with_a_site(law, name="mask", **infer):
    def program(x, y=None):
        with mask_particles():
            pyro.sample(name, law(x), **infer)
            if name != "mask":
                pyro.sample("mask", coins(x, 3))
            with pyro.plate("data", len(x), dim=-1):
                pyro.sample("y", dist.Normal(x[:, 0], NOISE), obs=y)

    return program


def without_masks(x, y=None):
    level = pyro.sample("level", dist.Normal(x.new_zeros(()), 1.0))
    with mask_particles(), pyro.plate("data", len(x), dim=-1):
        pyro.sample("y", dist.Normal(level, NOISE).expand([len(x)]), obs=y)


def with_a_penalty(x, y=None):
    with mask_particles():
        z = pyro.sample("mask", coins(x, 3))
        penalty("size", z.sum(-1))
        with pyro.plate("data", len(x), dim=-1):
            pyro.sample("y", dist.Normal(x[:, 0], NOISE), obs=y)


def of_nothing(x, y=None):
    with mask_particles():
        pyro.sample("mask", coins(x, 3))


def impossible(x, y=None):
    with mask_particles():
        z = pyro.sample("mask", coins(x, 3))
        with pyro.plate("data", len(x), dim=-1):
            pyro.sample("y", dist.Normal(x[:, 0], NOISE), obs=y)
        pyro.factor("none", -math.inf + z.sum(-1))


SIX = tuple(map(torch.tensor, data(6, 3)))
test_what_cannot_be_sampled_is_refused = refusals(
    (of_rows, "'mask' is of each row: use MCMC"),
    (without_masks, "there are none: use MCMC"),
    (of_nothing, "observes nothing inside mask_particles"),
    (with_a_penalty, r"penalties \['size'\]"),
    (with_a_site(lambda x: KSubset(x.new_zeros(3), 2)), "'mask' has a fixed size"),
    (with_a_site(lambda x: dist.Normal(x.new_zeros(3), 1.0).to_event(1)), "mask' is a Independent"),
    (with_a_site(lambda x: dist.Poisson(1.0), "count"), "'count' is a Poisson inside"),
    (with_a_site(lambda x: RandomSizeSubset(x.new_zeros(3), x.new_zeros(6))), "at most G = 3"),
    (impossible, "the density is zero at 100 masks"),
    of=lambda program: run(program, (SIX[0], SIX[1].clamp(-1, 1))),
)


def test_settings_are_checked():
    refused("samples must be", MaskGibbs, samples=3)
    refused("chains must be", MaskGibbs, chains=0)
    refused("kernel must be the class", MaskGibbs, 3, error=TypeError)
    refused("use MCMC|no global latents", fit, integrated, (torch.eye(3),) * 2, inference=NUTS)
