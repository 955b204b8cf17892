"""Pictures of images and texts: maps of what is kept, imputed pixels, shaded words."""
