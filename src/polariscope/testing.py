"""The contract kit: what worlds, objectives, measures, models, readers and studies promise, checked on yours, too.

Rooms that trust each other's promises need no special cases: training resumes to the same bits because observations
are a function of their number, tables show a range because the measure declares it. Each check is a plain function
that returns nothing if the promises hold and raises an :class:`AssertionError` with a sentence if one does not.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from polariscope.damaged_files import damages, run_limited
from polariscope.findings import Chart
from polariscope.measures.measure import Invariance, Measure, Undefined, measures
from polariscope.nets.architecture import MLP, Conv
from polariscope.nets.model import Brief, Shape
from polariscope.objectives.objective import Batch, Objective, Terms, Turn, objectives, players_of
from polariscope.registry import Registry, from_plain, plain
from polariscope.representation import Representation
from polariscope.studies.engine import reproduce
from polariscope.studies.study import Claim, Scale, Table, studies
from polariscope.subjects import as_subject
from polariscope.subjects.checks import broken_promises
from polariscope.worlds.factors import Factor, FactorGrid
from polariscope.worlds.given import Data, as_world
from polariscope.worlds.remembered import recalled
from polariscope.worlds.view import View
from polariscope.worlds.world import GridWorld, World, sample_numbers, to_tensor, worlds

GRAIN = 2.0**-18
"""Synthetic latents are multiples of this, so that shifts and scalings by powers of two are exact in float32."""
TOLERANCE = 1e-4
"""Relative, for values that must not change: what a rotation in float32 leaves of them."""
FACTOR_SIZES = (4, 5, 3)
"""Positions of the factors that synthetic batches and representations have."""

Latents = Callable[[NDArray[np.float32]], NDArray[Any]]


def check_world(world: World, *, count: int = 64, seed: int = 0) -> None:
    """A world gives the same bits for the same number whatever else is asked for, in the house's types and ranges.

    ``count`` observations are looked at, the first and the last among them. Worlds on a factor grid must number its
    combinations one to one.

    >>> from polariscope.worlds import ArrayWorld
    >>> check_world(ArrayWorld(np.eye(8)))
    """
    name = type(world).__name__
    _require(isinstance(world, World), f"{name} is no world: it needs shape, factors, len, observe and factors_of")
    _require(len(world) >= 1, f"{name} is empty: a world needs at least 1 observation")
    generator = np.random.default_rng(seed)
    drawn = generator.integers(len(world), size=count)
    numbers = generator.permutation(np.unique([0, len(world) - 1, *drawn]))
    observations, factors = world.observe(numbers).copy(), world.factors_of(numbers).copy()
    _check_observations(name, world, observations, len(numbers))
    _check_factors(name, world, factors, len(numbers))
    _check_numbering(name, world, numbers, observations, factors)
    _check_bounds(name, world)
    if isinstance(world, GridWorld):
        _check_grid(name, world, numbers, observations, factors)
    if dataclasses.is_dataclass(world) and _is_registered(worlds, world):
        again, seen = _rebuild(worlds, world), world
        while isinstance(seen, View):
            seen = seen.of
        again = again if worlds.knows(seen) else recalled(again, seen)  # data in memory is given once more
        same = np.array_equal(again.observe(numbers), world.observe(numbers))
        _require(same, f"{name} built again from its description looks different")


def check_objective(objective: Objective, shape: Shape = (1, 16, 16), latents: int = 4, *, seed: int = 0) -> None:
    """An objective turns a batch into finite scalars whose gradients reach the networks they are meant for, all of
    them and no others; the same seed gives the same bits; a description builds the same objective again.

    >>> from polariscope.objectives.vae import VAE
    >>> check_objective(VAE(), shape=(6,))
    """
    name = type(objective).__name__
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _model(objective, shape, latents)
        players = {player: one.module for player, one in players_of(objective, model, Brief(shape)).items()}
        batch = _batch(objective, shape)
        learning: set[str] = set()
        for turn in objective.turns():
            for step in (0, 10**9):  # before and after any schedule
                terms = _seeded(turn, model, batch, step, players, seed)
                _check_terms(name, terms, players)
                learning |= _check_gradients(name, terms, {"model": model, **players})
            _check_repeats(name, terms, _seeded(turn, model, batch, step, players, seed))
            with torch.no_grad():
                looked_at = replace(batch, evaluating=True)
                for what, term in _scalars(_seeded(turn, model, looked_at, step, players, seed)).items():
                    _require(bool(term.isfinite()), f"{what} of {name} is {term} without gradients")
        idle = {"model", *players} - learning
        _require(not idle, f"{name} has no loss for {', '.join(sorted(idle))} in any of its turns")
    _require(_rebuild(objectives, objective) == objective, f"{name} built again from its description is another one")


def check_measure(measure: Measure, representation: Representation | None = None, *, seed: int = 0) -> None:
    """A measure has a value in its declared range that its declared invariances leave alone, from what it declares to
    need; NaN is refused, and where it has no value it says so.

    Changes of the latent space go through mean, variance and sample alike. A rotation keeps variances on the axes only
    where they are equal, so the measure is then shown the representation with each example's variances averaged.

    The default is :func:`synthetic_representation`.
    """
    name = type(measure).__name__
    _require(isinstance(getattr(measure, "title", None), str), f"{name} needs a title for tables")
    healthy = synthetic_representation(seed) if representation is None else representation
    value = _defined(measure, healthy, "a healthy representation")
    _require(
        _defined(measure, healthy, "the same representation again") == value,
        f"{name} gives different values on the same representation: everything random takes a seed",
    )
    _defined(measure, _only_what_is_needed(measure, healthy), f"means and what it declares to need ({measure.needs})")
    for change in measure.invariant_to:
        _require(change in get_args(Invariance), f"{name} declares {change!r}, which is none of {get_args(Invariance)}")
        base = _isotropic(healthy, seed) if change == "rotation" else healthy
        before = _defined(measure, base, "a healthy representation")
        after = _defined(measure, _changed(base, change, seed), f"a representation after a {change} of its latents")
        _require(
            math.isclose(before, after, rel_tol=TOLERANCE, abs_tol=TOLERANCE * 1e-2),
            f"{name} declares to be invariant to {change}, which changes it from {before:.8g} to {after:.8g}",
        )
    _check_nan(measure, healthy)
    _value(measure, _mapped(healthy, np.ones_like), "constant latents")
    _value(measure, _mapped(healthy, _first_made_constant), "one constant latent")
    _require(_rebuild(measures, measure) == measure, f"{name} built again from its description is another one")


def check_subject(
    model: Any, data: Data, factors: ArrayLike | Tensor | None = None, *, count: int = 64, seed: int = 0
) -> None:
    """A model gives one finite code for each example, the same one whenever it is asked in evaluation mode, whatever
    else is in the batch; where it decodes, its decoder takes these codes and gives finite observations.

    Model and data are whatever :func:`~polariscope.examination.examine.examine` takes, of which ``count`` examples are
    looked at. A sample may be random, the mean may not.

    >>> check_subject(lambda x: 2 * x, np.eye(8))
    """
    world = as_world(data, factors)
    subject = as_subject(model)
    numbers = sample_numbers(world, count, seed)
    x = to_tensor(world.observe(numbers))
    u = None if subject.prior is None else torch.from_numpy(np.ascontiguousarray(world.factors_of(numbers)))
    subject = subject.understood(x, u)
    for sentence in broken_promises(subject, x, u):
        raise AssertionError(f"{subject.name}: {sentence}")
    _require(not subject.undecodable, subject.undecodable)
    with subject.at_rest():
        code = subject.encode(x, u, torch.from_numpy(numbers), len(world))
        for part, values in code.items():
            _require(bool(values.isfinite().all()), f"the {part} of {subject.name} has NaN or infinity")
        _require(bool((code.get("var", code["mean"] * 0) >= 0).all()), f"a variance of {subject.name} is negative")
        if subject.decodes is not None:
            images = subject.generate(code["mean"].float(), tuple(world.shape))
            _require(bool(images.isfinite().all()), f"decode of {subject.name} gives NaN or infinity")


def check_reader(
    read: Callable[[Path], Any],
    corpus: Iterable[Path],
    *,
    count: int = 40,
    seed: int = 0,
    memory: int = 2**30,
    seconds: int = 20,
) -> None:
    """A reader reads the files of a corpus; each of ``count`` damaged copies of a file it reads as well, or refuses in
    a ``ValueError`` of one line that names the file. It takes at most so many bytes of ``memory`` and ``seconds`` for
    any of them, writes nothing to the terminal, and does not end the process.

    Where a file of the corpus is a folder, the files in it are damaged. What is read late belongs to the reader, too:
    have ``read`` look at what it gives. Reading happens in a child of this process, for which Linux or macOS is needed,
    and for the limit of memory Linux.

    >>> from polariscope.worlds.readers.files import read
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.eye(8))
    ...     check_reader(lambda path: read(path).observe([0]), [Path(folder, "a.npy")])
    """
    with tempfile.TemporaryDirectory() as folder:
        for number, original in enumerate(corpus):
            path = Path(folder, str(number), original.name)
            path.parent.mkdir()
            (shutil.copytree if original.is_dir() else shutil.copyfile)(original, path)
            lines, fault = run_limited(partial(_read_damaged, read, path, count, seed), memory, seconds)
            if lines and lines[-1].startswith(FAULT):
                fault = lines.pop().removeprefix(FAULT)
            damage = lines[-1] if lines else "no damage"
            _require(not fault, f"{original.name} with {damage} (seed {seed}): the reader {fault}")


FAULT = "fault: "


def _read_damaged(read: Callable[[Path], Any], path: Path, count: int, seed: int) -> Iterator[str]:
    """Read a file and damaged copies of it. Each damage is told before it is read, and a fault ends it."""
    read(path)
    files = [file for file in sorted(path.rglob("*")) if file.is_file()] if path.is_dir() else [path]
    for which, file in enumerate(files):
        whole = file.read_bytes()
        for damage in damages(whole, -(-count // len(files)), seed + which):
            file.write_bytes(damage.content)
            yield damage.what if file == path else f"{damage.what} in {file.relative_to(path)}"
            try:
                read(path)
            except ValueError as error:
                sentence = str(error)
                if path.name not in sentence or "\n" in sentence:
                    yield f"{FAULT}refuses it without naming the file in one line: {' '.join(sentence.split())}"
                    return
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                place = traceback.extract_tb(error.__traceback__)[-1]
                told = " ".join(str(error).split())
                yield f"{FAULT}raises {type(error).__name__} ({told}) in {place.filename}, line {place.lineno}"
                return
        file.write_bytes(whole)


def check_study(name: str, folder: Path, *, run: bool = True) -> None:
    """A registered study says where its claims come from, and every one of them can come out both ways.

    Its jobs at every scale are plain JSON, different from each other, and enough to be run by themselves. Each claim is
    judged on tables that its criterion makes: on one that meets it, on one for each way to fail. With ``run``, the
    smoke scale is done in ``folder``: it gives rows, each claim finds its columns or says why it decides nothing, and
    all figures draw.
    """
    study = studies.get(name)()
    for told in ("title", "source", "question"):
        _require(bool(getattr(study, told, "")), f"the study {name} has no {told}")
    scales: tuple[Scale, ...] = get_args(Scale)
    for scale in scales:
        jobs = [json.dumps(job, sort_keys=True) for job in study.jobs(scale)]
        _require(bool(jobs), f"the study {name} has no jobs at {scale} scale")
        _require(len(set(jobs)) == len(jobs), f"two jobs of the study {name} at {scale} scale are the same")
        _require(scale in study.cost, f"the study {name} does not say what its {scale} scale costs")
        for claim in study.claims(scale):
            _check_claim(name, claim)
    if run:
        outcome = reproduce(name, "smoke", folder, workers=1)
        _require(len(outcome.table) > 0, f"the study {name} gave no rows at smoke scale")
        for judged in outcome.claims:
            words = f"{judged.measured} {judged.note}".lower().replace(",", " ").split()
            _require("nan" not in words, f"the study {name} measured NaN for '{judged.text}'")
            _require(judged.measured != "-" or bool(judged.note), f"the study {name} says nothing of '{judged.text}'")
        drawn = outcome.findings().of(Chart)
        _require(all(chart.draw().axes for chart in drawn), f"a figure of the study {name} is empty")


def _check_claim(study: str, claim: Claim) -> None:
    _require(bool(claim.finding and claim.published), f"a claim of the study {study} does not say what was published")
    words = {True: "held", False: "not held", None: "undecided"}
    seen = set()
    for rows, expected in claim.examples():
        judged = claim.judge(Table(rows))
        seen.add(judged.held)
        _require(
            judged.held is expected,
            f"the claim '{claim.finding}' of the study {study} comes out {words[judged.held]} ({judged.measured}) on a "
            f"table made for {words[expected]}",
        )
    _require({True, False} <= seen, f"the claim '{claim.finding}' of the study {study} cannot come out both ways")


def synthetic_representation(seed: int = 0) -> Representation:
    """480 examples of three factors as a trained model shows them: two latents that follow a factor, one that mixes
    two, one in use on half of the examples, and one that is noise.

    >>> synthetic_representation().mean.shape
    (480, 5)
    """
    generator = np.random.default_rng(seed)
    shapes, columns, rows = FACTOR_SIZES
    grid = FactorGrid((Factor("shape", shapes, "categorical"), Factor("x", columns), Factor("y", rows)))
    factors = np.tile(grid.to_factors(np.arange(len(grid))), (8, 1))
    a, b, c = ((factors - factors.mean(0)) / factors.std(0)).T
    used = factors[:, 0] % 2 == 0
    mean = np.stack([a, b, 0.8 * c + 0.6 * a, used * b, np.zeros(480)], axis=1)
    mean += generator.normal(scale=[0.1, 0.15, 0.1, 0.05, 0.02], size=mean.shape)
    var = np.stack(
        [np.full(480, 0.02), np.full(480, 0.05), np.full(480, 0.03), np.where(used, 0.04, 1), np.ones(480)], 1
    )
    var *= generator.uniform(0.95, 1, size=var.shape)
    sample = mean + np.sqrt(var) * generator.standard_normal(mean.shape)
    return Representation(
        mean=_grained(mean),
        var=var.astype(np.float32),
        sample=_grained(sample),
        factors=factors,
        factor_info=grid.factors,
    )


# Worlds


def _check_observations(name: str, world: World, observations: NDArray[Any], count: int) -> None:
    shape = tuple(world.shape)
    images = len(shape) == 3
    _require(images or len(shape) == 1, f"{name} has shape {shape}: it needs (channels, height, width) or (m,)")
    what = "images" if images else "points"
    kinds = (np.uint8, np.float32) if images else (np.float32,)
    _require(
        observations.shape == (count, *shape),
        f"{name} gives observations of shape {observations.shape} for {count} numbers: expected {(count, *shape)}",
    )
    expected = " or ".join(str(np.dtype(kind)) for kind in kinds)
    _require(observations.dtype in kinds, f"{name} gives {what} of {observations.dtype}: expected {expected}")
    if observations.dtype == np.uint8:
        _require(1 <= shape[0] <= 4, f"{name} has {shape[0]} channels: images have 1 to 4, and they come first")
        brightest = observations.max()
        _require(brightest > 1, f"the brightest pixel of {name} is {brightest}: images use the range 0 to 255")
    else:
        _require(bool(np.isfinite(observations).all()), f"{name} gives NaN or infinity")


def _check_factors(name: str, world: World, factors: NDArray[Any], count: int) -> None:
    expected = (count, len(world.factors))
    _require(factors.shape == expected, f"{name} gives factors of shape {factors.shape}: expected {expected}")
    _require(bool(np.isfinite(factors).all()), f"{name} gives factors that are NaN or infinite")
    for factor, column in zip(world.factors, factors.T, strict=True):
        if factor.size:
            on_grid = (column == np.rint(column)) & (column >= 0) & (column < factor.size)
            _require(
                bool(on_grid.all()),
                f"factor {factor.name!r} of {name} takes the value {column[~on_grid][:1]}: "
                f"its positions are 0 to {factor.size - 1}",
            )


def _check_numbering(
    name: str, world: World, numbers: NDArray[Any], observations: NDArray[Any], factors: NDArray[Any]
) -> None:
    """An observation depends on its number alone: not on its neighbours, their order, or what callers do to it."""
    orders: dict[str, slice | NDArray[np.intp]] = {
        "again": slice(None),
        "after its last answer was written over": slice(None),
        "in another order": np.argsort(numbers),
        "with fewer others": slice(1, None, 3),
        "twice over": np.repeat(np.arange(len(numbers)), 2),
    }
    for how, order in orders.items():
        for what, call, first in (
            ("observations", world.observe, observations),
            ("factors", world.factors_of, factors),
        ):
            given = call(numbers[order])
            same = given.dtype == first.dtype and np.array_equal(given, first[order])
            _require(same, f"{name} gives other {what} when asked for the same numbers {how}")
            if given.flags.writeable:
                given[...] = 0  # an answer belongs to the caller


def _check_bounds(name: str, world: World) -> None:
    outside = {len(world): "one more than its last number", -1: "which no observation has"}
    for call in (world.observe, world.factors_of):
        for number, why in outside.items():
            try:
                call(np.array([number]))
            except (IndexError, ValueError):
                continue
            raise AssertionError(f"{call.__name__} of {name} accepts {number}, {why}")


def _check_grid(
    name: str, world: GridWorld, numbers: NDArray[Any], observations: NDArray[Any], factors: NDArray[Any]
) -> None:
    combinations = math.prod(f.size for f in world.factors)
    _require(len(world) == combinations, f"{name} has {len(world)} observations for {combinations} combinations")
    _require(
        np.array_equal(world.grid.to_index(factors), numbers),
        f"the factors of {name} do not lead back to the numbers they belong to",
    )
    _require(np.array_equal(world.render(factors), observations), f"{name} renders other images than it lets observe")


# Objectives


def _model(objective: Objective, shape: Shape, latents: int) -> nn.Module:
    """The objective's usual model, of a size that suits a check."""
    images = len(shape) == 3
    usual = objective.default_model()
    small: dict[str, Any] = {"latents": latents, "architecture": Conv() if images else MLP((32,), (32,))}
    small |= {"likelihood": "bernoulli" if images else "gaussian"}
    known = {field.name for field in dataclasses.fields(usual)}  # type: ignore[arg-type]
    usual = replace(usual, **{key: value for key, value in small.items() if key in known})  # type: ignore[type-var]
    outputs = sum(FACTOR_SIZES) if "target" in objective.needs else 0
    return objective.build(usual, Brief(shape, outputs, FACTOR_SIZES, objective.posterior, objective.dense))


