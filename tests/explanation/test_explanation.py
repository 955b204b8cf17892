"""What explain() and draws() leave: ArviZ's class, modes, means of draws, and what a fit keeps."""

import copy
import gc
import pickle
import subprocess
import sys
import weakref

import arviz
import arviz as az
import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr
from pyro.infer.autoguide import AutoNormal
from pyro.nn import PyroModule
from scipy.stats import norm, t

from lexppl import explain, fit
from lexppl.arviz_compatibility import group_names, group_of, pareto_smoothed, posterior_of
from lexppl.data import synthetic
from lexppl.effects import imputation_particles, mask_particles
from lexppl.evaluation import Folds, predictive, predictive_log_likelihood
from lexppl.explanation import (
    draws,
    mask_sampler,
    read_log_likelihood,
    read_mask,
    read_prediction,
    selection_table,
)
from lexppl.explanation.explain import explanation_tree
from lexppl.explanation.explained_rows import PROGRAM
from lexppl.explanation.reading.masks import by_groups, masks_of
from lexppl.explanation.reading.modes import Alternative, alternatives_of, modes_of, with_modes
from lexppl.explanation.reading.sentences import Reading, groups_read, html, plain
from lexppl.explanation.row_draws import pareto_k
from lexppl.inference.posterior.global_draws import GlobalDraws, SamplerRecord
from lexppl.models import LEX, MLP, BernoulliSelector, KSubsetSelector, images
from lexppl.plots import answers
from lexppl.systems import METHODS, lex, system_for
from tests.refusals import over, refused
from tests.test_explanation import fitted, rows
from tests.test_explanation import lex as program

ARVIZ = getattr(arviz, "InferenceData", xr.DataTree)
X = torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
NAMES = ["<b>age</b>", "height", "x2"]


def fit_of_penalty(penalty, replicates=3):
    system = lex(3, classes=2, penalty=penalty, hidden=(8,), predictor_hidden=(8,))
    return fit(
        system,
        (X, Y),
        valid=None,
        replicates=replicates,
        epochs=30,
        batch_size=40,
        learning_rate=1e-2,
        progress=False,
    )


@pytest.fixture(scope="module")
def result():
    return fit_of_penalty((0.005, 0.16))


