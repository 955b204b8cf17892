"""A fit that several processes share."""
