"""Zietlow, Inner workings of VAEs (2022): VAEs and PCA, orthogonal decoders, data that breaks disentanglement."""