@pytest.mark.smoke
def test_an_explanation_is_of_arvizs_own_class(result):
    posterior = explain(result, X, Y, draws=4)
    folds = Folds.of(Y, 3)
    for own in (posterior, folds.posterior(result, X, draws=0)):
        assert type(own) is ARVIZ
        for other in (copy.copy(own), copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
            assert type(other) is ARVIZ and repr(other) == repr(own)
            assert other.attrs == own.attrs and group_names(other) == group_names(own)
            for name in group_names(own):
                assert group_of(other, name).identical(group_of(own, name))
    assert {"predictions", "log_likelihood"} <= set(group_names(posterior))
    # A group that is set is that of the posterior.
    posterior["sample_stats"]["mine"] = xr.DataArray([1.0], dims="new")
    assert "mine" in group_of(posterior, "sample_stats")


def test_the_tree_of_the_command_line_has_the_same_groups(result):
    options = {"draws": 4, "seed": 3, "penalty": 0.05, "coords": {"row": range(7, 127)}}
    tree = explanation_tree(result, X, Y, **options)
    posterior = explain(result, X, Y, **options)
    assert type(tree) is xr.DataTree and dict(tree.attrs) == dict(posterior.attrs)
    assert set(group_names(tree)) == set(group_names(posterior))  # ArviZ has an order of them
    for name in group_names(tree):
        assert group_of(tree, name).identical(group_of(posterior, name))


def test_answers_are_the_sentences_of_the_report(result):
    posterior = explain(result, X, draws=0, entry_names=NAMES)
    found = answers(posterior)
    page = found._repr_html_()
    reading = Reading("", groups_read(selection_table(posterior), None), 3, 120, 3)
    for question, answer in reading.answers():
        assert question in page and str(html(answer)) in page
        assert question in repr(found) and plain(answer) in repr(found)
    assert "<strong>&lt;b&gt;age&lt;/b&gt;</strong> in nearly every row" in page
    assert "The 3 fits agree" in page and "<b>" not in page and "<script" not in page
    # Nothing was judged.
    assert "predict" not in page.replace("prediction", "")
    assert "There is one fit" in repr(answers(explain(result.subset([0]), X, draws=0)))


def test_rows_of_images_have_no_answers():
    shape = images((1, 4, 4), blocks=(2,), levels=0, width=2)
    system = lex(shape, classes=2, penalty=0.02)
    pixels = torch.randn(6, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    model = fit(system, (pixels, Y[:6]), valid=None, epochs=1, progress=False)
    refused(
        r"table's rows \(N, D\); those .* shape \(6, 1, 4, 4\)", answers, explain(model, pixels)
    )


def test_a_data_set_is_explained_as_its_x_and_y(result):
    data = synthetic("S1", rows=20, seed=0)
    system = lex(11, classes=2, k=3, hidden=(4,), predictor_hidden=(4,))
    of_data = fit(system, data, epochs=1, progress=False)
    expected = explain(of_data, data.x, data.y, draws=4)
    frame = pd.DataFrame(X[:5].numpy(), columns=["x", "y", "z"])
    for found in (explain(of_data, data, draws=4), explain(of_data, (data.x, data.y), draws=4)):
        assert group_names(found) == group_names(expected)
        for name in group_names(expected):
            assert group_of(found, name).identical(group_of(expected, name))
    alone = explain(of_data, (data.x, None), draws=4)
    assert "posterior" not in group_names(alone)
    # A data frame with columns x and y is rows.
    assert explain(result, frame, draws=0)["sample_stats"].sizes["row"] == 5


# What a fit keeps between two explanations, and E[z | x] without Pyro's handlers.


def means(posterior):
    """All of a posterior's `sample_stats`."""
    return group_of(posterior, "sample_stats")


@pytest.fixture
def by_handlers(monkeypatch):
    """How often the handlers were used."""
    calls = []
    stated = mask_sampler.stated_means

    def counted(*arguments):
        calls.append(arguments)
        return stated(*arguments)

    monkeypatch.setattr(mask_sampler, "stated_means", counted)
    return calls


@pytest.mark.parametrize("name", METHODS)
def test_means_have_the_bits_of_the_handlers(name, by_handlers):
    method = METHODS[name]
    small = {n: (4,) for n in ("hidden", "predictor_hidden") if method.takes(n)}
    black_box = lex(3, classes=2, hidden=(4,), predictor_hidden=(4,)).program().predictor
    k = 2 if method.needs("k") else None
    settings = dict(features=3, classes=2, k=k, black_box=black_box, **small)
    x, _ = rows(7)
    models = [system_for(name, settings).program() for _ in range(2)]
    try:
        expected = [means(explain(m.eval(), x, draws=0)) for m in models]
    except ValueError as error:
        # Such as Q-FIT's, whose masks all rows share.
        assert "draws=0 takes E[z | x] from" in str(error) or "there is no guide" in str(error)
        return
    result = fitted(*models)
    first = means(explain(result, x, draws=0))
    used = len(by_handlers)
    again = means(explain(result, x, draws=0))
    xr.testing.assert_identical(again, first)
    for one, model in enumerate(expected):
        for variable, values in model.items():
            np.testing.assert_array_equal(again[variable].values[one], values.values[0])
    if all(type(model) is LEX for model in models):
        assert len(by_handlers) == used


def range_of_penalties():
    x, y = rows(60)
    system = lex(3, classes=2, penalty=(0.005, 0.08), hidden=(4,), predictor_hidden=(4,))
    return fit(system, (x, y), epochs=2, replicates=3, progress=False)


def test_a_range_of_penalties_and_folds():
    x, _ = rows(9, seed=1)
    result = range_of_penalties()
    middle = result.model.selector.penalty
    for _ in range(2):
        for penalty in (0.01, 0.05):
            given = explain(result, x, draws=0, penalty=penalty)
            xr.testing.assert_identical(
                means(given), means(explain(result.at(penalty), x, draws=0))
            )
    assert result.model.selector.penalty == middle
    refused("outside", explain, result, x, draws=0, penalty=3.0)
    assert result.model.selector.penalty == middle
    low, high = (means(explain(result, x, draws=0, penalty=p)) for p in (0.005, 0.08))
    assert not low.equals(high)
    folds = Folds(torch.arange(9) % 3, 3)
    held_out = means(folds.posterior(result, x, draws=0))["selection_probability"].values[0]
    every = means(explain(result, x, draws=0))["selection_probability"].values
    np.testing.assert_allclose(held_out, every[np.arange(9) % 3, np.arange(9)], rtol=1e-6)


def test_draws_are_those_of_a_fit_that_keeps_nothing():
    x, y = rows(30)
    models = [program(BernoulliSelector(MLP(3, 3, (4,), seed=s)), seed=s) for s in (1, 2)]
    kept = fitted(*models)
    explain(kept, x[:2], draws=0)
    assert PROGRAM in kept.kept_between_calls
    for given in ({}, {"y": y}):
        posteriors = [explain(r, x, draws=20, seed=4, **given) for r in (kept, fitted(*models))]
        for name in group_names(posteriors[0]):
            xr.testing.assert_identical(*(group_of(p, name) for p in posteriors))


class Shifted(LEX):
    """Draws another mask than its selector's for rows whose first value is large."""

    def forward(self, x, y=None):
        return super().forward(torch.where(x[:, :1] > 1.0, -x, x), y)


def parts(seed=0):
    model = program(BernoulliSelector(MLP(3, 3, (4,), seed=seed)), seed=seed)
    return model.selector, model.imputer, model.predictor


def test_a_program_that_draws_another_mask_uses_the_handlers(by_handlers):
    """The first row is one where both agree."""
    x = torch.tensor([[0.5, 0.2, -0.1], [2.0, 0.3, -0.4]])
    model = Shifted(*parts()).eval()
    result = fitted(model)
    explain(result, x[:1], draws=0)
    both = means(explain(result, x, draws=0))["selection_probability"].values[0]
    assert len(by_handlers) == 2
    with torch.no_grad():
        shifted = torch.where(x[:, :1] > 1.0, -x, x)
        np.testing.assert_array_equal(both, model.selector(shifted).mean.numpy())
        # Negative control: what the selector alone says is another.
        assert not np.array_equal(both, model.selector(x).mean.numpy())


def test_changed_programs_are_looked_at_again():
    x, _ = rows(6)
    result = fitted(program())
    assert means(explain(result, x, draws=0)).sizes["feature"] == 3
    result.model.selector = KSubsetSelector(MLP(3, 3, (4,), seed=3), k=1)
    found = means(explain(result, x, draws=0))["selection_probability"].values
    np.testing.assert_allclose(found.sum(-1), 1.0, rtol=1e-5)
    # Weights that move need no second look.
    with torch.no_grad():
        result.model.selector.network.layers[-1].bias.add_(torch.tensor([5.0, 0.0, 0.0]))
    moved = means(explain(result, x, draws=0))["selection_probability"].values
    assert (moved[..., 0] > found[..., 0]).all()


def test_nothing_is_kept_of_a_fit_that_is_gone():
    result = fitted(program())
    explain(result, rows(2)[0], draws=0)
    known = weakref.ref(result.kept_between_calls[PROGRAM][0])
    assert known() is not None
    assert pickle.loads(pickle.dumps(result)).kept_between_calls == {}
    del result
    gc.collect()
    assert known() is None


def test_a_hook_that_is_set_later_is_not_passed_over(by_handlers):
    x, _ = rows(6)
    result = fitted(LEX(*parts()).eval())
    before = [means(explain(result, x, draws=0)) for _ in range(2)][1]
    assert len(by_handlers) == 1
    result.model.register_forward_pre_hook(lambda _, args: (-args[0], *args[1:]))
    found = means(explain(result, x, draws=0))
    assert len(by_handlers) == 2 and not found.equals(before)
    other = means(explain(fitted(LEX(*parts()).eval()), -x, draws=0))
    xr.testing.assert_identical(found["selection_probability"], other["selection_probability"])


def test_what_the_command_line_reads_leaves_arviz_alone():
    script = (
        "import sys, torch; from lexppl.explanation.explain import explanation_tree; "
        "from lexppl.explanation import selection_table; "
        "from lexppl.models import *; "
        "model = LEX(BernoulliSelector(MLP(3, 3, (4,))), ConstantImputer(), "
        "Predictor(MLP(3, 2, (4,)), CategoricalLikelihood())).eval(); "
        "posterior = explanation_tree(model, torch.zeros(5, 3), draws=4); "
        "assert len(selection_table(posterior)) == 3; assert 'arviz' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)


def test_what_is_built_later_does_not_follow_the_rows():
    x, _ = rows(4)
    given = x.clone()
    posterior = explain(fitted(program()), given, draws=0)
    given.zero_()
    constant = group_of(posterior, "predictions_constant_data")
    np.testing.assert_array_equal(constant["x"].values, x.numpy())


# Modes of the masks: which alternatives are listed, and with which weights.


COLUMNS = ["size", "shape", "texture", "age"]
SIZE, PAIR = [1.0, 0.0, 0.0, 0.9], [0.0, 1.0, 0.9, 0.9]


def posterior(masks, evidence=None, held_out_by=None):
    """Of fits' probabilities `(R, G)`, the same in all rows, or `(R, N, G)`; of folds where rows
    are held out."""
    p = np.asarray(masks)
    p = np.repeat(p[:, None], 40, 1) if p.ndim == 2 else p
    own, dims, names = p, ("row", "feature"), {"feature": COLUMNS[: p.shape[-1]]}
    stats = {}
    if held_out_by is not None:
        own = p.mean(0, keepdims=True)
        stats["held_out_by"] = ("row", held_out_by)
        stats["fold_selection_probability"] = (("fold", *dims), p)
    stats["selection_probability"] = (("chain", *dims), own, {"site": "mask"})
    if evidence is not None:
        stats["log_evidence"] = (("chain", "row"), evidence)
    mask = (("chain", "draw", *dims), (own > 0.5)[:, None].astype(np.int8))
    groups = {"sample_stats": stats, "predictions": {"mask": mask}}
    return posterior_of({k: xr.Dataset(v, names) for k, v in groups.items()}, {})


def features(posterior):
    return [mode.features for mode in alternatives_of(posterior)]


def test_a_column_or_a_pair_of_columns_are_listed_with_the_shares_of_the_fits():
    found = posterior([SIZE, PAIR, SIZE, PAIR, SIZE])
    modes = modes_of(found)
    np.testing.assert_allclose(modes["mode_weight"], [0.6, 0.4], rtol=1e-12)
    assert modes["mode_of_fit"].values.tolist() == [1, 2, 1, 2, 1]
    of_pair = Alternative(("shape", "texture"), pytest.approx(0.4), 2)
    assert alternatives_of(found) == [Alternative(("size",), pytest.approx(0.6), 3), of_pair]
    by_mode = modes["mode_selection_probability"]
    assert by_mode.dims == ("mode", "row", "feature")
    np.testing.assert_allclose(by_mode.sel(mode=2).mean("row"), PAIR)
    table = selection_table(found)
    assert table.loc["size", "selection_probability"] == pytest.approx(0.6)
    for number, kept in enumerate((SIZE, PAIR), 1):
        np.testing.assert_allclose(table.loc[COLUMNS, f"mode_{number}"], kept)
    assert table.attrs["mode_weights"] == pytest.approx((0.6, 0.4))


@over(
    [SIZE, SIZE, SIZE],
    [SIZE],
    [[1.0, 0.0, 0.0, 0.9], [1.0, 1.0, 0.9, 0.9]],  # A part of the other
    [[0.5, 0.5, 0.0, 0.9], [0.6, 0.4, 0.0, 0.9]],  # Both keep either in half of the rows
    [[0.9, 0.1, 0.0, 0.0], [0.9, 0.0, 0.1, 0.0]],  # In a tenth of the rows
)
def test_of_fits_that_keep_the_same_or_a_part_of_it_no_alternatives_are_listed(masks):
    found = posterior(masks)
    assert modes_of(found) is None and with_modes(found) is found and not alternatives_of(found)
    assert not any(str(name).startswith("mode") for name in selection_table(found))


def test_by_rows_alternatives_may_hold_in_some_of_them():
    """Where the first rows need size or shape, and the others neither."""
    of_rows = np.zeros((2, 40, 2))
    of_rows[0, :14, 0] = of_rows[1, :14, 1] = 1.0
    assert features(posterior(of_rows)) == [("size",), ("shape",)]
    # The same means, and other rows: neither stands in for the other.
    of_rows[1] = of_rows[1, ::-1]
    assert modes_of(posterior(of_rows)) is None


def weights(count, less, error):
    """w_k ∝ R_k exp(−δ_k² / 2 s_k²)."""
    weight = np.array(count) * np.exp(-0.5 * (np.array(less) / np.array(error)) ** 2)
    return weight / weight.sum()


def test_weights_are_the_shares_of_fits_times_the_likelihood_ratio_of_being_as_good():
    random = np.random.default_rng(0)
    evidence = random.normal(size=(1, 40)) + 0.05 * random.normal(size=(3, 40))
    masks = [SIZE, PAIR, SIZE]
    of_modes = np.stack([evidence[[0, 2]].mean(0), evidence[1]])
    for shift in (0.0, 0.012, -0.02):
        of_modes[1] = evidence[1] - evidence[1].mean() + of_modes[0].mean() + shift
        evidence[1] = of_modes[1]
        best = int(shift > 0)
        change = of_modes[best] - of_modes
        error = np.sqrt(change.var(1, ddof=1) / 40 + 0.01**2)
        modes = modes_of(posterior(masks, evidence))
        expected = weights([2, 1], change.mean(1), error)
        np.testing.assert_allclose(modes["mode_weight"], expected, rtol=1e-9)
        np.testing.assert_allclose(modes["mode_log_likelihood"], of_modes.mean(1))
    evidence[1] -= 1.0
    assert modes_of(posterior(masks, evidence)) is None


def test_in_folds_a_mode_is_judged_by_the_rows_that_its_fits_hold_out():
    random = np.random.default_rng(1)
    part, evidence = np.arange(40) % 4, random.normal(size=(1, 40))
    masks = [PAIR, SIZE, PAIR, PAIR]
    each = [evidence[0, part != 1], evidence[0, part == 1]]
    mean = np.array([values.mean() for values in each])
    variance = np.array([values.var(ddof=1) / len(values) for values in each])
    error = np.sqrt(variance + variance[mean.argmax()] + 0.01**2)
    modes = modes_of(posterior(masks, evidence, part))
    expected = weights([3, 1], mean.max() - mean, error)
    np.testing.assert_allclose(modes["mode_weight"], np.sort(expected)[::-1], rtol=1e-9)
    assert sorted(modes["mode_of_fit"].values.tolist()) == sorted([1, 2, 1, 1])


def test_they_stand_in_arviz_data_and_in_groups():
    found = with_modes(posterior([SIZE, PAIR, SIZE]))
    assert "mode_weight" in group_of(found, "sample_stats")
    assert set(group_names(found)) == {"sample_stats", "predictions"}
    groups = {"look": ["shape", "texture"], "size": ["size"], "age": ["age"]}
    by_group = by_groups(found, groups)
    kept = group_of(by_group, "sample_stats")["mode_selection_probability"]
    np.testing.assert_allclose(kept.sel(mode=2, feature="look"), 1.0)
    assert features(by_group) == [("size",), ("look",)]
    # Members of one group that stand in for each other are no alternatives of groups.
    every = by_groups(found, {"any": COLUMNS[:3], "age": ["age"]})
    assert modes_of(every) is None


@pytest.mark.complete
@pytest.mark.parametrize("copies", [True, False])
def test_of_two_copies_each_fit_keeps_one(copies):
    """One of three or four columns is kept; held-out rows have the weights of the formula."""
    generator = torch.Generator().manual_seed(0)
    a, noise = torch.randn(400, generator=generator), torch.randn(400, 2, generator=generator)
    y = torch.bernoulli(torch.sigmoid(3 * a), generator=generator).long()
    x = torch.stack([a, *[a] * copies, *noise.T], 1)
    small = {"classes": 2, "k": 1, "hidden": (16,), "predictor_hidden": (16,)}
    steps = {"epochs": 60, "learning_rate": 0.02, "batch_size": 50, "progress": False}
    result = fit(lex(x.shape[1], **small), (x[:300], y[:300]), replicates=5, **steps)
    found = explain(result, x[300:], y[300:], draws=10, held_out=True)
    modes = modes_of(found)
    if not copies:
        assert modes is None
        return
    assert sorted(features(found)) == [("x1",), ("x2",)]
    evidence = group_of(found, "sample_stats")["log_evidence"].values
    of_fit = modes["mode_of_fit"].values
    by_mode = [evidence[of_fit == k].mean(0) for k in (1, 2)]
    better = int(by_mode[1].mean() > by_mode[0].mean())
    change = by_mode[better] - by_mode[1 - better]
    odds = np.exp(-0.5 * change.mean() ** 2 / (change.var(ddof=1) / 100 + 0.01**2))
    count = [(of_fit == k).sum() * (odds if k - 1 != better else 1.0) for k in (1, 2)]
    np.testing.assert_allclose(modes["mode_weight"], np.array(count) / sum(count), rtol=1e-4)


def test_folds_say_which_fit_holds_each_row_out():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 2, generator=generator)
    y, folds = (x[:, 0] > 0).long(), Folds(torch.arange(30) % 3, 3)
    system = lex(2, classes=2, hidden=(4,), predictor_hidden=(4,))
    how = {"valid": None, "row_weights": folds.weights, "epochs": 2, "progress": False}
    found = folds.posterior(fit(system, (x, y), **how), x, y, draws=4)
    held = group_of(found, "sample_stats")["held_out_by"].values
    np.testing.assert_array_equal(held, np.arange(30) % 3)


# The shape of the tail of importance weights, against ArviZ's.


def of_arviz(log_weights):
    """k̂ of one row's weights by the installed ArviZ."""
    if hasattr(az, "psislw"):
        return float(az.psislw(log_weights.copy())[1])
    from arviz_stats.base import array_stats

    return float(array_stats.psislw(-log_weights)[1])


@pytest.mark.smoke
@pytest.mark.parametrize("count", [30, 100, 400])
def test_it_is_that_of_arviz(count):
    random = np.random.default_rng(count)
    weights = random.standard_t(3, size=(count, 40)) * random.uniform(0.1, 4.0, 40)
    found = pareto_k(weights)
    np.testing.assert_allclose(found, [of_arviz(column) for column in weights.T], rtol=1e-6)
    np.testing.assert_allclose(pareto_k(weights + 7.0), found, rtol=1e-6)


def test_ties_and_few_weights():
    same = np.zeros((100, 1))
    assert pareto_k(same) == -np.inf
    one = same.copy()
    one[3] = 5.0
    assert pareto_k(one) == np.inf
    assert pareto_k(np.zeros((4, 1)) + np.arange(4.0)[:, None]) == np.inf
    nothing = np.full((100, 1), -np.inf)
    nothing[:30] = np.random.default_rng(0).normal(size=(30, 1))
    assert np.isfinite(pareto_k(nothing)).all()


def test_weights_of_zero_do_not_hide_the_tail():
    weights = 3.0 * np.random.default_rng(1).standard_t(2, size=400)
    smoothed, expected = pareto_smoothed(weights)
    weights[weights.argmin()] = -np.inf
    found, k = pareto_smoothed(weights)
    assert k == pytest.approx(expected) and k > 0.7
    np.testing.assert_allclose(np.exp(found), np.exp(smoothed), atol=1e-9)
    one, none = np.full((2, 400), -np.inf)
    one[5] = 0.0
    assert (pareto_smoothed(np.stack([one, none]))[1] == np.inf).all()
    assert pareto_smoothed(np.zeros(400))[1] == -np.inf


# What readers take from runs of a fit, against predictions, gains and closed forms.


ROWS = 60


@pytest.fixture(scope="module")
def sixty_rows():
    x = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] + 0.3 * x[:, 1] > 0).long()


