"""Examine a model on a world: all measures and figures, as data.

This is the one call behind ``polariscope examine`` and the report. It works for a run and for anything that can be
wrapped into a subject; if the subject decodes, it also shows reconstructions and traversals.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from polariscope.examination.embedding import Shelf, embed, run_shelf
from polariscope.examination.examination import Examination, about_run
from polariscope.examination.jacobians import predicted_var
from polariscope.examination.next_steps import said_next
from polariscope.examination.variables import describe_variables, types_of
from polariscope.findings import Value
from polariscope.lab.holding import InUseError, hold
from polariscope.lab.results import OWN, Basis, Examined, add
from polariscope.lab.store import Run, Store, fingerprint
from polariscope.measures.chance import Trials
from polariscope.measures.factor_information import information_beyond_chance
from polariscope.measures.mcc import lack_of_latents
from polariscope.measures.measure import Measure, Undefined, meaning, measures
from polariscope.registry import nearest
from polariscope.representation import BATCH, Representation
from polariscope.subjects import Subject, as_subject
from polariscope.subjects.doors import subject_and_world
from polariscope.training.run import as_store, config_of
from polariscope.user_code import UserCodeError
from polariscope.worlds.given import Data, as_world
from polariscope.worlds.pictures import picture_note
from polariscope.worlds.remembered import Remembered, remember
from polariscope.worlds.splits import SplitPart
from polariscope.worlds.world import World, to_tensor, worlds

Share = Literal["all", "held-out", "training"]
"""Part of the data of a run."""
Protocol = Literal["default", "published"]
"""How measures are computed: by quick probes, or by the probes and sample sizes of the publications."""
LOOKED_AT = {
    "all": "The examples are drawn from all data of the run {run}, both training and held-out; --part held-out "
    "(part= in Python) uses held-out data only.",
    "held-out": "The examples are held-out data, which the model was not trained on.",
    "training": "The examples are training data.",
}
OTHER_DATA = "The examples are not from the data that the run was trained on."
WORDS = {"var": "posterior variances", "sample": "samples", "factors": "known factors"}
TRAVERSAL_STEPS = 9
TRAVERSAL_REACH = 2.5
AUDITED = 256
"""Number of examples at which the decoder's slope is computed."""
IDLE = 0.1
"""Variance of a variable's mean, as a share of its noise, up to which it counts as uninformative."""


def examine(
    model: Any,
    data: Data | None = None,
    factors: ArrayLike | Tensor | None = None,
    *,
    count: int = 10_000,
    seed: int = 0,
    beta: float | None = None,
    measured: Sequence[str] | None = None,
    protocol: Protocol = "default",
    shelf: Shelf | None = None,
) -> Examination:
    """Examine a model on a world or on any data, with or without factors.

    The model is a :class:`~polariscope.subjects.Subject`, or anything that :func:`~polariscope.subjects.as_subject` can
    wrap into one, such as a run by its id or ``"latest"``. Data is anything that
    :func:`~polariscope.worlds.given.as_world` takes; for a run the default is its own data. ``beta`` is the weight of
    the divergence with which the model was trained (1 for a VAE; a run records it); if it is given, the posterior
    variances are compared with those that the decoder's slope predicts. ``measured`` names the measures to compute,
    where * and ? match any letters; the default is all measures that can be computed for the model. The "published"
    ``protocol`` uses the probes and sample sizes of the publications and takes minutes. The codes that the model
    computes are stored on a ``shelf``, if one is given, and not computed again. Nothing is written into the folder of a
    run: :func:`examine_run` does that.

    >>> class Doubling(torch.nn.Module):
    ...     def encode(self, x):
    ...         return 2 * x, torch.full_like(x, -4.0)
    >>> points = np.random.default_rng(0).normal(size=(200, 3))
    >>> examine(Doubling(), points).counts
    {'active': 3, 'mixed': 0, 'passive': 0}
    """
    subject = as_subject(model)
    asked: dict[str, Any] = {"count": count, "seed": seed, "shelf": shelf, "measured": measured, "protocol": protocol}
    if subject.run is None:
        _, world = subject_and_world(subject, data, factors)
        return _examined(subject, world, beta, **asked)
    if factors is not None:
        if data is None:
            raise ValueError("factors need one row per observation of the data: give the data too")
        data = as_world(data, factors)
    world, sentence, _ = _data_of(subject.run, data, "all")
    return _examined_run(subject, subject.run, world, sentence, beta, **asked)


