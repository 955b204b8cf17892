"""One sample statement of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyro.distributions.util import scale_and_mask
from torch import Tensor

from lexppl.effects import IMPUTATION_PLATE, LABEL_PLATE, MASK_PLATE, PENALTY


@dataclass
class Site:
    """One sample statement of a run: its law (already expanded by the plates) and its value."""

    name: str
    law: Any
    value: Tensor | None
    observed: bool
    plates: tuple[Any, ...]
    scale: float | Tensor
    mask: bool | Tensor | None
    infer: Mapping[str, Any]
    guided: bool = False

    @property
    def plate_names(self) -> tuple[str, ...]:
        return tuple(plate.name for plate in self.plates)

    @property
    def in_particles(self) -> bool:
        """Whether the site has its own value for each mask."""
        return MASK_PLATE in self.plate_names

    @property
    def in_imputations(self) -> bool:
        return IMPUTATION_PLATE in self.plate_names

    @property
    def is_penalty(self) -> bool:
        return bool(self.infer.get(PENALTY, False))

    @property
    def is_mask(self) -> bool:
        """Whether the site is a latent of the mask plate, drawn once for all its imputations."""
        return self.in_particles and not self.in_imputations and not self.observed

    def log_prob(self) -> Tensor:
        """Log-density, without the plate's scale; plates that only this site's row holds inside
        the particle plates are summed, so that particles and rows remain."""
        value = scale_and_mask(self.law.log_prob(self.value), 1.0, self.mask)
        if not self.in_particles:
            return value
        inner = self.plates[self.plate_names.index(MASK_PLATE) + 1 :]
        dims = [p.dim for p in inner if p.name not in (IMPUTATION_PLATE, LABEL_PLATE)]
        return value.sum(dims, keepdim=True) if dims else value
