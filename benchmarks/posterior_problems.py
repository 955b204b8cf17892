"""Programs and simulated sets on which posteriors are judged, with exact ones where there are."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from pyro.nn import PyroModule, PyroSample
from torch import Tensor, nn

from lexppl.effects import draw_weights, imputation_particles, mask_particles
from lexppl.inference import NestedIWAE, fit

WIDTH = 4
FITS = 20


@dataclass(frozen=True)
class Simulated:
    """A set: its rows, the true quantities `(D,)` and their exact posterior sds, if known."""

    rows: tuple[Tensor, ...]
    truth: NDArray
    sd: NDArray | None


@dataclass(frozen=True)
class Problem:
    """What is fitted to sets, and what of it is judged.

    Args:
        program: builds it.
        simulated: a set by its number.
        quantities: what is judged, `(S, D)`, of draws by site `(C, S, *event)`.
        bootstrap: its draws `(S, D)` of a set, with parameters in place of latents; None without.
    """

    program: Callable[[], nn.Module]
    simulated: Callable[[int], Simulated]
    quantities: Callable[[Mapping[str, Tensor]], NDArray]
    bootstrap: Callable[[Simulated, int, bool], NDArray] | None = None


class Regression(PyroModule):
    """y ~ N(w · x, 1), w ~ N(0, 1) in units of a column's scale."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = PyroSample(dist.Normal(torch.zeros(10), 1.0 / SCALES).to_event(1))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        draw_weights(self)
        with pyro.plate("data", len(x), dim=-1), mask_particles(), imputation_particles():
            return pyro.sample("y", dist.Normal((x * self.weights).sum(-1), 1.0), obs=y)


SCALES = torch.tensor([1.0, 1.0, 50.0, *[1.0] * 7])


def regression_set(seed: int, rows: int = 1000) -> Simulated:
    """Ten columns, the first two correlated by .9 and the third in another unit."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 10, generator=draw)
    x[:, 1] = 0.9 * x[:, 0] + math.sqrt(0.19) * x[:, 1]
    x = x * SCALES
    truth = torch.randn(10, generator=draw) / SCALES
    y = x @ truth + torch.randn(rows, generator=draw)
    precision = (x.mT @ x).double() + SCALES.double().square().diag()
    return Simulated((x, y), truth.numpy(), precision.inverse().diagonal().sqrt().numpy())


def explained(x: Tensor, y: Tensor | None, slope: Tensor, keep: Tensor) -> Tensor:
    """z_i ~ Bernoulli(σ(γ_i)), y ~ Bernoulli(σ(β z · x))."""
    with pyro.plate("data", len(x), dim=-1):
        law = dist.Bernoulli(logits=keep.expand(x.shape)).to_event(1)
        with mask_particles():
            kept = pyro.sample("mask", law) * x
            with imputation_particles():
                return pyro.sample("y", dist.Bernoulli(logits=slope * kept.sum(-1)), obs=y)


class Explainer(PyroModule):
    """The same with one γ for all entries, and priors."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = PyroSample(dist.LogNormal(0.7, 0.3))
        self.keep = PyroSample(dist.Normal(0.5, 1.0))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        draw_weights(self)
        return explained(x, y, self.slope, self.keep)


class FittedExplainer(PyroModule):
    """The same with parameters in place of latents."""

    def __init__(self) -> None:
        super().__init__()
        self.log_slope = nn.Parameter(torch.tensor(0.7))
        self.keep = nn.Parameter(torch.tensor(0.5))

    def reset_parameters(self) -> None:
        """Every fit starts where the prior is highest."""

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        return explained(x, y, self.log_slope.exp(), self.keep)


def explainer_set(seed: int, rows: int = 400) -> Simulated:
    """Three entries; the posterior of (log β, γ) by a grid."""
    draw = torch.Generator().manual_seed(seed)
    log_slope = 0.7 + 0.3 * torch.randn((), generator=draw)
    keep = 0.5 + torch.randn((), generator=draw)
    x = torch.randn(rows, 3, generator=draw)
    kept = (torch.rand(rows, 3, generator=draw) < keep.sigmoid()).float()
    chance = (log_slope.exp() * (kept * x).sum(-1)).sigmoid()
    y = (torch.rand(rows, generator=draw) < chance).float()
    truth = np.array([float(log_slope), float(keep)])
    return Simulated((x, y), truth, grid_sds(x.double().numpy(), y.numpy()))


