"""The exact law of masks that keep k entries, and its arithmetic."""
