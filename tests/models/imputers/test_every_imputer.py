"""What every imputer keeps to: kept bits, draws, gradients, plates, vmap, files, refusals."""

import itertools
import json

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from scipy import stats
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.func import functional_call, grad, stack_module_state, vmap

from lexppl.models import (
    ConditionalGaussianImputer,
    ConstantImputer,
    GaussianImputer,
    Imputer,
    MarginalImputer,
)
from lexppl.models.imputers.imputer import Imputed
from lexppl.models.imputers.simple import LearnedConstantImputer
from tests.models.imputers.builders import (
    NAMES,
    RANDOM,
    WITH_DENSITY,
    D,
    drawn,
    imputers,
    same_bits,
)
from tests.refusals import refused

every_imputer = pytest.mark.parametrize("name", NAMES)
both_types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
NAN = float("nan")


@both_types
@pytest.mark.parametrize("mode", ["bool", "float", "float with gradient", "no_grad"])
@every_imputer
def test_kept_entries_keep_their_bits_and_hidden_ones_are_the_draw(name, mode, dtype):
    x = 1e3 * torch.randn(50, D, dtype=dtype)
    x[0], x[1], x[2] = -0.0, 0.0, torch.finfo(dtype).tiny
    kept = torch.rand(6, 50, D) < 0.5
    keep = kept if mode == "bool" else kept.to(dtype)
    if mode == "float with gradient":
        keep.requires_grad_()
    with torch.set_grad_enabled(mode != "no_grad"):
        distribution = imputers(dtype)[name](x, keep)
        torch.manual_seed(5)
        draw = distribution.hidden_distribution.expand(distribution.batch_shape).rsample()
        torch.manual_seed(5)
        imputed = distribution.rsample()
    assert (distribution.batch_shape, distribution.event_shape) == ((6, 50), (D,))
    assert imputed.dtype == distribution.mean.dtype == distribution.variance.dtype == dtype
    everywhere = x.expand(6, 50, D)
    assert same_bits(imputed.detach()[kept], everywhere[kept])
    assert torch.equal(imputed.detach()[~kept], draw.detach()[~kept])
    assert (imputed.detach()[~kept] != everywhere[~kept]).all()
    # The control: arithmetic in place of torch.where does not keep the bits.
    arithmetic = kept * everywhere + (~kept) * torch.randn(6, 50, D, dtype=dtype)
    assert not same_bits(arithmetic[kept], everywhere[kept])


@every_imputer
def test_all_kept_and_all_hidden(name):
    imputer, x = imputers()[name], drawn(5, D)
    assert same_bits(imputer(x, torch.ones(5, D)).rsample(), x)
    draws = []
    for seed, rows in ((4, x), (4, x + 100), (5, x)):
        torch.manual_seed(seed)
        draws.append(imputer(rows, torch.zeros(5, D)).rsample())
    assert same_bits(draws[0], draws[1])  # nothing of x is left, and a seed gives the same bits
    assert same_bits(draws[0], draws[2]) == name.startswith("constant")
    assert not imputer(x, torch.zeros(5, D, requires_grad=True)).sample().requires_grad


