"""Does an inductive bias help on other splits than the one it was made for? Models with a bias are compared with a
baseline, over scenarios.

A scenario is a name and a function that scores a model, the higher the better: an accuracy under a corruption, a score
on a part of the world (:func:`on_part`). The effects of a bias on its own scenario and on the others give it a label
(Schott 2022, chapter 3; Spec 001a, sections 1.2 and 1.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from polariscope.examination.generalise import Generalisation, generalise
from polariscope.findings import Chart, Column, Findings, Part, Records
from polariscope.registry import nearest
from polariscope.report import figures
from polariscope.tabular import Tabular
from polariscope.worlds.splits import Split
from polariscope.worlds.world import World

Transfer = Literal["transferable", "partially transferable", "specific", "overfitting", "no gain"]
Combination = Literal["symbiotic", "orthogonal", "partially exclusive", "exclusive"]
Scenario = Callable[[Any], float]


def classify_transfer(gains: Mapping[str, float], own: str, tolerance: float = 0.0) -> Transfer:
    """The effect of a bias, from its gains over the baseline in every scenario; ``own`` is the one it was made for.

    Transferable: every scenario gains more than the tolerance. Specific: only its own gains, the others do not change.
    Overfitting: its own gains, and another one loses. Partially transferable: its own and some others gain, and none
    loses. No gain: its own does not gain.

    >>> classify_transfer({"own": 0.3, "other": 0.01}, "own", tolerance=0.05)
    'specific'
    """
    _check(gains, [own], tolerance)
    others = [gain for scenario, gain in gains.items() if scenario != own]
    if not others:
        raise ValueError(f"transfer needs a scenario other than its own, {own!r}: give at least one more")
    if gains[own] <= tolerance:
        return "no gain"
    if min(others) < -tolerance:
        return "overfitting"
    if min(others) > tolerance:
        return "transferable"
    return "specific" if max(others) <= tolerance else "partially transferable"


def classify_combination(
    parts: Mapping[str, Mapping[str, float]],
    combined: Mapping[str, float],
    own: Mapping[str, str],
    tolerance: float = 0.0,
) -> Combination:
    """The effect of combined biases, from the gains of each bias and of the combination.

    Only the own scenarios of the parts count. Symbiotic: none loses against the best part there, and one gains.
    Orthogonal: each keeps its gain. Exclusive: all lose; partially exclusive: some lose.

    >>> parts = {"a": {"x": 0.3, "y": 0.0}, "b": {"x": 0.0, "y": 0.2}}
    >>> classify_combination(parts, {"x": 0.3, "y": 0.2}, {"a": "x", "b": "y"}, tolerance=0.05)
    'orthogonal'
    """
    if len(parts) < 2:
        raise ValueError(f"a combination is of at least 2 biases; got {len(parts)}")
    for gains in (*parts.values(), combined):
        _check(gains, [own[name] for name in parts], tolerance)
    scenarios = {own[name] for name in parts}
    change = [combined[s] - max(gains[s] for gains in parts.values()) for s in scenarios]
    losing = [c < -tolerance for c in change]
    if any(losing):
        return "exclusive" if all(losing) else "partially exclusive"
    return "symbiotic" if max(change) > tolerance else "orthogonal"


@dataclass(frozen=True)
class Biases:
    """The settings of a comparison of several models."""

    own: dict[str, str]
    made_of: dict[str, list[str]]

    @classmethod
    def declared(
        cls, known: Sequence[str], splits: Sequence[str], made_for: Sequence[str] = (), combines: Sequence[str] = ()
    ) -> Biases:
        """From MODEL=SPLIT and MODEL=MODEL+MODEL, checked before any of the ``known`` models is trained; the first of
        them is the baseline."""
        if len(set(known)) < len(known):
            raise ValueError(f"two models have the same name: {', '.join(known)}")
        if len(known) < 2 and (made_for or combines):
            raise ValueError(
                "a bias needs a baseline to compare with: name it first, 'polariscope generalise cnn coordconv'"
            )
        own = _pairs(made_for, "made-for", known[1:])
        for model, split in own.items():
            if split not in splits:
                raise ValueError(f"{model} was made for {split!r}, which is not tested: {nearest(split, splits)}")
        if own and len(splits) < 2:
            raise ValueError("transfer is tested on splits that the bias was not made for: test on at least two")
        made_of = {model: parts.split("+") for model, parts in _pairs(combines, "combines", known[1:]).items()}
        for part in (part for parts in made_of.values() for part in parts):
            if part not in own:
                raise ValueError(f"{part!r} is combined: name the split it was made for, --made-for {part}=SPLIT")
        return cls(own, made_of)


def _pairs(words: Sequence[str], flag: str, known: Sequence[str]) -> dict[str, str]:
    """MODEL=WHAT of each word."""
    labels = {}
    for word in words:
        model, equals, what = word.partition("=")
        if not equals or not what:
            raise ValueError(f"--{flag} takes MODEL=WHAT; got {word!r}")
        if model not in known:
            raise ValueError(f"--{flag}: there is no model {model!r} after the baseline: {nearest(model, known)}")
        labels[model] = what
    return labels


@dataclass(frozen=True, eq=False, repr=False)
class TransferMatrix(Tabular):
    """Scores of models (rows) in scenarios (columns), and the effect of the bias of each."""

    models: tuple[str, ...]
    scenarios: tuple[str, ...]
    scores: NDArray[np.float64]
    plain: str
    """The model without a bias: the baseline of the others."""
    own: Mapping[str, str]
    """The scenario that each bias was made for."""
    tolerance: float = 0.0
    """Differences up to this count as none."""
    made_of: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The models whose biases a model combines."""

    @classmethod
    def of(
        cls,
        results: Mapping[str, Sequence[Generalisation]],
        scenarios: Sequence[str],
        biases: Biases,
        tolerance: float = 0.0,
    ) -> TransferMatrix:
        """The scores of several models, each with a result for every scenario; the first model is the plain one."""
        scores = np.array([[result.score for result in row] for row in results.values()])
        models = tuple(results)
        return cls(models, tuple(scenarios), scores, models[0], biases.own, tolerance, biases.made_of)

    def __post_init__(self) -> None:
        if self.scores.shape != (len(self.models), len(self.scenarios)) or not np.isfinite(self.scores).all():
            raise ValueError(
                f"{len(self.models)} models in {len(self.scenarios)} scenarios need as many finite scores; got shape "
                f"{self.scores.shape}"
            )
        known = [*self.own, *self.made_of, self.plain, *(part for parts in self.made_of.values() for part in parts)]
        for name in known:
            if name not in self.models:
                raise ValueError(f"there is no model {name!r} in this matrix: {nearest(name, self.models)}")
        alone = [part for parts in self.made_of.values() for part in parts if part not in self.own]
        if alone:
            raise ValueError(f"{alone[0]!r} is part of a combination and has no scenario of its own: name it")

    @cached_property
    def gains(self) -> dict[str, dict[str, float]]:
        """Score of every other model minus that of the baseline."""
        change = self.scores - self.scores[self.models.index(self.plain)]
        rows = {name: dict(zip(self.scenarios, map(float, row), strict=True)) for name, row in
                zip(self.models, change, strict=True)}  # fmt: skip
        return {name: row for name, row in rows.items() if name != self.plain}

    @cached_property
    def transfer(self) -> dict[str, Transfer]:
        """The label of each bias with a scenario of its own."""
        return {name: classify_transfer(self.gains[name], own, self.tolerance) for name, own in self.own.items()}

    @cached_property
    def combinations(self) -> dict[str, Combination]:
        """The label of each combination."""
        return {
            name: classify_combination(
                {part: self.gains[part] for part in parts}, self.gains[name], self.own, self.tolerance
            )
            for name, parts in self.made_of.items()
        }

    @property
    def headline(self) -> str:
        labels = {**self.transfer, **self.combinations}
        sentences = ", ".join(f"{name} is {label}" if label != "no gain" else f"{name} has no gain" for name, label in
                         labels.items())  # fmt: skip
        return (
            f"{len(self.models)} models in {len(self.scenarios)} scenarios: {sentences or 'no bias has one of its own'}"
        )

    def records(self) -> list[dict[str, Any]]:
        """A row for each model: its score in every scenario, the one it was made for, and its label."""
        labels: dict[str, str] = {**self.transfer, **self.combinations, self.plain: "plain"}
        return [
            {"model": name, "own": self.own.get(name), "label": labels.get(name)}
            | dict(zip(self.scenarios, map(float, row), strict=True))
            for name, row in zip(self.models, self.scores, strict=True)
        ]

    def figure(self) -> Figure:
        """The gains, as shades around 0."""
        gains = np.array([[row[s] for s in self.scenarios] for row in self.gains.values()])
        return figures.heatmap(gains, list(self.gains), self.scenarios, signed=True)

    def findings(self, settings: Mapping[str, Any] | None = None) -> Findings:
        columns = (Column("model", "Model"), Column("own", "Made for"), Column("label", "Label"))
        parts: list[Part] = [
            Records(
                name="matrix",
                title="Models and scenarios",
                hint=f"Labels refer to differences from {self.plain} of more than {self.tolerance:g}.",
                rows=self.records(),
                columns=(*columns, *(Column(scenario, scenario, "%.3f") for scenario in self.scenarios)),
            )
        ]
        if self.gains:
            drawn = Chart(
                name="gains",
                title=f"Gains over {self.plain}",
                hint="Blue: better than the baseline in this scenario. Brown: worse.",
                draw=self.figure,
            )
            parts.append(drawn)
        facts = {"transfer": self.transfer, "combinations": self.combinations, "tolerance": self.tolerance}
        return Findings("Transfer of biases", f"{self.headline}.", parts, (), facts, settings=settings or {})


