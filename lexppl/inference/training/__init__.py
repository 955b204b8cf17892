"""From data to a fitted program: `fit`, its loop, and what it watches."""
