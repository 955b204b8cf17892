"""What stands beside the masks of a posterior: values, gains, pictures, a bootstrap's means."""
