"""A posterior as it is read: features ranked, and what each row's masks say."""
