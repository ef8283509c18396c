"""Worlds that draw their observations from factors on demand."""
