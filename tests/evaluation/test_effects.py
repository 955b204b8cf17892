"""Effects, directions and steps of single rows against closed forms."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch

from lexppl.evaluation import direction_table, feature_effects, predictive, revealed_predictions
from lexppl.evaluation.effects import FeatureEffects, _log_odds
from lexppl.explanation.reading.feature_values import FeatureValues, column_values
from lexppl.models import (
    BernoulliSelector,
    ConstantImputer,
    GaussianImputer,
    Grouping,
    NormalLikelihood,
)
from lexppl.models.selectors import SoftMaskSelector
from tests.evaluation.fitted_by_hand import linear_model, model_of, result_of
from tests.refusals import refusals, refused
from tests.small_models import explainer

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(3)).double()
WEIGHTS = (1.5, -0.7, 0.0)


def values_of(x, names):
    return {name: FeatureValues(name, x[:, i].numpy()) for i, name in enumerate(names)}


def test_of_linear_log_odds_it_is_the_weight_times_what_is_revealed():
    """logit p(1 | x) = w · x, hidden features .4: an effect of w_g (x_g − .4), label 0 its
    opposite, on whatever mask."""
    result = result_of(linear_model(WEIGHTS, ConstantImputer(0.4)))
    found = feature_effects(result, X, masks=200)
    expected = torch.tensor(WEIGHTS).double() * (X - 0.4)
    torch.testing.assert_close(found.effects[0, :, :, 1], expected)
    torch.testing.assert_close(found.effects[..., 0], -found.effects[..., 1])
    assert found.class_names == ("0", "1") and found.entry_names == ("x1", "x2", "x3")
    assert float((found.kept - 0.5).abs().max()) < 6 * 0.5 / math.sqrt(200)
    table = direction_table(found, values_of(X, ("x1", "x2", "x3"))).query("`class` == '1'")
    assert table["feature"].tolist() == ["x1", "x2", "x3"]
    # A feature of weight 0 changes nothing, and there is no direction in that.
    np.testing.assert_allclose(table["direction"], [1.0, -1.0, math.nan])
    np.testing.assert_allclose(table["slope"], np.array(WEIGHTS) * X.numpy().std(0), atol=1e-9)
    assert table["spread"].isna().all()
    # A slope is by standard deviation: the same in any unit, however small or large.
    for unit in (1e-200, 1e200):
        scaled = values_of(X.double() * unit, ("x1", "x2", "x3"))
        again = direction_table(found, scaled).query("`class` == '1'")
        np.testing.assert_allclose(again["slope"], table["slope"], rtol=1e-5)


def test_only_rows_that_keep_the_feature_count():
    """The selector keeps x1 where x2 > 0; the weight of rows without is 0."""

    class Switch(torch.nn.Module):
        def forward(self, x):
            on = 40.0 * torch.where(x[:, 1] > 0, 1.0, -1.0)
            return torch.stack([on, torch.full_like(on, 40.0), torch.full_like(on, -40.0)], -1)

    model = linear_model(WEIGHTS, ConstantImputer(0.0))
    model.selector = BernoulliSelector(Switch())
    found = feature_effects(result_of(model), X, masks=4)
    on = X[:, 1] > 0
    assert (found.kept[0, on, 0] == 1).all() and (found.kept[0, ~on, 0] == 0).all()
    assert (found.effects[0, ~on, 0] == 0).all()
    table = direction_table(found, values_of(X, ("x1", "x2", "x3"))).query("`class` == '1'")
    assert table["kept"].tolist() == [int(on.sum()), 60, 0]
    assert table["slope"].iloc[0] == pytest.approx(WEIGHTS[0] * X[:, 0].numpy().std())
    assert table[["direction", "slope"]].iloc[2].isna().all()


@pytest.mark.smoke
def test_against_enumeration_of_all_masks():
    model = model_of()
    result = result_of(model, labels=(0, 1, 2))
    found = feature_effects(result, X[:3], masks=4000, imputations=3, seed=1)
    logits = torch.tensor((0.3, -0.8, 1.1)).double()
    total = torch.zeros(3, 3, 3).double()
    weight = torch.zeros(3).double()
    with torch.no_grad():

        def log_odds(mask):
            filled = torch.where(mask == 1, X[:3], torch.tensor(0.3).double())
            p = model.predictor(filled).probs
            return p.log() - (1 - p).log()

        for bits in itertools.product((0.0, 1.0), repeat=3):
            mask = torch.tensor(bits).double()
            p = torch.where(mask == 1, logits.sigmoid(), 1 - logits.sigmoid()).prod()
            for g in range(3):
                if mask[g] == 1:
                    without = mask.clone()
                    without[g] = 0
                    total[:, g] += p * (log_odds(mask) - log_odds(without))
                    weight[g] += p
    exact = total / weight[:, None]
    error = 6 * 2.0 / math.sqrt(4000 * 0.3)
    assert float((found.effects[0] - exact).abs().max()) < error


def test_imputations_are_averaged_before_the_log():
    p = torch.rand(3, 4, 2, 5, generator=torch.Generator().manual_seed(0)).double()
    p = p / p.sum(0)
    mean = p.mean(1)
    torch.testing.assert_close(_log_odds(p.log()), mean.log() - (1 - mean).log())


def test_of_a_response_it_is_the_change_of_the_mean():
    model = linear_model(WEIGHTS, ConstantImputer(0.0), likelihood=NormalLikelihood())
    found = feature_effects(result_of(model), X, masks=50)
    assert found.class_names is None and found.effects.shape == (1, 60, 3, 1)
    torch.testing.assert_close(found.effects[0, ..., 0], torch.tensor(WEIGHTS).double() * X)


def test_levels_have_their_own_effects():
    """One-hot columns of weights 2, −1, .5 in one entry, hidden as zeros: the level's weight."""
    place = torch.arange(60) % 3
    x = torch.cat([X[:, :1], torch.nn.functional.one_hot(place, 3).double()], -1)
    grouping = Grouping([0, 1, 1, 1], names=["age", "job"])
    weights, logits = (0.3, 2.0, -1.0, 0.5), [0.0, 1.0]
    model = linear_model(weights, ConstantImputer(0.0), logits, grouping=grouping)
    found = feature_effects(result_of(model, event_shape=(4,)), x, masks=30)
    job = FeatureValues("job", place.double().numpy(), ("cook", "smith", "clerk", "never"))
    table = direction_table(found, {"job": job}).query("`class` == '1'").set_index("level")
    assert table["feature"].unique().tolist() == ["job"]
    np.testing.assert_allclose(table["effect"].iloc[:3], [2.0, -1.0, 0.5])
    assert math.isnan(table["effect"]["never"]) and table["kept"]["never"] == 0


