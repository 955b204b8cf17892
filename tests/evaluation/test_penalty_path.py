"""A path of penalties: what its table says, and that its answer is one of its own fits."""

import sys
import warnings

import numpy as np
import pytest
import torch

from lexppl.evaluation import penalty_path, plateau, predictive_log_likelihood
from lexppl.evaluation.penalty_path import _Judged
from lexppl.evaluation.plateau import slopes
from lexppl.inference import CollapseWarning, entropy_unit, fit
from lexppl.inference.training.loop import TrainingLoop
from lexppl.systems import lex, real_x

pytestmark = pytest.mark.filterwarnings("ignore::lexppl.inference.CollapseWarning")

penalty_path_module = sys.modules[_Judged.__module__]
PENALTIES = (0.001, 0.05, 5.0)
SHORT = {"epochs": 30, "batch_size": 100, "learning_rate": 1e-2, "progress": False, "seed": 2}


@pytest.fixture(scope="module")
def rows():
    x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    return (x[:400], y[:400]), (x[400:], y[400:])


def build(penalty):
    return lex(3, classes=2, penalty=penalty, hidden=(8,), predictor_hidden=(8,))


@pytest.fixture(scope="module")
def path(rows):
    return penalty_path(build, rows[0], valid=rows[1], penalties=PENALTIES, replicates=2, **SHORT)


def test_table(path, rows):
    x, y = rows[1]
    table = path.table
    assert table["penalty"].tolist() == list(PENALTIES)
    weights = [model.penalties[0].weight for model in path.fitted.models]
    assert weights == pytest.approx(np.repeat(PENALTIES, 2).tolist())
    with torch.no_grad():
        each = [model.selector(x).mean.sum(-1).mean() for model in path.fitted.models]
    sizes = torch.stack(each).double().reshape(3, 2)
    np.testing.assert_allclose(table["size"], sizes.mean(1), rtol=1e-5)
    np.testing.assert_allclose(table["size_error"], sizes.std(1) / 2**0.5, rtol=1e-3, atol=1e-6)
    said = predictive_log_likelihood(path.fitted, x, y, masks=50, seed=2).double()
    said = said.reshape(3, 2, 100).mean(1)
    np.testing.assert_allclose(table["log_likelihood"], said.mean(1), rtol=1e-9)
    behind = said[int(said.mean(1).argmax())] - said
    np.testing.assert_allclose(table["error"], behind.std(1) / 10.0, rtol=1e-9)
    assert table["error"].min() == 0.0
    assert table["slope"].tolist() == slopes(PENALTIES, table["size"].tolist())


def test_the_plateau_of_its_own_table_is_chosen(path):
    given = [path.table[name].tolist() for name in ("size", "log_likelihood", "error")]
    assert path.index == plateau(PENALTIES, *given, entries=3)
    assert path.table["chosen"].tolist() == [place == path.index for place in range(3)]
    assert path.penalty == 0.05
    assert 0.5 < path.table["size"][1] < 2.0 and path.table["size"][2] < 0.5


def test_the_answer_is_the_path_s_own_fit(path):
    result, fitted = path.result, path.fitted
    assert result.replicates == 2 and fitted.replicates == 6
    assert result.models == fitted.models[2:4] and result.collapse == fitted.collapse[2:4]
    for name in ("train", "valid"):
        np.testing.assert_array_equal(
            getattr(result.history, name), getattr(fitted.history, name)[:, 2:4]
        )
    np.testing.assert_array_equal(result.best_epoch, fitted.best_epoch[2:4])
    np.testing.assert_array_equal(result.best_valid, fitted.best_valid[2:4])
    assert path.at(0).models == fitted.models[:2]


def test_it_is_one_fit_of_a_list(path, rows):
    models = [build(penalty) for penalty in PENALTIES for _ in range(2)]
    alone = fit(models, rows[0], valid=rows[1], **SHORT)
    for one, other in zip(alone.models, path.fitted.models, strict=True):
        for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.smoke
def test_another_rule_sees_the_table(rows):
    seen = []

    def last(*told):
        seen.append(told)
        return 2

    path = penalty_path(
        build, rows[0], valid=rows[1], penalties=PENALTIES, rule=last, **{**SHORT, "epochs": 1}
    )
    ((penalties, sizes, scores, errors, entries),) = seen
    assert tuple(penalties) == PENALTIES and entries == 3
    assert sizes == path.table["size"].tolist() and scores == path.table["log_likelihood"].tolist()
    assert errors == path.table["error"].tolist()
    assert path.penalty == 5.0 and path.table["size_error"].isna().all()


def test_the_default_path_is_in_units_of_the_base_rate(rows):
    (x, _), short = rows[0], {**SHORT, "epochs": 1}
    y = (torch.arange(400) % 20 == 0).long()
    path = penalty_path(build, (x, y), valid=(x[:300], y[:300]), **short)
    expected = [share * entropy_unit(y[:300]) for share in (0.005, 0.01, 0.02, 0.04, 0.08)]
    assert path.table["penalty"].tolist() == expected and expected[0] < 0.002


