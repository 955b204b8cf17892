"""Processes that share a fit."""