def _batch(objective: Objective, shape: Shape, count: int = 16) -> Batch:
    """A random batch with everything an objective may ask for."""
    factors = torch.stack([torch.randint(size, (count,)) for size in FACTOR_SIZES], dim=1)
    x, other = torch.rand(2, count, *shape)
    if objective.dense:
        classes = sum(FACTOR_SIZES)
        return Batch(x, 1000, factors, torch.randint(-1, classes, (count, *shape[1:])), (classes,), (other,))
    return Batch(x, 1000, factors, factors, FACTOR_SIZES, (other,))


def _seeded(turn: Turn, model: nn.Module, batch: Batch, step: int, players: dict[str, nn.Module], seed: int) -> Terms:
    torch.manual_seed(seed)
    return turn(model, batch, step, **players)


def _check_terms(name: str, terms: Terms, players: dict[str, nn.Module]) -> None:
    taken = {"loss", *players} & set(terms.parts)
    _require(not taken, f"{name} calls a part of its loss {taken}: the learning curve has these names already")
    strangers = terms.players.keys() - players.keys()
    _require(not strangers, f"{name} has a loss for {', '.join(strangers)}, which is none of its players")
    for what, term in _scalars(terms).items():
        _require(term.ndim == 0, f"{what} of {name} has shape {tuple(term.shape)}: a term is one number a batch")
        _require(bool(term.isfinite()), f"{what} of {name} is {term.item()} on harmless data")


