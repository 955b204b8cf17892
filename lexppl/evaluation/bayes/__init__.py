"""Whether a posterior is to be trusted, and what the data say for one model against another."""
