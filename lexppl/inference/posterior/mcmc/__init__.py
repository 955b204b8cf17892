"""Draws of global latents by Hamiltonian Monte Carlo on the exact density of all rows."""
