"""Robustness of classifiers: noise, attacks, lower bounds, and training that makes a classifier more robust."""
