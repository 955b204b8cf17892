"""Scores that need a known truth: the relevant entries, or the exact distribution of the labels."""
