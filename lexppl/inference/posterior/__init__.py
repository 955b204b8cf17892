"""How a posterior of what rows share is found, and how its draws are run through a program."""