@pytest.fixture(scope="module")
def two_fits(sixty_rows):
    system = lex(3, classes=2, hidden=(4,), predictor_hidden=(4,), penalty=0.02)
    return fit(system, sixty_rows, epochs=3, replicates=2, progress=False)


EVERY = {"mask": read_mask, "p": read_prediction, "log": read_log_likelihood}


def test_it_is_predictive_and_its_log_likelihood(two_fits, sixty_rows):
    x, y = sixty_rows
    found = draws(two_fits, x, y, read=EVERY, draws=40, imputations=3)
    alone = draws(two_fits, x, read={"p": read_prediction}, draws=40, imputations=3)
    assert dict(found.sizes) == {
        "chain": 2, "draw": 40, "row": ROWS, "feature": 3, "class": 2
    }  # fmt: skip
    assert found.feature.values.tolist() == ["x1", "x2", "x3"]
    np.testing.assert_allclose(
        alone.p.mean("draw"), predictive(two_fits, x, masks=40, imputations=3), atol=1e-6
    )
    scores = predictive_log_likelihood(two_fits, x, y, masks=40, imputations=3)
    np.testing.assert_allclose(np.log(np.exp(found.log).mean("draw")), scores, atol=1e-6)
    # Of one imputation the two readers agree: log p(y | x, z) is that of the prediction.
    one = draws(two_fits, x, y, read=EVERY, draws=20)
    chosen = one.p.values[..., np.arange(ROWS), y.numpy()]
    np.testing.assert_allclose(np.log(chosen), one.log, atol=1e-5)
    assert not np.allclose(one.p.mean("draw").values, one.p.values[:, 0]), "draws differ"


