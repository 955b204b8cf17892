"""Scores by predictors that are fitted to judge, and these predictors."""
