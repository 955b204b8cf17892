"""The objective by its definition: every joint value of every latent, cell by cell.

Nothing of the library's reading of a program is used. A program is run under Pyro's own trace with
its latents forced to given values; each site's log-probability is read one entry of its plates at a
time, and the sums, logs and scales are written out over those entries.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyro
import torch
from pyro.poutine.messenger import Messenger
from pyro.poutine.subsample_messenger import _Subsample
from torch import Tensor

from lexppl.distributions import mask_support
from lexppl.effects import ParticleCounts
from tests.gradients.enumeration import z_scores

Parameters = dict[str, Tensor]
LABELS = "label_expectation"
"""The plate of a black box's labels."""


@dataclass
class Case:
    """A program with its guide, both functions of their parameters."""

    model: Callable[[Parameters], Any]
    parameters: Parameters
    guide: Callable[[Parameters], Any] | None = None


class Forced(Messenger):
    """Give latents their values before any other handler."""

    def __init__(self, values: dict[str, Tensor]) -> None:
        super().__init__()
        self._values = values

    def _pyro_sample(self, msg: Any) -> None:
        if isinstance(msg["fn"], _Subsample) or msg["is_observed"] or msg["value"] is not None:
            return
        if msg["name"] in self._values:
            msg["value"], msg["done"] = self._values[msg["name"]], True


def forced(program, values):
    """A program whose latents have given values."""
    if program is None:
        return None

    def run(*args):
        with Forced(values):
            return program(*args)

    return run


def traces(case: Case, parameters: Parameters, masks: int, imputations: int, values=None):
    """The sample nodes of guide and model, by name."""
    values = {} if values is None else values
    with ParticleCounts(masks, imputations):
        guide = {}
        if case.guide is not None:
            guide = pyro.poutine.trace(forced(case.guide, values)).get_trace(parameters).nodes
        given = {n: node["value"] for n, node in _samples(guide).items() if not node["is_observed"]}
        model = forced(case.model, {**values, **given})
        nodes = pyro.poutine.trace(model).get_trace(parameters).nodes
    return _samples(nodes), _samples(guide)


def _samples(nodes):
    return {
        name: node
        for name, node in nodes.items()
        if node["type"] == "sample"
        and not isinstance(node["fn"], _Subsample)
        and not node["infer"].get("_deterministic")
    }


def support(fn) -> Tensor:
    """The values of one entry, `(n, *event)`."""
    listed = mask_support(fn) if len(fn.event_shape) == 1 else fn.enumerate_support(expand=False)
    return listed.reshape(-1, *fn.event_shape)


def assignments(case: Case, parameters: Parameters, masks: int, imputations: int):
    """Every joint value of all latents of a run with so many particles."""
    with torch.no_grad():
        model, guide = traces(case, parameters, masks, imputations)
    latents = {n: s["fn"] for n, s in guide.items() if not s["is_observed"]}
    latents |= {n: s["fn"] for n, s in model.items() if not s["is_observed"] and n not in latents}
    # A reparameterised latent without noise (a Delta) has one value only.
    latents = {n: fn for n, fn in latents.items() if not fn.has_rsample}
    choices = {}
    for name, fn in latents.items():
        entries = math.prod(fn.batch_shape)
        values = support(fn)
        every = itertools.product(range(len(values)), repeat=entries)
        shape = (*fn.batch_shape, *fn.event_shape)
        choices[name] = [values[torch.tensor(index)].reshape(shape) for index in every]
    for combination in itertools.product(*choices.values()):
        yield dict(zip(choices, combination, strict=True))


def probability(model, guide) -> Tensor:
    """That of the draws: the guide's of what it draws, the model's own of the others."""
    total = torch.zeros((), dtype=torch.double)
    for nodes, known in ((guide, {}), (model, guide)):
        for name, node in nodes.items():
            if not node["is_observed"] and name not in known and not node["fn"].has_rsample:
                total = total + node["fn"].log_prob(node["value"]).sum()
    return total.exp()


def cells(node):
    """The entries of a site's plates: where it is, its log-probability, its scale."""
    value = node["fn"].log_prob(node["value"])
    shape = node["fn"].batch_shape
    scale = torch.as_tensor(node["scale"], dtype=torch.double)
    scale = scale.expand(np.broadcast_shapes(tuple(shape), tuple(scale.shape)))
    seen = node["mask"]
    seen = torch.as_tensor(True if seen is None else seen).expand(scale.shape)
    value = value.expand(scale.shape)
    for index in itertools.product(*(range(n) for n in scale.shape)):
        place = {}
        for frame in node["cond_indep_stack"]:
            if frame.dim is None:
                place[frame.name] = ("turn", frame.counter)
            else:
                place[frame.name] = index[frame.dim] if -frame.dim <= len(index) else 0
        if bool(seen[index]):
            yield place, value[index], scale[index]
        else:
            yield place, torch.zeros((), dtype=torch.double), scale[index]


def outside_of(node):
    """Names of the plates entered before the mask plate, and of the labels'."""
    names = [frame.name for frame in node["cond_indep_stack"]]
    if "mask_particles" not in names:
        return names
    before = names[: names.index("mask_particles")]
    return before + [n for n in names if n == LABELS and n not in before]


