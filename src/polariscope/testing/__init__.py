"""The contract kit: checks of everything that can be registered, and of readers and executors, for your own ones too.

Rooms that rely on each other's contracts need no special cases: training resumes to the same bits because observations
are a function of their number; tables show a range because the measure declares it. Each check is a plain function
that returns nothing if the contract holds and raises an :class:`AssertionError` with a sentence if it does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polariscope.lazy import exported, looked_up

if TYPE_CHECKING:
    from polariscope.testing.attacks import check_attack as check_attack
    from polariscope.testing.executors import check_executor as check_executor
    from polariscope.testing.measures import check_measure as check_measure
    from polariscope.testing.measures import synthetic_representation as synthetic_representation
    from polariscope.testing.models import check_model as check_model
    from polariscope.testing.objectives import check_objective as check_objective
    from polariscope.testing.readers import check_reader as check_reader
    from polariscope.testing.splits import check_split as check_split
    from polariscope.testing.studies import check_study as check_study
    from polariscope.testing.subjects import check_subject as check_subject
    from polariscope.testing.views import check_view as check_view
    from polariscope.testing.worlds import check_world as check_world

__getattr__, __dir__ = looked_up(__name__, exported(__name__, __file__))
