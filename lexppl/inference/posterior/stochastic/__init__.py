"""Draws of global latents by gradients of mini-batches: samplers, approximations, ensembles."""
