"""Polariscope: train learned representations, take them apart, and put them under load."""

from polariscope.examine import Examination as Examination
from polariscope.examine import examine as examine
from polariscope.lab.store import Run as Run
from polariscope.lab.store import Store as Store
from polariscope.nets.autoencoder import Autoencoder as Autoencoder
from polariscope.nets.autoencoder import ModelConfig as ModelConfig
from polariscope.report.page import Subject as Subject
from polariscope.report.page import write_report as write_report
from polariscope.representation import Representation as Representation
from polariscope.representation import represent as represent
from polariscope.training.config import RunConfig as RunConfig
from polariscope.training.config import TrainingConfig as TrainingConfig
from polariscope.training.run import load_model as load_model
from polariscope.training.run import resume as resume
from polariscope.training.run import train as train
from polariscope.worlds.world import ArrayWorld as ArrayWorld
