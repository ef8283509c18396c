"""Polariscope: train learned representations, take them apart, and put them under load.

Names are imported on first use, so that ``import polariscope`` is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polariscope.lazy import exported, looked_up

if TYPE_CHECKING:
    from polariscope.examination.compare import compare as compare
    from polariscope.examination.examination import Examination as Examination
    from polariscope.examination.examine import examine as examine
    from polariscope.findings import Findings as Findings
    from polariscope.findings import save as save
    from polariscope.lab.store import Run as Run
    from polariscope.lab.store import Store as Store
    from polariscope.nets.autoencoder import Autoencoder as Autoencoder
    from polariscope.nets.autoencoder import AutoencoderConfig as AutoencoderConfig
    from polariscope.plugins import load_plugin as load_plugin
    from polariscope.release import __version__ as __version__
    from polariscope.representation import Representation as Representation
    from polariscope.representation import represent as represent
    from polariscope.subjects.subject import Subject as Subject
    from polariscope.subjects.subject import as_subject as as_subject
    from polariscope.subjects.weights import load_weights as load_weights
    from polariscope.training.config import RunConfig as RunConfig
    from polariscope.training.config import TrainingConfig as TrainingConfig
    from polariscope.training.run import load_model as load_model
    from polariscope.training.run import resume as resume
    from polariscope.training.run import train as train
    from polariscope.worlds.given import as_world as as_world
    from polariscope.worlds.world import ArrayWorld as ArrayWorld

_PLACES = exported(__name__, __file__)
__all__ = sorted(_PLACES)
__getattr__, __dir__ = looked_up(__name__, _PLACES)
