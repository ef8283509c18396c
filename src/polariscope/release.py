"""The version of this package, which only pyproject.toml defines."""

from importlib.metadata import version

__version__ = version("polariscope")
