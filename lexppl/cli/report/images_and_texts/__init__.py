"""The report of images and texts."""
