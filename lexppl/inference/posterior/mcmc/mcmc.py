"""Global latents by Pyro's Hamiltonian kernels, the masks summed out exactly."""

import inspect
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyro.infer
import torch
from pyro.infer import HMC, NUTS
from pyro.infer.autoguide import init_to_uniform
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel
from pyro.ops.integrator import potential_grad
from torch import Tensor, nn
from tqdm.auto import tqdm

from lexppl.argument_checks import int_at_least
from lexppl.evaluation_mode import evaluating
from lexppl.inference.contexts import keep_parameters_local, program_settings, seeded
from lexppl.inference.posterior.global_draws import GlobalDraws, PosteriorInference, SamplerRecord
from lexppl.inference.posterior.mcmc.potential import Potential
from lexppl.inference.posterior.mcmc.recorded import Recorded

OURS = (
    "model",
    "potential_fn",
    "transforms",
    "max_plate_nesting",
    "jit_compile",
    "jit_options",
    "ignore_jit_warnings",
)
"""Arguments of Pyro's kernels that say what is sampled, which the program does here."""

USUAL_STEPS = 15
"""Gradients of a draw, where a time is estimated: a tree of four doublings."""
WORTH_RECORDING = 500
"""Draws of all chains from which on their steps are worth the second that a recording takes."""

LOOKED_AT = 8
"""Draws of a chain at which a recording is compared with the program."""


@dataclass(frozen=True)
class Chain:
    """One chain.

    Args:
        values: by site `(S, *event)`.
        stats: by ArviZ's name `(S,)`.
        places: the unconstrained places of some of the draws.
    """

    values: dict[str, Tensor]
    stats: dict[str, np.ndarray]
    places: list[dict[str, Tensor]]


@dataclass(frozen=True)
class MCMC:
    """Sample a program's global latents by one of Pyro's Hamiltonian kernels.

    The masks are no part of the chain: they are summed out exactly, so that the kernel sees the
    smooth density `p(θ) Π_n Σ_z p(z | x_n, θ) p(y_n | x_n, z, θ)`, and all rows take part in every
    step (:class:`~lexppl.inference.posterior.mcmc.potential.Potential`). Parameters without priors
    stay at the values that they have. Chains run one after another, each from a seed and a start of
    its own; how long they will take stands in a line before the bar. Numbers are of the type of x:
    float64 rows are the surer ones.

    Args:
        kernel: `NUTS` or `HMC`, a class derived from one, or a `functools.partial` of it with its
            arguments, as `partial(NUTS, max_tree_depth=6, target_accept_prob=0.9)`.
        samples: S ≥ 4 draws of each chain that are kept.
        warmup: draws before them, in which step size and mass matrix adapt; S if None.
        chains: C.
        imputations: K, for a program whose imputations are random: K of each mask are drawn once
            and stay the same in all chains. What is then sampled exactly is the posterior of the
            program whose imputer draws from these K. None where the imputation is a function of x
            and the mask.

    Raises:
        ValueError: a number that is too small; an argument of the kernel that is not the user's.
        TypeError: a kernel of another kind, or one that has been built.

    Example:
        >>> from lexppl.inference import fit
        >>> from pyro.nn import PyroModule, PyroSample
        >>> import pyro, pyro.distributions as dist
        >>> from lexppl.effects import mask_particles
        >>> class Line(PyroModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.slope = PyroSample(dist.Normal(0.0, 1.0))
        ...     def forward(self, x, y=None):
        ...         with pyro.plate("data", len(x), dim=-1), mask_particles():
        ...             mask = pyro.sample("mask", dist.Bernoulli(x.new_tensor([0.9])).to_event(1))
        ...             mean = self.slope * mask[..., 0] * x[:, 0]
        ...             pyro.sample("y", dist.Normal(mean, 1.0), obs=y)
        >>> x = torch.linspace(-1.0, 1.0, 20, dtype=torch.float64).unsqueeze(-1)
        >>> short = MCMC(partial(NUTS, max_tree_depth=4), samples=100, warmup=50, chains=2)
        >>> result = fit(Line(), (x, 2 * x[:, 0]), inference=short, progress=False)
        >>> result.guides[0].sites["slope"].shape
        torch.Size([100])

    Source:
        Hoffman & Gelman. The No-U-Turn Sampler. JMLR 2014.
    """

    kernel: Any = NUTS
    samples: int = 1000
    warmup: int | None = 500
    chains: int = 4
    imputations: int | None = None

    def __post_init__(self) -> None:
        refuse_other_kernels(self.kernel)
        # Fewer have no r̂ and no effective number of draws.
        int_at_least("samples", self.samples, 4)
        int_at_least("chains", self.chains)
        if self.warmup is not None:
            int_at_least("warmup", self.warmup)
        if self.imputations is not None:
            int_at_least("imputations", self.imputations)

    @property
    def name(self) -> str:
        """Of the kernel: "NUTS"."""
        return str(_class_of(self.kernel).__name__)

    def run(
        self, model: Any, rows: tuple[Tensor, ...], *, seed: int, progress: bool
    ) -> GlobalDraws:
        """Draw C chains, as :meth:`PosteriorInference.run`.

        Raises:
            ValueError: as :class:`Potential`.
        """
        device = rows[0].device
        of_kernel = dict(self.kernel.keywords) if isinstance(self.kernel, partial) else {}
        strategy = of_kernel.pop("init_strategy", init_to_uniform)
        seeds = torch.randint(2**31, (self.chains,), generator=torch.Generator().manual_seed(seed))
        with _held(model), seeded(seed, device):
            with program_settings(validate=True):
                potential = Potential(model, rows, self.imputations, seed)
                # Every chain's start, and with it every refusal, comes before the first draw.
                starts = [potential.start(strategy) for _ in range(self.chains)]
            warmup = self.samples if self.warmup is None else self.warmup
            draws = self.chains * (warmup + self.samples)
            quick = Recorded.of(potential, starts) if draws >= WORTH_RECORDING else None

            def chain(energy: Potential | Recorded, start: dict[str, Tensor], seed: int) -> Chain:
                with seeded(seed, device), program_settings(validate=False):
                    kernel = _class_of(self.kernel)(potential_fn=energy, **of_kernel)
                    kernel.initial_params = start
                    return _chain(kernel, energy, warmup, self.samples, bar.update)

            chains: list[Chain] = []
            # None: silent where standard error is no terminal; a notebook has a bar of its own.
            with tqdm(
                total=draws,
                disable=None if progress else True,
                unit="draw",
            ) as bar:
                if not bar.disable:
                    needed = time_needed(quick or potential, starts[0], draws)
                    bar.write(f"{self.name}: {needed}", file=sys.stderr)
                for start, own in zip(starts, seeds.tolist(), strict=True):
                    made = chain(quick or potential, start, own)
                    if quick is not None and not quick.agrees(made.places):
                        bar.total += warmup + self.samples
                        quick, made = None, chain(potential, start, own)
                    chains.append(made)
        stats = [one.stats for one in chains]
        note = None
        if self.imputations is not None:
            note = f"{self.imputations} imputations of each mask, the same in all draws"
        record = SamplerRecord(
            self.name,
            are_chains=True,
            sample_stats={name: np.stack([one[name] for one in stats]) for name in stats[0]},
            note=note,
        )
        samples = {
            name: torch.stack([one.values[name] for one in chains]) for name in potential.sites
        }
        return GlobalDraws(samples, record, model)


