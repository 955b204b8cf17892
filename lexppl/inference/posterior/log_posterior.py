"""The log posterior of a program's global latents, by mini-batches."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyro
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.effects import ParticleCounts, weights_first
from lexppl.extras import extra_library
from lexppl.inference.contexts import (
    MiniBatch,
    keep_parameters_local,
    program_settings,
    rows_plate,
    seeded,
)
from lexppl.inference.nested_iwae import NestedIWAE
from lexppl.inference.posterior.global_draws import GlobalDraws, SamplerRecord
from lexppl.inference.posterior.global_latents import GlobalSites, values_of
from lexppl.inference.posterior.likelihood_bound import likelihood_bound, log_joint

MOST_LISTED = 256
"""Masks that are summed over by default."""

MASKS = 10
"""L, the default where masks are too many to be listed."""

LEAST_BATCH = 100
"""Rows of a mini-batch by default: at least so many, and a tenth of all."""


class LogPosterior:
    """`log p(θ) + log |dθ/du| + N/B Σ_batch ℒ_n(θ)` of global latents θ, at their vector u.

    ℒ_n is the library's own bound on `log p(y_n | x_n, θ)`: itself, where the masks are summed over
    and nothing else is drawn; else `ℒ_{L,K} ≤ log p`, whose exponential is then what is sampled.

    Args:
        model: the program; a copy is taken, in evaluation mode.
        rows: all of them, N, as its arguments: x `(N, *event)` and y.
        seed: of the draws that find its latents.
        batch_size: B; None for a tenth of the rows, at least 100.
        objective: the bound ℒ; None for the exact log-likelihood where at most 256 masks are to be
            summed over, else ten masks a row.

    Raises:
        ValueError, TypeError: rows fewer than a batch; what :meth:`GlobalSites.of` refuses; a
            program that the bound cannot read.
        FloatingPointError: a log posterior that is not finite.
    """

    def __init__(
        self,
        model: Any,
        rows: tuple[Tensor, ...],
        seed: int,
        batch_size: int | None,
        objective: NestedIWAE | None,
    ) -> None:
        count = len(rows[0])
        self.batch_size = size = batch_size or min(count, max(LEAST_BATCH, -(-count // 10)))
        if size > count:
            raise ValueError(
                f"a batch has {size} rows, and there are only {count}: give a lower batch_size"
            )
        self.model = model = copy.deepcopy(model)
        if isinstance(model, nn.Module):
            keep_parameters_local(model)
            model.eval()
        self._program = weights_first(model)
        self.rows, self.device = rows, rows[0].device
        self._few = tuple(column[:size] for column in rows)
        with seeded(seed, self.device), program_settings(validate=True):
            self.sites, latents = GlobalSites.of(model, self._few)
            start = self.sites.vectors(values_of(latents))
            with torch.no_grad(), ParticleCounts(1, 1):
                trace = pyro.poutine.trace(self._program).get_trace(*self._few)
            nodes = [node for node in trace.nodes.values() if node["type"] == "sample"]
            self._plate = rows_plate(nodes, size)
            for node in nodes:
                if size < count and getattr(node["fn"], "couples_rows", False):
                    raise ValueError(
                        f"site {node['name']!r} is a likelihood of all rows together, of which a "
                        f"batch's is no share: give batch_size={count}"
                    )
            if objective is None:
                objective = likelihood_bound(
                    latents, size, most_particles=math.inf, most_masks=MOST_LISTED, drawn=MASKS
                )
            self.objective: NestedIWAE = objective.at(1.0)
            with torch.no_grad():
                value = self.of_batch(start, self._few)
        if not bool(torch.isfinite(value)):
            raise FloatingPointError(
                f"the log posterior of the first batch is {float(value)}; look for labels or "
                "features that the model gives probability zero"
            )
        again = []
        for other in (seed, seed + 1):
            with seeded(other, self.device), program_settings(validate=False), torch.no_grad():
                again.append(self.of_batch(start, self._few))
        self.exact = torch.equal(*again)
        """Whether ℒ is the log-likelihood itself: other draws give the same."""

    def __len__(self) -> int:
        return len(self.rows[0])

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
        """The estimate of the log posterior at u `(D,)` by B rows, a scalar."""
        with MiniBatch(len(self), len(batch[0]), self._plate):
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
        """`Σ ℒ_n` of some rows at u `(D,)`, a scalar."""
        return self._joint(vector, batch) - self.log_prior(vector)

    def log_prior(self, vector: Tensor) -> Tensor:
        """`log p(θ) + log |dθ/du|` at u `(D,)`, a scalar."""
        values, log_jacobian = self.sites.constrained(vector)
        program = pyro.poutine.condition(self._program, data=values)
        with ParticleCounts(1, 1):
            trace = pyro.poutine.trace(program).get_trace(*(column[:1] for column in self.rows))
        sites = [trace.nodes[name] for name in values]
        terms = [(site["scale"] * site["fn"].log_prob(site["value"])).sum() for site in sites]
        total: Tensor = log_jacobian + sum(terms)
        return total

    def batches(self, chains: int, size: int | None = None) -> tuple[Tensor, ...]:
        """Rows drawn with replacement, `(C, B, …)`, each chain's own; all rows where B is N."""
        size = self.batch_size if size is None else size
        if size >= len(self):
            return tuple(c.expand(chains, *c.shape) for c in self.rows)
        places = torch.randint(len(self), (chains, size), device=self.device)
        return tuple(column[places] for column in self.rows)

    def prior_vectors(self, count: int) -> Tensor:
        """Draws of u from the prior, `(count, D)`."""
        drawn = [self.sites.prior_draw(self.model, self._few) for _ in range(count)]
        return torch.stack(drawn)

    def draws(
        self,
        name: str,
        vectors: Tensor,
        temperature: float = 1.0,
        stats: Mapping[str, np.ndarray] | None = None,
    ) -> GlobalDraws:
        """Draws of θ and their record.

        Args:
            name: of the method.
            vectors: u, `(C, S, D)`.
            temperature: of the density that was sampled.
            stats: of Markov chains, by ArviZ's name, `(C, S)`; None for independent draws.
        """
        values, _ = self.sites.constrained(vectors)
        named = name if temperature == 1.0 else f"{name} at temperature {temperature:g}"
        record = SamplerRecord(named, stats is not None, stats or {}, self.note)
        return GlobalDraws({n: v.detach() for n, v in values.items()}, record, self.model)

    @contextmanager
    def stepping(self, seed: int, steps: int, progress: bool) -> Iterator[Any]:
        """Context of a run: its seed, no argument checks, a progress bar of so many steps."""
        with (
            seeded(seed, self.device),
            program_settings(validate=False),
            tqdm(total=steps, disable=None if progress else True, unit="step") as bar,
        ):
            yield bar

    def _joint(self, vector: Tensor, batch: tuple[Tensor, ...]) -> Tensor:
        values, log_jacobian = self.sites.constrained(vector)
        return log_jacobian + log_joint(self._program, values, self.objective, batch)