def test_masks_are_forced_in_each_chain(two_fits, sixty_rows):
    x, _ = sixty_rows
    kept = draws(two_fits, x, read={"mask": read_mask}, draws=7).mask
    again = draws(two_fits, x, masks=kept, read=EVERY | {"log": read_mask}).mask
    np.testing.assert_array_equal(again, kept)
    by_row_last = kept.transpose("feature", "row", "draw", "chain")
    moved = draws(two_fits, x, masks=by_row_last.transpose(..., "feature"), read={"m": read_mask}).m
    np.testing.assert_array_equal(moved, kept)
    none = draws(two_fits, x, masks=torch.zeros(1, ROWS, 3), read={"mask": read_mask}).mask
    assert none.shape == (2, 1, ROWS, 3) and not none.any()


class Hierarchy(PyroModule):
    """z_g ~ Bernoulli(¼), y ~ N(slope + Σ z x, 1), with a posterior of the slope."""

    def forward(self, x, y=None):
        slope = pyro.sample("slope", dist.Normal(torch.zeros(()).to(x), 1.0))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            z = pyro.sample("mask", dist.Bernoulli(torch.full((3,), 0.25).to(x)).to_event(1))
            with imputation_particles():
                pyro.sample("y", dist.Normal(slope + (z * x).sum(-1), 1.0), obs=y)


