"""Lower bounds on adversarial distances: certificates if they are proven, estimated bounds if an optimum is not proven,
and "no bound is known" otherwise."""

from polariscope.robustness.bounds.confrontation import Confrontation, confront
from polariscope.robustness.bounds.known import bounds
from polariscope.robustness.bounds.result import Bounds, NoBound
from polariscope.robustness.bounds.settings import BoundSettings

__all__ = ["BoundSettings", "Bounds", "Confrontation", "NoBound", "bounds", "confront"]