def examine_run(
    run: Run | Path | str,
    *,
    part: Share = "all",
    data: Data | None = None,
    count: int = 10_000,
    seed: int = 0,
    measured: Sequence[str] | None = None,
    protocol: Protocol = "default",
    keep: bool = True,
    fresh: bool = False,
    store: Store | Path | str = "runs",
) -> Examination:
    """Examine the trained model of a run, as ``polariscope examine RUN`` does.

    The examples are from the data of the run, from its held-out or training ``part``, or from other ``data``. With
    ``keep``, the folder of the run stores the results, which ``polariscope runs`` lists, and the codes, which the next
    call reads unless it is ``fresh``. Nothing is recorded in a run that is being trained. The document of the result
    has the configuration and the learning curves of the run.
    """
    run = run if isinstance(run, Run) else as_store(store).open(run)
    subject = as_subject(run)
    if subject.encodes is None:
        raise ValueError(
            f"the model of run {run.id} does not encode, so it cannot be examined; commands for this run: "
            f"{said_next(run)}"
        )
    if keep and not os.access(run.path, os.W_OK):
        raise ValueError(
            f"the run folder {run.path} cannot be written to: give another place for the report with --out "
            "(keep=False in Python)"
        )
    shelf = run_shelf(run) if keep and not fresh else None
    world, sentence, other = _data_of(run, data, part)
    asked: dict[str, Any] = {"count": count, "seed": seed, "shelf": shelf, "measured": measured, "protocol": protocol}
    examination = _examined_run(subject, run, world, sentence, **asked)
    if not keep:
        return examination
    problems = _noted(run, examination, part, seed, other, protocol)
    return replace(examination, notes=[*examination.notes, *problems])


def _data_of(run: Run, data: Data | None, part: Share) -> tuple[World, str, World | None]:
    """The data to draw examples from, a sentence about it, and the data again if the run was not trained on it. A run
    on data in memory compares hashes."""
    config = config_of(run)
    own, world = config.world, config.world if data is None else as_world(data)
    if not (world == own or (isinstance(own, Remembered) and remember(world) == own)):
        if part != "all":
            raise ValueError(
                "--part (part= in Python) is for the run's own data, and other data is given: leave one out"
            )
        return world, OTHER_DATA, world
    if part != "all":
        return SplitPart(world, config.split, "train" if part == "training" else "held-out"), LOOKED_AT[part], None
    kept = len(config.split.parts(world).held_out)
    return world, LOOKED_AT["all" if kept else "training"], None


def _examined_run(
    subject: Subject, run: Run, world: World, sentence: str, beta: float | None = None, **asked: Any
) -> Examination:
    """The examination of a run on some data, with the facts that the run adds to the document."""
    beta = config_of(run).objective.divergence_weight if beta is None else beta
    examination = _examined(subject, world, beta, **asked)
    return replace(examination, notes=[sentence.format(run=run.id), *examination.notes], about=about_run(run))


def _noted(
    run: Run, examination: Examination, part: Share, seed: int, other: World | None, protocol: Protocol
) -> list[str]:
    """Put the results into the record of a run, beside those on other examples, unless another process is writing it:
    that could undo the record of a training. Returns a sentence if the results are not recorded."""
    described = {} if other is None else worlds.describe(other)
    data = OWN if other is None else f"{described['name']} {fingerprint(described)}"
    try:
        with hold(run.path):
            run.reload()
            on = Basis(data, part, examination.representation.count, seed, run.result.get("step"), protocol)
            add(run, Examined(on, examination.counts, examination.measures))
    except InUseError as error:
        return [f"These results are not recorded in run.json: {error}."]
    return []


