"""Global latents by Pyro's Hamiltonian kernels, the masks summed out exactly."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import pyro
import pyro.infer
import torch
from pyro.infer import HMC, NUTS
from pyro.infer.autoguide.initialization import InitMessenger, init_to_uniform
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel
from pyro.poutine.messenger import Messenger
from torch import Tensor
from tqdm.auto import tqdm

from lexppl.argument_checks import int_at_least
from lexppl.effects import weights_first
from lexppl.inference.batches import Columns
from lexppl.inference.contexts import held, program_settings, seeded
from lexppl.inference.objective.program import Program
from lexppl.inference.posterior.global_draws import GlobalDraws, PosteriorInference, SamplerRecord
from lexppl.inference.posterior.global_latents import GlobalSites, sites_of_run
from lexppl.inference.posterior.log_posterior import likelihood_bound, log_joint
from lexppl.inference.recording import Recorder, rounding_ratio

MOST_STARTS = 100


class Potential:
    """Minus the log-density of a program's global latents θ given its rows, in nats,

        U(u) = −log p(θ) − Σ_n log p(y_n | x_n, θ) − log |det ∂θ/∂u|,    θ = t(u),

    masks summed out exactly (:func:`likelihood_bound`), t by `biject_to`. Random imputations are K
    draws by the seed, the same at every evaluation.
    """

    least: ClassVar[int] = 1  # Global latents

    def __init__(
        self, model: Program, rows: Columns, imputations: int | None = None, seed: int = 0
    ) -> None:
        x, few = rows[0], tuple(column[:1] for column in rows)
        self.globals, latents = GlobalSites.of(model, few, self.least)
        sites = sites_of_run(model, rows)
        for name, site in latents.shared.items():
            of_row, of_all = (tuple(s.distribution.shape()) for s in (site, sites[name]))
            if of_row != of_all:
                raise ValueError(
                    f"latent {name!r} has shape {of_row} in a run on one row and {of_all} on all: "
                    "give its plate a number of entries that does not depend on x"
                )
        for plate in (plate for site in sites.values() for plate in site.plates):
            if plate.full_size not in (None, plate.size):
                raise ValueError(
                    f"plate {plate.name!r} draws {plate.size} of its {plate.full_size} entries at "
                    "each run, and the likelihood is of all of them: leave subsample_size out"
                )
        self.sites = self.globals.names  # Names of the global latents
        self.objective = likelihood_bound(latents, len(x), imputations)
        self._model, self._rows, self._few = weights_first(model), rows, few
        self.fixed: Callable[[], AbstractContextManager[None]] = lambda: seeded(seed, x.device)
        """Context of an evaluation's random numbers: imputations, which stay the same, and first
        masks, which are not read. The chain's own random numbers are others."""

    def __call__(self, unconstrained: Mapping[str, Tensor]) -> Tensor:
        """Potential energy U, in nats."""
        values, log_jacobian = self.globals.of_parts(unconstrained)
        with self.fixed(), SummedOut():
            density = log_joint(self._model, values, self.objective, self._rows)
        return -density - log_jacobian

    def constrained(self, unconstrained: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """θ = t(u), by name."""
        return self.globals.of_parts(unconstrained)[0]

    def with_gradient(self, *numbers: Tensor) -> Columns:
        """U and its gradients by the unconstrained values of each site."""
        place = [number.detach().requires_grad_() for number in numbers]
        with torch.enable_grad():
            value = self(dict(zip(self.sites, place, strict=True)))
        return value.detach(), *torch.autograd.grad(value, place)

    def start(self, strategy: Callable[..., Any] = init_to_uniform) -> dict[str, Tensor]:
        """Unconstrained numbers by Pyro's strategy where potential and gradient are finite."""
        latents = pyro.poutine.block(self._model, expose=list(self.sites))
        x = self._rows[0]
        for _ in range(MOST_STARTS):
            with torch.no_grad():
                trace = pyro.poutine.trace(InitMessenger(strategy)(latents)).get_trace(*self._few)
            start = self.globals.parts({n: trace.nodes[n]["value"] for n in self.sites})
            if x.is_floating_point():
                start = {name: value.to(x) for name, value in start.items()}
            both = self.with_gradient(*(start[name] for name in self.sites))
            if all(bool(numbers.isfinite().all()) for numbers in both):
                return start
        raise ValueError(
            f"the posterior density is zero or infinite at {MOST_STARTS} starting values: look for "
            "rows that the program gives probability zero, or give partial(NUTS, init_strategy=…)"
        )


class Recorded:
    """A potential recorded, with its gradient, as a graph of tensor operations.

    What does not depend on the latents is computed once. Torch's own errors pass for programs that
    cannot be recorded; :meth:`agrees` finds a recording that is another function.
    """

    def __init__(self, potential: Any, place: Mapping[str, Tensor]) -> None:
        self._potential = potential
        self.constrained = potential.constrained
        inputs = [number.detach().clone() for number in self._numbers(place)]
        with Recorder(inputs, folds=True) as recorder:
            outputs = potential.with_gradient(*inputs)
        self._graph = recorder.again(outputs)

    @classmethod
    def of(cls, potential: Any, places: Sequence[Mapping[str, Tensor]]) -> Self | None:
        """The recording at the first place; None where there is none or it differs at a place."""
        with program_settings(validate=False):
            try:
                recorded = cls(potential, places[0])
            except Exception:
                return None
        return recorded if recorded.agrees(places) else None

    def __call__(self, unconstrained: Mapping[str, Tensor]) -> Tensor:
        """Potential energy U, in nats, with its gradient."""
        return _Replayed.apply(self._graph, *self._numbers(unconstrained))

    def agrees(self, places: Sequence[Mapping[str, Tensor]]) -> bool:
        """Whether the recorded graph gives the potential's value and gradient at some places."""
        with program_settings(validate=False):
            return all(
                rounding_ratio(self._potential.with_gradient(*numbers), self._graph(*numbers)) <= 1
                for numbers in map(self._numbers, places)
            )

    def _numbers(self, place: Mapping[str, Tensor]) -> list[Tensor]:
        return [place[name] for name in self._potential.sites]


class _Replayed(torch.autograd.Function):
    """The recorded value, whose gradient has come with it."""

    @staticmethod
    def forward(ctx: Any, graph: Callable[..., Columns], *numbers: Tensor) -> Tensor:
        value, *gradients = graph(*(number.detach() for number in numbers))
        ctx.save_for_backward(*gradients)
        return value

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor | None, ...]:
        return None, *(outer[0] * gradient for gradient in ctx.saved_tensors)


