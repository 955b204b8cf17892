"""How a table is read: its file, the columns that are chosen, and what is refused."""
