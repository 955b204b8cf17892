"""Parts of programs, of rows of any number, type and layout; each row by itself."""

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyro.distributions as dist
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from lexppl import ExplainerClassifier, ExplainerRegressor, explain, fit, models
from lexppl.choices.imputers import IMPUTERS
from lexppl.data import dataset_from_frame, synthetic
from lexppl.distributions import (
    ChainMask,
    ExchangeableMasks,
    KSubset,
    MaskDirichlet,
    MaxConcrete,
    OrderedTopK,
    RandomSizeSubset,
    RelaxedSubset,
    SequentialMask,
    ShapleyKernel,
    TopKMask,
    geometric_sizes,
)
from lexppl.distributions.relaxed import successive_softmax
from lexppl.distributions.top_k import TopEntries
from lexppl.evaluation import (
    concordance_index,
    predictive,
    predictive_log_likelihood,
    selection_scores,
)
from lexppl.evaluation.imputation import fair_crps
from lexppl.evaluation.prediction import auroc, average_precision, prediction_scores
from lexppl.explanation import mask_means, selection_table
from lexppl.inference.contexts import seeded
from lexppl.models.imputers import imputer_of
from lexppl.saving.description import known_parts
from lexppl.systems import lex
from tests.properties.given_tensors import EXAMPLES, LAYOUTS, TYPES, close, laid_out, values
from tests.refusals import over, refused

parts = SimpleNamespace(**known_parts())

ROWS = st.sampled_from([0, 1, 4])
REFERENCE = torch.randn(30, 3, generator=torch.Generator().manual_seed(0)).double()


IMPUTED: dict[str, Callable[[torch.dtype], Any]] = {
    **{
        name: lambda dtype, name=name: imputer_of(name, REFERENCE.to(dtype), 0) for name in IMPUTERS
    },
    "complement": lambda dtype: parts.ComplementImputer(models.GaussianImputer()).to(dtype),
    "squared": lambda dtype: models.SquaredMaskImputer().to(dtype),
    "gap": lambda dtype: models.GapImputer().to(dtype),
}


@pytest.mark.smoke
@EXAMPLES
@given(st.data(), st.sampled_from(sorted(IMPUTED)), ROWS, TYPES, LAYOUTS)
def test_imputers_leave_what_is_kept(data, name, rows, dtype, layout):
    imputer = IMPUTED[name](dtype)
    exact = data.draw(values(rows, 3)).to(dtype)
    keep = (data.draw(values(2, rows, 3)) > 0).to(dtype)
    with seeded(1):
        drawn = imputer(exact, keep).sample()
    with seeded(1):
        again = imputer(laid_out(exact, layout), laid_out(keep, layout)).sample()
    assert drawn.shape == (2, rows, 3) and drawn.dtype == dtype
    if name not in ("complement", "squared"):
        assert torch.equal(torch.where(keep > 0, drawn, 0), keep * exact)
    close(again.nan_to_num(9), drawn.nan_to_num(9), dtype)
    everything = imputer(exact, torch.ones_like(exact)).sample()
    if name != "complement":
        assert torch.equal(everything, exact)


SELECTED: dict[str, Callable[[Any], Any]] = {
    "Bernoulli": models.BernoulliSelector,
    "k-subset": lambda network: models.KSubsetSelector(network, 2),
    "chain": models.ChainSelector,
    "Concrete": lambda network: models.MaxConcreteSelector(network, 2),
    "soft": parts.SoftMaskSelector,
    "Dirichlet": models.DirichletSelector,
    "random size": lambda network: models.RandomSizeSelector(network, geometric_sizes(0.5, 3)),
    "prior logits": lambda network: models.BernoulliSelector(
        models.PriorLogits(network, (1.0, 0.0, -1.0))
    ),
}


@EXAMPLES
@given(st.data(), st.sampled_from(sorted(SELECTED)), st.sampled_from([1, 4]), TYPES, LAYOUTS)
def test_selectors_see_each_row_by_itself(data, name, rows, dtype, layout):
    selector = SELECTED[name](models.MLP(3, 3, (4,), seed=0)).to(dtype)
    x = data.draw(values(rows, 3)).to(dtype)
    with torch.no_grad():
        distribution, other = selector(x), selector(laid_out(x, layout))
        alone = selector(x[:1])
    assert distribution.batch_shape == (rows,) and distribution.event_shape == (3,)
    if name == "Concrete":
        close(other.logits, distribution.logits, dtype)
        close(alone.logits, distribution.logits[:1], dtype)
        return
    assert distribution.mean.dtype == dtype
    close(other.mean, distribution.mean, dtype)
    close(alone.mean, distribution.mean[:1], dtype)


