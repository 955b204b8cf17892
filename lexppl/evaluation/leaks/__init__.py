"""Leaks: nats about y in the choice of features itself."""