def transfer_matrix(
    models: Mapping[str, Any],
    scenarios: Mapping[str, Scenario],
    plain: str,
    own: Mapping[str, str],
    *,
    tolerance: float = 0.0,
    made_of: Mapping[str, Sequence[str]] | None = None,
) -> TransferMatrix:
    """Score every model in every scenario, and label the effect of its bias.

    ``plain`` names the model without a bias, ``own`` the scenario that each bias was made for, ``made_of`` the models
    whose biases a model combines.
    """
    for name, scenario in own.items():
        if scenario not in scenarios:
            raise ValueError(
                f"{name} was made for {scenario!r}, which is not a scenario: {nearest(scenario, scenarios)}"
            )
    scores = np.array([[float(score(model)) for score in scenarios.values()] for model in models.values()])
    scores = scores.reshape(len(models), len(scenarios))
    return TransferMatrix(tuple(models), tuple(scenarios), scores, plain, dict(own), tolerance, dict(made_of or {}))


def on_part(world: World, split: Split, *, count: int = 5000, seed: int = 0) -> Scenario:
    """The scenario of a split: mean R² over the factors on its held-out part."""
    return lambda model: generalise(model, world, split, count=count, seed=seed).score


def _check(gains: Mapping[str, float], own: Sequence[str], tolerance: float) -> None:
    if tolerance < 0:
        raise ValueError(f"the tolerance is {tolerance}: it must be at least 0")
    for scenario in own:
        if scenario not in gains:
            raise ValueError(f"no gain is given for {scenario!r}: {nearest(scenario, gains)}")
    bad = [scenario for scenario, gain in gains.items() if not np.isfinite(gain)]
    if bad:
        raise ValueError(f"the gain in {bad[0]!r} is {gains[bad[0]]}: remove scenarios without a score")