@pytest.mark.parametrize("value", [0.1, 0.3, 1.7])
def test_of_one_kept_value_there_is_no_direction(value):
    random = np.random.default_rng(0)
    kept = random.integers(0, 51, size=(2, 12, 1)) / 50
    kept[:, :2], values = 0.0, np.repeat([5.0, value], [2, 10])
    each = torch.tensor(random.normal(size=(2, 12, 1, 1)))
    found = FeatureEffects(each, torch.tensor(kept), ("dose",), None)
    line = direction_table(found, {"dose": FeatureValues("dose", values)}).iloc[0]
    assert line[["direction", "slope", "spread"]].isna().all() and line["kept"] > 3


def test_replicates_are_pooled_with_their_spread():
    one, two = (linear_model((w, 0.0, 0.0), ConstantImputer(0.0)) for w in (1.0, 2.0))
    found = feature_effects(result_of(one, two), X, masks=400)
    table = direction_table(found, {"x1": FeatureValues("x1", X[:, 0].numpy())})
    line = table.query("`class` == '1'").iloc[0]
    sd = X[:, 0].numpy().std()
    assert line["spread"] == pytest.approx(sd / math.sqrt(2))
    assert line["slope"] == pytest.approx(1.5 * sd, rel=0.1)


def test_a_replicate_that_never_keeps_a_feature_has_no_part_in_its_spread():
    random = np.random.default_rng(0)
    values, slopes = random.normal(size=12), np.array([1.0, 2.0, 5.0])
    kept, each = np.ones((3, 12, 1)), slopes[:, None] * values
    kept[2] = 0.0
    found = FeatureEffects(torch.tensor(each)[..., None, None], torch.tensor(kept), ("dose",), None)
    line = direction_table(found, {"dose": FeatureValues("dose", values)}).iloc[0]
    assert line["spread"] == pytest.approx(np.std(slopes[:2], ddof=1) * values.std())


