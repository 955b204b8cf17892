"""Scores that need a known truth: the relevant entries, or the exact law of the labels."""