LIKELIHOODS: dict[str, tuple[Callable[[], Any], int, Callable[[torch.Tensor], torch.Tensor]]] = {
    "categorical": (models.CategoricalLikelihood, 3, lambda u: (u.abs() % 3).long()),
    "Bernoulli": (models.BernoulliLikelihood, 1, lambda u: (u > 0).to(u.dtype)),
    "normal": (models.NormalLikelihood, 1, lambda u: u),
    "heteroscedastic": (models.HeteroscedasticLikelihood, 2, lambda u: u),
    "Student-t": (models.StudentTLikelihood, 1, lambda u: u),
    "Poisson": (models.PoissonLikelihood, 1, lambda u: u.abs().round()),
    "negative binomial": (models.NegativeBinomialLikelihood, 1, lambda u: u.abs().round()),
    "ordinal": (lambda: models.OrdinalLikelihood(3), 1, lambda u: (u.abs() % 3).long()),
}


@EXAMPLES
@given(
    st.data(),
    st.sampled_from(sorted(LIKELIHOODS)),
    st.sampled_from([(4,), (1,), (0,), (2, 4), (2, 0)]),
    TYPES,
    LAYOUTS,
)
def test_predictors_take_any_particles(data, name, batch, dtype, layout):
    # Torch's own categorical distributions refuse a batch without rows.
    assume(0 not in batch or name not in ("categorical", "ordinal"))
    make, outputs, response = LIKELIHOODS[name]
    predictor = models.Predictor(models.MLP(3, outputs, (4,), seed=1), make()).to(dtype)
    x = data.draw(values(*batch, 3)).to(dtype)
    y = response(data.draw(values(*batch)).to(dtype))
    with torch.no_grad():
        density = predictor(x).log_prob(y)
        other = predictor(laid_out(x, layout)).log_prob(laid_out(y, layout))
        assert density.shape == batch and density.dtype == dtype
        close(other, density, dtype)
        if batch == (4,):
            close(predictor(x[1:2]).log_prob(y[1:2]), density[1:2], dtype)


# Every mask distribution, of rows of any number, type and layout.


BATCHES = st.sampled_from([(), (1,), (3,), (2, 3), (0,), (2, 0)])


def _policy(kept, mask):
    return kept - mask, kept.sum(-1)


MADE: dict[str, Callable[[Any, int], Any]] = {
    "k-subset": KSubset,
    "k-subset by row": lambda logits, k: KSubset(
        logits, torch.full(logits.shape[:-1], k), max_k=logits.shape[-1]
    ),
    "top-k": TopKMask,
    "ordered top-k": OrderedTopK,
    "relaxed": lambda logits, k: RelaxedSubset(0.5, logits, k),
    "max of Concrete": lambda logits, k: MaxConcrete(0.5, logits, k),
    "chain": lambda logits, k: ChainMask(logits, 0.7),
    "random size": lambda logits, k: RandomSizeSubset(
        logits, torch.tensor(geometric_sizes(0.5, k), dtype=logits.dtype).log()
    ),
    "Dirichlet": lambda logits, k: MaskDirichlet(logits.exp()),
    "top entries": TopEntries,
    "Bernoulli": lambda logits, k: dist.Bernoulli(logits=logits).to_event(1),
    "sequential": lambda logits, k: SequentialMask(_policy, logits, logits.shape[-1], k),
    "any size": lambda logits, k: ExchangeableMasks(
        [1.0] * (logits.shape[-1] + 1), logits.shape[:-1], dtype=logits.dtype
    ),
    "Shapley": lambda logits, k: ShapleyKernel(
        logits.shape[-1], logits.shape[:-1], dtype=logits.dtype
    ),
}
OF_TORCH = ("Bernoulli", "Dirichlet", "top entries")
"""Torch's own distributions, or made of them, which refuse a batch without rows."""
CONTINUOUS = ("relaxed", "soft", "max of Concrete", "Dirichlet")
STATED = ("mean", "variance", "mode", "entropy")


def stated(distribution):
    """What the distribution says of itself, by name."""
    found = {}
    for name in STATED:
        try:
            value = getattr(distribution, name)
            found[name] = value() if callable(value) else value
        except NotImplementedError:
            continue
    return found


def drawn(distribution, seed=0, shape=(2,)):
    with seeded(seed):
        return distribution.sample(shape)