def refuse_other_kernels(kernel: Any) -> None:
    """Refuse what is no class of Pyro's Hamiltonian kernels.

    Args:
        kernel: a class, or a partial of one.

    Raises:
        TypeError, ValueError: as it says.

    Example:
        >>> refuse_other_kernels(partial(NUTS, max_tree_depth=5))
    """
    if isinstance(kernel, MCMCKernel):
        name = type(kernel).__name__
        raise TypeError(
            f"inference takes the class {name}, or partial({name}, …), and builds the kernel "
            f"itself, whose density has the masks summed out; it is given a built {name}"
        )
    kind = _class_of(kernel)
    if not (isinstance(kind, type) and issubclass(kind, HMC)):
        raise TypeError(
            "kernel must be pyro.infer.NUTS or pyro.infer.HMC, a class derived from them, or a "
            f"functools.partial of one; it is {kernel!r}"
        )
    if not isinstance(kernel, partial):
        return
    if kernel.args:
        raise ValueError(f"give the arguments of {kind.__name__} by name; {kernel.args} have none")
    ours = [name for name in kernel.keywords if name in OURS]
    known = inspect.signature(kind).parameters
    unknown = [name for name in kernel.keywords if name not in known]
    if ours or unknown:
        raise ValueError(
            f"{kind.__name__} is given {ours or unknown}, which "
            + ("the program says itself here" if ours else "it does not have")
            + f"; it takes {[name for name in known if name not in OURS]}"
        )


def as_inference(inference: Any) -> PosteriorInference:
    """An inference from what is given to `fit(inference=)`.

    Args:
        inference: Pyro's `NUTS` or `HMC` or a partial of them, for :class:`MCMC` with its defaults;
            or a :class:`PosteriorInference`, or its class, for one with defaults.

    Raises:
        TypeError: anything else.

    Example:
        >>> as_inference(NUTS).chains
        4
    """
    kind = _class_of(inference)
    if isinstance(inference, MCMCKernel) or (
        isinstance(kind, type) and issubclass(kind, MCMCKernel)
    ):
        return MCMC(inference)
    if isinstance(inference, pyro.infer.MCMC) or kind is pyro.infer.MCMC:
        raise TypeError(
            "Pyro's MCMC runs a model that its kernel holds; give the kernel's class, as "
            "inference=NUTS, or lexppl.inference.MCMC(NUTS, samples=1000, warmup=500, chains=4)"
        )
    if isinstance(inference, type) and callable(getattr(inference, "run", None)):
        inference = inference()
    if not callable(getattr(inference, "run", None)):
        raise TypeError(
            "inference must be pyro.infer.NUTS or HMC, MCMC(NUTS, samples=…), or another "
            f"PosteriorInference, which has a method run; it is {inference!r}"
        )
    found: PosteriorInference = inference
    return found


