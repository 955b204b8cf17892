"""Whether the choice of features itself tells the answer."""
