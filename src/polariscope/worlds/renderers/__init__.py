"""Worlds that draw their observations from factors when they are asked for."""
