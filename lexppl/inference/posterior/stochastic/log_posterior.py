"""The log posterior of a program's global latents, by mini-batches."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyro
import torch
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least
from lexppl.effects import ParticleCounts
from lexppl.inference.contexts import (
    MiniBatch,
    keep_parameters_local,
    program_settings,
    rows_plate,
    seeded,
)
from lexppl.inference.nested_iwae import NestedIWAE
from lexppl.inference.posterior.global_sites import GlobalSites, values_of
from lexppl.inference.posterior.likelihood_bound import likelihood_bound
from lexppl.inference.posterior.log_joint import log_joint, log_prior
from lexppl.weights_drawn_first import weights_first

MOST_LISTED = 256
"""Masks that are summed over where nobody chooses a bound."""

MASKS = 10
"""L, where masks are too many to be listed and nobody chooses."""

LEAST_BATCH = 100
"""Rows of a mini-batch where nobody chooses: at least so many, and a tenth of all."""


@dataclass(frozen=True, eq=False)
class LogPosterior:
    """`log p(θ) + log |dθ/du| + N/B Σ_batch ℒ_n(θ)` of global latents θ, at their vector u.

    ℒ_n is the library's own bound on `log p(y_n | x_n, θ)`: itself, where the masks are summed over
    and nothing else is drawn; else `ℒ_{L,K} ≤ log p`, whose exponential is then what is sampled.

    Args:
        model: the program, in evaluation mode.
        rows: all of them, N, as its arguments.
        objective: the bound ℒ.
        batch_size: B.
        sites: θ.
        plate: name of the plate over rows.
        exact: whether ℒ is the log-likelihood itself.
    """

    model: Any
    rows: tuple[Tensor, ...]
    objective: NestedIWAE
    batch_size: int
    sites: GlobalSites
    plate: str | None
    exact: bool
    _program: Callable[..., Any] = field(repr=False)

    @classmethod
    def of(
        cls,
        model: Any,
        rows: tuple[Tensor, ...],
        seed: int,
        batch_size: int | None,
        objective: NestedIWAE | None,
    ) -> LogPosterior:
        """Find what is to be sampled and how its likelihood is computed, and check all of it.

        Args:
            model: the program; a copy is taken.
            rows: as its arguments: x `(N, *event)` and y.
            seed: of the draws that find it.
            batch_size: B; None for a tenth of the rows, at least 100.
            objective: the bound; None for the exact log-likelihood where at most 256 masks are to
                be summed over, else ten masks a row.

        Raises:
            ValueError, TypeError: rows fewer than a batch; what :meth:`GlobalSites.of` refuses; a
                program that the bound cannot read.
            FloatingPointError: a log posterior that is not finite.
        """
        size = _batch_size(batch_size, len(rows[0]))
        if not (objective is None or isinstance(objective, NestedIWAE)):
            raise TypeError(f"objective must be a NestedIWAE or None; it is {objective!r}")
        model = copy.deepcopy(model)
        if isinstance(model, nn.Module):
            keep_parameters_local(model)
            model.eval()
        program = weights_first(model)
        few = tuple(column[:size] for column in rows)
        with seeded(seed, rows[0].device), program_settings(validate=True):
            sites, latents = GlobalSites.of(model, few)
            start = sites.vectors(values_of(latents))
            nodes = _nodes(program, few)
            plate = rows_plate(nodes, size)
            _refuse_coupled(nodes, size, len(rows[0]))
            if objective is None:
                objective = likelihood_bound(
                    latents, size, most_particles=math.inf, most_masks=MOST_LISTED, drawn=MASKS
                )
            found = cls(model, rows, objective.at(1.0), size, sites, plate, False, program)
            with torch.no_grad():
                value = found.of_batch(start, few)
        if not bool(torch.isfinite(value)):
            raise FloatingPointError(
                f"the log posterior of the first batch is {float(value)}; look for labels or "
                "features that the model gives probability zero"
            )
        return cls(
            model, rows, found.objective, size, sites, plate, found._is_exact(start, seed), program
        )

    def _is_exact(self, vector: Tensor, seed: int) -> bool:
        """Whether nothing of the likelihood is drawn: other draws give the same."""
        few = tuple(column[: self.batch_size] for column in self.rows)
        values = []
        for other in (seed, seed + 1):
            with (
                seeded(other, self.device),
                program_settings(validate=False),
                torch.no_grad(),
            ):
                values.append(self.of_batch(vector, few))
        return torch.equal(*values)

    def __len__(self) -> int:
        return len(self.rows[0])

    @property
    def device(self) -> torch.device:
        return self.rows[0].device

    @property
    def dimensions(self) -> int:
        """D."""
        return self.sites.dimensions

    @property
    def note(self) -> str | None:
        """What is sampled, where it is not the posterior itself."""
        if self.exact:
            return None
        counts = f"L = {self.objective.masks:g}, K = {self.objective.imputations}"
        return f"of exp(lower bound with {counts}) in place of the likelihood"

    def of_batch(self, vector: Tensor, batch: tuple[Tensor, ...]) -> Tensor:
        """The estimate of the log posterior by some rows, a scalar.

        Args:
            vector: u, `(D,)`.
            batch: B rows.
        """
        with MiniBatch(len(self), len(batch[0]), self.plate):
            return self._joint(vector, batch)

    def of_chains(self, vectors: Tensor, batches: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Of C chains at once: the sum, whose gradient is each chain's own, and each, `(C,)`.

        Args:
            vectors: `(C, D)`.
            batches: columns `(C, B, …)`, each chain's own rows.
        """
        each: Tensor = torch.func.vmap(self.of_batch, randomness="different")(vectors, batches)
        return each.sum(), each

    def log_likelihood(self, vector: Tensor, batch: tuple[Tensor, ...]) -> Tensor:
        """`Σ ℒ_n` of some rows, a scalar.

        Args:
            vector: u, `(D,)`.
            batch: rows.
        """
        return self._joint(vector, batch) - self.log_prior(vector)

    def log_prior(self, vector: Tensor) -> Tensor:
        """`log p(θ) + log |dθ/du|`, a scalar."""
        values, log_jacobian = self.sites.constrained(vector)
        return log_jacobian + log_prior(self._program, values, self.rows)

    def _joint(self, vector: Tensor, batch: tuple[Tensor, ...]) -> Tensor:
        values, log_jacobian = self.sites.constrained(vector)
        return log_jacobian + log_joint(self._program, values, self.objective, batch)

    def batches(self, chains: int, size: int | None = None) -> tuple[Tensor, ...]:
        """Rows drawn with replacement, `(C, B, …)`, each chain's own; all rows where B is N."""
        size = self.batch_size if size is None else size
        if size >= len(self):
            return tuple(c.expand(chains, *c.shape) for c in self.rows)
        places = torch.randint(len(self), (chains, size), device=self.device)
        return tuple(column[places] for column in self.rows)

    def prior_vectors(self, count: int) -> Tensor:
        """Draws of u from the prior, `(count, D)`."""
        few = tuple(column[: self.batch_size] for column in self.rows)
        return torch.stack([self.sites.drawn(self.model, few) for _ in range(count)])


def _batch_size(batch_size: int | None, rows: int) -> int:
    if batch_size is None:
        return min(rows, max(LEAST_BATCH, -(-rows // 10)))
    size = int_at_least("batch_size", batch_size)
    if size > rows:
        raise ValueError(
            f"a batch has {size} rows, and there are only {rows}: give batch_size={rows} or less, "
            "or leave it out"
        )
    return size


def _refuse_coupled(nodes: list[Any], batch: int, rows: int) -> None:
    for node in nodes:
        if batch < rows and getattr(node["fn"], "couples_rows", False):
            raise ValueError(
                f"site {node['name']!r} is a likelihood of all rows together, of which a batch's "
                f"is no share: give batch_size={rows}"
            )


def _nodes(program: Callable[..., Any], rows: tuple[Tensor, ...]) -> list[Any]:
    with torch.no_grad(), ParticleCounts(1, 1):
        trace = pyro.poutine.trace(program).get_trace(*rows)
    return [node for node in trace.nodes.values() if node["type"] == "sample"]
