"""Criteria: what a table must show for a published finding to have come out, as data.

A criterion names columns of a table, says in a sentence what it asks of them, and judges a table: so no verdict can
disagree with its words. It can also make a small table that meets it and one for each way to fail, from which the
contract kit sees that every claim of a study can come out both ways.

**Seeds.** A *cell* is what a criterion compares: the rows of a model, of a point on a curve. Its rows are averaged over
each ``seed`` first. With fewer than five seeds in any cell nothing is decided, and the note says how many each has.
Only rows that have no seed are exact (closed forms, kernels in the limit), and their numbers decide. A number made of
all seeds together, such as a p-value or a range, says of how many in ``of_seeds``.

**Intervals** are 95 % intervals over the seeds: Student's for a mean, Welch's for a difference of groups that do not
have the same seeds, order statistics for a median (of five seeds the smallest and the largest, which are 94 %).

- A *bound* (``AtLeast``, ``AtMost``, ``Between``, and ``NotWorse`` of a difference): held if the interval lies within
  it, not held if it lies wholly outside, undecided across it. Asked of *every* number, the worst one decides.
- An *equality* (``Near``, ``Alike``, ``Flat``, ``PowerLaw``): the same of the difference and the margin, so that much
  scatter is no agreement.
- An *effect* (``Beats``, ``Rises``, ``Peaks``, ``Correlates``): the mean effect has to reach a least size, else it is
  not held; and its interval has to lie above zero, else it is undecided. The sentence says both.
"""

from polariscope.studies.criteria.bounds import AtLeast, AtMost, Between
from polariscope.studies.criteria.cells import (
    Cell,
    Estimate,
    cell_of,
    count_of,
    effect_of,
    estimate_of,
    reaches,
    seeds_of,
    shortage,
)
from polariscope.studies.criteria.criterion import All, Criterion, Finding, all_of, concluded
from polariscope.studies.criteria.effects import Beats, Correlates, NotWorse, Peaks, Rises
from polariscope.studies.criteria.equalities import Alike, Flat, Near, PowerLaw

__all__ = [
    "Alike",
    "All",
    "AtLeast",
    "AtMost",
    "Beats",
    "Between",
    "Cell",
    "Correlates",
    "Criterion",
    "Estimate",
    "Finding",
    "Flat",
    "Near",
    "NotWorse",
    "Peaks",
    "PowerLaw",
    "Rises",
    "all_of",
    "cell_of",
    "concluded",
    "count_of",
    "effect_of",
    "estimate_of",
    "reaches",
    "seeds_of",
    "shortage",
]
