"""The rows of a fit: checked, divided, folded, weighted, and those of a step."""
