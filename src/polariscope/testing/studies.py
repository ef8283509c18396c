"""Contract checks of studies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

from polariscope.findings import Chart
from polariscope.studies.engine import reproduce
from polariscope.studies.study import Claim, Scale, Table, studies
from polariscope.testing.promises import require


def check_study(name: str, folder: Path, *, run: bool = True) -> None:
    """A registered study says where its claims come from, and every one of them can come out both ways.

    Its jobs at every scale are plain JSON, different from each other, and enough to be run by themselves. Each claim is
    judged on tables that its criterion makes: on one that meets it, on one for each way to fail. With ``run``, the
    smoke scale is done in ``folder``: it gives rows, each claim finds its columns or says why it decides nothing, and
    all figures draw.
    """
    study = studies.get(name)()
    for fact in ("title", "source", "question"):
        require(bool(getattr(study, fact, "")), f"the study {name} has no {fact}")
    scales: tuple[Scale, ...] = get_args(Scale)
    for scale in scales:
        jobs = [json.dumps(job, sort_keys=True) for job in study.jobs(scale)]
        require(bool(jobs), f"the study {name} has no jobs at {scale} scale")
        require(len(set(jobs)) == len(jobs), f"two jobs of the study {name} at {scale} scale are the same")
        require(scale in study.cost, f"the study {name} does not say what its {scale} scale costs")
        for claim in study.claims(scale):
            _check_claim(name, claim)
    if run:
        outcome = reproduce(name, "smoke", folder, workers=1)
        require(len(outcome.table) > 0, f"the study {name} gave no rows at smoke scale")
        for judged in outcome.claims:
            words = f"{judged.measured} {judged.note}".lower().replace(",", " ").split()
            require("nan" not in words, f"the study {name} measured NaN for '{judged.text}'")
            require(judged.measured != "-" or bool(judged.note), f"the study {name} says nothing of '{judged.text}'")
        drawn = outcome.findings().of(Chart)
        require(all(chart.draw().axes for chart in drawn), f"a figure of the study {name} is empty")


def _check_claim(study: str, claim: Claim) -> None:
    require(bool(claim.finding and claim.published), f"a claim of the study {study} does not say what was published")
    words = {True: "held", False: "not held", None: "undecided"}
    seen = set()
    for rows, expected in claim.examples():
        judged = claim.judge(Table(rows))
        seen.add(judged.held)
        require(
            judged.held is expected,
            f"the claim '{claim.finding}' of the study {study} comes out {words[judged.held]} ({judged.measured}) on a "
            f"table made for {words[expected]}",
        )
    require({True, False} <= seen, f"the claim '{claim.finding}' of the study {study} cannot come out both ways")
