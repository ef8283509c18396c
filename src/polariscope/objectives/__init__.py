"""Objectives: what a model is trained for. Each is a small frozen dataclass that turns a batch into a loss."""

from polariscope.objectives.objective import Batch as Batch
from polariscope.objectives.objective import Objective as Objective
from polariscope.objectives.objective import Terms as Terms
from polariscope.objectives.objective import objectives as objectives
