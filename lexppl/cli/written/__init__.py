"""What a command writes: the states of its fits, the model, and what was found."""