@EXAMPLES
@given(st.data(), st.sampled_from(sorted(MADE)), st.integers(1, 6), BATCHES, TYPES, LAYOUTS)
def test_shapes_types_layouts_and_rows(data, name, entries, batch, dtype, layout):
    assume(0 not in batch or name not in OF_TORCH)
    entries = max(entries, 2) if name == "Shapley" else entries
    k = data.draw(st.integers(1, entries))
    exact = data.draw(values(*batch, entries))
    logits = exact.to(dtype)
    one, other = MADE[name](logits, k), MADE[name](laid_out(logits, layout), k)
    assert one.batch_shape == batch
    sample, again = drawn(one), drawn(other)
    assert sample.shape == (2, *batch, *one.event_shape)
    close(sample, again, dtype)
    assert torch.equal(sample, again) or name in CONTINUOUS
    if not name.startswith("ordered"):
        assert sample.dtype == dtype
    expected = stated(one)
    for what, value in expected.items():
        event = () if what == "entropy" else one.event_shape
        assert value.shape == (*batch, *event), what
        assert value.dtype == dtype or name.startswith("ordered"), what
        close(value, stated(other)[what], dtype)
    expanded = one.expand((4, *batch))
    assert expanded.batch_shape == (4, *batch)
    assert drawn(expanded, shape=()).shape == (4, *batch, *one.event_shape)
    for what, value in stated(expanded).items():
        close(value, expected[what].expand(value.shape), dtype)
    density = densities(one, sample)
    if density is None:
        return
    assert density.shape == (2, *batch) and density.dtype == dtype
    close(density, densities(other, laid_out(sample, layout)), dtype)
    double = MADE[name](exact.to(dtype).double(), k)
    whole = name.startswith("ordered")
    close(density, densities(double, sample if whole else sample.double()), torch.float32)
    if len(batch) == 1 and batch[0] > 1:
        alone = MADE[name](logits[1:2], k)
        close(densities(alone, sample[:, 1:2]), density[:, 1:2], dtype)
        for what, value in stated(alone).items():
            close(value, expected[what][1:2], dtype)


def densities(distribution, sample):
    try:
        return distribution.log_prob(sample)
    except NotImplementedError:
        return None


@EXAMPLES
@given(st.data(), st.integers(1, 5), BATCHES, TYPES, LAYOUTS)
def test_relaxed_masks_keep_their_sum(data, entries, batch, dtype, layout):
    k = data.draw(st.integers(1, entries))
    keys = data.draw(values(*batch, entries)).to(dtype)
    temperature = data.draw(st.sampled_from([0.05, 0.1, 1.0, 5.0]))
    mask = successive_softmax(keys, k, temperature)
    assert mask.shape == keys.shape and mask.dtype == dtype
    assert bool((mask >= 0).all()) and (k > 1 or bool((mask <= 1 + 1e-6).all()))
    close(mask.sum(-1), torch.full(batch, float(k), dtype=dtype), dtype)
    close(successive_softmax(laid_out(keys, layout), k, temperature), mask, dtype)


# Figures of predictions, masks and importances: of any type and layout the same, of no rows
# refused by name.


REFUSED = (ValueError, TypeError)


def same(one, other):
    for name, value in vars(one).items():
        if isinstance(value, float):
            expected = pytest.approx(value, rel=1e-5, abs=1e-6, nan_ok=True)
            assert vars(other)[name] == expected, name


@EXAMPLES
@given(st.data(), st.integers(0, 7), st.integers(2, 4), TYPES, LAYOUTS)
def test_scores_of_labels(data, rows, classes, dtype, layout):
    p = torch.softmax(data.draw(values(rows, classes)), -1)
    y = data.draw(values(rows)).abs().mul(10).long() % classes
    if rows == 0:
        refused("none of them 0", prediction_scores, p, y)
        return
    scores = prediction_scores(p, y)
    assert 0 <= scores.accuracy <= 1 and scores.log_likelihood < 0
    assert 0 <= scores.auroc <= 1 or math.isnan(scores.auroc)
    same(scores, prediction_scores(laid_out(p, layout), laid_out(y, layout)))
    if dtype == torch.float32 and (p.float().diff(dim=0).abs() < 1e-5).any():
        return
    same(scores, prediction_scores(p.to(dtype), y.int()))
    order = torch.arange(rows).flip(0)
    same(scores, prediction_scores(p[order], y[order]))


