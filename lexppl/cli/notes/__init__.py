"""What the reader should mind of a table, of a fit and of a posterior, in words."""
