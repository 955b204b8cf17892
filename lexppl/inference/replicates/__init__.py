"""Seeds and settings trained at once, as one program with one more dimension."""
