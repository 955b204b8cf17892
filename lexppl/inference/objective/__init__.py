"""The bound in one file, the runs it reads, and what it refuses to read."""