@EXAMPLES
@given(st.data(), st.integers(1, 7), TYPES, LAYOUTS)
def test_scores_of_responses(data, rows, dtype, layout):
    means, y = data.draw(values(rows)), data.draw(values(rows))
    scores = prediction_scores(means, y)
    assert scores.rmse == pytest.approx(float((means - y).square().mean().sqrt()))
    same(
        scores, prediction_scores(laid_out(means, layout).to(dtype), laid_out(y, layout).to(dtype))
    )
    refused("means where y holds responses", prediction_scores, means[:, None], y)


@EXAMPLES
@given(st.data(), st.integers(1, 5), st.integers(1, 5), st.integers(1, 3), LAYOUTS)
def test_scores_of_masks(data, rows, entries, draws, layout):
    masks = (data.draw(values(draws, rows, entries)) > 0).float()
    truth = (data.draw(values(rows, entries)) > 0).float()
    truth[:, 0] = 1.0
    scores = selection_scores(masks, truth)
    same(scores, selection_scores(laid_out(masks, layout), laid_out(truth, layout).double()))
    same(scores, selection_scores(masks.bool(), truth.int()))
    each = [selection_scores(masks[:, r : r + 1], truth[r : r + 1]).tpr for r in range(rows)]
    assert scores.tpr == pytest.approx(float(np.mean(each)))
    for m, t in ((masks[:, :0], truth[:0]), (masks[..., :0], truth[..., :0]), (masks[:0], truth)):
        with pytest.raises(REFUSED):
            selection_scores(m, t)


@EXAMPLES
@given(st.data(), st.integers(2, 8), TYPES, LAYOUTS)
def test_concordance_and_crps(data, rows, dtype, layout):
    risk, times = data.draw(values(rows)), data.draw(values(rows, low=0.1))
    event = (data.draw(values(rows)) > -2).double()
    event[times.argmin()] = 1.0
    y = torch.stack([times, event], -1)
    index = concordance_index(risk, y)
    assert 0 <= index <= 1
    assert concordance_index(laid_out(risk, layout), laid_out(y, layout)) == index
    assert concordance_index(-risk, y) == pytest.approx(1 - index)
    for wrong in (y[:0], y[:, :1], y[:-1]):
        with pytest.raises(REFUSED):
            concordance_index(risk[: len(wrong)] if len(wrong) == 0 else risk, wrong)
    draws = data.draw(values(3, rows))
    score = fair_crps(draws.to(dtype), risk.to(dtype))
    other = fair_crps(laid_out(draws, layout).to(dtype), laid_out(risk, layout).to(dtype))
    torch.testing.assert_close(score, other)
    assert fair_crps(draws[:, :0], risk[:0]).shape == (0,)


@pytest.mark.parametrize("score", [auroc, average_precision])
@over(
    (torch.zeros(0, 2), torch.zeros(0).long()),
    (torch.full((3,), 0.5), torch.tensor([0, 1, 0])),
    (torch.full((3, 2), 0.5), torch.tensor([0, 1])),
    (torch.full((3, 2), torch.nan), torch.tensor([0, 1, 0])),
)
def test_areas_of_what_is_none_are_refused_or_not_known(given_p, given_y, score):
    try:
        assert math.isnan(score(given_p, given_y))
    except REFUSED as refusal:
        assert str(refusal).startswith(("probabilities", "y must have shape"))


# Fitted explainers on rows of any number, type and layout: the same, or refused by name.


X = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def fitted(dtype=torch.float32):
    system = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,), folds=1).to(dtype)
    return fit(system, (X.to(dtype), Y), epochs=2, progress=False)


@pytest.fixture(scope="module")
def result():
    return fitted()


@EXAMPLES
@given(st.integers(1, 7), LAYOUTS)
def test_layouts_give_the_same_explanation(result, rows, layout):
    x, y = X[:rows], Y[:rows]
    other_x, other_y = laid_out(x, layout), laid_out(y, layout)
    found, other = explain(result, x, draws=3), explain(result, other_x, draws=3)
    assert found["predictions"]["mask"].equals(other["predictions"]["mask"])
    np.testing.assert_allclose(mask_means(found), mask_means(other), rtol=1e-4)
    again = explain(result, np.asarray(other_x), draws=3)
    assert found["predictions"]["mask"].equals(again["predictions"]["mask"])
    close(predictive(result, other_x), predictive(result, x), torch.float32)
    likelihood = predictive_log_likelihood(result, x, y)
    close(predictive_log_likelihood(result, other_x, other_y), likelihood, torch.float32)
    assert len(selection_table(found)) == 3


