"""Explanations of predictions, as statistical inference."""
