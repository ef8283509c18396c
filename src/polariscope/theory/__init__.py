"""Closed forms, in NumPy and SciPy only: what training should find, so that what it finds can be judged."""
