"""The state of a fit on disk, from which the same call goes on."""
