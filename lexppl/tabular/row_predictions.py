"""Predictions of a fitted explainer that depend on the row alone, not on the rows beside it."""

import copy
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from pyro.distributions.util import broadcast_shape
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lexppl.explanation.program_sites import ProgramSites, sites_of
from lexppl.explanation.row_draws import RESPONSE, value_of
from lexppl.explanation.sampler import outcome
from lexppl.inference.contexts import keep_parameters_local, seeded
from lexppl.inference.objective.program import ParticleTrace, Site, row_marginals
from lexppl.inference.predictive import FittedProgram, drawing, rows_at_once
from lexppl.inference.training.result import FitResult
from lexppl.threads import ONE_THREAD

Part = TypeVar("Part")

GAMMA_TRIES = 24  # Proposals for a gamma draw; each is refused with probability below 0.05


class CommonRandomNumbers(TorchFunctionMode):
    """Draws by random numbers that all rows share, under `torch.func.vmap(…, randomness="same")`.

    Bernoulli and categorical by the inverse distribution function, normal by location and scale,
    gamma by the first accepted of 24 proposals (Marsaglia and Tsang 2000).
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return SAMPLERS.get(func, func)(*args, **(kwargs or {}))


def _uniform(like: Tensor, *shape: int) -> Tensor:
    return torch.rand(shape, dtype=like.dtype, device=like.device)


def _multinomial(p: Tensor, count: int, replacement: bool = False, **_: Any) -> Tensor:
    if count > 1 and not replacement:
        raise NotImplementedError("draws without replacement have no common random numbers")
    reached = p.cumsum(-1)
    level = _uniform(p, *p.shape[:-1], count) * reached[..., -1:]
    return (reached[..., None, :-1] <= level[..., None]).sum(-1)


def _normal(mean: Any, std: Any = 1.0, size: Any = None, **options: Any) -> Tensor:
    if size is not None:
        return torch.randn(size, **options) * std + mean
    like = mean if isinstance(mean, Tensor) else std
    shape = torch.Size(broadcast_shape(*(v.shape for v in (mean, std) if isinstance(v, Tensor))))
    return mean + std * torch.randn(shape, dtype=like.dtype, device=like.device)


def standard_gamma(alpha: Tensor) -> Tensor:
    """Draws of Gamma(α, 1) by numbers whose distribution does not depend on α."""
    raised = torch.where(alpha < 1.0, alpha + 1.0, alpha)
    d = raised - 1.0 / 3.0
    z = torch.randn((GAMMA_TRIES, *alpha.shape), dtype=alpha.dtype, device=alpha.device)
    u = _uniform(alpha, GAMMA_TRIES, *alpha.shape)
    v = (1.0 + z / (9.0 * d).sqrt()) ** 3
    bound = 0.5 * z.square() + d - d * v + d * v.clamp(min=torch.finfo(v.dtype).tiny).log()
    accepted = (v > 0.0) & (u.log() < bound)
    # The first accepted one: the earlier, the larger.
    order = torch.arange(GAMMA_TRIES, 0, -1, device=alpha.device).reshape(-1, *[1] * alpha.dim())
    first = (accepted * order).argmax(0, keepdim=True)
    drawn = d * v.gather(0, first).squeeze(0)
    less = _uniform(alpha, *alpha.shape) ** (1.0 / alpha)
    return torch.where(alpha < 1.0, drawn * less, drawn)


SAMPLERS: Mapping[Any, Callable[..., Tensor]] = MappingProxyType(
    {
        torch.bernoulli: lambda p: (_uniform(p, *p.shape) < p).to(p.dtype),
        torch.multinomial: _multinomial,
        torch.normal: _normal,
        torch._standard_gamma: standard_gamma,
    }
)

Read = Callable[[ParticleTrace], Tensor]  # What is wanted of a run of one row


def row_predictions(result: FitResult, x: Tensor, masks: int, seed: int) -> Tensor:
    """Predictions `1/(RL) Σ_{r,l} p_r(y | x̃_{r,l})`, z_{r,l} ~ p_r(z | x): `(N, C)`
    probabilities or `(N,)` means.

    All rows share the random numbers of the L draws; latents shared by rows are drawn L times from
    the guide.
    """

    def prediction(run: ParticleTrace) -> Tensor:
        return outcome(run).mean((0, 1)).squeeze(0)

    return _over_replicates(result, x, lambda sites: (masks, prediction), masks, seed)


def row_importances(result: FitResult, x: Tensor, masks: int, seed: int) -> Tensor:
    """E[z | x], `(N, G)`, over replicates: the masks' stated mean, else the mean of L draws."""

    def reading(sites: ProgramSites) -> tuple[int, Read]:
        site = sites.masks[0]
        return 1 if site.states_mean else masks, lambda run: _selection(run.sites[site.name])

    return _over_replicates(result, x, reading, masks, seed)


@ONE_THREAD
def _over_replicates(
    result: FitResult,
    x: Tensor,
    reading: Callable[[ProgramSites], tuple[int, Read]],
    draws: int,
    seed: int,
) -> Tensor:
    """Mean of `read` over replicates and draws of the shared latents."""
    result.check(x, in_type=False)
    values = []
    for model, guide in zip(result.models, result.guides, strict=True):
        model, guide = _in_type(model, x.dtype), _in_type(guide, x.dtype)
        with drawing(seed, x.device):
            sites = sites_of(model, x[:1])
            masks, read = reading(sites)
            outer = sites.has_outer_latents
            program = FittedProgram(
                model, guide, (x[:1], None), draws if outer else masks, outer=outer
            )
            values.append(_of_rows(program, x, masks, read, seed))
    return torch.stack(values).mean(0)


def _of_rows(program: FittedProgram, x: Tensor, masks: int, read: Read, seed: int) -> Tensor:
    def of_row(row: Tensor) -> Tensor:
        with CommonRandomNumbers():
            runs = program.runs((row.unsqueeze(0), None), draw=_no_response)
            return torch.stack([read(run) for run, _ in runs]).mean(0)

    # Every row sees the same random numbers, and every chunk starts from the same seed.
    of_rows = torch.func.vmap(of_row, randomness="same")
    parts = []
    for rows in x.split(rows_at_once(x, masks)):
        with seeded(seed, x.device):
            parts.append(of_rows(rows))
    return torch.cat(parts)


def _no_response(site: Site) -> Tensor | None:
    """A placeholder for the response; only its distribution is used."""
    return torch.zeros(site.distribution.shape()) if site.name == RESPONSE else None


def _selection(site: Site) -> Tensor:
    """E[z | x] of one row, `(G,)`."""
    mean = row_marginals(site)
    mean = value_of(site) if mean is None else mean
    return mean.flatten(0, -2).mean(0)


def _in_type(module: Part, dtype: torch.dtype) -> Part:
    """A copy of a module in another floating-point type."""
    if not isinstance(module, nn.Module):
        return module
    copied = copy.deepcopy(module).to(dtype).eval()
    keep_parameters_local(copied)
    return copied