def check_settings(method: Any, **least: int) -> None:
    """Refuse settings of a method outside their range.

    Args:
        method: a posterior inference, of which `lr`, `temperature`, `alpha`, `sigma`, `beta`,
            `batch_size` and `objective` are checked where it has them.
        least: of its counts by name.

    Raises:
        ValueError, TypeError: a count, rate or batch size that is too small; no bound.
    """
    for name, count in least.items():
        int_at_least(name, getattr(method, name), count)
    for name in ("lr", "temperature", "alpha", "sigma"):
        if getattr(method, name, None) is not None:
            finite_float(name, getattr(method, name), above=0.0)
    if getattr(method, "beta", None) is not None:
        finite_float("beta", method.beta, least=0.0)
    if method.batch_size is not None:
        int_at_least("batch_size", method.batch_size)
    if not (method.objective is None or isinstance(method.objective, NestedIWAE)):
        raise TypeError(f"objective must be a NestedIWAE or None; it is {method.objective!r}")


def bayes_library(module: str = "posteriors") -> Any:
    """A library of the `bayes` extra, imported where it is used.

    Raises:
        ImportError: as :func:`lexppl.extras.extra_library`.
    """
    # Its classes are declared in a way that its own libraries warn of, once each.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return extra_library(module, "bayes")
