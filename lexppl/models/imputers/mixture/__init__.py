"""Imputers whose hidden features come from one of several components, told by the kept ones."""