def test_latents_that_rows_share_have_a_run_for_each_draw(sixty_rows):
    x, _ = sixty_rows
    y = x[:, 0]
    result = fit(Hierarchy, (x, y), guide=AutoNormal, epochs=3, progress=False)

    def slope(run):
        return run.sites["slope"].value.reshape(1, 1).expand(1, len(run.arguments[0]))

    read = {"slope": slope, "mask": read_mask, "p": read_prediction, "log": read_log_likelihood}
    found = draws(result, x, y, read=read, draws=30)
    assert (found.slope == found.slope.isel(row=0)).all()
    assert len(np.unique(found.slope.isel(row=0))) == 30
    mean = found.slope + (found.mask * x.numpy()).sum("feature")
    np.testing.assert_allclose(found.p, mean, atol=1e-5)
    exact = dist.Normal(torch.tensor(mean.values), 1.0).log_prob(y.double())
    np.testing.assert_allclose(found.log, exact, atol=1e-5)
    alone = draws(result, x, read={"p": read_prediction}, draws=30)
    np.testing.assert_allclose(alone.p.mean("draw"), predictive(result, x, masks=30), atol=1e-6)
    # With masks forced the mean is a function of the slopes alone.
    masks = torch.ones(30, ROWS, 3)
    forced = draws(result, x, read={"p": read_prediction, "slope": slope}, masks=masks)
    np.testing.assert_allclose(
        forced.p - forced.slope, np.broadcast_to(x.sum(-1), (1, 30, ROWS)), atol=1e-5
    )