@every_imputer
def test_fractional_masks_interpolate_and_their_gradient_is_x_minus_the_draw(name):
    imputer, x = imputers()[name], drawn(5, D).requires_grad_()
    keep = torch.rand(3, 5, D, dtype=torch.float64)
    keep[0], keep[1] = 0.0, 1.0
    keep.requires_grad_()
    distribution = imputer(x, keep)
    torch.manual_seed(5)
    draw = distribution.hidden_distribution.expand(distribution.batch_shape).rsample()
    torch.manual_seed(5)
    imputed = distribution.rsample()
    expected = draw + keep * (x - draw)
    torch.testing.assert_close(imputed, expected, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(imputed)
    found = torch.autograd.grad((weight * imputed).sum(), (keep, x), retain_graph=True)
    exact = torch.autograd.grad((weight * expected).sum(), (keep, x))
    if name != "conditional Gaussian":
        torch.testing.assert_close(found[0], weight * (x - draw), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-12)
    assert (found[0][1] != 0).all()  # at exactly 1 as well


@pytest.mark.parametrize("hard", [False, True])
@every_imputer
def test_gradcheck_of_draws(name, hard):
    torch.distributions.Distribution.set_default_validate_args(False)  # steps leave [0, 1]
    imputer, x = imputers()[name], drawn(3, D).requires_grad_()
    keep = torch.tensor([[0, 1, 0.3, 0.8], [0, 0, 0.7, 0.9], [1, 0.9, 1, 1]], dtype=torch.float64)
    keep = (keep.round() if hard else keep).requires_grad_()

    def draw(x: Tensor, keep: Tensor) -> Tensor:
        torch.manual_seed(2)
        return imputer(x, keep).expand((2, 3)).rsample()

    assert gradcheck(draw, (x, keep))


@pytest.mark.parametrize(("masks", "imputations"), [(1, 1), (3, 2)])
@every_imputer
def test_inside_plates(name, masks, imputations):
    imputer, x = imputers()[name], drawn(5, D)

    def program() -> Tensor:
        with pyro.plate("data", 5, dim=-1), pyro.plate("masks", masks, dim=-2):
            keep = pyro.sample("mask", dist.Bernoulli(torch.full((5, D), 0.5)).to_event(1))
            with pyro.plate("imputations", imputations, dim=-3):
                return pyro.sample("x_imputed", imputer(x, keep))

    trace = poutine.trace(program).get_trace()
    imputed, keep = trace.nodes["x_imputed"]["value"], trace.nodes["mask"]["value"]
    assert imputed.shape == (imputations, masks, 5, D)
    kept = keep.expand(imputations, masks, 5, D) == 1
    assert same_bits(imputed[kept], x.expand_as(imputed)[kept])
    if name in WITH_DENSITY:
        trace.compute_log_prob()
        assert trace.nodes["x_imputed"]["log_prob"].shape == (imputations, masks, 5)


@pytest.mark.parametrize("name", RANDOM)
def test_draws_are_independent_over_the_new_dimensions(name):
    """Correlation of two imputations of one mask; fails with probability 1e-6."""
    draws = 20_000
    distribution = imputers()[name](drawn(1, D), torch.zeros(1, 1, D))
    sample = distribution.expand((2, draws, 1)).rsample()[:, :, 0]
    varies = sample[0].std(0) > 1e-9
    standard = ((sample - sample.mean(1, keepdim=True)) / sample.std(1, keepdim=True))[..., varies]
    z = draws**0.5 * (standard[0] * standard[1]).mean(0)
    assert float(z.abs().max()) < stats.norm.isf(1e-6 / (2 * D))
    shared = draws**0.5 * (standard[0] * standard[0]).mean(0)  # the control: one draw, twice
    assert float(shared.abs().min()) > stats.norm.isf(1e-6 / (2 * D))


@every_imputer
def test_masks_shared_by_rows_are_those_of_each(name):
    imputer, x = imputers()[name], drawn(2, D)
    keep = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    for shared in (keep, keep.bool(), keep.expand(1, D), keep.expand(4, 1, D)):
        distribution = imputer(x, shared)
        assert distribution.batch_shape == (*shared.shape[:-2], 2)
        own = imputer(x, shared.expand(*distribution.batch_shape, D).contiguous())
        torch.testing.assert_close(distribution.mean, own.mean)
        torch.manual_seed(1)
        draws = distribution.expand((3, *distribution.batch_shape)).rsample()
        torch.manual_seed(1)
        torch.testing.assert_close(draws, own.expand(draws.shape[:-1]).rsample())
        if name in WITH_DENSITY:
            torch.testing.assert_close(distribution.log_prob(draws), own.log_prob(draws))


@every_imputer
def test_vmap(name):
    torch.distributions.Distribution.set_default_validate_args(False)
    imputer, x = imputers()[name], drawn(5, D)
    keep = torch.rand(3, 4, 5, D, dtype=torch.float64)
    keep[..., 0], keep[..., 1] = 0.0, 1.0

    def draw(keep: Tensor) -> Tensor:
        return imputer(x, keep).expand((2, 4, 5)).rsample()

    sample = vmap(draw, randomness="different")(keep)
    assert sample.shape == (3, 2, 4, 5, D)
    assert torch.equal(sample[..., 1], x[:, 1].expand(3, 2, 4, 5))
    if name in RANDOM:
        alike = vmap(draw, randomness="different")(keep[:1].expand_as(keep))
        assert not torch.equal(alike[0], alike[1])
    assert vmap(draw, randomness="different")(keep > 0.5).shape == sample.shape
    both = vmap(lambda x, keep: imputer(x, keep).rsample(), randomness="different")
    assert both(x.expand(3, 5, D) + 0, keep).shape == (3, 4, 5, D)
    # Inside vmap a tensor's requires_grad reads False: the gradient at exactly 1 must survive.
    gradient = grad(lambda keep: vmap(draw, randomness="different")(keep).sum())(keep)
    assert (gradient != 0).all()
    leaf = keep.clone().requires_grad_()
    vmap(draw, randomness="different")(leaf).sum().backward()
    assert (leaf.grad != 0).all()


@pytest.mark.parametrize("name", NAMES[1:])
def test_stacked_replicates_use_their_own_tensors(name):
    first, second = imputers()[name], imputers()[name]
    with torch.no_grad():
        for buffer_name, buffer in second.named_buffers():
            if buffer_name in ("mean", "means", "reference", "centres", "value"):
                buffer.add_(1000)
    parameters, buffers = stack_module_state([first, second])
    x, keep = drawn(5, D), torch.zeros(4, 5, D, dtype=torch.float64)

    def draw(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
        return functional_call(first, (parameters, buffers), (x, keep)).rsample()

    sample = vmap(draw, randomness="different")(parameters, buffers)
    assert sample.shape == (2, 4, 5, D)
    assert (sample[0].abs() < 100).all() and (sample[1] > 900).all()


@pytest.mark.parametrize("name", RANDOM[1:])
def test_expanding_computes_nothing_again(name, monkeypatch):
    distribution = imputers()[name](drawn(5, D), torch.zeros(3, 5, D, dtype=torch.bool))

    def refuse(*args, **kwargs):
        raise AssertionError("computed again")

    monkeypatch.setattr(torch.linalg, "cholesky_ex", refuse)
    monkeypatch.setattr(torch, "einsum", refuse)
    assert distribution.expand((4, 3, 5)).expand((2, 4, 3, 5)).rsample().shape == (2, 4, 3, 5, D)
    if name != "marginal":
        with pytest.raises(AssertionError, match="computed again"):
            imputers()[name](drawn(5, D), torch.zeros(3, 5, D, dtype=torch.bool))


@pytest.mark.parametrize("name", WITH_DENSITY)
def test_no_density_where_a_kept_entry_changed(name):
    distribution = imputers()[name](drawn(5, D), torch.tensor([1.0, 0.0, 0.0, 0.0]))
    sample = distribution.sample()
    assert distribution.log_prob(sample).isfinite().all()
    sample[0, 0] += 1
    assert distribution.log_prob(sample)[0] == -torch.inf
    assert distribution.log_prob(sample)[1:].isfinite().all()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITH_DENSITY])