@contextmanager
def _held(model: Any) -> Iterator[None]:
    """A program in evaluation mode, without gradients of its parameters, which no chain moves."""
    if not isinstance(model, nn.Module):
        yield
        return
    keep_parameters_local(model)
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in learned:
        parameter.requires_grad_(False)
    try:
        with evaluating(model):
            yield
    finally:
        for parameter in learned:
            parameter.requires_grad_()


def _class_of(kernel: Any) -> Any:
    return kernel.func if isinstance(kernel, partial) else kernel


def time_needed(
    energy: Potential | Recorded,
    place: Mapping[str, Tensor],
    draws: int,
    clock: Callable[[], float] = time.perf_counter,
) -> str:
    """Estimated duration of a kernel's draws, by one gradient that is timed.

    Args:
        energy: U.
        place: where the gradient is taken.
        draws: of all chains, warm-up among them.
        clock: in seconds.
    """
    begun = clock()
    with program_settings(validate=False):
        potential_grad(energy, dict(place))
    each = clock() - begun
    whole = each * draws * USUAL_STEPS
    rounded = f"{whole:.0f} s" if whole < 100.0 else f"{whole / 60:,.0f} min"
    return f"{draws:,} draws of {USUAL_STEPS} gradients, {each:.2g} s each, take about {rounded}"


class _Steps:
    """What a kernel evaluates on its way to a draw, and the Hamiltonian there.

    Pyro keeps U at a draw, and not the momenta that its trajectory came to it with.

    Args:
        kernel: whose potential and kinetic energy are looked at from now on.
    """

    def __init__(self, kernel: HMC) -> None:
        self._kernel = kernel
        self._potential, self._kinetic = kernel.potential_fn, kernel._kinetic_energy
        kernel.potential_fn, kernel._kinetic_energy = self._evaluated, self._moving
        self.begin()

    def begin(self) -> None:
        """Another draw."""
        self.taken = 0
        self._latest: Mapping[str, Tensor] | None = None
        self._ends: list[tuple[Any, Tensor]] = []

    @property
    def energy(self) -> float:
        """`H = U(u) + K(r)` at the draw, in nats; with its first momenta where it has not moved."""
        place = self._kernel._z_last
        kinetic = next((k for at, k in self._ends if at is place), self._ends[0][1])
        return float(self._kernel._potential_energy_last + kinetic)

    def _evaluated(self, place: Mapping[str, Tensor]) -> Tensor:
        self.taken, self._latest = self.taken + 1, place
        value: Tensor = self._potential(place)
        return value

    def _moving(self, momenta: Any) -> Tensor:
        value: Tensor = self._kinetic(momenta)
        self._ends.append((self._latest, value))
        return value


def _chain(
    kernel: HMC,
    energy: Potential | Recorded,
    warmup: int,
    samples: int,
    drawn: Callable[[], Any],
) -> Chain:
    """Run a kernel from its start."""
    kernel.setup(warmup)
    trajectory = _Steps(kernel)
    place, places = kernel.initial_params, []
    steps, accepted, energies = np.zeros(samples, dtype=int), np.zeros(samples), np.zeros(samples)
    mean = 0.0
    for number in range(-warmup, samples):
        trajectory.begin()
        place = kernel.sample(place)
        drawn()
        if number < 0:
            continue
        places.append(place)
        steps[number], energies[number] = trajectory.taken, trajectory.energy
        # Pyro keeps a running mean of the chances that the proposals had.
        latest = kernel._mean_accept_prob
        accepted[number] = (number + 1) * latest - number * mean
        mean = latest
    diverging = np.zeros(samples, dtype=bool)
    diverging[kernel.diagnostics()["divergences"]] = True
    stats = {
        "diverging": diverging,
        "acceptance_rate": accepted.clip(0.0, 1.0),
        "step_size": np.full(samples, float(kernel.step_size)),
        "n_steps": steps,
        "energy": energies,
    }
    if isinstance(kernel, NUTS):
        # 2^d − 1 steps fill a tree of d doublings; the last of them may have been left half done.
        stats["tree_depth"] = np.ceil(np.log2(steps + 1)).astype(int)
    kernel.cleanup()
    values = [energy.constrained(one) for one in places]
    return Chain(
        {name: torch.stack([one[name] for one in values]).detach() for name in values[0]},
        stats,
        places[:: max(1, samples // LOOKED_AT)],
    )
