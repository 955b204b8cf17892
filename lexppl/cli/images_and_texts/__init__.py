"""`lexppl explain` of images and of texts: rows that are no table, and networks made for them."""
