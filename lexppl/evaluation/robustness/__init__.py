"""Whether importances change with what they should depend on, and with nothing else."""
