"""The rows of a fit: in batches, folds and with weights."""
