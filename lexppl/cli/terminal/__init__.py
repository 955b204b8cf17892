"""What the program and the terminal say to each other: errors, warnings, signals, exit codes."""