def test_points_have_no_density_and_the_error_names_the_reason(name):
    distribution = imputers()[name](drawn(5, D), torch.zeros(D))
    for law in (distribution, distribution.hidden_distribution):
        refused("no density", law.log_prob, distribution.sample(), error=NotImplementedError)


@both_types
@every_imputer
def test_description_and_state_rebuild_the_imputer(name, dtype):
    imputer = imputers(dtype)[name]
    rebuilt = type(imputer)(**json.loads(json.dumps(imputer.config())))
    rebuilt.load_state_dict(imputer.state_dict())
    assert rebuilt.config() == imputer.config() and not list(imputer.parameters())
    draws = []
    for one in (imputer, rebuilt):
        torch.manual_seed(1)
        draws.append(one(drawn(5, D, dtype=dtype), torch.zeros(5, D, dtype=dtype)).rsample())
    assert same_bits(*draws)


@pytest.mark.parametrize("name", ["constant", "standard Gaussian", "images", "marginal"])
def test_images(name):
    event = (2, 3, 4)
    imputer: Imputer = {
        "constant": ConstantImputer(),
        "standard Gaussian": GaussianImputer(),
        "images": GaussianImputer.fit(torch.randn(10, *event)),
        "marginal": MarginalImputer(torch.randn(10, *event)),
    }[name]
    x, keep = torch.randn(5, *event), (torch.rand(3, 5, 1, 3, 4) < 0.5).float()  # of all channels
    distribution = imputer(x, keep)
    assert (distribution.batch_shape, distribution.event_shape) == ((3, 5), event)
    sample = distribution.expand((2, 3, 5)).rsample()
    kept = (keep == 1).expand_as(sample)
    assert same_bits(sample[kept], x.expand_as(sample)[kept])
    assert distribution.mean.shape == (3, 5, *event)
    if name != "marginal":
        assert distribution.log_prob(sample).shape == (2, 3, 5)


