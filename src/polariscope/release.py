"""The version of this package: pyproject.toml has it, and nobody else."""

from importlib.metadata import version

__version__ = version("polariscope")