def _check_gradients(name: str, terms: Terms, players: dict[str, nn.Module]) -> set[str]:
    """Each loss reaches everything its player may learn; the loop keeps it from the others. Returns who learned."""
    losses = terms.players if terms.loss is None else {"model": terms.loss, **terms.players}
    for player, loss in losses.items():
        what = f"the loss of {name}" if player == "model" else f"the loss of {name} for its {player}"
        _require(loss.requires_grad, f"{what} has no gradient at all")
        own = {n: p for n, p in players[player].named_parameters() if p.requires_grad}
        gradients = torch.autograd.grad(loss, list(own.values()), retain_graph=True, allow_unused=True)
        reached = {n for n, g in zip(own, gradients, strict=True) if g is not None and bool(g.any())}
        _require(own.keys() <= reached, f"{what} has no gradient for {', '.join(sorted(own.keys() - reached))}")
    return set(losses)


def _check_repeats(name: str, first: Terms, second: Terms) -> None:
    a, b = _scalars(first), _scalars(second)
    _require(a.keys() == b.keys(), f"{name} has the terms {list(a)} one time and {list(b)} another")
    for what in a:
        _require(bool(a[what] == b[what]), f"{what} of {name} is {a[what].item()}, then {b[what].item()}, on one seed")


def _scalars(terms: Terms) -> dict[str, Tensor]:
    return ({} if terms.loss is None else {"loss": terms.loss}) | terms.parts | terms.players


