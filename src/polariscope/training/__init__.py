"""Training: one loop for every objective, bit-reproducible, resumable after anything."""

from polariscope.training.config import RunConfig as RunConfig
from polariscope.training.config import TrainingConfig as TrainingConfig
from polariscope.training.loop import Diverged as Diverged
from polariscope.training.loop import fit as fit
from polariscope.training.run import load_model as load_model
from polariscope.training.run import resume as resume
from polariscope.training.run import train as train
from polariscope.training.sweep import best_run as best_run
from polariscope.training.sweep import over_seeds as over_seeds
from polariscope.training.sweep import random_search as random_search
from polariscope.training.sweep import train_all as train_all
