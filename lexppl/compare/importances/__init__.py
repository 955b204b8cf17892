"""Importances by other explainers, a file for each library, and what they share."""