def test_imputers_are_modules_and_take_arrays():
    assert all(isinstance(imputer, nn.Module) for imputer in imputers().values())
    assert ConstantImputer([1, 2]).value.dtype == torch.float32
    assert ConstantImputer(np.zeros(2)).value.dtype == torch.float64
    value = torch.zeros(2)
    imputer = ConstantImputer(value)
    value += 1  # a buffer of its own
    assert torch.equal(imputer.value, torch.zeros(2))
    counts = dist.Poisson(torch.full((D,), 9.0)).to_event(1)
    discrete = Imputed(torch.randn(5, D), torch.zeros(D), counts)
    assert not discrete.has_rsample
    assert bool((discrete.sample() % 1 == 0).all())


@every_imputer
def test_bad_rows_and_masks(name):
    imputer, x = imputers(torch.float32)[name], torch.randn(5, D)
    for rows, keep, error, message in (
        (x.double(), torch.ones(5, D), TypeError, "x is torch.float64 and the imputer's .* is tor"),
        (x, torch.ones(5, D + 1), ValueError, "keep must have shape"),
        (x, torch.ones(3, 4, D), ValueError, "keep must have shape"),
        (x[0], torch.ones(D), ValueError, "x must have shape"),
    ):
        refused(message, imputer, rows, keep, error=error)
    if imputer.event_shape is not None:
        with pytest.raises(ValueError, match=r"x must have shape \(B, 4\); the shape is \(5, 5\)"):
            imputer(torch.randn(5, D + 1), torch.ones(5, D + 1))
    torch.distributions.Distribution.set_default_validate_args(True)
    refused("parameter keep", imputer, x, torch.full((5, D), 1.5))
    x[0, 0] = NAN
    refused("parameter x", imputer, x, torch.ones(5, D))


@pytest.mark.parametrize(
    "kind", [type(one) for name, one in imputers().items() if hasattr(one, "fit")]
)
def test_bad_training_rows(kind):
    x = torch.randn(5, 2)
    bad = x.clone()
    bad[2, 1] = NAN
    cases = [
        ((bad,), ValueError, "1 of its 10 values are NaN"),
        ((x.long(),), TypeError, "floating-point"),
        ((x.numpy(),), TypeError, "ndarray"),
        ((x[:1],), ValueError, "at least 2 rows"),
        ((torch.randn(5),), ValueError, "must have shape"),
    ]
    if "components" in kind.fit.__annotations__:
        cases += [
            ((x, 6), ValueError, "components must be .* from 1 to 5, the rows of x; it is 6"),
            ((x, 2.0), ValueError, "components must be a whole number.*it is 2.0"),
            ((x, 2, -1), ValueError, "seed must be a whole number of at least 0; it is -1"),
        ]
        if hasattr(kind.fit(x, 2), "reference"):
            for wrong, error, message in (
                (torch.randn(5, 3), ValueError, r"reference must have shape \(N, 2\)"),
                (bad, ValueError, "reference must be finite"),
                (x.double(), TypeError, "reference is torch.float64"),
            ):
                refused(message, kind.fit, x, 2, error=error, reference=wrong)
    for arguments, error, message in cases:
        refused(message, kind.fit, *arguments, error=error)


