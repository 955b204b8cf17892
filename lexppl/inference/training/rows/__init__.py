"""The rows of a fit: divided, folded, weighted, and those of a step."""
