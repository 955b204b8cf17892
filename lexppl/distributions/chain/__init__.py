"""Masks whose neighbouring entries hang together: a binary Markov chain."""