# Measures


def _value(measure: Measure, representation: Representation, what: str) -> float | None:
    """The measure's value, within its range, or None where it says that it has none."""
    name = type(measure).__name__
    try:
        value = measure.value(representation)
    except Undefined:
        return None
    except Exception as error:
        raise AssertionError(f"{name} fails on {what} ({error!r}): expected a value or Undefined") from error
    slack = TOLERANCE * max(1.0, abs(value))
    _require(
        measure.low - slack <= value <= measure.high + slack,
        f"{name} is {value:.6g} on {what}: it declares the range {measure.low:g} to {measure.high:g}",
    )
    return value


def _defined(measure: Measure, representation: Representation, what: str) -> float:
    value = _value(measure, representation, what)
    if value is None:
        try:
            measure.value(representation)
        except Undefined as reason:
            raise AssertionError(f"{type(measure).__name__} has no value on {what}: {reason}") from reason
        raise AssertionError(f"{type(measure).__name__} has a value on {what} only at times")
    return value


def _check_nan(measure: Measure, healthy: Representation) -> None:
    poisoned = _mapped(healthy, np.copy)
    for array in (poisoned.mean, poisoned.var, poisoned.sample, poisoned.prior_mean, poisoned.prior_var):
        if array is not None:
            array[0] = np.nan  # in place, since a representation refuses to be built with it
    value = _value(measure, poisoned, "latents with NaN")
    _require(value is None, f"{type(measure).__name__} is {value} on latents with NaN: it needs to refuse them")


