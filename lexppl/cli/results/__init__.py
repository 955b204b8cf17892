"""What a fitted explainer is worth on held-out rows: the numbers of the report."""
