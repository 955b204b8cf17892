"""A predictor of every subset of a table's columns, fitted in one go: boosted trees."""
