"""What a fit keeps between two explanations, and E[z | x] without Pyro's handlers."""

import gc
import pickle
import subprocess
import sys
import weakref

import numpy as np
import pytest
import torch
import xarray as xr

from lexppl import explain
from lexppl.arviz_compatibility import group_names, group_of
from lexppl.evaluation import Folds
from lexppl.explanation import mask_sampler
from lexppl.explanation.explained_rows import PROGRAM
from lexppl.inference import fit
from lexppl.models import LEX, MLP, BernoulliSelector, KSubsetSelector
from lexppl.systems import METHODS, lex, system_for
from tests.refusals import refused
from tests.test_explanation import fitted, rows
from tests.test_explanation import lex as program


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
