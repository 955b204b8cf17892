"""What the model is: Pyro programs, and the parts they are made of."""

from lexppl.models.effects import (
    ParticleCounts,
    imputation_particles,
    label_expectation,
    mask_particles,
    penalty,
)

__all__ = [
    "ParticleCounts",
    "imputation_particles",
    "label_expectation",
    "mask_particles",
    "penalty",
]
