"""Knockoffs against the moments they must have, and the filter against the rate it promises."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom

from lexppl.data import Dataset
from lexppl.evaluation import (
    FeatureGains,
    feature_gains,
    knockoff_draws,
    knockoff_table,
    with_knockoffs,
)
from lexppl.evaluation.refits.knockoff_draws import gaussian_moments
from lexppl.evaluation.refits.knockoffs import knockoff_threshold
from lexppl.inference import fit
from lexppl.models import (
    ConditionalGaussianImputer,
    ConstantImputer,
    GaussianImputer,
    GaussianMixtureImputer,
    MixtureDataImputer,
)
from lexppl.systems import lex

ROWS = 40_000
COVARIANCE = torch.tensor([[1.0, 0.6, 0.2], [0.6, 2.0, -0.4], [0.2, -0.4, 0.5]]).double()
MEAN = torch.tensor([1.0, -2.0, 0.0]).double()


def normal_rows(seed=0):
    noise = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(seed)).double()
    return MEAN + noise @ torch.linalg.cholesky(COVARIANCE).mT


def mixture_rows(seed=0):
    generator = torch.Generator().manual_seed(seed)
    component = torch.rand(ROWS, generator=generator) < 0.3
    noise = torch.randn(ROWS, 3, generator=generator).double()
    return torch.where(component[:, None], -2.0 + 0.5 * noise, 1.0 + noise * MEAN.abs().add(0.5))


MIXTURE = GaussianMixtureImputer(
    torch.tensor([0.3, 0.7]).double(),
    torch.tensor([[-2.0] * 3, [1.0] * 3]).double(),
    torch.stack([torch.full((3,), 0.5).double(), MEAN.abs() + 0.5]),
)


def largest_z(x, knockoff):
    """The largest z-score of any second or third moment that a swap of entries would change."""
    scores = []
    for i in range(3):
        for j in range(3):
            for power in (1, 2):
                # Of i and j alike, x_i against its own knockoff: swapping i leaves E[x x̃²].
                if i == j:
                    change = x[:, i] * knockoff[:, i] ** 2 - knockoff[:, i] * x[:, i] ** 2
                else:
                    change = x[:, i] * x[:, j] ** power - x[:, i] * knockoff[:, j] ** power
                scores.append(float(change.mean() / (change.std() / math.sqrt(ROWS) + 1e-12)))
        own = x[:, i] ** 2 - knockoff[:, i] ** 2
        scores.append(float(own.mean() / (own.std() / math.sqrt(ROWS))))
    return max(map(abs, scores))


def test_gaussian_knockoffs_have_the_joint_covariance_of_exchangeable_pairs():
    regression, rest = gaussian_moments(COVARIANCE)
    step = torch.eye(3).double() - regression
    torch.testing.assert_close(step.mT @ COVARIANCE @ step + rest, COVARIANCE)
    across = COVARIANCE @ step
    off = ~torch.eye(3, dtype=torch.bool)
    torch.testing.assert_close(across[off], COVARIANCE[off])
    assert bool((across.diagonal() < COVARIANCE.diagonal()).all())
    assert float(torch.linalg.eigvalsh(rest).min()) > -1e-9


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("imputer", "rows"),
    [
        (ConditionalGaussianImputer(MEAN, COVARIANCE), normal_rows()),
        (MIXTURE, mixture_rows()),
    ],
)
def test_entries_and_their_knockoffs_may_be_swapped(imputer, rows):
    assert largest_z(rows, knockoff_draws(imputer, rows, seed=1)) < 5.0
    # Draws that know nothing of the row are no knockoffs where features depend on each other.
    shuffled = torch.stack([c[torch.randperm(ROWS)] for c in rows.unbind(1)], 1)
    assert largest_z(rows, shuffled) > 20.0


def test_a_repeated_feature_is_its_own_knockoff():
    x = normal_rows()[:500, [0, 1, 1]]
    drawn = knockoff_draws(ConditionalGaussianImputer.fit(x, shrinkage=0.0), x)
    torch.testing.assert_close(drawn, x, rtol=0.0, atol=1e-3)


def test_columns_of_one_entry_stay_together():
    level = torch.randint(3, (500,), generator=torch.Generator().manual_seed(0))
    other = torch.randn(500, 1, generator=torch.Generator().manual_seed(1))
    x = torch.cat([torch.nn.functional.one_hot(level).float(), other], 1)
    imputer = MixtureDataImputer.fit(x, components=2)
    drawn = knockoff_draws(imputer, x, groups=(0, 0, 0, 1))
    assert drawn[:, :3].sum(1).tolist() == [1.0] * 500
    assert not bool((drawn[:, :3] == x[:, :3]).all())
    pairs = {tuple(row) for row in x.tolist()}
    assert any(tuple(row) not in pairs for row in drawn.tolist())


def test_the_same_seed_gives_the_same_knockoffs_and_no_global_state_moves():
    x = normal_rows()[:50]
    before = torch.random.get_rng_state()
    first, again = (knockoff_draws(MIXTURE, x, seed=3) for _ in range(2))
    assert bool((first == again).all())
    assert not bool((first == knockoff_draws(MIXTURE, x, seed=4)).all())
    assert bool((torch.random.get_rng_state() == before).all())


def test_rows_drawn_from_the_same_seed_are_not_their_own_knockoffs():
    x = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
    drawn = knockoff_draws(GaussianImputer(), x, seed=0)
    assert abs(float((x * drawn).mean())) < 5 / math.sqrt(3000)


def test_the_threshold_is_that_of_its_definition():
    generator = np.random.default_rng(0)
    for fdr in (0.1, 0.2, 0.5):
        for _ in range(50):
            w = generator.normal(0.8, 1.0, size=25).round(1)
            sizes = sorted({abs(v) for v in w if v != 0})
            allowed = [t for t in sizes if (1 + sum(w <= -t)) / max(1, sum(w >= t)) <= fdr]
            assert knockoff_threshold(w, fdr) == (allowed[0] if allowed else math.inf)


def test_the_share_of_false_findings_is_at_most_the_rate():
    """20 features with a gain and 20 without, whose signs are fair coins."""
    generator, rate, runs = np.random.default_rng(1), 0.2, 2000
    shares, careless = [], []
    for _ in range(runs):
        size = generator.exponential(1.0, size=40)
        sign = np.where(generator.random(40) < 0.5, 1.0, -1.0)
        w = np.concatenate([size[:20] + 0.5, size[20:] * sign[20:]])
        found = w >= knockoff_threshold(w, rate)
        shares.append(found[20:].sum() / max(1, found.sum()))
        careless.append((w[20:] > 0).sum() / (w > 0).sum())
    error = np.std(shares) / math.sqrt(runs)
    assert np.mean(shares) < rate + 4 * error
    assert np.mean(careless) > rate + 4 * error


def test_nothing_is_found_where_nothing_is_to_be_found():
    """Of fair signs alone ten in a row are needed to find any at .1."""
    generator, runs = np.random.default_rng(2), 4000
    found = sum(knockoff_threshold(generator.normal(size=30), 0.1) < math.inf for _ in range(runs))
    # FDR is the chance of finding any, at most .1.
    assert binom.sf(found - 1, runs, 0.1) > 1e-6


def rows_with_two_of_twelve(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 12, generator=generator)
    y = (torch.rand(rows, generator=generator) < torch.sigmoid(3 * x[:, 0] - 3 * x[:, 1])).long()
    names = tuple(f"x{i + 1}" for i in range(12))
    return Dataset(x, y, names, tuple(range(12)), names, "y", class_names=("no", "yes"))


@pytest.mark.complete
def test_a_fit_beside_knockoffs_finds_true_features_first():
    both = with_knockoffs(rows_with_two_of_twelve(2000, seed=0), GaussianImputer())
    train, test = both.split(0.5, 0.5, seed=0)
    system = lex(24, classes=2, hidden=(16,), predictor_hidden=(16,))
    result = fit(system, train, epochs=100, batch_size=100, learning_rate=1e-2, progress=False)
    table = knockoff_table(feature_gains(result, test.x, test.y), fdr=0.5)
    assert set(table.index[:2]) == {"x1", "x2"}
    assert table["found"][["x1", "x2"]].all()
    assert table.attrs["threshold"] <= table["statistic"].iloc[1]
    assert not knockoff_table(feature_gains(result, test.x, test.y), fdr=0.1)["found"].any()


def test_what_is_no_pair_of_features_and_knockoffs_is_refused():
    gains = FeatureGains(torch.zeros(1, 3, 4).double(), ("a", "b", "c", "d"))
    with pytest.raises(ValueError, match="features and then their knockoffs"):
        knockoff_table(gains)
    named = FeatureGains(torch.full((1, 3, 2), torch.nan), ("a", "a (knockoff)"))
    with pytest.raises(ValueError, match="must be finite"):
        knockoff_table(named)
    with pytest.raises(TypeError, match="ConstantImputer states no joint distribution"):
        knockoff_draws(ConstantImputer(0.0), torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"table of shape \(N, D\)"):
        knockoff_draws(GaussianImputer(), torch.zeros(3, 2, 2))
    with pytest.raises(ValueError, match="give 2 features an entry"):
        knockoff_draws(GaussianImputer(), torch.zeros(3, 2), groups=(0,))
    with pytest.raises(ValueError, match="x must have shape"):
        knockoff_draws(ConditionalGaussianImputer(MEAN, COVARIANCE), torch.zeros(3, 2).double())
