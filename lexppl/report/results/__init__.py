"""What a fitted explainer is worth on held-out rows, and shows while it is fitted."""
