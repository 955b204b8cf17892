"""The exact distribution of masks that keep k entries, and its arithmetic."""