class SummedOut(Messenger):
    """Take away Pyro's mark of sites to be enumerated, as the masks are summed out anyway."""

    def _pyro_sample(self, msg: Any) -> None:
        (msg["infer"] or {}).pop("enumerate", None)


OURS = (
    "model",
    "potential_fn",
    "transforms",
    "max_plate_nesting",
    "jit_compile",
    "jit_options",
    "ignore_jit_warnings",
)
"""Arguments of Pyro's kernels that are the program's here."""

WORTH_RECORDING = 500
"""Draws of all chains from which on recording the potential is worth its second."""

COMPARED = 8  # Draws of a chain at which a recording is compared with the program


@dataclass(frozen=True)
class MCMC:
    """Sample a program's global latents by one of Pyro's Hamiltonian kernels.

    Use it as `inference=` of :func:`lexppl.fit` where latents that all rows share have priors and
    masks are few enough to list. The chains' draws are the posterior of :func:`lexppl.explain`.

    Example:
        >>> import pyro, pyro.distributions as dist
        >>> from lexppl.effects import mask_particles
        >>> from lexppl.inference import fit
        >>> def line(x, y=None):
        ...     slope = pyro.sample("slope", dist.Normal(x.new_zeros(()), 1.0))
        ...     with pyro.plate("data", len(x), dim=-1), mask_particles():
        ...         mask = pyro.sample("mask", dist.Bernoulli(x.new_tensor([0.9])).to_event(1))
        ...         pyro.sample("y", dist.Normal(slope * mask[..., 0] * x[:, 0], 1.0), obs=y)
        >>> x = torch.linspace(-1.0, 1.0, 20, dtype=torch.float64).unsqueeze(-1)
        >>> short = MCMC(partial(NUTS, max_tree_depth=4), samples=100, warmup=50, chains=2)
        >>> result = fit(line, (x, 2 * x[:, 0]), inference=short, progress=False)
        >>> result.guides[0].sites["slope"].shape
        torch.Size([100])

    The kernel sees the density `p(θ) Π_n Σ_z p(z | x_n, θ) p(y_n | x_n, z, θ)`, with masks summed
    out exactly and all rows in every step. Parameters without priors stay. Chains run one after
    another. Numbers are of the type of x: float64 rows are the surer ones.

    Args:
        kernel: `NUTS` or `HMC`, a class derived from one, or a `functools.partial` of it with its
            arguments, as `partial(NUTS, max_tree_depth=6, target_accept_prob=0.9)`.
        samples: S ≥ 4 draws of each chain that are kept.
        warmup: draws before them, in which step size and mass matrix adapt; S if None.
        chains: C.
        imputations: K draws of each mask's random imputation, the same in all chains: the posterior
            of a program whose imputer draws from these K. None where imputations are not random.

    Raises:
        ValueError: a number that is too small; an argument of the kernel that is not the user's.
        TypeError: a kernel of another kind, or one that has been built.

    Source:
        Hoffman & Gelman. The No-U-Turn Sampler. JMLR 2014.
    """

    kernel: Any = NUTS
    samples: int = 1000
    warmup: int | None = 500
    chains: int = 4
    imputations: int | None = None

    def __post_init__(self) -> None:
        _check_kernel(self.kernel)
        # Fewer have no r̂ and no effective number of draws.
        int_at_least("samples", self.samples, 4)
        int_at_least("chains", self.chains)
        for name in ("warmup", "imputations"):
            if getattr(self, name) is not None:
                int_at_least(name, getattr(self, name))

    @property
    def name(self) -> str:
        """Of the kernel: "NUTS"."""
        return str(class_of(self.kernel).__name__)

    def run(self, model: Any, rows: Columns, *, seed: int, progress: bool) -> GlobalDraws:
        """Draw C chains, as :meth:`PosteriorInference.run`.

        Raises:
            ValueError: as :class:`Potential`.
        """
        device = rows[0].device
        of_kernel = dict(self.kernel.keywords) if isinstance(self.kernel, partial) else {}
        strategy = of_kernel.pop("init_strategy", init_to_uniform)
        seeds = torch.randint(2**31, (self.chains,), generator=torch.Generator().manual_seed(seed))
        with seeded(seed, device):
            with program_settings(validate=True):
                potential = Potential(held(model), rows, self.imputations, seed)
                # Every chain's start, and with it every refusal, comes before the first draw.
                starts = [potential.start(strategy) for _ in range(self.chains)]
            warmup = self.samples if self.warmup is None else self.warmup
            draws = self.chains * (warmup + self.samples)
            quick = Recorded.of(potential, starts) if draws >= WORTH_RECORDING else None

            def chain(energy: Potential | Recorded, start: dict[str, Tensor], seed: int) -> Chain:
                with seeded(seed, device), program_settings(validate=False):
                    kernel = class_of(self.kernel)(potential_fn=energy, **of_kernel)
                    made = Chain(kernel, start, warmup)
                    for _ in range(warmup + self.samples):
                        made.step()
                        bar.update()
                    return made

            chains = []
            # None: silent where standard error is no terminal; a notebook has a bar of its own.
            with tqdm(total=draws, disable=None if progress else True, unit="draw") as bar:
                for start, chain_seed in zip(starts, seeds.tolist(), strict=True):
                    made = chain(quick or potential, start, chain_seed)
                    if quick and not quick.agrees(made.draws[:: max(1, self.samples // COMPARED)]):
                        bar.total += warmup + self.samples
                        quick, made = None, chain(potential, start, chain_seed)
                    values = [potential.constrained(place) for place in made.draws]
                    chains.append((values, made.statistics()))
        samples = {
            name: torch.stack([torch.stack([v[name] for v in at]) for at, _ in chains]).detach()
            for name in potential.sites
        }
        arrays = {name: np.stack([stats[name] for _, stats in chains]) for name in chains[0][1]}
        note = None
        if self.imputations is not None:
            note = f"{self.imputations} imputations of each mask, the same in all draws"
        return GlobalDraws(samples, SamplerRecord(self.name, True, arrays, note), model)


def _check_kernel(kernel: Any) -> None:
    kind = class_of(kernel)
    if not (isinstance(kind, type) and issubclass(kind, HMC)):
        raise TypeError(
            "kernel must be the class pyro.infer.NUTS or pyro.infer.HMC, one derived from them, or "
            f"a functools.partial of one, built with the masks summed out; it is {kernel!r}"
        )
    preset = (*kernel.args, *kernel.keywords) if isinstance(kernel, partial) else ()
    known = [name for name in inspect.signature(kind).parameters if name not in OURS]
    if wrong := [name for name in preset if name not in known]:
        raise ValueError(
            f"{kind.__name__} is given {wrong}: by position, or arguments that the program sets "
            f"here or that it does not have; it takes {known} by name"
        )


def as_inference(inference: Any) -> PosteriorInference:
    """An inference from `fit(inference=)`: a kernel becomes :class:`MCMC`, a class its default."""
    kind = class_of(inference)
    if isinstance(inference, MCMCKernel) or (
        isinstance(kind, type) and issubclass(kind, MCMCKernel)
    ):
        return MCMC(inference)
    chosen: Any = inference
    # Pyro's own MCMC runs a model that its kernel holds.
    pyros = kind is pyro.infer.MCMC or isinstance(chosen, pyro.infer.MCMC)
    if isinstance(chosen, type) and hasattr(chosen, "run") and not pyros:
        chosen = chosen()
    if pyros or not callable(getattr(chosen, "run", None)):
        raise TypeError(
            "inference must be pyro.infer.NUTS or HMC, lexppl.inference.MCMC(NUTS, samples=…), or "
            f"another PosteriorInference, which has a method run; it is {inference!r}"
        )
    return chosen


def class_of(kernel: Any) -> Any:
    return kernel.func if isinstance(kernel, partial) else kernel


class Chain:
    """A Markov chain of a Hamiltonian kernel: its unconstrained draws after the warm-up, and their
    statistics."""

    def __init__(self, kernel: HMC, start: Mapping[str, Tensor], warmup: int) -> None:
        kernel.initial_params = self.place = start
        kernel.setup(warmup)
        self._kernel, self._warmup = kernel, warmup
        self.draws: list[Mapping[str, Tensor]] = []
        self._records: list[tuple[int, float, float]] = []
        self._mean = 0.0
        self._potential, self._kinetic = kernel.potential_fn, kernel._kinetic_energy
        kernel.potential_fn, kernel._kinetic_energy = self._evaluated, self._moving

    def step(self, place: Mapping[str, Tensor] | None = None) -> Mapping[str, Tensor]:
        """Make a transition: from a given place, where the potential may be another, or from the
        present one; where it ends."""
        if place is not None:
            self.place = place
            self._kernel.clear_cache()
        self._evaluations = 0
        self._latest: Mapping[str, Tensor] | None = None
        self._ends: list[tuple[Any, Tensor]] = []
        self.place = self._kernel.sample(self.place)
        if self._warmup:
            self._warmup -= 1
            return self.place
        # Pyro keeps a running mean of the chances that the proposals had.
        number, latest = len(self.draws), self._kernel._mean_accept_prob
        accepted = float((number + 1) * latest - number * self._mean)
        self._mean = latest
        self._records.append((self._evaluations, accepted, self._energy))
        self.draws.append(self.place)
        return self.place

    @property
    def _energy(self) -> float:
        """`H = U(u) + K(r)` at the draw, in nats; with its first momenta where it has not moved."""
        kinetic = next((k for at, k in self._ends if at is self._kernel._z_last), self._ends[0][1])
        return float(self._kernel._potential_energy_last + kinetic)

    def _evaluated(self, place: Mapping[str, Tensor]) -> Tensor:
        self._evaluations, self._latest = self._evaluations + 1, place
        return self._potential(place)

    def _moving(self, momenta: Any) -> Tensor:
        value: Tensor = self._kinetic(momenta)
        self._ends.append((self._latest, value))
        return value

    def statistics(self) -> dict[str, np.ndarray]:
        """Statistics of the draws by ArviZ's names, `(S,)`; the chain has ended."""
        kernel = self._kernel
        steps, accepted, energies = map(np.array, zip(*self._records, strict=True))
        diverging = np.zeros(len(steps), dtype=bool)
        diverging[kernel.diagnostics()["divergences"]] = True
        stats = {
            "diverging": diverging,
            "acceptance_rate": accepted.clip(0.0, 1.0),
            "step_size": np.full(len(steps), float(kernel.step_size)),
            "n_steps": steps,
            "energy": energies,
        }
        if isinstance(kernel, NUTS):
            # 2^d − 1 steps fill a tree of d doublings; the last may have been left half done.
            stats["tree_depth"] = np.ceil(np.log2(steps + 1)).astype(int)
        kernel.cleanup()
        return stats
