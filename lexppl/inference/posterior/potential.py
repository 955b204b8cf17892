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

from lexppl.inference.contexts import program_settings, seeded
from lexppl.inference.posterior.global_latents import GlobalSites, sites_of
from lexppl.inference.posterior.likelihood_bound import likelihood_bound, log_joint
from lexppl.weights_drawn_first import weights_first

MOST_STARTS = 100
TOLERANCE = 1e-4
"""Of a recording, relative to the largest number: float32 sums in another order are within it."""


class Potential:
    """Minus the log-density of a program's global latents θ given its rows, in nats,

        U(u) = −log p(θ) − Σ_n log p(y_n | x_n, θ) − log |det ∂θ/∂u|,    θ = t(u),

    masks summed out exactly (:func:`likelihood_bound`), t by `biject_to`. Random imputations are K
    draws by the seed, the same at every evaluation.
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
        """Unconstrained numbers by Pyro's strategy where potential and gradient are finite."""
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
    """A potential recorded, with its gradient, as a graph of tensor operations by `make_fx`.

    What does not depend on the latents is computed once. Torch's own errors pass for programs that
    cannot be recorded; :meth:`agrees` finds a recording that is another function.
    """

    def __init__(self, potential: Potential, place: Mapping[str, Tensor]) -> None:
        self._potential = potential
        self.constrained = potential.constrained
        self._graph = make_fx(potential.with_gradient)(*self._numbers(place))
        with potential.fixed():
            fold(self._graph, self._numbers(place))

    @classmethod
    def of(cls, potential: Potential, places: Sequence[Mapping[str, Tensor]]) -> Self | None:
        """The recording at the first place; None where there is none or it differs at a place."""
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

    Raises:
        RuntimeError: the rest draws random numbers, or writes into a tensor.
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
    """Take away Pyro's mark of sites to be enumerated, as the masks are summed out anyway."""

    def _pyro_sample(self, msg: Any) -> None:
        (msg["infer"] or {}).pop("enumerate", None)
