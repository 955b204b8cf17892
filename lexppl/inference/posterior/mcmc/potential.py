"""The posterior of a program's global latents as the potential of a Hamiltonian."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pyro
import torch
from pyro.infer.autoguide.initialization import InitMessenger, init_to_uniform
from pyro.poutine.messenger import Messenger
from torch import Tensor

from lexppl.inference.contexts import seeded
from lexppl.inference.objective.site import Site
from lexppl.inference.posterior.global_latents import sites_of
from lexppl.inference.posterior.global_sites import GlobalSites
from lexppl.inference.posterior.likelihood_bound import likelihood_bound
from lexppl.inference.posterior.log_joint import log_joint
from lexppl.weights_drawn_first import weights_first

ENUMERATE = "enumerate"
MOST_STARTS = 100


class Potential:
    """Minus the log-density of a program's global latents θ given its rows,

        U(u) = −log p(θ) − Σ_n log p(y_n | x_n, θ) − log |det ∂θ/∂u|,    θ = t(u),

    with the masks summed out exactly (:func:`likelihood_bound`) and t the map of
    `torch.distributions.biject_to` from unconstrained numbers onto each latent's support. A penalty
    is a term of it, `+ Σ_n E_{z ~ p(z | x_n, θ)}[R]`, as it is of a fit's objective.

    Args:
        model: the program.
        rows: all rows, as arguments of the model.
        imputations: K draws of each mask's imputation, where it is random. They are drawn from the
            seed at every evaluation, and so are the same at all: the potential is exactly that of
            the program whose imputer draws from these K.
        seed: of those.

    Raises:
        ValueError: what :meth:`GlobalSites.of` and :func:`likelihood_bound` refuse; rows that the
            program draws.

    Example:
        >>> import pyro.distributions as dist
        >>> from lexppl.effects import mask_particles
        >>> def program(x, y):
        ...     rate = pyro.sample("rate", dist.Uniform(0.0, 1.0))
        ...     with pyro.plate("data", len(x)), mask_particles():
        ...         mask = pyro.sample("mask", dist.Bernoulli(torch.ones(1) / 2).to_event(1))
        ...         pyro.sample("y", dist.Bernoulli(rate * mask[..., 0]), obs=y)
        >>> potential = Potential(program, (torch.zeros(1, 1), torch.ones(1)))
        >>> float(potential({"rate": torch.tensor(0.0)}).exp())  # 1 / (1/2 · 1/2 · 1/4)
        16.0
    """

    def __init__(
        self,
        model: Callable[..., Any],
        rows: tuple[Tensor, ...],
        imputations: int | None = None,
        seed: int = 0,
    ) -> None:
        x, few = rows[0], tuple(column[:1] for column in rows)
        self._globals, latents = GlobalSites.of(model, few)
        _refuse_subsamples(sites_of(model, rows).values())
        self.sites = self._globals.names
        """Names of the global latents."""
        self.objective = likelihood_bound(latents, len(x), imputations)
        self._model, self._rows, self._few = weights_first(model), rows, few
        self.fixed: Callable[[], AbstractContextManager[None]] = lambda: seeded(seed, x.device)
        """What is drawn in an evaluation is drawn in: imputations that stay the same, and first
        masks that are not read. The chain's own random numbers are others."""

    def __call__(self, unconstrained: Mapping[str, Tensor]) -> Tensor:
        """U, in nats."""
        values, log_jacobian = self._globals.of_parts(unconstrained)
        with self.fixed(), _SummedAnyway():
            density = log_joint(self._model, values, self.objective, self._rows)
        return -density - log_jacobian

    def constrained(self, unconstrained: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """θ = t(u), by name."""
        return self._globals.of_parts(unconstrained)[0]

    def start(self, strategy: Callable[..., Any] = init_to_uniform) -> dict[str, Tensor]:
        """Unconstrained numbers to start from, where the potential and its gradient are finite.

        Args:
            strategy: one of Pyro's `init_to_…`, or any function of a site that gives its value.

        Raises:
            ValueError: none of a hundred draws is such a place.
        """
        shown = pyro.poutine.block(self._model, expose=list(self.sites))
        x = self._rows[0]
        for _ in range(MOST_STARTS):
            with torch.no_grad():
                trace = pyro.poutine.trace(InitMessenger(strategy)(shown)).get_trace(*self._few)
            start = self._globals.parts({n: trace.nodes[n]["value"] for n in self.sites})
            if x.is_floating_point():
                start = {name: value.to(x) for name, value in start.items()}
            if self._is_finite(start):
                return start
        raise ValueError(
            f"the posterior density is zero or infinite at {MOST_STARTS} starting values: look for "
            "rows that the program gives probability zero, or give partial(NUTS, init_strategy=…)"
        )

    def _is_finite(self, start: Mapping[str, Tensor]) -> bool:
        place = {name: value.clone().requires_grad_() for name, value in start.items()}
        value = self(place)
        gradients = torch.autograd.grad(value, list(place.values()))
        return all(bool(numbers.isfinite().all()) for numbers in (value, *gradients))


def _refuse_subsamples(sites: Iterable[Site]) -> None:
    for plate in (plate for site in sites for plate in site.plates):
        if plate.full_size not in (None, plate.size):
            raise ValueError(
                f"plate {plate.name!r} draws {plate.size} of its {plate.full_size} entries at each "
                "run, and the likelihood is of all of them: leave subsample_size out"
            )


class _SummedAnyway(Messenger):
    """Take away Pyro's mark of a site that is to be summed out: the masks are, marked or not."""

    def _pyro_sample(self, msg: Any) -> None:
        (msg["infer"] or {}).pop(ENUMERATE, None)