def _only_what_is_needed(measure: Measure, healthy: Representation) -> Representation:
    spared = {name: None for name in ("var", "sample", "factors") if name not in measure.needs}
    bare = replace(healthy, **spared, layers={}, prior_mean=None, prior_var=None, index=None)  # type: ignore[arg-type]
    return bare if "factors" in measure.needs else replace(bare, factor_info=())


def _mapped(representation: Representation, points: Latents, variances: Latents | None = None) -> Representation:
    """The representation with all its points in latent space, and its variances, taken through functions."""

    def through(function: Latents, array: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
        return None if array is None else function(array).astype(np.float32)

    variances = variances or points
    return replace(
        representation,
        mean=points(representation.mean).astype(np.float32),
        sample=through(points, representation.sample),
        prior_mean=through(points, representation.prior_mean),
        var=through(variances, representation.var),
        prior_var=through(variances, representation.prior_var),
    )


def _changed(representation: Representation, change: Invariance, seed: int) -> Representation:
    """The representation with its latents z mapped to z A + b, hence its variances to var (A∘A)."""
    generator = np.random.default_rng(seed)
    size = representation.latents
    latent = np.arange(size)
    matrix: NDArray[Any] = np.eye(size)
    shift: NDArray[Any] = np.zeros(size)
    if change == "permutation":
        order = generator.permutation(size)
        matrix = matrix[:, order if (order != latent).any() else order[::-1]]
    elif change == "sign":
        matrix = np.diag(np.where(latent % 2 == 0, -1.0, 1.0))
    elif change == "scale":
        matrix = np.diag(2.0 ** (latent % 4 - 1))
    elif change == "isotropic_scale":
        matrix = 4 * matrix
    elif change == "rotation":
        matrix = np.linalg.qr(generator.standard_normal((size, size)))[0]
    else:
        shift = 1.0 + latent % 3
    return _mapped(representation, lambda z: z @ matrix + shift, lambda var: var @ matrix**2)


def _isotropic(representation: Representation, seed: int) -> Representation:
    """The same means, with variances that a rotation leaves on the axes and samples that go with them."""
    averaged = _mapped(representation, np.copy, lambda var: np.broadcast_to(var.mean(1, keepdims=True), var.shape))
    if averaged.var is None or averaged.sample is None:
        return averaged
    noise = np.random.default_rng(seed).standard_normal(averaged.sample.shape)
    return replace(averaged, sample=_grained(averaged.mean + np.sqrt(averaged.var) * noise))


def _first_made_constant(array: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(np.arange(array.shape[1]) == 0, np.float32(1), array)


def _grained(values: NDArray[Any]) -> NDArray[np.float32]:
    return (np.rint(values / GRAIN) * GRAIN).astype(np.float32)


# All of them


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise AssertionError(sentence)


def _is_registered(registry: Registry[Any], thing: object) -> bool:
    return any(registry.get(name) is type(thing) for name in registry.names())


def _rebuild(registry: Registry[Any], thing: Any) -> Any:
    """The thing built again from its JSON description, by its name where it is registered."""
    name = type(thing).__name__
    _require(dataclasses.is_dataclass(thing), f"{name} is no dataclass: its fields are its configuration")
    try:
        if _is_registered(registry, thing):
            return registry.build(json.loads(json.dumps(registry.describe(thing))))
        return from_plain(type(thing), json.loads(json.dumps(plain(thing))), name)
    except ValueError as error:
        raise AssertionError(f"{name} cannot be built again from its description: {error}") from error
