"""`explainer.gains(X, y)` and `explainer.explain_row(X, row)`."""

import numpy as np
import pandas as pd
import pytest
import torch

from lexppl import ExplainerClassifier, ExplainerRegressor
from lexppl.choices.settings import Regime
from lexppl.evaluation import Folds, revealed_predictions
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.models import Grouping
from lexppl.systems.fit_plan import plan_for
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.predictors import fit_judge
from tests.refusals import over, refused

pytestmark = pytest.mark.usefixtures("three_folds")


@pytest.fixture(scope="module")
def rows():
    draw = np.random.default_rng(0)
    a = draw.normal(size=400)
    x = pd.DataFrame({"a": a, "copy": a, "b": draw.normal(size=400), "c": draw.normal(size=400)})
    return x, (a > 0).astype(int)


@pytest.fixture(scope="module")
def explainer(rows):
    x, y = rows
    return ExplainerClassifier(epochs=30, replicates=2, random_state=0).fit(x[:200], y[:200])


def test_copies_are_found_as_a_group_and_neither_says_more(explainer, rows):
    x, y = rows[0][200:], rows[1][200:]
    state = torch.get_rng_state()
    table = explainer.gains(x, y)
    assert torch.equal(torch.get_rng_state(), state)
    pair = table.index[table["members"] == 2][0]
    assert table["found"].to_dict() == {name: name == pair for name in table.index}
    assert table.loc[pair, "last"] > 0.2
    pd.testing.assert_frame_equal(table, explainer.gains(x, y))
    each = explainer.gains(x, y, by="feature")
    # A copy says all alone, and nothing beyond the other.
    assert set(each.index) == set(x) and not each["found"].any()
    assert each["last"].max() < 0.02 and (each.loc[["a", "copy"], "first"] > 0.2).all()
    named = explainer.gains(x, y, groups={"of noise": ["b", "c"]})
    assert set(named.index) == {"of noise", "a", "copy"}


def test_an_interaction_is_a_gain_by_strata(explainer, rows):
    """y = a > 0 in all rows: `a` is worth as much whatever b is."""
    x, y = rows[0][200:], rows[1][200:]
    groups = {"both": ["a", "copy"]}
    table = explainer.gains(x, y, groups=groups, interaction=("both", "b"))
    again = explainer.gains(x, y, groups=groups, interaction=("both", x["b"].to_numpy()))
    pd.testing.assert_frame_equal(table, again)
    assert table["rows"].tolist() == [100, 100] and (table["lower"] > 0.1).all()
    total = explainer.gains(x, y, groups=groups).loc["both", "last"]
    assert table["gain"].mean() == pytest.approx(total)


def test_a_row_is_a_sum_of_steps_in_the_units_of_y(rows):
    x = rows[0]
    wage = 1000.0 + 50.0 * x["a"].to_numpy()
    explainer = ExplainerRegressor(epochs=20, random_state=0).fit(x[:300], wage[:300])
    steps = explainer.explain_row(x, 317)
    assert steps.hidden + steps.table["step"].sum() == pytest.approx(steps.predicted)
    assert 800.0 < steps.predicted < 1200.0 and set(steps.table.index) == set(x)


@over(
    ({"by": "row"}, "by must be 'group' or 'feature'"),
    ({"groups": {"g": ["nobody"]}}, "'nobody', which the data does not have"),
    ({"groups": {"g": ["a"], "h": ["a"]}}, "which is in the group 'g' too"),
    ({"fdr": 2.0}, "fdr must be"),
    ({"interaction": ("a", "z")}, "X has no column 'z'; its columns are 'a', "),
)
def test_wrong_settings_are_refused(settings, message, explainer, rows):
    refused(message, explainer.gains, rows[0][200:], rows[1][200:], **settings)


def test_no_such_row_is_refused(explainer, rows):
    refused("row must be a whole number from 0 to 9", explainer.explain_row, rows[0][:10], 10)


def test_members_are_revealed_together(explainer, rows):
    """A group's step is the sum of its members', where they follow each other."""
    x = explainer._encoded(rows[0][:5], torch.float32)
    each = revealed_predictions(explainer.result_, x, masks=20, seed=1)
    groups = FeatureGroups(("every",), ((0, 1, 2, 3),))
    once = revealed_predictions(explainer.result_, x, masks=20, seed=1, groups=groups)
    assert once.predictions.shape[2] == 2 and once.entry_names == ("every",)
    torch.testing.assert_close(once.predictions[:, :, [0, 1]], each.predictions[:, :, [0, -1]])
    with pytest.raises(ValueError, match=r"groups, by mask entry, must have shape \(4,\)"):
        revealed_predictions(explainer.result_, x, groups=FeatureGroups(("one",), ((0, 1),)))


def test_rows_of_weight_zero_are_not_there_in_gains(explainer, rows):
    x, y = rows[0][200:], rows[1][200:]
    weights = np.arange(200) % 4 > 0
    tables = [{}, {"interaction": ("both", "b"), "groups": {"both": ["a", "copy"]}}]
    for options in tables:
        weighted = explainer.gains(x, y, sample_weight=weights, **options)
        without = explainer.gains(x[weights], y[weights], **options)
        pd.testing.assert_frame_equal(weighted, without)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        explainer.gains(x, y, sample_weight=weights, interaction=("a", [0, 1]))
    with pytest.raises(ValueError, match="sample_weight must be above 0 for two rows"):
        explainer.gains(x, y, sample_weight=np.arange(200) == 7)


def test_rows_of_next_to_no_weight_say_nothing_in_gains(explainer, rows):
    """Half of the rows have labels at random, of which neither predictors nor means know."""
    x, y = rows[0][200:], rows[1][200:]
    faint = np.arange(200) % 2 == 0
    mixed = np.where(faint, np.random.default_rng(1).integers(0, 2, 200), y)
    groups = {"both": ["a", "copy"]}
    plain, weighted = (
        explainer.gains(x, mixed, groups=groups, sample_weight=given).loc["both", "last"]
        for given in (None, np.where(faint, 1e-6, 1.0))
    )
    assert weighted > 0.3 and plain < 0.5 * weighted


def test_eval_x_is_fitted_by_the_weights_of_the_rows():
    """All rows are alike, so that it says the weighted share of ones."""
    y = torch.arange(80) % 2
    weights = torch.where(y == 1, 9.0, 1.0)
    grouping, folds = Grouping([0], ["a"]), Folds.of(y, 2)
    plan = plan_for(80, 1, "lex", regime=Regime.FREE_IN_SITU, unit=1.0, seed=0, learning_rate=0.05)
    for given, share in ((None, 0.5), ((weights, None), 0.9)):
        rows = EncodedRows(
            (torch.zeros(80, 1), y), None, grouping, ("a",), ("0", "1"), given, folds=folds
        )
        said = fit_judge(plan, rows).predict(torch.zeros(1, 1), torch.ones(1, 1, 1))
        assert float(said[0, 0, 1]) == pytest.approx(share, abs=0.1)
