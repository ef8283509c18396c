"""Analysis by synthesis: classifiers that explain an image by each class and answer with the best explanation."""

from polariscope.robustness.synthesis.binary import binarised as binarised
from polariscope.robustness.synthesis.binary import search_gamma as search_gamma
from polariscope.robustness.synthesis.calibration import settle as settle
from polariscope.robustness.synthesis.classifier import ABSClassifier as ABSClassifier
from polariscope.robustness.synthesis.explain import Explanation as Explanation
from polariscope.robustness.synthesis.explain import explain as explain
from polariscope.robustness.synthesis.graded_softmax import GradedSoftmax as GradedSoftmax
from polariscope.robustness.synthesis.graded_softmax import calibrate as calibrate
from polariscope.robustness.synthesis.inference import Inference as Inference
from polariscope.robustness.synthesis.inference import Search as Search
from polariscope.robustness.synthesis.inference import descend as descend
from polariscope.robustness.synthesis.inversion import invert as invert
from polariscope.robustness.synthesis.inversion import invert_model as invert_model
from polariscope.robustness.synthesis.likelihoods import BernoulliLikelihood as BernoulliLikelihood
from polariscope.robustness.synthesis.likelihoods import GaussianLikelihood as GaussianLikelihood
from polariscope.robustness.synthesis.linear import LinearABS as LinearABS
from polariscope.robustness.synthesis.objective import ABSTraining as ABSTraining
from polariscope.robustness.synthesis.variational import ABSConfig as ABSConfig
from polariscope.robustness.synthesis.variational import VariationalABS as VariationalABS