def test_saturated_predictions_have_log_odds_still():
    result = result_of(linear_model((400.0, 0.0, 0.0), ConstantImputer(0.0)))
    found = feature_effects(result, X, masks=10)
    torch.testing.assert_close(found.effects[0, :, 0, 1], 400.0 * X[:, 0])


def test_values_may_be_a_data_frame_and_the_effects_a_fit():
    result = result_of(linear_model(WEIGHTS, ConstantImputer(0.4)))
    frame = pd.DataFrame(X.numpy(), columns=["x1", "x2", "x3"])
    effects = feature_effects(result, X)
    expected = direction_table(effects, values_of(X, frame.columns))
    pd.testing.assert_frame_equal(direction_table(effects, frame), expected)
    pd.testing.assert_frame_equal(direction_table(result, frame), expected)
    renamed = direction_table(result, frame.set_axis(["u", "v", "w"], axis=1))
    assert renamed["feature"].unique().tolist() == ["u", "v", "w"]
    with pytest.raises(TypeError, match="data frame of the fit's inputs"):
        direction_table(result, values_of(X, frame.columns))


def test_columns_of_a_frame_are_numbers_days_or_levels():
    place = np.arange(4)
    frame = pd.DataFrame(
        {
            "days": pd.to_datetime(["1970-01-02", None, "1970-01-01", "1970-01-11"]),
            "job": ["smith", "cook", None, "cook"],
            "count": pd.array([1, None, 3, 4], dtype="Int64"),
        }
    )
    days, job, count = (column_values(frame[name]) for name in frame)
    np.testing.assert_array_equal(days.numbers, [1.0, np.nan, 0.0, 10.0])
    np.testing.assert_array_equal(job.numbers, [1.0, 0.0, np.nan, 0.0])
    np.testing.assert_array_equal(count.numbers, [1.0, np.nan, 3.0, 4.0])
    assert days.dates and job.levels == ("cook", "smith") and count.levels is None
    each = torch.from_numpy(place)[None, :, None, None].double().repeat(1, 1, 3, 1)
    effects = FeatureEffects(each, torch.ones(1, 4, 3), tuple(frame), None)
    table = direction_table(effects, frame)
    assert table["level"].dropna().tolist() == ["cook", "smith"]


def test_mistakes_of_effects():
    soft = explainer(SoftMaskSelector)
    refused("effects are of selections", feature_effects, result_of(soft), X.float())
    found = FeatureEffects(torch.zeros(1, 4, 1, 1), torch.ones(1, 4, 1), ("a",), None)
    with pytest.raises(ValueError, match=r"values of 'a' must have shape .4,.; the shape is .3,."):
        direction_table(found, {"a": FeatureValues("a", np.zeros(3))})
    refused("masks", feature_effects, result_of(linear_model(WEIGHTS)), X, masks=0)


FIVE = torch.randn(5, 3, generator=torch.Generator().manual_seed(3)).double()
BASE = [0.7, 0.3]


def sure(weights, logits):
    """Log-odds w · x of features that are kept surely (40) or never (−40)."""
    return linear_model(weights, ConstantImputer(0.0), logits=logits)


def test_steps_by_hand():
    """All kept: log σ(w · x) is reached by one feature after another, x3 before x1 and x2."""
    weights, logits = (1.5, -0.7, 0.4), [41.0, 40.0, 42.0]
    found = revealed_predictions(result_of(sure(weights, logits)), FIVE, masks=4)
    steps = found.steps(2, label=1, base=BASE)
    # Sure as the logits are, every draw keeps all three: equal, so as they come.
    assert steps.table.index.tolist() == ["x1", "x2", "x3"]
    terms = torch.tensor(weights).double() * FIVE[2]
    odds = torch.cat([torch.zeros(1).double(), terms.cumsum(0)])
    logs = torch.nn.functional.logsigmoid(odds).numpy()
    np.testing.assert_allclose(steps.table["step"], np.diff(logs))
    np.testing.assert_allclose(steps.table["total"], logs[1:])
    assert steps.base == pytest.approx(math.log(0.3)) and steps.hidden == pytest.approx(
        -math.log(2)
    )
    assert steps.predicted == pytest.approx(logs[-1]) and steps.label == "1"
    assert (steps.table["kept"] == 1).all()