def test_a_row_is_explained_alike_alone(result):
    together = mask_means(explain(result, X[:5], draws=0)).values
    alone = [mask_means(explain(result, X[r : r + 1], draws=0)).values for r in range(5)]
    np.testing.assert_allclose(np.concatenate(alone, 1), together, rtol=1e-5)


def test_both_types_agree():
    single, double = fitted(), fitted(torch.float64)
    double.model.load_state_dict(single.model.state_dict())
    means = [
        mask_means(explain(r, X[:9].to(t), draws=0)).values
        for r, t in ((single, torch.float32), (double, torch.float64))
    ]
    np.testing.assert_allclose(means[0], means[1], rtol=1e-4)


WRONG = {
    "no rows": X[:0],
    "no columns": X[:, :0],
    "a column too few": X[:, :2],
    "one row without its dimension": X[0],
    "another type": X.double(),
    "not a number": torch.full((2, 3), torch.nan),
    "words": np.array([["a", "b", "c"]]),
    "objects": np.array([[None, 1, 2]], dtype=object),
    "complex": X[:2].to(torch.complex64),
    "nothing": None,
    "a list of rows of several lengths": [[1.0, 2.0], [1.0]],
    "a word": "rows",
    "a number": 3.0,
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    "call",
    [
        lambda result, x: explain(result, x, draws=2),
        predictive,
        lambda result, x: predictive_log_likelihood(result, x, Y[:2]),
    ],
    ids=["explain", "predictive", "log-likelihood"],
)
def test_wrong_rows_are_refused_in_a_line(result, call, wrong):
    with pytest.raises(REFUSED) as refusal:
        call(result, WRONG[wrong])
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) > 10
    assert refusal.traceback[-1].path.parts.count("lexppl") >= 1, refusal.traceback[-1]


@pytest.fixture(scope="module", params=["labels", "response"])
def estimator(request):
    frame = pd.DataFrame(X.numpy(), columns=["a", "b", "c"])
    options = {"method": "lex", "k": 1, "epochs": 2, "hidden": (4,), "predictor_hidden": (4,)}
    if request.param == "labels":
        return ExplainerClassifier(**options).fit(frame, Y.numpy()), frame
    return ExplainerRegressor(**options).fit(frame, X[:, 0].numpy()), frame


FRAMES = {
    "float32": lambda frame: frame.astype("float32"),
    "nullable": lambda frame: frame.astype("Float64"),
    "arrow": lambda frame: frame.astype("double[pyarrow]"),
    "objects": lambda frame: frame.astype(object),
    "another index": lambda frame: frame.set_index(frame.index[::-1] * 7),
    "a view": lambda frame: pd.concat([frame, frame], axis=1).iloc[:, :3],
    "Fortran order": lambda frame: pd.DataFrame(
        np.asfortranarray(frame.to_numpy()), columns=frame.columns
    ),
    "columns in another order": lambda frame: frame[["c", "a", "b"]],
    "a column more": lambda frame: frame.assign(d=1.0),
}


@pytest.mark.parametrize("odd", FRAMES)
def test_estimators_predict_alike_of_frames_of_any_kind(estimator, odd):
    fitted, frame = estimator
    expected = fitted.predict(frame.iloc[:9])
    try:
        found = fitted.predict(FRAMES[odd](frame.iloc[:9]))
    except REFUSED as refusal:
        assert odd in ("columns in another order", "a column more"), refusal
        assert "\n" not in str(refusal).strip() or "feature names" in str(refusal)
        return
    np.testing.assert_allclose(found, expected, rtol=1e-5)


WRONG_FRAMES = {
    "no rows": lambda frame: frame.iloc[:0],
    "a column less": lambda frame: frame[["a", "b"]],
    "words": lambda frame: frame.assign(a="word"),
    "infinite": lambda frame: frame.assign(a=np.inf),
    "one row": lambda frame: frame.to_numpy()[0],
    "nothing": lambda frame: None,
    "three dimensions": lambda frame: frame.to_numpy()[None],
}


@pytest.mark.parametrize("wrong", WRONG_FRAMES)
def test_estimators_refuse_wrong_frames(estimator, wrong):
    fitted, frame = estimator
    with pytest.raises(REFUSED):
        fitted.predict(WRONG_FRAMES[wrong](frame))


# Frames of any kind of column become the same numbers, or are refused in the words of tables.

