"""What is typed: options, their readers and texts, and the plan that they make."""
