"""Masks in runs, in a program: what it learns, anneals, explains and keeps."""

import math
from functools import partial

import pytest
import torch

from lexppl import explain, load, save
from lexppl.distributions import ChainMask
from lexppl.inference import Enumerate, LeaveOneOut, NestedIWAE, fit
from lexppl.inference.contexts import keep_parameters_local, program_settings
from lexppl.inference.objective.objective import Linear
from lexppl.models import LEX, ChainSelector, SizePenalty
from lexppl.models.missing import ObservedSelector
from tests.small_models import explainer

G = 6


def series(rows: int = 300) -> tuple[torch.Tensor, torch.Tensor]:
    """The first three times say the class."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, G, generator=generator)
    y = (x[:, :3].sum(-1) > 0).long()
    return x, y


def model(**options) -> LEX:
    selector = partial(ChainSelector, **options)
    return explainer(selector, features=G, hidden=(8,), penalties=[SizePenalty(0.05)])


def fitted(program: LEX, **options):
    objective = NestedIWAE(
        4, estimator=LeaveOneOut(), entropy=Linear(0.1, 0.0, end=0.6), penalty=1.0
    )
    return fit(program, series(), objective=objective, seed=0, progress=False, **options)


def test_a_learned_coupling_moves_is_kept_and_is_one_for_each_replicate(tmp_path):
    options = {"epochs": 4, "learning_rate": 0.05, "batch_size": 50}
    result = fitted(model(coupling=1.0, learned=True), **options)
    coupling = float(result.model.selector.coupling.detach())
    assert coupling != 1.0
    save(result, tmp_path / "learned")
    again = load(tmp_path / "learned")
    assert float(again.model.selector.coupling.detach()) == coupling
    several = fitted(model(coupling=1.0, learned=True), replicates=2, **options)
    assert len(several.models) == 2
    assert bool((explain(several, series()[0][:3], draws=5)["predictions"]["mask"] >= 0).all())


@pytest.mark.smoke
def test_its_bound_by_enumeration_is_the_bound_of_the_listed_masks():
    program = model(coupling=0.7).double()
    x, y = (values[:5] for values in series())
    x = x.double()
    keep_parameters_local(program)
    with program_settings(validate=True):
        loss = NestedIWAE(math.inf, estimator=Enumerate()).loss(program, None, x, y)
    chain = program.selector(x)
    masks = chain.enumerate_support()
    outputs = program.predictor.network(masks * x).log_softmax(-1)
    log_y = outputs.gather(-1, y.expand(len(masks), -1).unsqueeze(-1)).squeeze(-1)
    exact = torch.logsumexp(chain.log_prob(masks) + log_y, 0)
    penalty = 0.05 * chain.mean.sum(-1)
    assert loss == pytest.approx(float((penalty - exact).sum().detach()), abs=1e-9)


def test_missing_entries_are_never_kept_and_the_others_follow_the_chain_given_that():
    selector = ObservedSelector(
        ChainSelector(torch.nn.Identity(), coupling=1.0), groups=[0, 1, 2], markers=[-1, -1, 3, 3]
    )
    row = torch.tensor([[0.3, -0.2, 0.0, 1.0]])
    missing = selector.missing(row)
    distribution = selector(row)
    full = ChainMask(torch.where(missing, 0.0, row[:, :3]), 1.0)
    masks = full.enumerate_support()
    allowed = ~(masks.bool() & missing).any(-1)
    log_p = full.log_prob(masks).masked_fill(~allowed, -math.inf).log_softmax(0)
    expected = (log_p.exp().unsqueeze(-1) * masks).sum(0)
    assert bool(missing.any())
    assert (distribution.mean - expected).abs().max() < 1e-6