@pytest.mark.smoke
@pytest.mark.parametrize("imputer", [ConstantImputer(0.3), GaussianImputer()])
@pytest.mark.parametrize("replicates", [1, 3])
def test_steps_add_up_to_the_prediction(imputer, replicates):
    models = [
        linear_model((1.5, -0.7 * r, 0.4), imputer, logits=[0.5, -0.2, 1.0 - r])
        for r in range(replicates)
    ]
    result = result_of(*models)
    found = revealed_predictions(result, FIVE, masks=500, imputations=2, seed=4)
    for row in range(5):
        for label in range(2):
            steps = found.steps(row, label, BASE)
            total = steps.base + steps.first_step + steps.table["step"].sum()
            assert total == pytest.approx(steps.predicted, abs=1e-12)
            assert math.exp(steps.predicted) == pytest.approx(float(found.predicted[row, label]))
    own = predictive(result, FIVE, masks=4000, seed=9).mean(0)
    assert float((found.predicted - own).abs().max()) < 6 * 0.5 / math.sqrt(500)


def test_the_most_kept_comes_first_and_what_no_draw_keeps_adds_nothing():
    result = result_of(linear_model((1.0, 1.0, 1.0), GaussianImputer(), logits=[-40.0, 0.0, 2.0]))
    steps = revealed_predictions(result, FIVE, masks=200).steps(0, 1)
    assert steps.table.index.tolist() == ["x3", "x2", "x1"]
    assert steps.table["kept"].is_monotonic_decreasing
    assert steps.table["step"]["x1"] == 0.0 and (steps.table["step"][:2] != 0.0).all()
    assert math.isnan(steps.base)
    # It has no bar, neither by itself nor among others, and the bars still add up.
    for most in (12, 2, 1):
        bars = steps.bars(most)
        assert set(bars.index[1:-1]) <= {"x3", "x2", "1 more"} and len(bars) == 4
        assert bars["step"].sum() == pytest.approx(steps.predicted - steps.hidden)


def test_the_likeliest_label_is_the_default():
    result = result_of(model_of(), labels=(0, 1, 2))
    found = revealed_predictions(result, FIVE[:2])
    for row in range(2):
        likeliest = int(found.predicted[row].argmax())
        steps = found.steps(row)
        assert steps.label == str(likeliest)
        assert steps.predicted == pytest.approx(float(found.predicted[row].max().log()))
    np.testing.assert_allclose(found.predictions.sum(-1), 1.0, atol=1e-9)


def test_of_a_response_the_mean_moves_in_its_own_units():
    weights, logits = (2.0, -1.0, 5.0), [40.0, 40.0, -40.0]
    model = linear_model(weights, ConstantImputer(0.0), logits, NormalLikelihood())
    steps = revealed_predictions(result_of(model), FIVE, masks=3).steps(1, base=0.1)
    expected = (torch.tensor([2.0, -1.0, 0.0]).double() * FIVE[1]).numpy()
    np.testing.assert_allclose(steps.table["step"], expected)
    own = steps.in_units(10.0, 100.0)
    np.testing.assert_allclose(own.table["step"], 10 * expected)
    assert (own.base, own.hidden) == (101.0, 100.0)
    assert own.base + own.first_step + own.table["step"].sum() == pytest.approx(own.predicted)
    assert own.predicted == pytest.approx(100 + 10 * expected.sum()) and own.label is None


def test_the_spread_is_that_of_the_replicates_own_steps():
    one, two = (sure((w, 0.0, 0.0), [40.0, 40.0, 40.0]) for w in (1.0, 3.0))
    steps = revealed_predictions(result_of(one, two), FIVE, masks=2).steps(0, 1)
    x = float(FIVE[0, 0])
    each = [math.log(1 / (1 + math.exp(-w * x))) - math.log(0.5) for w in (1.0, 3.0)]
    assert steps.table["spread"]["x1"] == pytest.approx(np.std(each, ddof=1))
    mean = np.mean([1 / (1 + math.exp(-w * x)) for w in (1.0, 3.0)])
    assert steps.table["step"]["x1"] == pytest.approx(math.log(mean) - math.log(0.5))


test_mistakes = refusals(
    (lambda found: found.steps(5), "row must be"),
    (lambda found: found.steps(0, 2), "label must be"),
    (lambda found: found.steps(0, 1, [0.2, 0.3, 0.5]), "2 frequencies"),
    (lambda found: found.steps(0, 1, [1.0, 0.0]), "above 0"),
    of=lambda call: call(
        revealed_predictions(result_of(sure((1.0, 0.0, 0.0), [0.0] * 3)), FIVE, masks=2)
    ),
)
