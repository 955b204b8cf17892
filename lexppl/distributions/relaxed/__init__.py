"""Continuous stand-ins for masks, and the relaxation of each distribution of masks."""
