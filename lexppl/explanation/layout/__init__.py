"""Where masks stand in a posterior: its groups, variables and dimensions, and its file."""
