"""Subjects: trained models under examination, from Polariscope or elsewhere, wrapped once.

The code behind the wrapper treats all models alike: a subject's methods decide how it can be examined.
"""

from polariscope.subjects.subject import Subject as Subject
from polariscope.subjects.subject import as_subject as as_subject
