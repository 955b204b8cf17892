"""One sample statement of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from pyro.distributions.util import scale_and_mask
from pyro.infer.util import is_validation_enabled
from torch import Tensor
from torch.distributions import kl_divergence

from lexppl.distributions.gradients import may_carry_gradient
from lexppl.effects import (
    BEFORE_PARTICLES,
    IMPUTATION_DIM,
    IMPUTATION_PLATE,
    LABEL_PLATE,
    MASK_DIM,
    MASK_PLATE,
    PENALTY,
)

CLOSED_KL = "closed_kl"
"""The key of a guide site's `infer` that asks for its divergence in closed form."""

PlateKey = tuple[str, int]
"""A plate by its name and, where it is a loop (`for t in pyro.plate(…)`), by its turn."""


@dataclass
class Site:
    """One sample statement of a run: its distribution, expanded by the plates, and its value."""

    name: str
    distribution: Any
    value: Tensor | None
    observed: bool
    plates: tuple[Any, ...]
    scale: float | Tensor
    mask: bool | Tensor | None
    infer: Mapping[str, Any]
    guided: bool = False

    def __post_init__(self) -> None:
        self.plate_names: tuple[str, ...] = tuple([plate.name for plate in self.plates])
        self.in_particles = MASK_PLATE in self.plate_names
        """Whether the site has its own value for each mask."""
        self.in_imputations = IMPUTATION_PLATE in self.plate_names

    @classmethod
    def of(cls, message: Mapping[str, Any], guided: bool = False) -> "Site":
        return cls(
            name=message["name"],
            distribution=message["fn"],
            value=message["value"],
            observed=message["is_observed"],
            plates=tuple(message["cond_indep_stack"]),
            scale=message["scale"],
            mask=message["mask"],
            infer=message["infer"] or {},
            guided=guided,
        )

    @cached_property
    def outer(self) -> dict[PlateKey, int | None]:
        """The plates outside the log, before the mask plate or of labels, with their dims."""
        before = self.plate_names.index(MASK_PLATE) if self.in_particles else len(self.plates)
        return {
            (plate.name, 0 if plate.vectorized else plate.counter): plate.dim
            for place, plate in enumerate(self.plates)
            if place < before or plate.name == LABEL_PLATE
        }

    @property
    def log_plates(self) -> frozenset[PlateKey]:
        """The plates outside the log without the labels, which are alternatives within one log."""
        return frozenset(key for key in self.outer if key[0] != LABEL_PLATE)

    @cached_property
    def inner(self) -> tuple[Any, ...]:
        """The plates inside the log: those entered inside the mask plate."""
        if not self.in_particles:
            return ()
        after = self.plates[self.plate_names.index(MASK_PLATE) + 1 :]
        return tuple(p for p in after if p.name not in (IMPUTATION_PLATE, LABEL_PLATE))

    @cached_property
    def before_particles(self) -> tuple[Any, bool]:
        """A mask's distribution, and whether it differs by mask; if not, it is `(…, 1, B)`."""
        shape = self.distribution.batch_shape
        law = self.infer.get(BEFORE_PARTICLES)
        if law is None or (len(law.batch_shape) >= -MASK_DIM and law.batch_shape[MASK_DIM] != 1):
            return self.distribution, True
        return law.expand((*shape[:MASK_DIM], 1, *shape[MASK_DIM + 1 :])), False

    @property
    def has_own_plates(self) -> bool:
        """Whether it is in plates beside those of rows, particles and labels, such as of times."""
        left = (p for p in self.plates if p.vectorized and p.dim < IMPUTATION_DIM)
        return any(plate.name != LABEL_PLATE for plate in left)

    @property
    def is_deterministic(self) -> bool:
        """Whether it is a `pyro.deterministic` statement, which has no density."""
        return bool(self.infer.get("_deterministic", False))

    @property
    def is_penalty(self) -> bool:
        return bool(self.infer.get(PENALTY, False))

    @property
    def is_mask(self) -> bool:
        """Whether the site is a latent of the mask plate, drawn once for all its imputations."""
        return self.in_particles and not self.in_imputations and not self.observed

    def log_prob(self) -> Tensor:
        """Log-density, masked and unscaled, summed over plates inside the mask plate."""
        return self.summed(scale_and_mask(self._density, 1.0, self.mask))

    def scaled_log_prob(self) -> Tensor:
        """As :meth:`log_prob`, times the scale."""
        return self.summed(scale_and_mask(self._density, self.scale, self.mask))

    def score(self) -> Tensor:
        """Log-density of the draw itself: neither scale nor mask changes how it was drawn."""
        return self.summed(self._density)

    @property
    def _density(self) -> Tensor:
        try:
            value: Tensor = self.distribution.log_prob(self.value)
        except ValueError as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"site {self.name!r} cannot have its value: {reason}") from error
        return value

    def summed(self, value: Tensor) -> Tensor:
        """A tensor of the site's batch shape, summed over the plates inside the mask plate."""
        dims = [p.dim for p in self.inner if p.vectorized and value.dim() >= -p.dim]
        return value.sum(dims, keepdim=True) if dims else value


def same_numbers(first: float | Tensor, second: float | Tensor, exact: bool = True) -> bool:
    if not isinstance(first, Tensor) and not isinstance(second, Tensor):
        return bool(first == second)
    if first is second or not is_validation_enabled() or _is_wrapped(first) or _is_wrapped(second):
        return True
    a, b = torch.broadcast_tensors(torch.as_tensor(first), torch.as_tensor(second))
    a, b = a.detach(), b.detach().to(a)
    return bool(torch.equal(a, b) if exact else torch.allclose(a, b))


def _is_wrapped(value: float | Tensor) -> bool:
    """Whether a value is of a `torch.func` transform, inside which no branch may read numbers."""
    return isinstance(value, Tensor) and may_carry_gradient(value.detach())


def closed_divergences(sites: Mapping[str, Site], guided: Mapping[str, Site]) -> dict[str, Tensor]:
    """Scaled `KL(q ‖ p)` in nats of each global latent whose guide site has `closed_kl`."""
    closed = [name for name, q in guided.items() if q.infer.get(CLOSED_KL, False)]
    if not closed:
        return {}
    shared = [name for name, q in guided.items() if name in sites and not q.in_particles]
    if shared != [name for name in sites if name in set(shared)]:
        raise ValueError(f"closed_kl needs the guide's latents, {shared}, in the model's order")
    divergences: dict[str, Tensor] = {}
    for name in closed:
        if name not in shared:
            raise ValueError(
                f"closed_kl is for latents outside mask_particles(); {name!r} is inside, where "
                "penalty() with a KL does it"
            )
        p, q = sites[name], guided[name]
        plain = all(m is None or m is True for m in (p.mask, q.mask))
        if not plain or isinstance(p.scale, Tensor) or p.scale != q.scale:
            raise ValueError(f"closed_kl needs one scale and no mask for {name!r} in both programs")
        try:
            divergences[name] = (p.scale * kl_divergence(q.distribution, p.distribution)).sum()
        except NotImplementedError as error:
            raise ValueError(
                f"no closed form is registered for KL({type(q.distribution).__name__} ‖ "
                f"{type(p.distribution).__name__}) of {name!r}; leave out closed_kl"
            ) from error
    return divergences
