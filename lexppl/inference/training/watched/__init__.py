"""What is watched while a fit goes on: progress, losses, best states, skipped steps, collapse."""
