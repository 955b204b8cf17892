"""Priors: of weights, of inclusion, of sites."""

from lexppl.models.priors.with_prior import with_prior

__all__ = ["with_prior"]