def test_each_fold_is_read_from_the_fit_that_holds_it_out(sixty_rows):
    x, y = sixty_rows
    folds = Folds.of(y, 3)
    system = lex(3, classes=2, hidden=(4,), predictor_hidden=(4,))
    result = fit(
        system, sixty_rows, valid=None, row_weights=folds.weights, epochs=2, progress=False
    )
    found = draws(result, x, y, read=EVERY, draws=25, folds=folds)
    assert found.sizes["chain"] == 1 and found.row.values.tolist() == list(range(ROWS))
    wanted = folds.values(predictive, result, x, masks=25, seed=0)
    alone = draws(result, x, read={"p": read_prediction}, draws=25, folds=folds)
    np.testing.assert_allclose(alone.p.mean("draw"), wanted, atol=1e-6)
    same = draws(result, x, masks=found.mask, read={"mask": read_mask}, folds=folds).mask
    np.testing.assert_array_equal(same, found.mask)


def test_a_reader_of_its_own_names_its_dims(two_fits, sixty_rows):
    x, _ = sixty_rows

    def size(run):
        return read_mask(run).sum(-1)

    def both(run):
        return torch.stack([size(run), 3 - size(run)], -1)

    read = {"size": size, "both": both}
    found = draws(two_fits, x, read=read, draws=5, dims={"both": ["kept_or_hidden"]})
    assert found["size"].dims == ("chain", "draw", "row")
    assert found["both"].dims == ("chain", "draw", "row", "kept_or_hidden")
    np.testing.assert_array_equal(found["both"].isel(kept_or_hidden=0), found["size"])
    assert draws(two_fits, x, read={"both": both}, draws=2)["both"].dims[-1] == "both_dim_0"


