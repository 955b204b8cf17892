"""Gains by strata against closed forms: laws by which A matters only where B is above 0, or
everywhere alike."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import binom, ttest_ind
from torch import nn

from lexppl.evaluation import FeatureGroups, feature_gains, interaction_table
from lexppl.evaluation.gains import FeatureGains
from lexppl.models import ConstantImputer
from tests.evaluation.test_gains import judge_of

SLOPE, ROWS = 2.0, 4000


class Law(nn.Module):
    """Logits of y from a = ±1 and b = ±1, where b = ±1 switches a off or not; x hidden is 0."""

    def __init__(self, only_where_b):
        super().__init__()
        self.only_where_b = only_where_b
        self.slope = nn.Parameter(torch.tensor(SLOPE).double())

    def forward(self, x):
        on = (x[..., 1] > 0).to(x) if self.only_where_b else torch.ones_like(x[..., 1])
        logit = self.slope * x[..., 0] * on
        return torch.stack([-logit / 2, logit / 2], -1)


def drawn_rows(law, seed):
    """a, b and a column that y does not depend on, and y from the law."""
    x = torch.from_numpy(np.random.default_rng(seed).choice([-1.0, 1.0], (ROWS, 3)))
    with torch.no_grad():
        p = law(x)[:, 1].sub(law(x)[:, 0]).sigmoid().numpy()
    return x, torch.from_numpy((np.random.default_rng(seed + 1).random(ROWS) < p).astype(int))


def gains_by(values, **options):
    """The table of gains of one feature."""
    gains = FeatureGains(torch.as_tensor(np.asarray(values))[:, None], ("a",), **options)
    return lambda by, **settings: interaction_table(gains, "a", by, **settings)


P = 1 / (1 + math.exp(-SLOPE))
INFORMATION = math.log(2) + P * math.log(P) + (1 - P) * math.log(1 - P)
"""I(y; a | b) where a matters: log 2 less the entropy of y given a."""


@pytest.mark.smoke
@pytest.mark.parametrize("only_where_b", [True, False])
def test_gains_of_strata_are_the_information_of_the_law(only_where_b):
    law = Law(only_where_b)
    x, y = drawn_rows(law, 5)
    judge = judge_of(law, imputer=ConstantImputer(0.0), columns=3, labels=(0, 1))
    gains = feature_gains(judge, x, y)
    by_b = interaction_table(gains, "x1", x[:, 1])
    low = 0.0 if only_where_b else INFORMATION
    z = (by_b["gain"] - [low, INFORMATION]) / by_b["standard_error"].clip(lower=1e-12)
    assert by_b.index.tolist() == ["-1.0", "1.0"] and z.abs().max() < 4
    matters_more = by_b["difference_lower"].iloc[1] > 0
    assert matters_more == only_where_b
    # By a column that says nothing of a's role there is no difference.
    by_noise = interaction_table(gains, "x1", x[:, 2])
    assert (by_noise["difference"].abs() < 4 * by_noise["difference_error"]).all()
    assert not interaction_table(gains, "x3", x[:, 1])["gain"].abs().max() > 1e-12


def test_errors_are_those_of_each_stratum_and_welchs():
    random = np.random.default_rng(0)
    values, by = random.normal(size=70), np.repeat(["u", "v", "w"], [40, 20, 10])
    table = gains_by(values)(by, level=0.8)
    for s in "uvw":
        own, rest = values[by == s], values[by != s]
        line, test = table.loc[s], ttest_ind(own, rest, equal_var=False)
        assert line["rows"] == len(own) and line["gain"] == pytest.approx(own.mean())
        assert line["standard_error"] == pytest.approx(own.std(ddof=1) / math.sqrt(len(own)))
        assert line["difference"] / line["difference_error"] == pytest.approx(test.statistic)


def test_intervals_cover_the_truth_at_their_level():
    random, tables = np.random.default_rng(1), 400
    missed = np.zeros(3)
    for _ in range(tables):
        by = np.arange(80) < 25
        table = gains_by(random.normal(np.where(by, 0.3, 0.0), np.where(by, 1.0, 0.4)))(by)
        ends = table[["lower", "upper"]].to_numpy()
        missed[:2] += (ends[:, 0] > [0.0, 0.3]) | (ends[:, 1] < [0.0, 0.3])
        line = table.loc["True"]
        missed[2] += not line["difference_lower"] < 0.3 < line["difference_upper"]
    assert (binom.ppf(1e-5, tables, 0.1) <= missed).all()
    assert (missed <= binom.ppf(1 - 1e-5, tables, 0.1)).all()


def test_rows_of_a_unit_count_as_one_and_folds_add_their_spread():
    random = np.random.default_rng(2)
    once, by = random.normal(size=60), np.repeat([0, 1], 30)
    unit = torch.arange(60).repeat_interleave(10)
    plain = gains_by(once, unit=torch.arange(60))(by)
    many = gains_by(once.repeat(10), unit=unit)(by.repeat(10))
    columns = ["standard_error", "lower", "upper", "difference_error", "difference_upper"]
    factor = math.sqrt((1 - 1 / 600) * (1 - 1 / 30) / ((1 - 1 / 60) * (1 - 10 / 300)))
    ratio = many[columns[0]] / plain[columns[0]]
    np.testing.assert_allclose(ratio, ratio.iloc[0])
    assert ratio.iloc[0] == pytest.approx(factor, rel=0.03)
    # Units with a row in either stratum: what they share is no difference.
    paired = gains_by(np.concatenate([once, once]), unit=torch.arange(60).repeat(2))
    line = paired(np.repeat([0, 1], 60)).iloc[0]
    assert line["difference_error"] < 1e-12 < line["standard_error"]
    part = torch.arange(60) % 3
    shifted = gains_by(once + 5.0 * part.numpy(), part=part)(by)
    assert (shifted["standard_error"] > 2.0).all() and (plain["standard_error"] < 0.5).all()


def test_strata_are_levels_or_intervals_between_quantiles():
    table = gains_by(np.arange(12.0))
    numbers = table(pd.Series(np.arange(12.0) * 10), bins=3)
    assert numbers["rows"].tolist() == [4, 4, 4] and numbers["gain"].tolist() == [1.5, 5.5, 9.5]
    levels = ["x", "y", None, "y", "x", "x", "x", "y", "y", "once", "x", "y"]
    named = table(levels)
    assert named["rows"].to_dict() == {"x": 5, "y": 5}
    assert named.loc["x", "gain"] == np.flatnonzero(np.array(levels) == "x").mean()


def test_groups_have_gains_by_strata_too():
    values = torch.arange(8.0).double()
    groups = FeatureGroups(("pair",), ((0, 1),))
    gains = FeatureGains(torch.zeros(8, 2), ("a", "b"), values[:, None], groups)
    assert interaction_table(gains, "pair", [0, 1] * 4)["gain"].tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    ("feature", "by", "message"),
    [
        ("b", [0, 1] * 5, "feature must be one of"),
        ("a", [0, 1], "for each of 10 rows; it has 2"),
        ("a", [1] * 10, "two strata of two rows"),
        ("a", [1] * 9 + [2], "two strata of two rows"),
    ],
)
def test_wrong_strata_are_refused(feature, by, message):
    gains = FeatureGains(torch.zeros(10, 1), ("a",))
    with pytest.raises(ValueError, match=message):
        interaction_table(gains, feature, by)
