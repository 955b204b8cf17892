"""Explanations of tables larger than memory, chunk by chunk into a Zarr store."""
