"""Draws of global latents: their record, convergence, and guides or programs that give them."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from pyro.nn import PyroModule
from pyro.poutine.runtime import effectful
from torch import Tensor, nn
from torch.distributions import constraints

from lexppl.effects import MASK_PLATE, Answers
from lexppl.extras import arviz_library
from lexppl.inference.batches import Columns
from lexppl.inference.contexts import held, keep_parameters_local
from lexppl.inference.stages import differing, stacked_tensors, tensors_of

Samples = Mapping[str, Tensor]  # Draws by site, `(S, *event)`
OF_MASKS = f"{MASK_PLATE}/"  # Begins the names of buffers of masks


@effectful(type="draw_index")
def draw_index() -> tuple[int, int] | None:
    """The index d of D draws that the running program gives; None outside a :class:`DrawIndex`."""
    return None


class DrawIndex(Answers):
    """Context in which :func:`draw_index` is (d, D)."""

    def __init__(self, draw: int, draws: int) -> None:
        super().__init__(draw_index=lambda msg: (draw, draws))


class SampledGuide(PyroModule):
    """A guide whose every call gives one of S draws of a program's global latents.

    Of D draws that a program is run for, draw d gives sample `⌊d S / D⌋`; called otherwise it gives
    one at random.

    Args:
        samples: by site a tensor `(S, *event)`, its draws.
        masks: the sites of them inside `mask_particles()`, which :meth:`masks_of` gives in place of
            a call.

    Raises:
        ValueError: no sites, no draws, or sites of different S.
        TypeError: draws that are no tensor.

    Example:
        >>> guide = SampledGuide({"slope": torch.tensor([0.5, 0.7])})
        >>> with DrawIndex(1, 2):
        ...     guide(None)["slope"]
        tensor(0.7000)
    """

    def __init__(self, samples: Samples, masks: Collection[str] = ()) -> None:
        super().__init__()
        if not samples:
            raise ValueError("samples must hold the draws of at least one site; it is empty")
        for name, values in samples.items():
            if not isinstance(values, Tensor):
                raise TypeError(
                    f"samples[{name!r}] must be a tensor (S, *event); it is {type(values).__name__}"
                )
        counts = {name: len(values) if values.dim() else 0 for name, values in samples.items()}
        if len(set(counts.values())) > 1 or 0 in counts.values():
            raise ValueError(f"every site must have the same number of draws; they have {counts}")
        for name, values in samples.items():
            # The name of a buffer has no dots.
            buffer = OF_MASKS * (name in masks) + name.replace(".", "/")
            self.register_buffer(buffer, values.detach().clone())

    @property
    def sites(self) -> dict[str, Tensor]:
        """The draws of each site, `(S, *event)`."""
        return {_site(name): values for name, values in self.named_buffers()}

    @property
    def masks(self) -> tuple[str, ...]:
        """The sites inside `mask_particles()`."""
        return tuple(_site(name) for name, _ in self.named_buffers() if name.startswith(OF_MASKS))

    def masks_of(self, draw: int, draws: int) -> dict[str, Tensor]:
        """The masks of draw d of D, by site."""
        sites = self.sites
        return {name: sites[name][draw * self.draws // draws] for name in self.masks}

    @property
    def draws(self) -> int:
        """Number of draws, S."""
        return len(next(iter(self.buffers())))

    @classmethod
    def of_state(cls, state: Samples) -> Self:
        """The guide of a `state_dict()`."""
        masks = [_site(name) for name in state if name.startswith(OF_MASKS)]
        return cls({_site(name): values for name, values in state.items()}, masks)

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """One of the draws, by site."""
        place = draw_index()
        if place is None:
            index = int(torch.randint(self.draws, ()))
        else:
            index = place[0] * self.draws // place[1]
        return {
            name: pyro.sample(name, dist.Delta(value[index], event_dim=value.dim() - 1))
            for name, value in self.sites.items()
            if name not in self.masks
        }


def _site(buffer: str) -> str:
    return buffer.removeprefix(OF_MASKS).replace("/", ".")


@dataclass(frozen=True, eq=False)
class SamplerRecord:
    """How draws were made.

    Args:
        name: of the method: "NUTS", "SGHMC", "bootstrap".
        are_chains: whether they are Markov chains, of which r̂ speaks; else independent draws.
        sample_stats: by ArviZ's name, such as `diverging`, an array `(C, S)`.
        note: what was sampled, where it is not the posterior itself.
        r_hat: the largest rank-normalised split r̂ of any number of a global latent, which
            `fit` computes; None where it is not known, as of one chain.
        ess: the least effective number of draws, bulk or tail, of all chains together.
        slowest: the number with that r̂, or of one chain with that ESS, as `mask[3]`.
    """

    name: str
    are_chains: bool
    sample_stats: Mapping[str, np.ndarray] = field(default_factory=dict)
    note: str | None = None
    r_hat: float | None = None
    ess: float | None = None
    slowest: str | None = None

    @property
    def divergences(self) -> int:
        """Number of draws whose trajectory left the path of constant energy."""
        return int(np.sum(self.sample_stats.get("diverging", 0)))

    @property
    def summary(self) -> str | None:
        """r̂, effective draws and divergences in a line.

        Example:
            >>> stats = {"diverging": np.zeros((2, 9))}
            >>> SamplerRecord("NUTS", True, stats, r_hat=1.003, ess=812).summary
            'r̂ up to 1.003, 812 independent draws or more, 0 diverged'
        """
        parts = [
            None if self.r_hat is None else f"r̂ up to {self.r_hat:.3f}",
            None if self.ess is None else f"{self.ess:,.0f} independent draws or more",
            f"{self.divergences:,} diverged" if "diverging" in self.sample_stats else None,
            self.note,
        ]
        return ", ".join(part for part in parts if part is not None) or None

    def subset(self, places: Sequence[int]) -> Self:
        """The record of some of the chains, without r̂ and effective draws."""
        stats = {name: values[list(places)] for name, values in self.sample_stats.items()}
        return replace(self, sample_stats=stats, r_hat=None, ess=None, slowest=None)


@dataclass(frozen=True, eq=False)
class GlobalDraws:
    """Draws of the latents that all rows share.

    Args:
        samples: by site `(C, S, *event)`: C chains of S draws.
        sampler: how they were made.
        model: the program that they belong to, in evaluation mode, with the parameters that it was
            sampled at.
        masks: the sites of them inside `mask_particles()`, of a method that samples these too.
    """

    samples: Samples
    sampler: SamplerRecord
    model: Any
    masks: tuple[str, ...] = ()

    @property
    def chains(self) -> int:
        """Number of chains, C."""
        return len(next(iter(self.samples.values())))

    def guides(self) -> list[SampledGuide]:
        """One guide a chain, which gives its draws."""
        return [
            SampledGuide({n: values[chain] for n, values in self.samples.items()}, self.masks)
            for chain in range(self.chains)
        ]


class PosteriorInference(Protocol):
    """A way from a program and its rows to draws of what all rows share: NUTS, SGHMC, Laplace."""

    def run(self, model: Any, rows: Columns, *, seed: int, progress: bool) -> GlobalDraws:
        """Draws from the posterior of the global latents.

        Args:
            model: a program with priors on global latents.
            rows: all training rows, as arguments of the model: x `(N, *event)` and y.
            seed: of all that is random; global random state is left as it is.
            progress: show a progress bar, on a terminal or in a notebook.

        Raises:
            ValueError, TypeError: what the method cannot read, before any work.
        """
        ...


MOST_R_HAT = 1.01
LEAST_ESS = 400  # Below it r̂ and quantiles are not to be relied on (Vehtari et al. 2021).


class SamplerWarning(UserWarning):
    """Draws of a sampler that are not to be relied on as they are."""


def with_convergence(record: SamplerRecord, samples: Mapping[str, Tensor]) -> SamplerRecord:
    """The record with r̂ and ESS of samples `(C, S, *event)` (Vehtari et al. 2021), by ArviZ.

    Of zeros and ones, whose quantiles say nothing, the ESS is that of the mean; their sum, the size
    of a mask, is a number of its own, and what all draws agree on is none.
    """
    chains, draws = next(iter(samples.values())).shape[:2]
    if not record.are_chains or draws < 4:
        return record
    import xarray as xr  # noqa: PLC0415 - slow, and not needed to import the library

    arviz = arviz_library()
    names: list[str] = []
    columns, binary = [], []
    for site, values in samples.items():
        flat = values.reshape(chains, draws, -1).cpu().numpy()
        is_binary = bool(((flat == 0) | (flat == 1)).all())
        size = flat.shape[-1]
        of_site = [f"{site}[{i}]" for i in range(size)] if size > 1 else [site]
        if is_binary:
            flat = np.concatenate([flat, flat.sum(-1, keepdims=True)], -1)
            moving = (flat != flat[:1, :1]).any((0, 1))
            flat = flat[..., moving]
            of_site = list(compress([*of_site, f"size of {site}"], moving))
        names += of_site
        columns.append(flat)
        binary += [is_binary] * len(of_site)
    if not names:
        return record
    named = xr.Dataset({"value": (("chain", "draw", "number"), np.concatenate(columns, -1))})
    with np.errstate(invalid="ignore", divide="ignore"):
        bulk, tail, mean = (
            arviz.ess(named, method=m)["value"].values for m in ("bulk", "tail", "mean")
        )
        r_hat = arviz.rhat(named)["value"].values if chains > 1 else None
    ess = np.nan_to_num(np.where(binary, mean, np.minimum(bulk, tail)))
    # A number that never moves has none, and is no sign of agreement.
    worst = -ess if r_hat is None else np.nan_to_num(r_hat, nan=np.inf)
    return replace(
        record,
        r_hat=None if r_hat is None else float(worst.max()),
        ess=float(ess.min()),
        slowest=names[int(worst.argmax())],
    )


def warn_of(record: SamplerRecord) -> None:
    """Warn of chains that disagree, that are worth few draws, or whose trajectories diverged."""
    reasons = []
    if record.r_hat is not None and record.r_hat > MOST_R_HAT:
        reasons.append(
            f"the chains of {record.name} disagree: r̂ is up to {record.r_hat:.3f} "
            f"({record.slowest}), and where they agree it is below {MOST_R_HAT}. Their draws may "
            "not be those of one posterior: run them longer (warmup=, samples=), or look for "
            "several modes, such as hidden units that can change places"
        )
    elif record.ess is not None and record.ess < LEAST_ESS:
        reasons.append(
            f"the chains of {record.name} are worth {record.ess:.0f} independent draws, too few "
            f"for intervals ({LEAST_ESS} are enough): give more samples="
        )
    if record.divergences:
        draws = np.size(record.sample_stats["diverging"])
        reasons.append(
            f"{record.divergences} of {draws:,} draws of {record.name} diverged, where the "
            "posterior bends too sharply for its steps, and what lies there is missing: give a "
            "higher target_accept_prob, as partial(NUTS, target_accept_prob=0.95), or write a "
            "hierarchical prior as scale * pyro.sample(…, Normal(0, 1))"
        )
    for text in reasons:
        warnings.warn(text, SamplerWarning, stacklevel=4)


class Unstated(TorchDistribution):
    """Distribution of a parameter without a prior: log-density 0 everywhere, draws at one value."""

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, value: Tensor) -> None:
        self._value = value
        super().__init__(torch.Size(), value.shape, validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.independent(constraints.real, self._value.dim())

    def expand(self, batch_shape: Any, _instance: Any = None) -> Unstated:
        if tuple(batch_shape):
            raise ValueError(f"a parameter is the same for all; its batch shape is {batch_shape}")
        return self

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._value.expand(torch.Size([*sample_shape, *self._value.shape]))

    def log_prob(self, value: Tensor) -> Tensor:
        return value.new_zeros(value.shape[: value.dim() - self._value.dim()]).float()


class DrawnParameters(PyroModule):
    """A program whose parameters are sample sites outside its plates, by their own names."""

    def __init__(self, program: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        # In a tuple, so that its parameters are not this module's too.
        self._held = (held(program),)
        keep_parameters_local(self)
        self._names = tuple(names)

    @property
    def program(self) -> nn.Module:
        return self._held[0]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Draw the parameters, then run the program with them."""
        tensors = tensors_of(self.program)
        values = {name: pyro.sample(name, Unstated(tensors[name])) for name in self._names}
        return torch.func.functional_call(self.program, values, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("_"):
                raise
            return getattr(self.program, name)


def stacked_parameters(programs: Sequence[nn.Module]) -> dict[str, Tensor]:
    """The parameters of R fits of one program `(R, *shape)`, and buffers that differ."""
    stacked = stacked_tensors(programs)
    names = {*dict(programs[0].named_parameters()), *differing(stacked)}
    return {name: values for name, values in stacked.items() if name in names}
