"""Paccolat et al., Compressing invariant manifolds in neural nets (2021): lazy and feature learning."""