def _examined(
    subject: Subject,
    world: World,
    beta: float | None,
    *,
    count: int,
    seed: int,
    measured: Sequence[str] | None,
    protocol: Protocol,
    shelf: Shelf | None,
) -> Examination:
    """One subject on one world."""
    if count < 2:
        raise ValueError(f"--count (count= in Python) is {count}: at least 2 examples are needed")
    representation = embed(subject, world, shelf, count=count, seed=seed)
    notes = [*representation.notes, *getattr(world, "assumed", ()), *_notes(representation)]
    table = None
    if representation.factors is not None:
        # What the noise leaves of it: the mean of a passive variable moves a little, and tells of what moves it.
        codes = representation.mean if representation.sample is None else representation.sample
        table = information_beyond_chance(codes, representation.factors, seed=seed)
    predicted = None
    if beta is not None and hasattr(subject.module, "likelihood") and representation.var is not None:
        predicted = audit(subject, representation, beta)
        notes += _audit_notes(representation, predicted)
    variables = describe_variables(representation, table, predicted)
    values, left_out = measured_values(representation, measured, seed, protocol)
    notes += left_out
    pictures: dict[str, Any] = {}
    if len(world.shape) == 3 and subject.decodes is not None:
        subject = _settled(subject, world, representation)
        if subject.decodes is not None:
            try:
                pictures = _pictures(subject, world, representation, [v.number for v in variables])
            except UserCodeError as error:  # it costs the pictures only
                subject = subject.without_decoder(error)
        notes += [note for note in subject.notes if note not in notes]
    known = None if table is None else table.adjusted
    examination = Examination(representation, variables, values, known, notes=notes, **pictures)
    if pictures and (note := picture_note(world.shape, examination.limits)):
        notes.append(note)
    return examination


def audit(subject: Subject, representation: Representation, beta: float) -> NDArray[np.float32]:
    """Posterior variances ``(n, d)`` predicted by the slope of one of our decoders, at the first ``AUDITED`` means."""
    means = torch.from_numpy(representation.mean[:AUDITED]).to(subject.device)
    with subject.at_rest():
        return np.asarray(predicted_var(subject.module, means, beta).cpu().numpy())  # type: ignore[arg-type]


def _audit_notes(representation: Representation, predicted: NDArray[np.float32]) -> list[str]:
    assert representation.var is not None
    actual = representation.var[: len(predicted)]
    correlation = np.corrcoef(np.log(predicted).ravel(), np.log(actual).ravel())[0, 1]
    if not np.isfinite(correlation):
        return []
    figure = f"(correlation of their logarithms {correlation:.2f})"
    if correlation > 0.9:
        return [f"The encoder's variances agree with the decoder's slope {figure}, as at an optimum."]
    differ = f"The encoder's variances do not agree with the decoder's slope {figure}"
    return [f"{differ}: training may not be at its optimum yet."]


def measured_values(
    representation: Representation,
    names: Sequence[str] | None = None,
    seed: int = 0,
    protocol: Protocol = "default",
) -> tuple[list[Value], list[str]]:
    """Values of the named measures, by default of all that the representation allows, each with its interval and chance
    level; and a sentence about the skipped measures."""
    notes: list[str] = []
    if names is not None:
        names = [name for pattern in names for name in measures.names(pattern) or [pattern]]
    else:
        missing: dict[str, list[str]] = {}
        for name in measures.names():
            for need in measures.get(name).lacks(representation)[:1]:
                missing.setdefault(need, []).append(name)
        notes = [f"Not measured without {WORDS[need]}: {', '.join(those)}." for need, those in missing.items()]
        names = [name for name in measures.names() if not measures.get(name).lacks(representation)]
    if protocol not in get_args(Protocol):
        raise ValueError(f"there is no protocol {protocol!r}: {nearest(str(protocol), get_args(Protocol))}")
    chosen = {name: measures.get(name)() for name in names}
    if protocol == "published":
        chosen = {name: measure.published() for name, measure in chosen.items()}
    most = max((m.permutations for m in chosen.values() if "factors" in m.needs), default=0)
    trials = Trials.of(representation, most, max((m.halves for m in chosen.values()), default=0), seed)
    looks = max(1, sum("factors" in measure.needs for measure in chosen.values()))
    return [_value(name, measure, representation, trials, looks) for name, measure in chosen.items()], notes


