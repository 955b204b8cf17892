"""Priors: of weights, of how much is kept, of sites."""
