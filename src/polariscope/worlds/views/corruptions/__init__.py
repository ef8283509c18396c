"""Common corruptions of pictures: the suites of ImageNet-C and MNIST-C, without a file, whole batches at a time."""

from polariscope.worlds.views.corruptions.corruption import Corruption as Corruption
from polariscope.worlds.views.corruptions.corruption import Suite as Suite
from polariscope.worlds.views.corruptions.suites import SUITES as SUITES
from polariscope.worlds.views.corruptions.suites import corrupt as corrupt
