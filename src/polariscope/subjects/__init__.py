"""Subjects: a trained thing under the instrument, ours or foreign, wrapped once at the door.

Behind the door nobody asks where it came from: what can be done with a subject follows from what it can do.
"""

from polariscope.subjects.subject import Subject as Subject
from polariscope.subjects.subject import as_subject as as_subject