@over(
    ({"draws": 0}, "draws"),
    ({"imputations": 0}, "imputations"),
    ({"seed": -1}, "seed"),
    ({"masks": torch.ones(2, ROWS - 1, 3)}, r"shape \(D, 60, 3\)"),
    ({"masks": torch.ones(3, 2, ROWS, 3)}, r"or \(2, D, 60, 3\); the shape is \(3, 2, 60, 3\)"),
    ({"masks": torch.ones(2, ROWS, 4)}, r"shape \(D, 60, 3\)"),
    ({"masks": torch.ones(ROWS, 3)}, r"shape \(D, 60, 3\)"),
    ({"masks": torch.full((2, ROWS, 3), 0.5)}, "0 and 1 only"),
    ({"read": {}}, "read"),
    ({"read": {"score": read_log_likelihood}}, "y"),
    ({"dims": {"other": ["a"]}}, "dims"),
)
def test_bad_input_is_refused_in_one_line(words, message, two_fits, sixty_rows):
    words = {"read": {"mask": read_mask}, **words}
    caught = refused(
        message, draws, two_fits, sixty_rows[0], error=(ValueError, TypeError), **words
    )
    assert "\n" not in str(caught)


def test_other_rows_than_those_of_the_fit_are_refused(two_fits, sixty_rows):
    assert "\n" not in str(refused("3 features", draws, two_fits, sixty_rows[0][:, :2], read=EVERY))


# E[z | x, θ] by draw of θ, and the posterior intervals and r̂ of selections that follow.


SIX_ROWS = torch.randn(6, 2, generator=torch.Generator().manual_seed(0)).double()
SIX_LABELS = (SIX_ROWS[:, 0] > 0).double()
SAMPLES = torch.randn(2, 40, 2, generator=torch.Generator().manual_seed(1)).double()


class ShiftedLogits(pyro.nn.PyroModule):
    """Keeps feature g of row n with probability σ(x_ng + θ_g)."""

    def forward(self, x, y=None):
        shift = pyro.sample("shift", dist.Normal(x.new_zeros(2), 1.0).to_event(1))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(logits=x + shift).to_event(1))
            return pyro.sample("y", dist.Bernoulli(logits=(mask * x).sum(-1)), obs=y)


def exact():
    """(chain, draw, row, feature)."""
    return torch.sigmoid(SIX_ROWS + SAMPLES[:, :, None]).numpy()


class Given:
    """An inference that has its draws already."""

    def run(self, model, rows, *, seed, progress):
        return GlobalDraws({"shift": SAMPLES}, SamplerRecord("given", are_chains=True), model)


def explained(**more):
    result = fit(ShiftedLogits(), (SIX_ROWS, SIX_LABELS), inference=Given(), progress=False)
    return explain(result, SIX_ROWS, **more)


