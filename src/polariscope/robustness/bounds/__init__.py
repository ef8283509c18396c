"""Lower bounds on adversarial distances, called what they are: certificates where nothing is left to chance, estimated
bounds where an optimum is not proven, and "no bound is known" where there is none."""

from polariscope.robustness.bounds.confrontation import Confrontation, confront
from polariscope.robustness.bounds.known import bounds
from polariscope.robustness.bounds.result import Bounds, NoBound
from polariscope.robustness.bounds.settings import BoundSettings

__all__ = ["BoundSettings", "Bounds", "Confrontation", "NoBound", "bounds", "confront"]
