"""The result document under its former name: plug-ins import it from here; it lives in :mod:`polariscope.findings`."""

from polariscope.findings import *  # noqa: F403
