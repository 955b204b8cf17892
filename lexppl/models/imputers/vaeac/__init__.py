"""Hidden features by a latent variable that the kept ones tell: VAEAC."""
