"""The masks of a program's rows: drawn, listed one and all, or stated by their distribution."""
