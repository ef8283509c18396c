"""Samarin, Informed representation learning (2022): networks, their linearisations and their infinite width."""
