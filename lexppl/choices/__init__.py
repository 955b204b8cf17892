"""What can be chosen by name, and what each choice takes; imports the standard library only."""
