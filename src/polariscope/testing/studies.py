"""Contract checks of studies."""

from __future__ import annotations

import json
from pathlib import Path

from polariscope.findings import Chart
from polariscope.studies.engine import reproduce
from polariscope.studies.study import Claim, Table, studies
from polariscope.testing.promises import require


def check_study(name: str, folder: Path, *, run: bool = True) -> None:
    """A registered study names the source of its claims, and every claim can hold and can fail.

    Its jobs at every scale are plain JSON, different from each other, and self-contained. Each claim is judged on
    tables that its criterion makes: one that meets the claim, and one for each way to fail. With ``run``, the smoke
    scale runs in ``folder``: it returns rows, each claim finds its columns or notes why it is undecided, and all
    figures are drawn.
    """
    study = studies.get(name)()
    for fact in ("title", "source", "question"):
        require(bool(getattr(study, fact, "")), f"the study {name} has no {fact}")
    for scale in study.scales:
        jobs = [json.dumps(job, sort_keys=True) for job in study.jobs(scale)]
        require(bool(jobs), f"the study {name} has no jobs at {scale} scale")
        require(len(set(jobs)) == len(jobs), f"two jobs of the study {name} at {scale} scale are the same")
        require(scale in study.cost, f"the study {name} does not state the cost of its {scale} scale")
        for claim in study.claims(scale):
            _check_claim(name, claim)
    if run:
        outcome = reproduce(name, "smoke", folder, workers=1)
        require(len(outcome.table) > 0, f"the study {name} returned no rows at smoke scale")
        for judged in outcome.claims:
            words = f"{judged.measured} {judged.note}".lower().replace(",", " ").split()
            require("nan" not in words, f"the study {name} measured NaN for '{judged.text}'")
            require(judged.measured != "-" or bool(judged.note), f"the study {name} does not measure '{judged.text}'")
        drawn = outcome.findings().of(Chart)
        require(all(chart.draw().axes for chart in drawn), f"a figure of the study {name} is empty")


def _check_claim(study: str, claim: Claim) -> None:
    require(bool(claim.finding and claim.published), f"a claim of the study {study} does not state a published finding")
    words = {True: "held", False: "not held", None: "undecided"}
    seen = set()
    for rows, expected in claim.examples():
        judged = claim.judge(Table(rows))
        seen.add(judged.held)
        require(
            judged.held is expected,
            f"the claim '{claim.finding}' of the study {study} is {words[judged.held]} ({judged.measured}) on a table "
            f"made for {words[expected]}",
        )
    require({True, False} <= seen, f"the claim '{claim.finding}' of the study {study} cannot both hold and fail")
