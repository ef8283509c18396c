"""Find how many latents a model needs, as ``polariscope dimension`` does: searches with more and more steps."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from polariscope.dimension.results import dimension_findings
from polariscope.dimension.trained import (
    DimensionProbe,
    DimensionSearch,
    Reading,
    StableDimension,
    data_dimension,
    doubling,
    search_dimension,
    stable_dimension,
    type_count_dimension,
)
from polariscope.findings import Findings
from polariscope.lab.run_documents import keep_findings
from polariscope.lab.store import Run
from polariscope.measures.intrinsic_dimension import DimensionEstimate
from polariscope.registry import nearest
from polariscope.training.config import RunConfig, called
from polariscope.training.loop import Listeners
from polariscope.training.run import Tell, as_store, paced

Deciding = Literal["trace", "trace-sampled", "ib", "ide", "types"]
"""The trace gap (FONDUE), the trace gap from samples, information (FONDUE_IB), intrinsic dimensions (FONDUE_IDE), or
the types of the variables of one large model."""


class Watch:
    """Receives the events of a search. This class ignores them: override the methods that you need."""

    def start(self, estimate: DimensionEstimate, latents: int) -> None:
        """The search starts with this number of latents, from the intrinsic dimension of the data."""

    def attempt(self, seed: int, steps: int) -> None:
        """A search starts; its models are trained for this number of steps."""

    def training(self, latents: int, steps: int) -> AbstractContextManager[Tell | None]:
        """A model is trained; the context manager may return a function that receives the progress."""
        return nullcontext()

    def reading(self, reading: Reading, value: float, passed: bool) -> None:
        """The statistic of a trained model is computed."""

    def answer(self, seed: int, answer: StableDimension) -> None:
        """The searches of a seed are done."""


@dataclass(frozen=True, eq=False)
class FoundDimension:
    """How many latents a model needs: one answer per seed."""

    config: RunConfig
    answers: tuple[StableDimension, ...]
    settings: Mapping[str, Any]
    """Settings of the search."""

    @property
    def dimension(self) -> float | None:
        """The mean of the answers that can be trusted; None if there is none."""
        trusted = [one.answer for one in self.answers if one.last.trusted]
        return sum(trusted) / len(trusted) if trusted else None

    def findings(self) -> Findings:
        about = self.config.describe() | {"dimension": dict(self.settings)}
        return dimension_findings(self.answers, called(self.config.world), self.settings["start"], about)

    def keep(self, store: Any = "runs") -> tuple[Run, Path]:
        """Keep the document in a new run; returns the run and the page to open."""
        findings = self.findings()
        run = as_store(store).create(findings.settings, f"dimension {self.config.label}", "dimension")
        models = sum(one.models for one in self.answers)
        run.update(status="done", result={"dimension": self.dimension, "models": models})
        return run, keep_findings(findings, "dimension", run)


def find_dimension(
    config: RunConfig,
    *,
    statistic: Deciding = "trace",
    first: int | None = None,
    threshold: float | None = None,
    cap: int = 200,
    budget: int = 500,
    once: bool = False,
    seeds: int = 1,
    examples: int = 10_000,
    watch: Watch | None = None,
) -> FoundDimension:
    """Find how many latents the model of a configuration needs on its data.

    The first model has ``first`` latents, by default as many as the intrinsic dimension of the data, and none has more
    than ``cap``. Models are trained for ``budget`` steps, then for twice as many, and so on, until the answer no longer
    changes or the steps of the configuration are reached; with ``once``, for ``budget`` steps only. A ``threshold``
    replaces the published one. ``watch`` receives all events.
    """
    watch = watch or Watch()
    if statistic not in get_args(Deciding):
        raise ValueError(f"there is no statistic {statistic!r}: {nearest(str(statistic), get_args(Deciding))}")
    if seeds < 1:
        raise ValueError(f"--seeds is {seeds}: at least 1 is needed")
    if statistic == "types" and threshold is not None:
        raise ValueError("counting types has no threshold: leave --threshold out")
    start = first
    if start is None:
        estimate = data_dimension(config.world, examples)
        start = min(max(1, round(estimate.value)), cap)
        watch.start(estimate, start)
    if start < 1:
        raise ValueError(f"--first is {start}: a search starts with at least 1 latent")
    probe = DimensionProbe(config, examples, () if statistic == "types" else (statistic,))
    most = min(budget, config.training.steps) if once else config.training.steps

    def read(seed: int, steps: int, latents: int) -> Reading:
        with watch.training(latents, steps) as tell:
            listeners = None if tell is None else Listeners(step=paced(tell, steps))
            return probe(latents, steps=steps, seed=seed, listeners=listeners)

    def attempt(seed: int, steps: int) -> DimensionSearch:
        watch.attempt(seed, steps)
        reader = partial(read, seed, steps)
        if statistic == "types":
            return type_count_dimension(reader, start, cap, watch.reading)
        return search_dimension(reader, start, statistic, threshold, cap, tell=watch.reading)

    answers = []
    for seed in range(config.training.seed, config.training.seed + seeds):
        answers.append(stable_dimension(partial(attempt, seed), doubling(budget, most)))
        watch.answer(seed, answers[-1])
    return FoundDimension(
        config, tuple(answers), {"statistic": statistic, "start": start, "cap": cap, "budget": budget}
    )
