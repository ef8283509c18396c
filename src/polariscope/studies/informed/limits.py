"""LeNet when it is infinitely wide: its kernels, what regression with them reaches, and the rate that suits it."""

from __future__ import annotations

from torch import Tensor

from polariscope.kernels.infinite import Stack
from polariscope.kernels.machine import largest_rate, one_hot, solve
from polariscope.kernels.width_sweep import LabelledInputs as Task
from polariscope.nets.classifiers import Weights, lenet
from polariscope.studies.informed.widths import image_shape
from polariscope.studies.rows import Row

KERNEL_NAMES = ("nngp", "ntk")
NOISE = 1e-6  # on the kernels' diagonal, relative to its mean
PROBED = 50  # images by which the rate of descent is chosen
NTK = Weights("ntk", weight_var=2.0, bias_var=0.0)


def limit(x: Tensor) -> Stack:
    """The infinitely wide LeNet for images such as these."""
    return Stack.of(lenet(1, image_shape(x), pooling="average", weights=NTK))


def kernel_scores(train: Task, test: Task) -> list[Row]:
    """Rows of accuracies of regression with both kernels, on one-hot targets."""
    stack = limit(train[0])
    own, cross = stack.kernels(train[0]), stack.kernels(test[0], train[0])
    rows: list[Row] = []
    for name in KERNEL_NAMES:
        gram = getattr(own, name)
        dual = solve(gram, one_hot(train[1], 10), NOISE, relative=True).dual
        hits = [
            float(((kernel @ dual).argmax(1) == labels).double().mean())
            for kernel, labels in ((gram, train[1]), (getattr(cross, name), test[1]))
        ]
        rows.append({"twin": name, "train_accuracy": hits[0], "test_accuracy": hits[1]})
    return rows


def rate_of_limit(x: Tensor) -> float:
    """The rate of descent that suits the infinitely wide network."""
    return stable_rate(limit(x).ntk(x[:PROBED]))


def stable_rate(kernel: Tensor) -> float:
    """Half of the rate up to which a linear model with this kernel descends on the mean squared error.

    Its largest eigenvalue grows with the number of images and the rate does not, so that a few of them tell it.
    """
    return len(kernel) * largest_rate(kernel) / 4
