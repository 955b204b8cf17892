"""A small explainer whose objective can be written out in full, in plain torch.

One row is copied N times with its own copy of every parameter, so that one backward pass gives N
independent draws of the gradient. Hidden features take one of two values together, so that the
number of ones among K imputations is binomial and every expectation is a finite sum.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, product

import pyro
import pyro.distributions as dist
import torch
from scipy.stats import norm
from torch import Tensor

from lexppl.distributions import KSubset
from lexppl.effects import label_expectation
from lexppl.models import imputation_particles, mask_particles, penalty


@dataclass
class Toy:
    """The explainer and its exact objective.

    Args:
        features: G.
        size: k of a k-subset distribution, or None for independent Bernoullis.
        guided: whether the masks are drawn from q(z | x, y) with logits of its own.
        soft_labels: probability of y = 1 given by a black box, or None for an observed y = 1.
        cost: λ of the penalty λ (Σ z)².
    """

    features: int = 4
    size: int | None = None
    guided: bool = False
    soft_labels: float | None = None
    cost: float = 0.0
    infer: dict = field(default_factory=dict)
    distribution: Callable[[Tensor], dist.TorchDistribution] | None = None
    log_law: Callable[[Tensor, Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.features)

        def normal(scale: float) -> Tensor:
            return scale * torch.randn(self.features, generator=generator, dtype=torch.float64)

        self.x = normal(1.0) + 0.5
        self.fills = (-0.7, 0.9)
        self.parameters = {"selector": normal(0.8), "predictor": normal(1.2)}
        if self.guided:
            self.parameters["guide"] = normal(0.8)

    # The program

    def mask_law(self, logits: Tensor) -> dist.TorchDistribution:
        if self.distribution is not None:
            return self.distribution(logits)
        if self.size is None:
            return dist.Bernoulli(logits=logits).to_event(1)
        return KSubset(logits, self.size)

    def model(self, values: dict[str, Tensor], unit: Tensor) -> None:
        rows = len(unit)
        with pyro.poutine.scale(scale=unit), pyro.plate("data", rows, dim=-1), mask_particles():
            mask = pyro.sample("mask", self.mask_law(values["selector"]), infer=self.infer)
            if self.cost:
                penalty("cost", self.cost * mask.sum(-1) ** 2)
            with imputation_particles():
                which = pyro.sample(
                    "fill", dist.Bernoulli(torch.full((rows,), 0.5, dtype=torch.double))
                )
                fill = self.fills[0] + which * (self.fills[1] - self.fills[0])
                x_imputed = mask * self.x + (1 - mask) * fill.unsqueeze(-1)
                distribution = dist.Bernoulli(logits=(values["predictor"] * x_imputed).sum(-1))
                if self.soft_labels is None:
                    pyro.sample("y", distribution, obs=torch.ones(rows, dtype=torch.double))
                else:
                    p = torch.tensor([1 - self.soft_labels, self.soft_labels], dtype=torch.double)
                    with label_expectation(p.expand(rows, 2)) as labels:
                        pyro.sample("y", distribution, obs=labels.double())

    def guide(self, values: dict[str, Tensor], unit: Tensor) -> None:
        rows = len(unit)
        with pyro.poutine.scale(scale=unit), pyro.plate("data", rows, dim=-1), mask_particles():
            pyro.sample("mask", self.mask_law(values["guide"]), infer=self.infer)

    # The reference

    def masks(self) -> Tensor:
        every = torch.tensor(list(product((0.0, 1.0), repeat=self.features))).double()
        return every if self.size is None else every[every.sum(-1) == self.size]

    def log_mask(self, logits: Tensor) -> Tensor:
        """Log-probability of every mask, by normalising over the list of them."""
        if self.log_law is not None:
            return self.log_law(logits, self.masks())
        return torch.log_softmax(self.masks() @ logits, 0)

    def exact(
        self,
        values: dict[str, Tensor],
        masks: float,
        imputations: int,
        entropy: float = 0.0,
        penalty_factor: float = 1.0,
    ) -> Tensor:
        """The objective in full, for one row."""
        z = self.masks()
        log_p = self.log_mask(values["selector"])
        log_q = self.log_mask(values["guide"]) if self.guided else log_p
        total = torch.zeros(()).double()
        labels = {1.0: 1.0} if self.soft_labels is None else {0.0: 1 - self.soft_labels}
        if self.soft_labels is not None:
            labels[1.0] = self.soft_labels
        for label, share in labels.items():
            log_y = torch.stack([self._log_likelihood(values, z, f, label) for f in self.fills])
            log_w = log_y + log_p - log_q
            total = total + share * _expected_bound(log_w, log_q, masks, imputations)
        total = total - penalty_factor * self.cost * (log_q.exp() * z.sum(-1) ** 2).sum()
        return total - entropy * (log_q.exp() * log_q).sum()

    def _log_likelihood(
        self, values: dict[str, Tensor], z: Tensor, fill: float, label: float
    ) -> Tensor:
        logits = ((z * self.x + (1 - z) * fill) * values["predictor"]).sum(-1)
        return torch.nn.functional.logsigmoid(logits if label else -logits)


def _expected_bound(log_w: Tensor, log_q: Tensor, masks: float, imputations: int) -> Tensor:
    """E log 1/(LK) Σ w, over which mask and how many of its K fills are the second."""
    K = imputations
    states, probabilities = [], []
    for ones in range(K + 1):
        w = (ones * log_w[1].exp() + (K - ones) * log_w[0].exp()) / K
        states.append(w)
        probabilities.append(log_q.exp() * math.comb(K, ones) * 0.5**K)
    w, p = torch.cat(states), torch.cat(probabilities)
    if math.isinf(masks):
        return (p * w).sum().log()
    L = int(masks)
    if L == 1:
        return (p * w.log()).sum()
    index = torch.tensor(list(combinations_with_replacement(range(len(w)), L)))
    ways = torch.tensor(
        [
            math.factorial(L) / math.prod(math.factorial(c) for c in Counter(t).values())
            for t in index.tolist()
        ]
    ).double()
    return (ways * p[index].prod(-1) * w[index].mean(-1).log()).sum()


def exact_value_and_gradient(toy: Toy, *args: float, **kwargs: float) -> tuple[Tensor, dict]:
    values = {name: v.clone().requires_grad_() for name, v in toy.parameters.items()}
    value = toy.exact(values, *args, **kwargs)
    gradients = torch.autograd.grad(value, list(values.values()))
    return value.detach(), dict(zip(values, gradients, strict=True))


def drawn_values_and_gradients(
    toy: Toy, objective, draws: int, seed: int, chunk: int = 20_000
) -> tuple[Tensor, dict[str, Tensor]]:
    """Per-draw values and gradients of the objective, `(draws,)` and `(draws, G)`."""
    pieces: list[dict[str, Tensor]] = []
    with torch.random.fork_rng(), pyro.validation_enabled(False):
        torch.manual_seed(seed)
        for start in range(0, draws, chunk):
            rows = min(chunk, draws - start)
            leaves = {
                name: v.expand(rows, -1).clone().requires_grad_()
                for name, v in toy.parameters.items()
            }
            unit = torch.ones(rows, dtype=torch.double).requires_grad_()
            guide = toy.guide if toy.guided else None
            loss = objective.differentiable_loss(toy.model, guide, leaves, unit)
            (-loss).backward()
            gradients = {
                n: torch.zeros_like(v) if v.grad is None else v.grad for n, v in leaves.items()
            }
            pieces.append({"value": unit.grad, **gradients})
    joined = {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}
    return joined.pop("value"), joined


def z_scores(draws: Tensor, exact: Tensor) -> Tensor:
    """Standardised distance of the mean of the draws from the exact value, by coordinate.

    Coordinates without noise must agree to rounding, and then score 0.
    """
    mean, error = draws.mean(0), draws.std(0) / math.sqrt(len(draws))
    distance = mean - exact
    silent = (error < 1e-12) & (distance.abs() < 1e-9)
    return torch.where(silent, torch.zeros_like(mean), distance / error.clamp(min=1e-15))


def threshold(coordinates: int, failure_rate: float = 1e-5) -> float:
    """|z| that the largest of this many coordinates passes with the given probability."""
    return float(norm.isf(failure_rate / (2 * coordinates)))