@pytest.mark.smoke
@pytest.mark.filterwarnings("ignore::lexppl.inference.posterior.global_draws.SamplerWarning")
@pytest.mark.parametrize("with_y", [False, True])
def test_they_are_those_of_each_draw(with_y):
    posterior = explained(y=SIX_LABELS) if with_y else explained()
    by_row = group_of(posterior, "predictions")["mask_mean"]
    assert by_row.dims == ("chain", "draw", "row", "feature")
    np.testing.assert_allclose(by_row.values, exact(), rtol=1e-6)
    group = group_of(posterior, "posterior")
    assert not any("row" in values.dims for values in group.values())
    np.testing.assert_allclose(group["mask_mean_over_rows"].values, exact().mean(2), rtol=1e-6)
    # The draws of θ beside them are the same ones, in the same order.
    np.testing.assert_array_equal(group["shift"].values, SAMPLES.numpy())
    assert not np.allclose(exact()[:, ::-1], exact())
    # They are no masks: those given y are there where y was given alone.
    if with_y:
        assert masks_of(posterior, given_y=True)["mask"].dtype == np.int8
    else:
        refused("no masks given y", masks_of, posterior, given_y=True)
    summary = arviz.summary(posterior, var_names=["mask_mean_over_rows"], round_to="none")
    np.testing.assert_allclose(summary["mean"], exact().mean((0, 1, 2)), rtol=1e-6)


@pytest.mark.filterwarnings("ignore::lexppl.inference.posterior.global_draws.SamplerWarning")
def test_the_interval_is_the_posteriors_and_r_hat_that_of_chains():
    posterior = explained()
    drawn = exact().mean(2)
    for level in (0.9, 0.95):
        table = selection_table(posterior, level=level).sort_index()
        low, high = (1 - level) / 2, (1 + level) / 2
        np.testing.assert_allclose(
            table[["lower", "upper"]].values.T,
            np.quantile(drawn.reshape(-1, 2), [low, high], axis=0),
            rtol=1e-6,
        )
    assert "agreement" not in table
    own = group_of(posterior, "posterior")["mask_mean_over_rows"]
    expected = arviz.rhat(own.to_dataset(name="a"))["a"].values
    np.testing.assert_allclose(table["r_hat"], expected, rtol=1e-6)
    # The control: chains of which one stands elsewhere are told.
    apart = SAMPLES.clone()
    apart[1] += 3.0
    moved = explain(ShiftedLogits(), SIX_ROWS, samples={"shift": apart})
    still = explain(ShiftedLogits(), SIX_ROWS, samples={"shift": SAMPLES})
    width = [np.ptp(selection_table(one)[["lower", "upper"]].values, 1) for one in (moved, still)]
    assert (width[0] > width[1]).all()


@pytest.mark.filterwarnings("ignore::lexppl.inference.posterior.global_draws.SamplerWarning")
def test_of_many_numbers_the_mean_over_rows_is_left_which_says_so(monkeypatch):
    monkeypatch.setattr(sys.modules["lexppl.explanation.posterior_arrays"], "MOST_NUMBERS", 959)
    group = group_of(explained(), "posterior")
    assert "mask_mean" not in group_of(explained(), "predictions")
    np.testing.assert_allclose(group["mask_mean_over_rows"].values, exact().mean(2), rtol=1e-6)
    told = group["mask_mean_over_rows"].attrs["description"]
    assert "left out: it has more than 959 numbers" in told and "explain fewer rows" in told
    monkeypatch.setattr(sys.modules["lexppl.explanation.posterior_arrays"], "MOST_NUMBERS", 960)
    assert "mask_mean" in group_of(explained(), "predictions")


def test_of_fits_without_priors_nothing_is_drawn_and_levels_are_students():
    small = lex(2, classes=2, k=1, hidden=(4,), predictor_hidden=(4,))
    result = fit(
        small,
        (SIX_ROWS.float(), SIX_LABELS.long()),
        epochs=2,
        replicates=3,
        valid=None,
        progress=False,
    )
    posterior = explain(result, SIX_ROWS.float(), draws=0)
    tables = {level: selection_table(posterior, level=level) for level in (0.5, 0.95)}
    usual = selection_table(posterior)
    assert tables[0.95].equals(usual) and "agreement" in usual
    half = [(one["upper"] - one["lower"]).values / 2 for one in (tables[0.5], usual)]
    inside = (usual["lower"] > 0) & (usual["upper"] < 1)
    ratio = t.ppf(0.75, 2) / t.ppf(0.975, 2)
    np.testing.assert_allclose((half[0] / half[1])[inside], ratio, rtol=1e-6)
    assert abs(ratio - norm.ppf(0.75) / norm.ppf(0.975)) > 0.1
    refused("level", selection_table, posterior, level=95)