NUMBERS = "float64 float32 int64 int8 uint16 Int64 Float32 int64[pyarrow] double[pyarrow] object"
WORDS = ("object", "string", "category", "string[pyarrow]")
FRAME_ROWS = 12


def frame_of(numbers, words, index):
    rng = np.random.default_rng(0)
    whole = rng.permutation(FRAME_ROWS) + 1
    return pd.DataFrame(
        {
            "number": pd.Series(whole).astype(numbers),
            "word": pd.Series(["a", "b", "c", "a"] * (FRAME_ROWS // 4)).astype(words),
            "y": ["no", "yes"] * (FRAME_ROWS // 2),
        }
    ).set_axis(index)


INDICES = {
    "counted": range(FRAME_ROWS),
    "repeated": [7] * FRAME_ROWS,
    "words": [f"row {n}" for n in range(FRAME_ROWS)],
    "dates": pd.date_range("2020-01-01", periods=FRAME_ROWS),
    "two levels": pd.MultiIndex.from_product([[0, 1], range(FRAME_ROWS // 2)]),
}


@EXAMPLES
@given(st.sampled_from(NUMBERS.split()), st.sampled_from(WORDS), st.sampled_from(sorted(INDICES)))
def test_columns_of_any_type_and_rows_of_any_name(numbers, words, index):
    plain = dataset_from_frame(frame_of("float64", "object", INDICES["counted"]), "y")
    frame = frame_of(numbers, words, INDICES[index])
    kept = frame.copy()
    found = dataset_from_frame(frame, "y")
    assert found.feature_names == plain.feature_names and found.class_names == plain.class_names
    torch.testing.assert_close(found.x, plain.x)
    assert torch.equal(found.y, plain.y) and found.x.dtype == torch.float32
    pd.testing.assert_frame_equal(frame, kept)


ODD = {
    "no rows": lambda frame: frame.iloc[:0],
    "no columns": lambda frame: frame[[]],
    "the target alone": lambda frame: frame[["y"]],
    "one row": lambda frame: frame.iloc[:1],
    "infinite": lambda frame: frame.assign(number=np.inf),
    "complex": lambda frame: frame.assign(number=frame["number"] + 1j),
    "lists": lambda frame: frame.assign(number=[[1, 2]] * FRAME_ROWS),
    "all missing": lambda frame: frame.assign(number=np.nan),
    "constant": lambda frame: frame.assign(number=1.0),
    "one class": lambda frame: frame.assign(y="yes"),
    "one name twice": lambda frame: pd.concat([frame, frame[["number"]]], axis=1),
    "names of two levels": lambda frame: pd.concat({"one": frame}, axis=1),
    "bytes": lambda frame: frame.assign(word=[b"a", b"b"] * (FRAME_ROWS // 2)),
    "sparse": lambda frame: frame.assign(number=pd.arrays.SparseArray(frame["number"])),
    "intervals": lambda frame: frame.assign(number=pd.cut(frame["number"], 3)),
    "durations": lambda frame: frame.assign(number=pd.to_timedelta(frame["number"], "D")),
    "truth values": lambda frame: frame.assign(number=frame["number"] > 5),
    "whole numbers as names": lambda frame: frame.rename(columns={"number": 3}),
    "no frame": lambda frame: frame.to_numpy(),
    "a dictionary": lambda frame: frame.to_dict("list"),
}


READ = {"sparse", "truth values", "bytes", "durations", "whole numbers as names", "intervals"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("odd", ODD)
def test_odd_frames_are_read_or_refused(odd):
    frame = ODD[odd](frame_of("float64", "object", INDICES["counted"]))
    try:
        found = dataset_from_frame(frame, "y")
    except REFUSED as refusal:
        assert len(str(refusal)) > 10
        return
    assert odd in READ
    assert found.x.isfinite().all() and len(found.x) == FRAME_ROWS


@EXAMPLES
@given(st.sampled_from(["S1", "S2", "S3"]), st.integers(1, 40), st.integers(0, 9), LAYOUTS)
def test_synthetic_sets_and_data_sets_of_any_layout(name, rows, seed, layout):
    data = synthetic(name, rows, seed=seed)
    assert data.x.shape == (rows, 11) and data.y.shape == (rows,)
    x, y = laid_out(data.x, layout), laid_out(data.y, layout)
    again = replace(data, x=x, y=y, truth=None, is_part=True)
    assert torch.equal(again.x, data.x) and torch.equal(again.y, data.y)
    assert data.x.isfinite().all() and set(data.y.tolist()) <= {0, 1}
