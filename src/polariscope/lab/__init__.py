"""The lab: one folder a run, written atomically, queried with SQL; and parallel work on this machine."""

from polariscope.lab.parallel import in_parallel as in_parallel
from polariscope.lab.store import Run as Run
from polariscope.lab.store import Store as Store
from polariscope.lab.store import fingerprint as fingerprint