def objective(case, model, guide, masks, imputations, *, entropy=0.0, penalty=1.0) -> Tensor:
    """ℒ of one bound of `masks` masks, at the values of a run with so many particles."""
    zero = torch.zeros((), dtype=torch.double)
    weight = defaultdict(lambda: zero)
    scales = {}
    total = zero
    sums = masks * imputations == 1
    entries = []
    for nodes, sign in ((model, 1.0), (guide, -1.0)):
        for name, node in nodes.items():
            names = [frame.name for frame in node["cond_indep_stack"]]
            inside = "mask_particles" in names
            is_penalty = bool(node["infer"].get("penalty"))
            weighted = node["is_observed"] or name in guide
            for place, value, scale in cells(node):
                if is_penalty:
                    share = len_of(node, "mask_particles") * len_of(node, "imputation_particles")
                    total = total + penalty * scale * value / share
                elif not inside:
                    if weighted:
                        total = total + sign * scale * value
                elif weighted and sums:
                    total = total + sign * scale * value
                elif weighted:
                    unit = tuple(sorted((n, str(place[n])) for n in outside_of(node)))
                    entries.append((unit, place, sign * value, scale))
            latent = not node["is_observed"] and (nodes is guide or name not in guide)
            if entropy and latent and inside and "imputation_particles" not in names:
                total = total + entropy * entropy_of(node) / masks
    units = {unit for unit, *_ in entries}
    full = {u for u in units if any(n == LABELS for n, _ in u)} or units
    for unit, place, value, scale in entries:
        for target in full:
            if unit != target and set(unit) != {p for p in target if p[0] != LABELS}:
                continue
            for mask in _indices(place, "mask_particles", masks):
                for k in _indices(place, "imputation_particles", imputations):
                    weight[target, mask, k] = weight[target, mask, k] + value
            if unit == target:
                scales[target] = scale
    for target in full if entries else ():
        every = torch.stack(
            [weight[target, m, k] for m in range(masks) for k in range(imputations)]
        )
        mean = torch.logsumexp(every, 0) - math.log(masks * imputations)
        total = total + scales[target] * mean
    return total


def _indices(place, plate, size):
    return [place[plate]] if plate in place else range(size)


def len_of(node, plate) -> int:
    return next((f.size for f in node["cond_indep_stack"] if f.name == plate), 1)


def entropy_of(node) -> Tensor:
    """Scaled entropy, summed over the entries of the plates, by definition."""
    fn = node["fn"]
    entries = support(fn)
    shape = (len(entries), *([1] * len(fn.batch_shape)), *fn.event_shape)
    log_p = fn.log_prob(
        entries.reshape(shape).expand(len(entries), *fn.batch_shape, *fn.event_shape)
    )
    value = -(log_p.exp() * log_p).sum(0)
    seen = torch.as_tensor(True if node["mask"] is None else node["mask"])
    return (torch.as_tensor(node["scale"]) * value * seen).sum()


def exact(case: Case, masks: int, imputations: int = 1, **factors) -> tuple[Tensor, Parameters]:
    """The objective's expectation and its gradient, by the sum over all joint values."""
    leaves = {n: v.detach().clone().requires_grad_() for n, v in case.parameters.items()}
    total = torch.zeros((), dtype=torch.double)
    with pyro.validation_enabled(False):
        for values in assignments(case, leaves, masks, imputations):
            model, guide = traces(case, leaves, masks, imputations, values)
            total = total + probability(model, guide) * objective(
                case, model, guide, masks, imputations, **factors
            )
    return total.detach(), gradients_of(total, leaves)


def expected(case: Case, elbo, particles: int, imputations: int = 1) -> tuple[Tensor, Parameters]:
    """The exact expectation of what an objective returns, value and gradient, over its own draws.

    For estimators that draw masks from their distributions: each joint value of all `particles`
    masks is forced upon a run, and weighted by its probability.
    """
    total = torch.zeros((), dtype=torch.double)
    gradient = {n: torch.zeros_like(v) for n, v in case.parameters.items()}
    with pyro.validation_enabled(False):
        for values in assignments(case, case.parameters, particles, imputations):
            leaves = {n: v.detach().clone().requires_grad_() for n, v in case.parameters.items()}
            with torch.no_grad():
                weight = probability(*traces(case, leaves, particles, imputations, values))
            model, guide = forced(case.model, values), forced(case.guide, values)
            value = -elbo.differentiable_loss(model, guide, leaves)
            total = total + weight * value.detach()
            for name, part in gradients_of(value, leaves).items():
                gradient[name] = gradient[name] + weight * part
    return total, gradient


def value_and_gradient(case: Case, elbo) -> tuple[Tensor, Parameters]:
    """What an objective returns of one run, as that of the sum."""
    leaves = {n: v.detach().clone().requires_grad_() for n, v in case.parameters.items()}
    value = -elbo.differentiable_loss(case.model, case.guide, leaves)
    return value.detach(), gradients_of(value, leaves)


def drawn(case: Case, elbo, runs: int) -> list[tuple[Tensor, Parameters]]:
    """Values and gradients of so many runs, the first with all of Pyro's checks."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = value_and_gradient(case, elbo)
        with pyro.validation_enabled(False):
            return [first, *(value_and_gradient(case, elbo) for _ in range(runs - 1))]


def largest_z(draws, truth: tuple[Tensor, Parameters]) -> float:
    """Of the runs' mean value and mean gradients."""
    scores = [z_scores(torch.stack([v for v, _ in draws]), truth[0]).abs()]
    for name, expected_gradient in truth[1].items():
        every = torch.stack([g[name] for _, g in draws])
        scores.append(z_scores(every, expected_gradient).abs().max())
    return float(torch.stack(scores).max())


def gradients_of(value: Tensor, leaves: Parameters) -> Parameters:
    if not value.requires_grad:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
    return {
        name: torch.zeros_like(leaf) if g is None else g.detach()
        for (name, leaf), g in zip(leaves.items(), found, strict=True)
    }


def distance(one: tuple[Tensor, Parameters], other: tuple[Tensor, Parameters]) -> float:
    """The largest difference of values and gradients."""
    gaps = [(one[0] - other[0]).abs()] + [(one[1][n] - other[1][n]).abs().max() for n in one[1]]
    return float(torch.stack(gaps).max())
