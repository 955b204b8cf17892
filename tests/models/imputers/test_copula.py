"""Hidden columns by a Gaussian copula of few factors."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import norm

from lexppl.inference import fit
from lexppl.models import CopulaImputer, MarginalImputer
from lexppl.models.imputers.copula import indicator_columns
from lexppl.systems import l2x
from tests.models.imputers.builders import largest_z_of
from tests.refusals import refused

LOADINGS = torch.tensor([[0.9, 0.0], [0.6, 0.5], [-0.7, 0.4], [0.0, 0.8]], dtype=torch.double)
DRAWS = 20_000


def seeded(seed, work):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return work()


def normal_rows(rows=400, seed=0):
    """Rows of the copula with the margins of a normal distribution."""
    generator = torch.Generator().manual_seed(seed)
    noise = (1.0 - LOADINGS.square().sum(1)).sqrt()
    factors = torch.randn(rows, 2, generator=generator, dtype=torch.double)
    own = torch.randn(rows, 4, generator=generator, dtype=torch.double)
    return factors @ LOADINGS.T + noise * own


def exact_margins(rows=20_001):
    """An imputer whose margins are normal, to 1 / N."""
    grid = torch.linspace(0, 1, rows + 2, dtype=torch.double)[1:-1]
    ordered = torch.special.ndtri(grid)[:, None].expand(-1, 4)
    empty = torch.zeros(0, 2, dtype=torch.double)
    return CopulaImputer(ordered, LOADINGS, empty, [[0], [1], [2], [3]], [0] * 4)


def moments(row, mask):
    """Of the Gaussian given the kept columns; nothing stands against those."""
    covariance = (LOADINGS @ LOADINGS.T).fill_diagonal_(1.0).numpy()
    kept, hidden = np.flatnonzero(mask), np.flatnonzero(mask == 0)
    mean, law = np.zeros(4), np.zeros((4, 4))
    gain = covariance[np.ix_(hidden, kept)] @ np.linalg.inv(covariance[np.ix_(kept, kept)])
    mean[hidden] = gain @ row[kept]
    of_hidden = covariance[np.ix_(hidden, hidden)] - gain @ covariance[np.ix_(kept, hidden)]
    law[np.ix_(hidden, hidden)] = of_hidden
    return mean, law


def test_draws_are_of_the_gaussian_given_the_kept_columns():
    masks = np.array(list(itertools.product([0.0, 1.0], repeat=4)))
    row = np.array([[1.2, -0.4, 0.3, 2.0]])
    largest, threshold = seeded(1, lambda: largest_z_of(exact_margins(), row, masks, moments))
    assert largest < threshold


def test_the_marginal_law_fails_the_same_comparison():
    x = torch.tensor([[1.2, -0.4, 0.3, 2.0]], dtype=torch.double)
    keep = torch.tensor([0.0, 1.0, 1.0, 1.0], dtype=torch.double)
    drawn = seeded(1, lambda: MarginalImputer(normal_rows())(x, keep).sample((DRAWS,)))[:, 0, 0]
    given = seeded(1, lambda: exact_margins()(x, keep).sample((DRAWS,)))[:, 0, 0]
    assert (drawn.mean() - given.mean()).abs() > 10.0 * DRAWS**-0.5


def test_fitted_loadings_give_the_correlations_of_the_scores():
    imputer = CopulaImputer.fit(normal_rows(2000))
    assert imputer.factors == 2
    found = imputer.loadings @ imputer.loadings.T
    expected = LOADINGS @ LOADINGS.T
    off = ~torch.eye(4, dtype=torch.bool)
    # Standard errors of correlations of 2,000 rows are at most .022.
    assert (found - expected)[off].abs().max() < 4.5 * 0.022


def test_any_margins_have_the_dependence_and_draws_are_values_that_there_are():
    rows = normal_rows(1000)
    skewed = torch.stack([rows[:, 0].exp(), rows[:, 1].round(), rows[:, 2] ** 3, rows[:, 3]], 1)
    imputer = CopulaImputer.fit(skewed)
    keep = torch.tensor([0.0, 1.0, 1.0, 1.0], dtype=torch.double)
    drawn = seeded(0, lambda: imputer(skewed, keep).sample())
    assert set(drawn[:, 0].tolist()) <= set(skewed[:, 0].tolist())
    ranks = (v.argsort().argsort() for v in (skewed[:, 0], drawn[:, 0]))
    own, other = (norm.ppf((rank + 0.5) / 1000) for rank in ranks)
    between = [np.corrcoef(v, rows[:, 1])[0, 1] for v in (own, other)]
    assert abs(between[0] - between[1]) < 4.5 * 2**0.5 * 1000**-0.5


def test_independent_columns_have_no_factors():
    x = torch.randn(500, 5, generator=torch.Generator().manual_seed(0))
    imputer = CopulaImputer.fit(x)
    assert imputer.factors == 0
    drawn = seeded(0, lambda: imputer(x, torch.zeros(5)).sample())
    assert set(drawn[:, 2].tolist()) <= set(x[:, 2].tolist())


def leveled(rows=600):
    generator = torch.Generator().manual_seed(3)
    number = torch.randn(rows, 1, generator=generator)
    noise = torch.randn(rows, generator=generator)
    level = ((number[:, 0] + 0.4 * noise) * 1.5 + 2).round().clamp(0, 4).long()
    # The levels' numbers say nothing of their order.
    level = torch.tensor([3, 0, 4, 1, 2])[level]
    flag = torch.nn.functional.one_hot((noise > 0).long(), 2).float()
    return torch.cat([number, torch.nn.functional.one_hot(level, 5).float(), flag], 1)


GROUPS = [0, 1, 1, 1, 1, 1, 2, 2]


def test_levels_are_drawn_whole_and_depend():
    x = leveled()
    assert indicator_columns(x, GROUPS) == [(0,), (1, 2, 3, 4, 5), (6, 7)]
    imputer = CopulaImputer.fit(x, GROUPS)
    keep = torch.ones(8)
    keep[1:6] = 0.0
    drawn = seeded(0, lambda: imputer(x, keep).sample((20,)))
    levels = drawn[..., 1:6]
    assert torch.equal(levels.sum(-1), torch.ones(20, len(x)))
    assert set(levels.unique().tolist()) == {0.0, 1.0}
    same = (levels * x[:, 1:6]).sum(-1).mean()
    share = x[:, 1:6].mean(0).square().sum()
    assert same > share + 0.15


def test_refusals():
    x = normal_rows(50)
    refused(r"factors must be .*3", CopulaImputer.fit, x, factors=4)
    columns, none = [[0], [1], [2], [3]], torch.zeros(0, 2)
    rows = torch.zeros(5, 4)
    for message, arguments in (
        (r"ordered .* \(N, 4\)", (torch.zeros(5, 3), LOADINGS, none, columns, [0] * 4)),
        (r"loadings .* \(4, q\)", (rows, LOADINGS[:3], none, columns, [0] * 4)),
        (r"shares .* \(2, 2\)", (rows, LOADINGS, none, columns, [0, 0, 0, 2])),
        (r"levels .* \(4,\)", (rows, LOADINGS, none, columns, [0] * 3)),
        ("beside each other", (rows, LOADINGS, none, [[0], [1], [2], [3, 5]], [0] * 4)),
    ):
        refused(message, CopulaImputer, *arguments)
    given = exact_margins()(x, torch.zeros(4, dtype=torch.double))
    refused("have no density", given.log_prob, x, error=NotImplementedError)


@pytest.mark.parametrize("replicates", [1, 2])
def test_a_relaxed_mask_is_refused(replicates):
    x = normal_rows(60).float()
    y = (x[:, 0] > 0).long()
    imputer = CopulaImputer.fit(x)
    system = l2x(4, classes=2, k=2, hidden=(4,), predictor_hidden=(4,), imputer=imputer)
    with pytest.raises(ValueError, match="no gradient in the mask"):
        fit(system, (x, y), epochs=1, replicates=replicates, progress=False)
