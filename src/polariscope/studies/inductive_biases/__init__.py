"""Schott, Inductive biases for generalisation (2022): factors from pairs of observations, and models out of domain."""