@both_types
@pytest.mark.parametrize(
    "kind", [type(one) for name, one in imputers().items() if name in RANDOM and name != "marginal"]
)
def test_one_hot_and_constant_columns(kind, dtype):
    category = torch.randint(3, (400,))
    one_hot = torch.nn.functional.one_hot(category, 4).to(dtype)  # the last never occurs
    number = torch.randn(400, 1, dtype=dtype)
    x = torch.cat([one_hot, number, 1e4 * number, torch.full((400, 1), 0.1, dtype=dtype)], 1)
    imputer = kind.fit(x)
    masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=7)), dtype=dtype).unsqueeze(1)
    distribution = imputer(x[:8], masks)
    sample = distribution.expand((3, *distribution.batch_shape)).rsample()
    assert sample.isfinite().all() and sample.dtype == dtype
    assert distribution.mean.isfinite().all() and (distribution.variance >= 0).all()
    if kind in [type(one) for name, one in imputers().items() if name in WITH_DENSITY]:
        assert distribution.log_prob(sample).isfinite().all()
        assert distribution.log_prob(x[:8]).isfinite().all()
    # What never varied is imputed as it was, near enough not to matter.
    jitter = 70 if kind is ConditionalGaussianImputer else 1
    noise = 8 * (jitter * torch.finfo(dtype).eps) ** 0.5 * one_hot[:, :3].std(0).min()
    assert (sample[..., 3].abs() < noise).all()
    assert ((sample[..., 6] - 0.1).abs() < noise).all()
    # A row that differs where none did is imputed all the same.
    odd = x[:8].clone()
    odd[:, 3] = 5.0
    assert imputer(odd, masks).rsample().isfinite().all()


def test_bad_parts_of_the_imputed_law():
    x, keep = torch.randn(5, D), torch.ones(5, D)
    with pytest.raises(ValueError, match=r"x must have shape \(…, 3\), as of hidden_distribution"):
        Imputed(x, keep, dist.Normal(torch.zeros(3), 1).to_event(1))
    with pytest.raises(ValueError, match=r"keep must have .*1\), an entry for each feature"):
        Imputed(torch.randn(5, 1), keep, dist.Normal(torch.zeros(1), 1).to_event(1))
    refused("must define hidden_distribution", Imputer(), x, keep, error=NotImplementedError)
    joint = Imputed(x, keep, dist.MultivariateNormal(torch.zeros(D), torch.eye(D)))
    refused("does not factorise", joint.log_prob, joint.sample(), error=NotImplementedError)


def test_a_learned_constant_has_the_gradient_of_the_hidden_entries():
    imputer, x = LearnedConstantImputer([2.0, 1.0, 0.0]).double(), drawn(5, 3)
    with torch.no_grad():
        imputer.constant += 0.5
    keep = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64).expand(5, 3)
    imputed = imputer(x, keep).rsample()
    assert torch.equal(imputed[:, 0], x[:, 0])
    assert imputed[:, 1:].unique(dim=0).tolist() == [[0.5, 0.0]]
    imputed.sum().backward()
    assert imputer.constant.grad.tolist() == [0.0, 5.0, 0.0]
    rebuilt = LearnedConstantImputer(**json.loads(json.dumps(imputer.config())))
    rebuilt.load_state_dict(imputer.state_dict())
    assert torch.equal(rebuilt(x, keep).sample(), imputed)
    imputer.reset_parameters()
    assert not imputer.constant.any()
