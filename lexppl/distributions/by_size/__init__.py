"""Distributions of masks of which only the size matters."""
