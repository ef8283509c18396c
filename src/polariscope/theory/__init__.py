"""Closed-form solutions, in NumPy and SciPy only, against which trained models are checked."""