def grid_sds(x: NDArray, y: NDArray, points: int = 81) -> NDArray:
    """Posterior sds of (log β, γ), the eight masks summed over."""
    slopes, keeps = np.linspace(-0.8, 2.2, points), np.linspace(-4.0, 5.5, points)
    masks = np.array([[i >> b & 1 for b in range(3)] for i in range(8)], float)
    sums, sizes = x @ masks.T, masks.sum(1)
    signs = np.where(y > 0, -1.0, 1.0)[:, None]
    masked = -np.outer(np.logaddexp(0, -keeps), sizes) - np.outer(np.logaddexp(0, keeps), 3 - sizes)
    log_post = np.stack(
        [
            np.log(np.exp(-np.logaddexp(0.0, signs * np.exp(s) * sums)) @ np.exp(masked).T).sum(0)
            for s in slopes
        ]
    )
    log_post -= 0.5 * ((slopes[:, None] - 0.7) / 0.3) ** 2 + 0.5 * (keeps[None] - 0.5) ** 2
    weights = np.exp(log_post - log_post.max())
    weights /= weights.sum()
    sds = []
    for values, marginal in ((slopes, weights.sum(1)), (keeps, weights.sum(0))):
        mean = (values * marginal).sum()
        sds.append(math.sqrt(((values - mean) ** 2 * marginal).sum()))
    return np.array(sds)


def explainer_bootstrap(data: Simulated, seed: int, small: bool) -> NDArray:
    """Fits with Dirichlet weights of the rows, masks enumerated."""
    from lexppl.inference import Enumerate

    result = fit(
        FittedExplainer(),
        data.rows,
        objective=NestedIWAE(math.inf, estimator=Enumerate()),
        valid=None,
        batch_size=len(data.rows[0]),
        epochs=5 if small else 300,
        learning_rate=0.03,
        weight_decay=0.0,
        replicates=FITS,
        row_weights="dirichlet",
        seed=seed,
        progress=False,
    )
    sites = result.as_draws().guides[0].sites
    return torch.stack([sites["log_slope"], sites["keep"]], -1).numpy()


class NetworkExplainer(PyroModule):
    """A selector that is a network of two inputs, four units and two entries, with priors."""

    def __init__(self) -> None:
        super().__init__()
        count = 3 * WIDTH + (WIDTH + 1) * 2
        self.weights = PyroSample(dist.Normal(torch.zeros(count), 1.0).to_event(1))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        draw_weights(self)
        return explained(x, y, torch.tensor(3.0), selector_logits(self.weights, x))


def selector_logits(weights: Tensor, x: Tensor) -> Tensor:
    """Of weights `(…, 22)` and rows `(B, 2)` the logits `(…, B, 2)`."""
    first, second = weights.split([3 * WIDTH, (WIDTH + 1) * 2], -1)
    first = first.unflatten(-1, (3, WIDTH))
    second = second.unflatten(-1, (WIDTH + 1, 2))
    hidden = torch.tanh(x @ first[..., :2, :] + first[..., 2:, :])
    return hidden @ second[..., :WIDTH, :] + second[..., WIDTH:, :]


PLACES = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [0.0, 0.0], [1.0, -1.0], [1.0, 1.0]])


def network_set(seed: int, rows: int = 400) -> Simulated:
    """The true selection probabilities of five rows."""
    draw = torch.Generator().manual_seed(seed)
    weights = torch.randn(3 * WIDTH + (WIDTH + 1) * 2, generator=draw)
    x = torch.randn(rows, 2, generator=draw)
    kept = (torch.rand(rows, 2, generator=draw) < selector_logits(weights, x).sigmoid()).float()
    chance = (3.0 * (kept * x).sum(-1)).sigmoid()
    y = (torch.rand(rows, generator=draw) < chance).float()
    truth = selector_logits(weights, PLACES).sigmoid().flatten()
    return Simulated((x, y), truth.numpy(), None)


def _explainer_quantities(samples: Mapping[str, Tensor]) -> NDArray:
    both = torch.stack([samples["slope"].log(), samples["keep"]], -1)
    return both.flatten(0, 1).numpy()


PROBLEMS = {
    "regression": Problem(
        Regression, regression_set, lambda samples: samples["weights"].flatten(0, 1).numpy()
    ),
    "explainer": Problem(Explainer, explainer_set, _explainer_quantities, explainer_bootstrap),
    "network": Problem(
        NetworkExplainer,
        network_set,
        lambda samples: (
            selector_logits(samples["weights"].flatten(0, 1), PLACES).sigmoid().flatten(1).numpy()
        ),
    ),
}


def nuts_draws(problem: Problem, data: Any, seed: int, small: bool) -> NDArray:
    """The same quantities by NUTS with the masks summed out, `(S, D)`."""
    from pyro.infer import NUTS

    from lexppl.inference import MCMC

    size = {"samples": 4, "warmup": 4, "chains": 1} if small else {"samples": 250, "chains": 2}
    method = MCMC(NUTS, **size)
    found = fit(problem.program(), data.rows, inference=method, seed=seed, progress=False)
    each = [guide.sites for guide in found.guides]
    return problem.quantities({name: torch.stack([one[name] for one in each]) for name in each[0]})
