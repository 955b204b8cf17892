"""Losses and gradients of a step as one graph, checked against the program."""
