"""Continuous stand-ins for masks, and the relaxation of each law of masks."""
