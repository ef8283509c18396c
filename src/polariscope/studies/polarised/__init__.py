"""Bonheme, The polarised regime of variational autoencoders (2023)."""
