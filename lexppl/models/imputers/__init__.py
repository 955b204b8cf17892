"""Conditional distributions of the hidden features given the kept ones."""
