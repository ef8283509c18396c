"""The lab: one folder per run, written atomically by one process at a time, queried with SQL; and many jobs at once."""

from polariscope.lab.executors import in_parallel as in_parallel
from polariscope.lab.holding import hold as hold
from polariscope.lab.store import Run as Run
from polariscope.lab.store import Store as Store
from polariscope.lab.store import fingerprint as fingerprint
