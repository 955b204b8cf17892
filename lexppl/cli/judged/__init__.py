"""What an explainer and its features are worth on rows that no fit has seen."""
