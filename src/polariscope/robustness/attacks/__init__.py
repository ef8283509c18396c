"""Attacks: searches for the smallest change of an image that misleads a classifier. One file each."""

from polariscope.robustness.attacks.attack import Attack as Attack
from polariscope.robustness.attacks.attack import attacks as attacks
from polariscope.robustness.attacks.attacked import Attacked as Attacked
from polariscope.robustness.attacks.attacked import accuracy_at as accuracy_at
from polariscope.robustness.attacks.attacked import accuracy_curve as accuracy_curve
from polariscope.robustness.attacks.attacked import joined as joined
from polariscope.robustness.attacks.attacked import least as least
from polariscope.robustness.attacks.geometry import NORMS as NORMS
from polariscope.robustness.attacks.geometry import Norm as Norm
from polariscope.robustness.attacks.trial import Need as Need
from polariscope.robustness.attacks.trial import NoGradient as NoGradient
from polariscope.robustness.attacks.trial import Trial as Trial