@pytest.mark.complete
def test_a_collapse_is_told_of_the_chosen_alone(rows):
    def at(place):
        return penalty_path(
            build, rows[0], valid=rows[1], penalties=PENALTIES, rule=lambda *_: place, **SHORT
        )

    with pytest.warns(CollapseWarning, match="all off: "):
        assert at(2).result.collapse == ["all off"]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert at(0).fitted.collapse[2] == "all off"
    assert not any("all off" in str(one.message) for one in told)


def test_other_systems(rows):
    def small(penalty):
        return real_x(3, classes=2, penalty=penalty, hidden=(4,), predictor_hidden=(4,))

    path = penalty_path(
        small, rows[0], valid=rows[1], penalties=PENALTIES, **{**SHORT, "epochs": 2}
    )
    assert path.fitted.replicates == 3 and np.isfinite(path.table["log_likelihood"]).all()


def test_a_smallest_penalty_that_is_chosen_has_smaller_ones_tried(rows, monkeypatch):
    seen = []

    def smallest(penalties, *_):
        seen.append(list(penalties))
        return 0

    # A path that pays for ever: each smaller λ predicts better than the one before.
    monkeypatch.setattr(_Judged, "pays", lambda *_: True)
    quick = {**SHORT, "epochs": 2}
    path = penalty_path(
        build,
        rows[0],
        valid=rows[1],
        penalties=(0.04, 0.2),
        replicates=2,
        rule=smallest,
        further=2,
        **quick,
    )
    tried = [0.0025, 0.005, 0.01, 0.02, 0.04, 0.2]
    assert path.table["penalty"].tolist() == pytest.approx(tried)
    assert [len(one) for one in seen] == [2, 4, 6]
    assert path.replicates == 2 and path.penalty == pytest.approx(0.0025)
    for place, penalty in enumerate(tried):
        weights = [model.penalties[0].weight for model in path.at(place).models]
        assert weights == pytest.approx([penalty] * 2)
    said = predictive_log_likelihood(path.at(1), *rows[1], masks=50, seed=2).mean()
    # Other replicates beside them, other draws.
    assert path.table["log_likelihood"][1] == pytest.approx(float(said), abs=0.05)
    models = [build(penalty) for penalty in (0.04, 0.2) for _ in range(2)]
    alone = fit(models, rows[0], valid=rows[1], **quick)
    for one, other in zip(alone.models, path.fitted.models, strict=True):
        for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
            assert torch.equal(mine, theirs)


def below_the_path(rows, further):
    """Of a path whose smallest penalty is chosen, whatever it is."""
    return penalty_path(
        build,
        rows[0],
        valid=rows[1],
        penalties=(0.04, 0.2),
        rule=lambda *_: 0,
        further=further,
        **{**SHORT, "epochs": 1},
    )


def test_a_path_goes_on_below_as_long_as_that_pays(rows, monkeypatch):
    monkeypatch.setattr(_Judged, "pays", lambda *_: False)
    path = below_the_path(rows, further=5)
    assert len(path.table) == 4 and len(path.further) == 1


def test_what_pays():
    better = np.random.default_rng(0).normal(0.1, 0.01, 50)
    high = np.zeros(50)

    def judged(low):
        return _Judged([0.1, 0.2], np.stack([low, high]), np.ones((2, 1)), None, 3)

    assert judged(better).pays(1) and not judged(-better).pays(1)
    assert not judged(better - better.mean()).pays(1)


def test_a_choice_inside_the_path_stays(path, rows):
    longer = penalty_path(
        build, rows[0], valid=rows[1], penalties=PENALTIES, replicates=2, further=3, **SHORT
    )
    assert longer.further == () and longer.penalty == path.penalty == 0.05
    assert longer.table.equals(path.table)


def test_interrupted_below_the_path(rows, monkeypatch):
    of_path = penalty_path_module.fit
    calls = []

    def second_is_interrupted(*given, **settings):
        calls.append(settings)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return of_path(*given, **settings)

    monkeypatch.setattr(penalty_path_module, "fit", second_is_interrupted)
    path = below_the_path(rows, further=2)
    assert path.interrupted and len(calls) == 2
    assert path.penalty == 0.04 and len(path.table) == 2


def test_interrupted_before_an_epoch(rows, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(TrainingLoop, "_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        penalty_path(build, rows[0], valid=rows[1], **SHORT)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"penalties": [0.02]}, "at least 2"),
        ({"penalties": [0.02, 0.01]}, "penalties must rise"),
        ({"penalties": [0.0, 0.01]}, "above 0"),
        ({"replicates": 0}, "replicates must be"),
    ],
)
def test_mistakes_are_found_before_the_fit(change, words, rows):
    def never(penalty):
        raise AssertionError("a model was built")

    with pytest.raises(ValueError, match=words):
        penalty_path(never, rows[0], valid=rows[1], **change)


def test_subsets_are_of_the_replicates(path):
    assert path.fitted.subset([5, 0]).models == [path.fitted.models[5], path.fitted.models[0]]
    for places in ([], [6], [-1]):
        with pytest.raises(ValueError, match="places must be of the 6 replicates"):
            path.fitted.subset(places)
