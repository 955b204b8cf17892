"""Parts of programs, of rows of any number, type and layout; each row by itself."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from lexppl import models
from lexppl.choices.imputers import IMPUTERS
from lexppl.distributions import geometric_sizes
from lexppl.inference.contexts import seeded
from lexppl.models.imputers import imputer_of
from lexppl.saving.description import known_parts
from tests.properties.given_tensors import EXAMPLES, LAYOUTS, TYPES, close, laid_out, values

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
