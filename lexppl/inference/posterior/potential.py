"""The posterior of a program's global latents as the potential of a Hamiltonian."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

import pyro
import torch
from pyro.infer.autoguide.initialization import InitMessenger, init_to_uniform
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx

from lexppl.effects import weights_first
from lexppl.inference.contexts import program_settings, seeded
from lexppl.inference.posterior.global_latents import GlobalSites, sites_of
from lexppl.inference.posterior.likelihood_bound import likelihood_bound, log_joint

MOST_STARTS = 100
TOLERANCE = 1e-4
"""Of a recording, relative to the largest number: float32 sums in another order are within it."""


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
        for plate in (plate for site in sites_of(model, rows).values() for plate in site.plates):
            if plate.full_size not in (None, plate.size):
                raise ValueError(
                    f"plate {plate.name!r} draws {plate.size} of its {plate.full_size} entries at "
                    "each run, and the likelihood is of all of them: leave subsample_size out"
                )
        self.sites = self._globals.names
        """Names of the global latents."""
        self.objective = likelihood_bound(latents, len(x), imputations)
        self._model, self._rows, self._few = weights_first(model), rows, few
        self.fixed: Callable[[], AbstractContextManager[None]] = lambda: seeded(seed, x.device)
        """Context of an evaluation's random numbers: imputations, which stay the same, and first
        masks, which are not read. The chain's own random numbers are others."""

    def __call__(self, unconstrained: Mapping[str, Tensor]) -> Tensor:
        """U, in nats."""
        values, log_jacobian = self._globals.of_parts(unconstrained)
        with self.fixed(), _SummedOut():
            density = log_joint(self._model, values, self.objective, self._rows)
        return -density - log_jacobian

    def constrained(self, unconstrained: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """θ = t(u), by name."""
        return self._globals.of_parts(unconstrained)[0]

    def with_gradient(self, *numbers: Tensor) -> tuple[Tensor, ...]:
        """U and its gradients by the unconstrained values of each site."""
        place = [number.detach().requires_grad_() for number in numbers]
        with torch.enable_grad():
            value = self(dict(zip(self.sites, place, strict=True)))
        return value.detach(), *torch.autograd.grad(value, place)

    def start(self, strategy: Callable[..., Any] = init_to_uniform) -> dict[str, Tensor]:
        """Unconstrained numbers to start from, where the potential and its gradient are finite.

        Args:
            strategy: one of Pyro's `init_to_…`, or any function of a site that gives its value.

        Raises:
            ValueError: none of a hundred draws is such a place.
        """
        latents = pyro.poutine.block(self._model, expose=list(self.sites))
        x = self._rows[0]
        for _ in range(MOST_STARTS):
            with torch.no_grad():
                trace = pyro.poutine.trace(InitMessenger(strategy)(latents)).get_trace(*self._few)
            start = self._globals.parts({n: trace.nodes[n]["value"] for n in self.sites})
            if x.is_floating_point():
                start = {name: value.to(x) for name, value in start.items()}
            found = self.with_gradient(*(start[name] for name in self.sites))
            if all(bool(numbers.isfinite().all()) for numbers in found):
                return start
        raise ValueError(
            f"the posterior density is zero or infinite at {MOST_STARTS} starting values: look for "
            "rows that the program gives probability zero, or give partial(NUTS, init_strategy=…)"
        )


class Recorded:
    """A potential recorded as a graph of tensor operations, which skips the program's handlers.

    Value and gradient are recorded together by `make_fx`; what does not depend on the latents is
    computed once. Programs that torch cannot record are refused, as are those that draw from
    distributions of a latent or write latents into a tensor; :meth:`agrees` finds a recording that
    is another function than the program.

    Args:
        potential: to be recorded.
        place: unconstrained values at which it is.

    Raises:
        Exception: whatever torch raises of a program that it cannot record.

    Example:
        >>> import pyro.distributions as dist
        >>> from lexppl.effects import mask_particles
        >>> def program(x):
        ...     mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
        ...     with pyro.plate("data", len(x)), mask_particles():
        ...         pyro.sample("x", dist.Normal(mean, 1.0), obs=x)
        >>> potential = Potential(program, (torch.ones(3),))
        >>> with pyro.validation_enabled(False):
        ...     recorded = Recorded(potential, {"mean": torch.tensor(0.0)})
        >>> recorded.agrees([{"mean": torch.tensor(2.0)}])
        True
    """

    def __init__(self, potential: Potential, place: Mapping[str, Tensor]) -> None:
        self._potential = potential
        self.constrained = potential.constrained
        self._graph = make_fx(potential.with_gradient)(*self._numbers(place))
        with potential.fixed():
            fold(self._graph, self._numbers(place))

    @classmethod
    def of(cls, potential: Potential, places: Sequence[Mapping[str, Tensor]]) -> Self | None:
        """The recording at the first of some places; None where torch cannot record the program, or
        the recording differs from it at one of the places."""
        with program_settings(validate=False):
            try:
                recorded = cls(potential, places[0])
            except Exception:
                return None
        return recorded if recorded.agrees(places) else None

    def __call__(self, unconstrained: Mapping[str, Tensor]) -> Tensor:
        """U, in nats, with its gradient."""
        value: Tensor = _Replayed.apply(self._graph, *self._numbers(unconstrained))
        return value

    def agrees(self, places: Sequence[Mapping[str, Tensor]]) -> bool:
        """Whether value and gradient are the potential's own at some places."""
        with program_settings(validate=False):
            return all(
                bool(((a - b).abs() <= TOLERANCE * (1.0 + b.abs().max())).all())
                for numbers in map(self._numbers, places)
                for a, b in zip(
                    self._graph(*numbers), self._potential.with_gradient(*numbers), strict=True
                )
            )

    def _numbers(self, place: Mapping[str, Tensor]) -> list[Tensor]:
        return [place[name] for name in self._potential.sites]


def fold(recorded: GraphModule, numbers: Sequence[Tensor]) -> None:
    """Replace what does not depend on a recording's arguments by its values in one run.

    Args:
        recorded: by `make_fx`; it is changed.
        numbers: arguments of the run.

    Raises:
        RuntimeError: the rest draws random numbers, or writes into a tensor.

    Example:
        >>> double = make_fx(lambda x: x * torch.rand(2).clamp(2.0, 2.0))(torch.zeros(2))
        >>> fold(double, [torch.zeros(2)])
        >>> [node.op for node in double.graph.nodes], double(torch.full((2,), 3.0))
        (['placeholder', 'get_attr', 'call_function', 'output'], tensor([6., 6.]))
    """
    graph, constant = recorded.graph, set[Node]()
    for node in graph.nodes:
        if node.op in ("get_attr", "call_function") and constant.issuperset(node.all_input_nodes):
            constant.add(node)
    run = Interpreter(recorded, garbage_collect_values=False)
    run.run(*numbers)
    for place, node in enumerate(list(graph.nodes)):
        if node in constant and node.op == "call_function" and set(node.users) - constant:
            recorded.register_buffer(f"folded_{place}", run.env[node])
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.get_attr(f"folded_{place}"))

    def writes(node: Node) -> bool:
        return bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))

    graph.eliminate_dead_code(
        lambda node: node.op in ("placeholder", "output") or (writes(node) and node not in constant)
    )
    for node in graph.nodes:
        if writes(node) or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise RuntimeError(f"{node.target} of a latent cannot be recorded")
    recorded.recompile()


class _Replayed(torch.autograd.Function):
    """The recorded value, whose gradient has come with it."""

    @staticmethod
    def forward(ctx: Any, graph: Callable[..., tuple[Tensor, ...]], *numbers: Tensor) -> Tensor:
        value, *gradients = graph(*(number.detach() for number in numbers))
        ctx.save_for_backward(*gradients)
        return value

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        return None, *(outer[0] * gradient for gradient in ctx.saved_tensors)


class _SummedOut(Messenger):
    """Take away Pyro's mark of sites to be enumerated: the masks are summed out, marked or not."""

    def _pyro_sample(self, msg: Any) -> None:
        (msg["infer"] or {}).pop("enumerate", None)
