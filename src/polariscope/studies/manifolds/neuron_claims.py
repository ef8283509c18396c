"""Claims about single neurons, and what they read from the rows of the study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from polariscope.studies.criteria import All, AtLeast, AtMost, Near
from polariscope.studies.manifolds.stripe_nets import ALPHA, INFORMATIVE
from polariscope.studies.study import Claim, Row, Table
from polariscope.theory.stripe import FixedPoint, Layers

INTERFACES = Layers().interfaces
Goals = Mapping[str, FixedPoint]
"""The attractors by name, from the fastest to the slowest."""


def read(table: Table, goals: Goals) -> Iterator[Row]:
    """What the claims look at."""
    yield from _frames(table.where(part="arrows"))
    rates = {name: point.growth_rate for name, point in goals.items()}
    yield from (row | {"predicted_rate": rates.get(row["attractor"])} for row in table.where(part="compressing").rows)
    yield from _networks(table.where(part="fitting"))
    for row in table.where(part="noise").rows:  # a seed of it has many draws, of which the p-value is made
        gap = abs(row["second_moment"] - row["active"])
        yield row | {"seed": None, "of_seeds": row["draws"], "moment_gap": gap}


def claims(goals: Goals, lazy_alpha: float) -> Iterator[Claim]:
    """Up to the onset, after it, how weights turn, and the noise of finite data."""
    yield Claim(
        "Neurons gather at three points",
        "figure 3c: the predicted attractors, z = "
        + ", ".join(f"{name} {goal.position:.2f}" for name, goal in goals.items())
        + "; slow neurons have not arrived by the onset",
        AtLeast("arrived", 0.75, called="share of neurons within 0.1 of one at t*"),
    )
    yield Claim(
        "A neuron follows its equation of motion up to the onset",
        "figure 3a: network and equations 5 and 7 agree, while all points are active",
        All(
            AtMost("gap", 0.25, each="attractor", called="median relative difference of the weights"),
            AtLeast("signs", 0.95, called="share of weights of the same sign"),
        ),
    )
    yield Claim(
        "At an attractor neurons grow exponentially, at its own rate",
        "equation 14, per τ: " + ", ".join(f"{name} {goal.growth_rate:.3f}" for name, goal in goals.items()),
        Near("rate", "predicted_rate", by=0.03, called="growth rate", to="theory's", digits=3),
    )
    yield Claim(
        "The fastest attractor carries the network at the onset",
        "section 3.2: all but a vanishing part of the squared weights",
        AtLeast("share", 0.99, where={"attractor": next(iter(goals))}, called="its share of the squares", digits=4),
    )
    yield Claim(
        "Neurons that no training point activates do not move",
        "section 3.2.1",
        AtMost("idle_moved", 0, of="every", called="change of their weights"),
        provided=AtLeast("idle", 1, called="the number of such neurons", digits=0),
    )
    first, second = INTERFACES
    yield Claim(
        "The sign of the output changes at the interfaces, and nowhere else",
        f"figure 4: {first:g} and {second:.5f}",
        All(
            Near("sign_changes", 2, by=0, of="every", called="number of changes of sign", digits=0),
            AtMost("off", 0.05, of="every", called="distance from an interface", digits=3),
        ),
    )
    yield Claim(
        "Clusters of neurons move to fit the interfaces, and their number stays",
        "figure 4",
        AtMost("clusters_gained", 0, of="median", called="clusters more or less at the end than at the onset"),
    )
    yield Claim(
        "Loss and test error fall after the onset",
        "figure 4, right",
        All(
            AtLeast("error_at_onset", 0.3), AtMost("error_at_end", 0.01, digits=4), AtMost("loss_at_end", 0.1, digits=3)
        ),
    )
    share = "informative share of the squared weights"
    for task, dimension, space, figure, least in (
        ("stripe", 2, "direction", "figure 1", 0.99),
        ("cylinder", 3, "plane", "figure 6", 0.97),
    ):
        start, end = ({"task": task, "alpha": ALPHA, "stage": stage} for stage in ("start", "end"))
        isotropic = INFORMATIVE[task] / dimension
        yield Claim(
            f"Weights turn into the informative {space} ({task})",
            f"{figure}: isotropic at first, aligned after training",
            All(
                Near("alignment", isotropic, by=0.05, where=start, called=share, to="isotropic weights"),
                AtLeast("alignment", least, where=end, called=share, digits=4),
            ),
        )
    yield Claim(
        "Lazy training leaves the weights where they are",
        "figure 1",
        AtMost("turned", 0.02, of="every", where={"alpha": lazy_alpha}, called=f"change of the {share}"),
    )
    yield Claim(
        "The noise of p points in the uninformative weights is Gaussian with variance D/p",
        "appendix C.3: μ² + σ² = D, the share of points that a neuron sees",
        All(
            AtMost("moment_gap", 1e-6, of="every", called="difference of the two sides"),
            AtLeast("p_value", 0.01, of="every", called="p of Kolmogorov and Smirnov"),
        ),
    )


def _networks(table: Table) -> Iterator[Row]:
    """A row a network: where its output changes sign in the end, and what became of clusters, error and loss."""
    for seed, run in table.by("seed"):
        course = run.where(when="course").rows[0]
        row: Row = {"seed": seed, "error_at_end": course["error"][-1], "loss_at_end": course["loss"][-1]}
        if course.get("onset") is not None:
            row["error_at_onset"] = float(np.interp(course["onset"], course["times"], course["error"]))
        for end in run.where(when="end").rows:
            row["sign_changes"] = len(end["zeros"])
            if len(end["zeros"]) == len(INTERFACES):
                row["off"] = float(np.abs(np.subtract(end["zeros"], INTERFACES)).max())
            for onset in run.where(when="t_star").rows:
                row["clusters_gained"] = abs(end["clusters"] - onset["clusters"])
        yield row


def _frames(table: Table) -> Iterator[Row]:
    """Frames, the last ones with how far the weights have turned since the first."""
    starts = {(row["task"], row["alpha"], row["seed"]): row["alignment"] for row in table.where(stage="start").rows}
    for row in table.rows:
        start = starts[row["task"], row["alpha"], row["seed"]]
        yield row | ({"turned": abs(row["alignment"] - start)} if row["stage"] == "end" else {})
