"""How robust is this classifier? One card: corruptions, noise, attacks in three norms, lower bounds, and warnings where
the evaluation cannot be trusted.

Results are stored block by block, so that an interrupted evaluation continues, and a further norm or attack repeats
nothing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.examination.attack_jobs import (
    AttackJob,
    Blocks,
    Maker,
    RunMaker,
    attack_ahead,
    examples_of,
    matched_classes,
)
from polariscope.examination.corruptions import Withstood, withstand
from polariscope.examination.robustness_card import (
    LearnedDistances,
    NormCard,
    RobustnessCard,
    median_interval,
    minimal_adversarials,
    noise_gallery,
    quantile_gallery,
)
from polariscope.examination.run_subjects import classifier_run, run_subject, shown_data
from polariscope.grammar import counted
from polariscope.lab.executors import Workers, is_elsewhere
from polariscope.lab.store import Run, Store
from polariscope.robustness.adversarial_noise import NoiseAttack, generator_distances
from polariscope.robustness.attacks import Attack, Attacked, NoGradient, Norm, attacks, joined
from polariscope.robustness.attacks.attacked import median_distance
from polariscope.robustness.attacks.distal import Distal, distal
from polariscope.robustness.attacks.geometry import NORM_NAMES, check_sizes, reach
from polariscope.robustness.attacks.pgd import PGD
from polariscope.robustness.attacks.transfer import Transfer
from polariscope.robustness.attacks.trial import require_gradient
from polariscope.robustness.bounds import Bounds, BoundSettings, NoBound, confront
from polariscope.robustness.bounds import bounds as lower_bounds
from polariscope.robustness.bounds.known import joined_bounds
from polariscope.robustness.expectation import averaged, confirmed
from polariscope.robustness.kept import KeptAttacks, Stored, examples_hash, weights_hash
from polariscope.robustness.noise_distance import NoiseDistances, noise_distances
from polariscope.robustness.rejection import Rejection, rejection
from polariscope.robustness.suites import Budget, attack_suite, attack_title, left_out
from polariscope.robustness.synthesis import ABSClassifier
from polariscope.robustness.synthesis.explain import Explanation, explain
from polariscope.robustness.trust import (
    Warning,
    compare_attacks,
    has_gradient,
    is_random,
    more_steps_do_worse,
    probe,
    zero_gradient_warnings,
)
from polariscope.subjects import Subject, as_subject
from polariscope.subjects.doors import subject_and_world
from polariscope.subjects.subject import NanScores
from polariscope.training.progress import TellShare
from polariscope.training.run import config_of
from polariscope.worlds.given import Data
from polariscope.worlds.targets import Examples
from polariscope.worlds.views.corruptions import corrupt
from polariscope.worlds.views.corruptions.suites import suite_named
from polariscope.worlds.world import World, sample_numbers, to_tensor, worlds

__all__ = [
    "NORM_NAMES",
    "QUESTIONS",
    "THRESHOLDS",
    "NormCard",
    "RobustnessCard",
    "median_interval",
    "minimal_adversarials",
    "noise_gallery",
    "quantile_gallery",
    "robustness",
]

Question = Literal["corruptions", "noise", "attacks", "bounds"]
QUESTIONS: tuple[Question, ...] = ("corruptions", "noise", "attacks", "bounds")
THRESHOLDS: dict[Norm, tuple[float, ...]] = {"l2": (1.5,), "linf": (0.3,), "l0": (12.0,)}
"""Default distances at which accuracy is reported: the published ones, for digits of 28 x 28 pixels."""
BLOCK = 50
"""Images that are attacked and stored together."""
STEPS = (10, 40)
"""Steps of the two attacks that are compared: the attack with more steps must not do worse."""
LEARNED: dict[Budget, tuple[int, tuple[float, ...], int]] = {
    "quick": (2, (0.7,), 60),
    "standard": (4, (0.5, 1.0), 150),
    "full": (4, (0.35, 0.7, 1.0), 300),
}
"""Number of noise generators, the norms that each is trained at (as shares of ε* of Gaussian noise), and training
steps."""
TRAINED_ON = 500
"""Images that generators of noise are trained on."""
FULL: Budget = "full"
EXPLAINED = 5
"""Images that a classifier by synthesis explains on its card."""
CONTRADICTED = 0.2
"""Share of the images on which a classifier may contradict stored results by rounding: adversarials lie at the boundary
between two classes."""
DISTAL_STEPS: dict[Budget, int] = {"quick": 50, "standard": 200, "full": 1000}


@dataclass(frozen=True, eq=False)
class _Examination:
    """Data that all questions share: the classifier, images with their classes and numbers, and the folder of
    results."""

    subject: Subject
    world: World
    on: Examples
    budget: Budget
    seed: int
    kept: KeptAttacks
    tell: TellShare
    draws: int = 0
    """Draws over which a random classifier is averaged."""

    @property
    def numbers(self) -> dict[str, Any]:
        examples = examples_hash(self.on.x, self.on.y)
        return {"numbers": self.on.index.tolist(), "seed": self.seed, "examples": examples}


def robustness(
    model: Any,
    data: Data | None = None,
    *,
    only: Sequence[Question] = QUESTIONS,
    norms: Sequence[Norm] = ("l2", "linf", "l0"),
    budget: Budget = "standard",
    thresholds: Mapping[Norm, float | Sequence[float]] | None = None,
    also: Sequence[Attack | str] = (),
    substitute: Any = None,
    draws: int = 0,
    suite: str = "imagenet-c",
    count: int = 100,
    corrupted: int = 1000,
    seed: int = 0,
    folder: Path | None = None,
    identity: Mapping[str, Any] | None = None,
    tell: TellShare = lambda name, share: None,
    workers: Workers = 1,
    make: Maker | None = None,
) -> RobustnessCard:
    """Measure how robust a classifier is.

    ``data`` has images with pixels from 0 to 1 and one class to predict. ``count`` images are attacked in each of the
    ``norms``, and the classifier is tested on ``corrupted`` images under the corruptions of a ``suite``. The ``budget``
    chooses the attacks; ``also`` names further attacks, and adversarials of a ``substitute`` classifier are
    transferred. Of a classifier with random outputs, the mean over ``draws`` is attacked; with 0 draws it is not
    attacked. Results are stored in ``folder``, under the ``identity`` of weights and data, so that an interrupted
    evaluation continues and a further norm or attack does not repeat the others. ``tell`` is called with the current
    task and its finished share. With several ``workers``, or on a cluster, the attacks run in parallel first, each on
    one block of images; ``make`` makes the classifier and the data in a worker.
    """
    only, norms, also = _several(only), _several(norms), _several(also)
    _check(only, norms, tuple(thresholds or ()))
    _check_numbers(count, corrupted, draws, seed)
    suite_named(suite)
    subject, world = subject_and_world(model, data)
    examples = examples_of(subject, world, sample_numbers(world, count, seed))
    x, y = examples.x, examples.y
    skipped: dict[str, str] = {one: "not among the questions of this command" for one in QUESTIONS if one not in only}
    with _on_changed_images(subject, x):
        warnings = probe(subject, x, y, seed=seed)
    notes = (*subject.notes, *matched_classes(subject, world), *getattr(world, "assumed", ()))
    if is_random(warnings):
        if draws < 2:
            why = "the classifier has random outputs: its mean over draws can be attacked with draws=20 (--draws 20)"
            skipped |= {one: why for one in only if one != "corruptions"}
            only = tuple(one for one in only if one == "corruptions")
        else:
            subject = averaged(subject, draws, seed)
            # Draws belong to places in a batch, so that the mean of an image depends on its place a little.
            of_mean = [one for one in probe(subject, x, y, seed=seed) if one.name != "batch dependence"]
            warnings = [one for one in warnings if one.name != "random outputs"] + of_mean
            notes += (f"The classifier has random outputs: its mean over {draws} draws was attacked, and an "
                      "adversarial counts if the mean over new draws is also wrong.",)  # fmt: skip
    elif draws:
        draws = 0
        notes += ("The outputs of the classifier are not random, so it was attacked as it is, without draws.",)
    with subject.at_rest():
        scores = subject.scores(x)
    right = scores.argmax(1) == y
    clean = float(right.double().mean())
    limits = {norm: _thresholds(norm, thresholds) for norm in norms}
    with TemporaryDirectory() as spare, _on_changed_images(subject, x):
        whose = {"model": subject.name, "weights": weights_hash(subject), **(identity or {})}
        whose |= {"draws": draws} if draws else {}
        whose |= {"scores": examples_hash(scores, y)} if subject.module is None else {}
        kept = KeptAttacks(folder or Path(spare), whose)
        asked = _Examination(subject, world, examples, budget, seed, kept, tell, draws)
        cards = [NormCard(norm, limits[norm], {}, {}) for norm in norms] if {"attacks", "bounds"} & set(only) else []
        distal_images: Distal | None = None
        decided: dict[Norm, NDArray[np.int64]] = {}
        if "attacks" in only:
            extra = _further(also, substitute)
            if make is not None and is_elsewhere(workers):
                _ahead(asked, cards, warnings, extra, workers, make)
            for number, card in enumerate(cards):
                cards[number] = _attacked(asked, card, warnings, extra, substitute)
                warnings += _judged(asked, cards[number])
            decided = _decided(subject, cards)
            steady = not draws and not {"random outputs", "batch dependence"} & {one.name for one in warnings}
            if folder is not None and steady:
                _check_kept(folder, subject.name, cards, decided, right.cpu().numpy(), y.cpu().numpy())
            distal_images = _distal(asked, skipped)
        if "bounds" in only:
            for number, card in enumerate(cards):
                cards[number] = _bounded(asked, card, number, len(cards))
        noise: list[NoiseDistances] = []
        learned: LearnedDistances | None = None
        if "noise" in only:
            noise, learned = _noise(asked, skipped)
        rejected = _rejection(asked, suite, distal_images) if "noise" in only else None
    corruptions: Withstood | None = None
    if "corruptions" in only:
        try:
            corruptions = withstand(subject, world, suite, count=corrupted, seed=seed, tell=tell)
        except ValueError as error:
            skipped["corruptions"] = str(error)
    return RobustnessCard(
        subject.name, len(x), clean, budget, tuple(cards), tuple(noise), learned, corruptions, distal_images, rejected,
        tuple({warning.name: warning for warning in warnings}.values()), skipped, x.cpu(), y.cpu().numpy(),
        decided, seed, notes, _explained(subject, x, y),
    )  # fmt: skip


def robustness_run(
    run: Run | Path | str,
    data: Data | None = None,
    *,
    folder: Path | None = None,
    store: Store | Path | str = "runs",
    workers: Workers = 1,
    **asked: Any,
) -> RobustnessCard:
    """:func:`robustness` of the classifier of a run, on its held-out images or on other ``data``. Results of attacks
    are kept in the run, or in another ``folder``."""
    run = classifier_run(run, store)
    subject, world = run_subject(run), shown_data(run, data)
    make = RunMaker(run.path, None if data is None else world)
    identity = classifier_identity(subject, worlds.describe(config_of(run).world if data is None else world))
    folder = folder or run.path / "attacks"
    return robustness(subject, world, folder=folder, identity=identity, workers=workers, make=make, **asked)


def classifier_identity(subject: Subject, data: Mapping[str, Any], source: Path | None = None) -> dict[str, Any]:
    """The identity under which results are kept: that of the weights, of the ``data`` as described and, for your own
    classifier, of the source. Its output may change while its weights do not."""
    identity = {"weights": weights_hash(subject), "data": data}
    return identity | ({} if source is None else {"source": hashlib.sha256(source.read_bytes()).hexdigest()[:16]})


def _several(given: Any) -> tuple[Any, ...]:
    """Several words, also if one was given alone."""
    return (given,) if isinstance(given, str) else tuple(given)


def _check(only: Sequence[str], norms: Sequence[str], named: Sequence[str]) -> None:
    unknown = [one for one in only if one not in QUESTIONS]
    if not only:
        raise ValueError(f"no question is given: name one or more of {', '.join(QUESTIONS)}")
    if unknown:
        raise ValueError(f"there is no question {unknown[0]!r}: known: {', '.join(QUESTIONS)}")
    wrong = [norm for norm in (*norms, *named) if norm not in THRESHOLDS]
    if not norms:
        raise ValueError("no norm is given: name one or more of l0, l2, linf")
    if wrong:
        raise ValueError(f"there is no norm {wrong[0]!r}: known: l0, l2, linf")


def _check_numbers(count: int, corrupted: int, draws: int, seed: int) -> None:
    for name, number, what in (("count", count, "attacked"), ("corrupted", corrupted, "corrupted")):
        if number < 1:
            raise ValueError(f"{name} is {number}: at least 1 image is {what}")
    if draws < 0 or draws == 1:
        raise ValueError(
            f"draws is {draws}: a mean takes at least 2 draws, and with 0 no random classifier is attacked"
        )
    if seed < 0:
        raise ValueError(f"seed is {seed}: a seed is a whole number from 0 on")


def _further(also: Sequence[Attack | str], substitute: Any) -> list[Attack]:
    extra = [attacks.build({"name": one}) if isinstance(one, str) else one for one in also]
    if substitute is not None:
        extra.append(Transfer(as_subject(substitute)))
    return extra


def _ahead(
    asked: _Examination,
    cards: Sequence[NormCard],
    warnings: Sequence[Warning],
    also: Sequence[Attack],
    workers: Workers,
    make: Maker,
) -> None:
    """Run the attacks of all norms in parallel; their results are stored where :func:`_attacked` reads them."""
    blocks = Blocks(make, asked.on, asked.kept, asked.seed, asked.draws, BLOCK)
    jobs: dict[Path, AttackJob] = {}
    for card in cards:
        suite = attack_suite(card.norm, asked.budget, asked.subject, gradients=has_gradient(warnings), also=also)
        jobs |= dict(blocks.jobs(suite, card.norm))
    attack_ahead(jobs, workers, partial(asked.tell, "attacks in parallel"))


def _attacked(
    asked: _Examination, card: NormCard, warnings: Sequence[Warning], also: Sequence[Attack], substitute: Any
) -> NormCard:
    suite, full = (
        attack_suite(card.norm, budget, asked.subject, gradients=has_gradient(warnings), also=also)
        for budget in (asked.budget, FULL)
    )
    results: dict[str, Attacked] = {}
    not_run: dict[str, str] = {}
    needs: dict[str, str] = {}
    for number, attack in enumerate(suite):
        name = attack_title(attack)
        share = partial(_share, asked.tell, f"attacks in {NORM_NAMES[card.norm]}", number, len(suite))
        try:
            results[name] = _blocks(asked, attack, card.norm, share)
            needs[name] = attack.needs
        except NoGradient as error:
            not_run[name] = str(error)
        except ValueError as error:
            if not attack.refuses(_classes(asked)):
                raise
            not_run[name] = str(error)
    for attack in also:
        if card.norm not in attack.norms:
            not_run[attack_title(attack)] = f"it works in {' and '.join(attack.norms)}"
    if missing := left_out(suite, full):
        not_run[", ".join(missing)] = f"not in the budget {asked.budget} (--budget {FULL})"
    if substitute is None and card.norm != "l0":
        not_run["transfer"] = "no substitute was given (--substitute)"
    return replace(card, results=results, not_run=not_run, needs=needs)


def _share(tell: TellShare, name: str, at: int, count: int, share: float) -> None:
    tell(name, (at + share) / count)


def _blocks(
    asked: _Examination, attack: Attack, norm: Norm, tell: Callable[[float], None], epsilons: tuple[float, ...] = ()
) -> Attacked:
    """An attack on all images, block by block."""
    parts = []
    blocks = torch.arange(len(asked.on.x)).split(BLOCK)
    for done, rows in enumerate(blocks, 1):
        x, y, numbers = asked.on.x[rows], asked.on.y[rows], asked.on.index[rows.numpy()]
        part = asked.kept.attacked(
            attack, asked.subject, x, y, numbers, norm=norm, seed=asked.seed, epsilons=epsilons
        )  # fmt: skip
        if asked.draws:
            part = confirmed(part, x, averaged(asked.subject, asked.draws, asked.seed + 1), y)
        parts.append(part)
        tell(done / len(blocks))
    return joined(parts)


def _classes(asked: _Examination) -> int:
    with asked.subject.at_rest():
        return int(asked.subject.scores(asked.on.x[:1]).shape[1])


def _judged(asked: _Examination, card: NormCard) -> list[Warning]:
    """Warnings from the results of the attacks in one norm."""
    warnings = compare_attacks(card.results, card.needs) + zero_gradient_warnings(card.results)
    typical = median_distance(card.best.distances) if card.best is not None else 0.0
    if card.norm == "l0" or "gradient" not in card.needs.values() or not 0 < typical < np.inf:
        return warnings
    few, many = (
        _blocks(asked, PGD(steps, 2.5 / steps, random_start=False), card.norm, lambda share: None, (typical,))
        for steps in STEPS
    )
    return warnings + more_steps_do_worse(few, many, STEPS)


def _distal(asked: _Examination, skipped: dict[str, str]) -> Distal | None:
    """One distal image of each class, which began as noise."""
    classes = np.unique(asked.on.y.cpu().numpy())[:10]
    shape = tuple(asked.on.x.shape[1:])
    key = {"version": 2, "shape": list(shape), "classes": classes.tolist(), **asked.numbers}
    key |= {"steps": DISTAL_STEPS[asked.budget]}

    def compute() -> Stored:
        made = distal(asked.subject, classes, shape, steps=DISTAL_STEPS[asked.budget], near=asked.on.x, seed=asked.seed)
        assert made.distances is not None
        arrays = {"images": made.images.numpy(), "labels": made.labels, "confidences": made.confidences,
                  "steps": made.steps, "distances": made.distances}  # fmt: skip
        return arrays, {"asked": made.asked}

    try:
        arrays, facts = asked.kept.kept("distal", key, compute)
    except NoGradient:
        skipped["distal images"] = f"noise is changed along gradients, and {asked.subject.name} gives none"
        return None
    asked.tell("distal images", 1.0)
    images = torch.from_numpy(arrays["images"])
    return Distal(images, arrays["labels"], arrays["confidences"], arrays["steps"], facts["asked"],
                  arrays["distances"], asked.subject.name, asked.seed)  # fmt: skip


def _bounded(asked: _Examination, card: NormCard, number: int, count: int) -> NormCard:
    """Lower bounds, block by block, compared with the attacks."""
    settings = BoundSettings(seeds=3 if asked.budget == "quick" else 10)
    blocks = torch.arange(len(asked.on.x)).split(BLOCK)
    parts: list[Bounds] = []
    for done, rows in enumerate(blocks, 1):
        part = _kept_bounds(asked, card.norm, rows, settings)
        if isinstance(part, NoBound):
            return replace(card, bounds=part)
        parts.append(part)
        asked.tell("bounds", (number + done / len(blocks)) / count)
    known = joined_bounds(parts)
    best = card.best
    if best is None:
        return replace(card, bounds=known)
    held = confront(known, asked.subject, asked.on.x, asked.on.y, best.adversarials, best.distances, settings)
    return replace(card, bounds=known, confrontation=held)


def _kept_bounds(asked: _Examination, norm: Norm, rows: Tensor, settings: BoundSettings) -> Bounds | NoBound:
    examples = examples_hash(asked.on.x[rows], asked.on.y[rows])
    key = {"norm": norm, "settings": repr(settings), "examples": examples}

    def compute() -> Stored:
        return stored_bounds(lower_bounds(asked.subject, asked.on.x[rows], asked.on.y[rows], norm, settings))

    return bounds_of(norm, asked.kept.kept("bounds", key, compute))


def stored_bounds(known: Bounds | NoBound) -> Stored:
    """Bounds as arrays and facts."""
    if isinstance(known, NoBound):
        return {}, {"reason": known.reason}
    arrays: dict[str, NDArray[Any]] = {"lower": known.lower}
    methods = list(known.by_method)
    arrays |= {f"method {place}": known.by_method[name] for place, name in enumerate(methods)}
    if known.abstained is not None:
        arrays["abstained"] = known.abstained
    facts = {"kind": known.kind, "method": known.method, "methods": methods, "seeds": list(known.seeds),
             "confidence": known.confidence, "space": known.space, "notes": list(known.notes)}  # fmt: skip
    if known.binarised is not None:
        inner, about = stored_bounds(known.binarised)
        arrays |= {f"binarised {name}": value for name, value in inner.items()}
        facts["binarised"] = about
    return arrays, facts


def bounds_of(norm: Norm, stored: Stored) -> Bounds | NoBound:
    """Bounds of arrays and facts."""
    arrays, facts = stored
    if "reason" in facts:
        return NoBound(norm, facts["reason"])
    inner = {name.removeprefix("binarised "): value for name, value in arrays.items() if name.startswith("binarised ")}
    binarised = bounds_of(norm, (inner, facts["binarised"])) if "binarised" in facts else None
    assert not isinstance(binarised, NoBound)
    methods = {name: arrays[f"method {place}"] for place, name in enumerate(facts["methods"])}
    return Bounds(
        norm, facts["kind"], facts["method"], arrays["lower"], methods, tuple(facts["seeds"]), facts["confidence"],
        arrays.get("abstained"), facts["space"], binarised, tuple(facts["notes"]),
    )  # fmt: skip


def _noise(asked: _Examination, skipped: dict[str, str]) -> tuple[list[NoiseDistances], LearnedDistances | None]:
    """ε* by Gaussian and uniform noise, and by noise that new generators learn against the classifier."""
    noise = []
    for kind in ("gaussian", "uniform"):
        compute = partial(_stored_noise, asked, kind)
        arrays, facts = asked.kept.kept(f"{kind}-noise", asked.numbers, compute)
        noise.append(
            NoiseDistances(arrays["distances"], kind, asked.seed, facts["queries"], torch.from_numpy(arrays["noisy"]))
        )
        asked.tell("noise", 0.1 * len(noise))
    generators, shares, steps = LEARNED[asked.budget]
    typical = noise[0].median
    if not np.isfinite(typical) or typical == 0:
        typical = float(reach(asked.on.x.flatten(1), "l2").median()) / 2
    attack = NoiseAttack(tuple(round(share * typical, 4) for share in shares), steps=steps)
    key = {"norms": list(attack.norms), "steps": steps, "generators": generators, **asked.numbers}
    try:
        arrays, facts = asked.kept.kept("learned-noise", key, partial(_stored_generators, asked, attack, generators))
    except NoGradient:
        skipped["learned noise"] = f"noise generators learn from gradients, and {asked.subject.name} gives none"
        return noise, None
    asked.tell("noise", 1.0)
    noise.append(
        NoiseDistances(arrays["distances"], "learned", asked.seed, facts["queries"], torch.from_numpy(arrays["noisy"]))
    )
    return noise, LearnedDistances(tuple(facts["seeds"]), tuple(facts["norms"]), arrays["medians"])


def _stored_noise(asked: _Examination, kind: Literal["gaussian", "uniform"]) -> Stored:
    measured = noise_distances(asked.subject, asked.on.x, asked.on.y, kind, asked.seed)
    assert measured.noisy is not None
    return {"distances": measured.distances, "noisy": measured.noisy.numpy()}, {"queries": measured.queries}


def _stored_generators(asked: _Examination, attack: NoiseAttack, generators: int) -> Stored:
    """New generators, trained on other images than the attacked ones if there are any."""
    rest = np.setdiff1d(sample_numbers(asked.world, TRAINED_ON + len(asked.on.index), asked.seed + 1), asked.on.index)
    index = rest[:TRAINED_ON] if len(rest) >= len(asked.on.index) else asked.on.index
    learned = examples_of(asked.subject, asked.world, index)
    with asked.subject.at_rest():
        require_gradient(asked.subject, learned.x[:1])
    measured = generator_distances(
        asked.subject, learned.x, learned.y, attack, tuple(range(generators)), on=asked.on,
        tell=lambda share: asked.tell("noise", 0.2 + 0.8 * share),
    )  # fmt: skip
    worst = measured.distances[int(measured.medians.argmin())]
    assert worst.noisy is not None
    arrays = {"medians": measured.medians, "distances": worst.distances, "noisy": worst.noisy.numpy()}
    facts = {"seeds": [one.seed for one in measured.noises], "norms": [one.norm for one in measured.noises],
             "queries": worst.queries}  # fmt: skip
    return arrays, facts


def _rejection(asked: _Examination, suite: str, distal_images: Distal | None) -> Rejection | None:
    """Confidence on the images beside that on noise, distal images and corrupted ones."""
    if asked.on.x.ndim != 4:
        return None
    generator = torch.Generator().manual_seed(asked.seed)
    noise = torch.rand(asked.on.x.shape, generator=generator, dtype=torch.float32).to(asked.on.x)
    others: dict[str, Any] = {"uniform noise": noise}
    if distal_images is not None:
        others["distal images"] = distal_images.images.to(asked.on.x)
    pixels = (asked.on.x * 255).round().to(torch.uint8).cpu().numpy()
    changed, labels = [], []
    known = suite_named(suite)
    for kind in known.benchmark:
        severity = (known.kinds[kind].severities + 1) // 2
        try:
            images = corrupt(pixels, kind, severity, suite=suite, seed=asked.seed, index=asked.on.index)
        except ValueError:
            continue  # an image too small for one corruption still has the others
        changed.append(to_tensor(np.asarray(images)))
        labels.append(asked.on.y.cpu())
    if changed:
        others[suite] = Examples(torch.cat(changed).to(asked.on.x), torch.cat(labels))
    return rejection(asked.subject, asked.on.x, asked.on.y, others)


def _explained(subject: Subject, x: Tensor, y: Tensor) -> Explanation | None:
    """Some of the images with their syntheses by each class, if the classifier is one by synthesis."""
    if x.ndim != 4 or not isinstance(subject.module, ABSClassifier):
        return None
    return explain(subject, x[:EXPLAINED], y[:EXPLAINED])


def _decided(subject: Subject, cards: Sequence[NormCard]) -> dict[Norm, NDArray[np.int64]]:
    """The classes at the nearest adversarials."""
    decided: dict[Norm, NDArray[np.int64]] = {}
    with subject.at_rest():
        for card in cards:
            if card.best is not None:
                parts = [subject.scores(part).argmax(1).cpu() for part in card.best.adversarials.split(250)]
                decided[card.norm] = torch.cat(parts).numpy()
    return decided


@contextmanager
def _on_changed_images(subject: Subject, x: Tensor) -> Iterator[None]:
    """Say so if the scores of changed images are NaN, and those of the images ``x`` themselves are not."""
    try:
        yield
    except NanScores as error:
        with subject.at_rest():
            subject.scores(x)
        raise NanScores(
            f"{subject.name} returns NaN instead of scores for images that were changed, and not for the "
            f"{counted(len(x), 'image')} as they are: find out where its forward pass divides by 0 or overflows"
        ) from error


def _check_kept(
    folder: Path,
    name: str,
    cards: Sequence[NormCard],
    decided: Mapping[Norm, NDArray[np.int64]],
    right: NDArray[np.bool_],
    y: NDArray[np.int64],
) -> None:
    """Refuse stored results that the classifier contradicts. Its code may have changed, in a file that is not hashed,
    while its weights did not."""
    for card in cards:
        if card.best is None:
            continue
        distances = card.best.distances
        adversarial = np.isfinite(distances) & (distances > 0)
        wrong = ((distances > 0) != right) | (adversarial & (decided[card.norm] == y))
        if wrong.mean() > CONTRADICTED:
            raise ValueError(
                f"the results stored in {folder} are not those of {name}: it contradicts them on "
                f"{wrong.mean():.0%} of the images in {NORM_NAMES[card.norm]}, as if its code had changed and its "
                "weights had not: remove that folder"
            )


def _thresholds(norm: Norm, given: Mapping[Norm, float | Sequence[float]] | None) -> tuple[float, ...]:
    asked = (given or {}).get(norm, THRESHOLDS[norm])
    several = tuple(float(one) for one in (asked if isinstance(asked, Sequence) else (asked,)))
    if not several or not all(0 < one < math.inf for one in several):
        raise ValueError(f"thresholds are one or more positive sizes of a perturbation; got {several} for {norm}")
    if norm == "l0" and min(several) < 1:
        raise ValueError(f"L0 sizes are numbers of changed pixels, such as 12; got {min(several):g}")
    check_sizes(several, norm)
    return several
