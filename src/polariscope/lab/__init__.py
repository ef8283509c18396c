"""The lab: one folder per run, written atomically by one process at a time, queried with SQL; and many jobs at once."""

from typing import TYPE_CHECKING

from polariscope.lazy import looked_up

if TYPE_CHECKING:
    from polariscope.lab.executors import in_parallel as in_parallel
    from polariscope.lab.holding import hold as hold
    from polariscope.lab.store import Run as Run
    from polariscope.lab.store import Store as Store
    from polariscope.lab.store import fingerprint as fingerprint

_PLACES = {"Run": "store", "Store": "store", "fingerprint": "store", "hold": "holding", "in_parallel": "executors"}

__getattr__, __dir__ = looked_up(__name__, _PLACES)
