"""What can be chosen by name, and what each choice takes, known without loading what does the work.

Nothing here imports more than the standard library: the command line reads its options, and refuses
them, before torch is there.
"""