def _value(name: str, measure: Measure, representation: Representation, trials: Trials, looks: int) -> Value:
    better, means = measure.higher_is_better, meaning(name)
    try:
        number, protocol = measure.measured(representation)
    except Undefined as error:
        return Value(name, measure.title, None, better, str(error), means)
    chance = trials.chance(measure, looks)
    return Value(
        name,
        measure.title,
        number,
        better,
        meaning=means,
        interval=trials.interval(measure, number),
        chance=None if chance is None else chance.level,
        within_chance=chance is not None and chance.holds(number, better),
        protocol=protocol,
    )


def _notes(representation: Representation) -> list[str]:
    """Warnings about the numbers."""
    notes, rep = [], representation
    if rep.var is None:
        notes.append("The model has no posterior variance: every variable counts as active, and nothing is sampled.")
    else:
        types = types_of(representation)
        passive = [j for j, kind in enumerate(types.kinds) if kind == "passive"]
        if len(passive) == rep.latents:
            notes.append("The posterior has collapsed: no latent variable carries information about the data.")
        elif passive:
            which = _variables(passive)
            notes.append(f"{which} passive: remove passive means before you scale or correlate features.")
        idle = [j for j in types.active if rep.mean[:, j].var() <= IDLE * rep.var[:, j].mean()]
        if idle:
            notes.append(
                f"{_variables(idle)} called active because of a small variance, but the means vary less than their "
                "noise: the model does not use them, as is common for models of pairs with a prior narrower than "
                "N(0, 1)."
            )
    if rep.factors is not None:
        few = lack_of_latents(rep.latents, int((np.ptp(rep.factors, axis=0) > 0).sum()))
        notes += [few] if few else []
    if representation.count < 1000:
        few_examples = f"Only {representation.count} examples: measures that count pairs or bins are biased upwards"
        notes.append(f"{few_examples}{'.' if rep.factors is None else ', as their chance levels show.'}")
    return notes


def _variables(numbers: Sequence[int]) -> str:
    """Which variables, ready for what they are."""
    listed = ", ".join(map(str, numbers))
    return f"Variables {listed} are" if len(numbers) > 1 else f"Variable {listed} is"


def _settled(subject: Subject, world: World, representation: Representation) -> Subject:
    """The subject with the meaning of its decoder's output inferred, from the same examples as that of its encoder."""
    rep = representation
    assert rep.index is not None
    x = to_tensor(world.observe(rep.index[:BATCH]))
    factors = None if subject.prior is None or rep.factors is None else torch.from_numpy(rep.factors[:BATCH])
    return subject.understood(x, factors)


def _pictures(
    subject: Subject, world: World, representation: Representation, order: list[int], examples: int = 12
) -> dict[str, NDArray[Any]]:
    """Originals with their reconstructions, and traversals of every latent from the code of one example."""
    rep = representation
    assert rep.index is not None
    picked = np.linspace(0, rep.count - 1, examples).astype(int)
    originals = world.observe(rep.index[picked])
    means = torch.from_numpy(rep.mean[picked])
    # The example nearest to the middle of the codes stands for the data set.
    centre = means[(means - torch.from_numpy(rep.mean.mean(axis=0))).square().sum(1).argmin()]
    # A code moves as far as it does over the data: by its mean, and by its noise where it has some.
    spread = np.sqrt(rep.mean.var(axis=0) + (0 if rep.var is None else rep.var.mean(axis=0)))
    offsets = torch.linspace(-TRAVERSAL_REACH, TRAVERSAL_REACH, TRAVERSAL_STEPS)
    codes = centre.repeat(len(order), TRAVERSAL_STEPS, 1)
    for row, j in enumerate(order):
        codes[row, :, j] += offsets * float(spread[j])
    with subject.at_rest():
        shown = subject.generate(means, world.shape)
        walked = torch.cat([subject.generate(part, world.shape) for part in codes.flatten(0, 1).split(256)])
    return {
        "originals": originals,
        "reconstructions": _like(originals, shown),
        "traversals": _like(originals, walked).reshape(*codes.shape[:2], *world.shape),
    }


def _like(originals: NDArray[Any], images: Tensor) -> NDArray[Any]:
    """The output of a decoder in the form of the data: bytes, or floats as they are."""
    if originals.dtype == np.uint8:
        images = (images.clamp(0, 1) * 255).round().to(torch.uint8)
    return np.asarray(images.cpu().contiguous().numpy())
