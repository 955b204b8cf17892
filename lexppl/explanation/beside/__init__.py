"""What stands beside the masks of a posterior: values, gains, pictures, means by fold."""
