"""Measures: numbers about representations. Pure functions of arrays, and a registry that says what each one needs."""

from polariscope.measures.measure import Measure as Measure
from polariscope.measures.measure import Undefined as Undefined
from polariscope.measures.measure import measures as measures
