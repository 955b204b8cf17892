"""Many fits of one kind: over seeds, penalties, sizes, imputers, or any other setting."""

from lexppl.sweeps.sweep import sweep

__all__ = ["sweep"]
