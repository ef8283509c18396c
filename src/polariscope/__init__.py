"""Polariscope: train learned representations, take them apart, and put them under load."""
