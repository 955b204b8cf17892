"""What was found, as text, pictures and one page."""
