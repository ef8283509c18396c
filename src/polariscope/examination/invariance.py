"""Does a property really stay the same when the rest of a code changes? Four tests side by side.

The published metric uses the model itself: Z0 is kept, Z1 is resampled, and the model predicts the property of the
decoded observation from its code. A model can pass by hiding the property in invisible detail, or by ignoring it (Spec
000, section 6.4 and trap T1). The model's prediction is therefore shown beside the true property, if it can be
computed, the prediction of an independent judge, and a probe that predicts the property from Z1; and it counts only if
the code encodes the property at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from polariscope.examination.adversary import adversary_notes
from polariscope.examination.nearness import MANY_FAR, neighbourhood
from polariscope.findings import Chart, Column, Findings, Part, Records, Value, Values
from polariscope.measures.judge import explained, fit_judge
from polariscope.measures.summed_error import mean_model_error, summed_absolute_error
from polariscope.report.invariance_figures import signal_bars
from polariscope.subjects import Subject
from polariscope.subjects.doors import OWN_DATA, subject_and_world
from polariscope.tabular import Tabular
from polariscope.worlds.given import Data
from polariscope.worlds.pictures import Limits, limits_of
from polariscope.worlds.property_scale import property_scale
from polariscope.worlds.splits import Parts, Split, usual_split
from polariscope.worlds.targets import target_values, targets_of
from polariscope.worlds.true_property import true_property
from polariscope.worlds.view import inside
from polariscope.worlds.world import World, to_tensor

Floats = NDArray[np.float64]
Opinion = Literal["model", "truth", "judge"]
GATE = 0.9
"""The error of the property counts as small below this share of the error of predicting the mean. The same holds for
the error of the judge."""
EXCESS = 2.0
"""The property counts as lost if the deviation of generated observations exceeds that of real ones by this factor, by
the truth or the judge."""
SMALL = 0.1
"""Deviations below this share of the error of predicting the mean count as none."""
LEAK = 0.3
"""Z1 counts as containing the property if its R² exceeds this share of the R² of the observations themselves. It need
not be 0: on a square, the angle of a point gives a little information about its level, which is high only in the
corners."""
UNEQUAL = 10.0
"""Ratio of standard deviations from which on one number of a property decides the sums."""
FAINT = 0.05
"""An R² up to this one is no leak, also if the judge predicts even less from the observations."""
AT_ONCE = 4096


@runtime_checkable
class OwnUnits(Protocol):
    """A world whose targets are standardised, and can be converted back to their units."""

    def original_target(self, targets: ArrayLike) -> Floats: ...


@dataclass(frozen=True)
class Deviation:
    """Distance of the property, by one predictor, from the property that the code encodes: on real and on generated
    observations."""

    opinion: Opinion
    real: float
    generated: float

    @property
    def excess(self) -> float:
        """Ratio of the generated to the real deviation; infinite if only the real one is 0, and 1 if both are."""
        if self.real:
            return self.generated / self.real
        return float("inf") if self.generated else 1.0


@dataclass(frozen=True, eq=False, repr=False)
class InvarianceAudit(Tabular):
    """The result of an audit. Errors and deviations are summed over the numbers of a property and averaged over
    examples."""

    count: int
    samples: int
    """Generated observations for each example."""
    property_latents: int
    x_error: float
    mean_x_error: float
    """Of the mean model."""
    y_error: float
    mean_y_error: float
    deviations: tuple[Deviation, ...]
    leakage: float
    """R² of the property from noisy Z1, by a judge fitted to other examples."""
    leakage_of_means: float
    """The same from the means of Z1, without the noise of the code."""
    ceiling: float
    """R² of the property from the observations themselves, by the same kind of judge."""
    judge_error: float
    """Error of the property as the judge predicts it from real observations: the baseline."""
    far: float
    """Share of generated observations that are further from the training data than 95 % of held-out ones."""
    signal: Floats
    noise: Floats
    unit: str = ""
    notes: tuple[str, ...] = ()

    @property
    def selected(self) -> NDArray[np.bool_]:
        """Latents whose signal (standard deviation of the means) exceeds their noise."""
        return self.signal > self.noise

    @property
    def selected_counts(self) -> tuple[int, int]:
        """How many are selected in Z0 and in Z1."""
        chosen = self.selected
        return int(chosen[: self.property_latents].sum()), int(chosen[self.property_latents :].sum())

    @property
    def tells_property(self) -> bool:
        """Whether the code encodes the property; the other results depend on it."""
        return self.y_error < GATE * self.mean_y_error

    def of(self, opinion: Opinion) -> Deviation | None:
        """The deviation by one predictor, if it is known."""
        return next((one for one in self.deviations if one.opinion == opinion), None)

    @property
    def outside(self) -> Deviation:
        """The deviation that decides: by the truth if it is known, otherwise by the judge."""
        independent = self.of("truth") or self.of("judge")
        assert independent is not None
        return independent

    @property
    def judged(self) -> bool:
        """Whether there is a verdict at all: the truth is known, or the judge predicts the property of real
        observations."""
        return self.outside.opinion == "truth" or self.judge_error < GATE * self.mean_y_error

    @property
    def lost(self) -> bool:
        """Whether generated observations have another property than wanted, by the truth or the judge."""
        other = self.outside
        return self.judged and other.excess > EXCESS and other.generated > SMALL * self.mean_y_error

    @property
    def leaks(self) -> bool:
        """Whether Z1 contains the property."""
        return self.leakage > max(LEAK * self.ceiling, FAINT)

    @property
    def hidden(self) -> bool:
        """Whether the model alone recognises the property in its generated observations: steganography."""
        own = self.of("model")
        assert own is not None
        return self.tells_property and self.lost and self.outside.generated > EXCESS * own.generated

    @property
    def headline(self) -> str:
        own, other = self.of("model"), self.outside
        assert own is not None
        who = "the true property" if other.opinion == "truth" else "an independent judge"
        if not self.tells_property:
            error = f"error {self.y_error:.3g}, predicting the mean has {self.mean_y_error:.3g}"
            return f"The code does not encode the property ({error}), so its invariance is meaningless"
        leak = f"; Z1 also predicts the property (R² {self.leakage:.2f} of {self.ceiling:.2f})" if self.leaks else ""
        if not self.judged:
            error = f"error {self.judge_error:.3g}, predicting the mean has {self.mean_y_error:.3g}"
            return (
                f"Whether the model keeps the property is unknown: the judge hardly predicts it from real observations "
                f"({error}){leak}"
            )
        moved = f"{other.generated:.3g} by {who} ({other.real:.3g} on real data), {own.generated:.3g} by the model"
        if self.hidden:
            return f"The model hides the property instead of keeping it: with a new Z1 it moves by {moved}"
        verb = "does not keep" if self.lost else "keeps"
        return f"The model {verb} the property: with a new Z1 it moves by {moved}{leak}"

    def records(self) -> list[dict[str, Any]]:
        """A row for each latent: its part of the code, its signal and its noise."""
        rows = zip(self.signal.tolist(), self.noise.tolist(), self.selected.tolist(), strict=True)
        return [
            {
                "latent": number,
                "part": "Z0" if number < self.property_latents else "Z1",
                "signal": signal,
                "noise": noise,
                "selected": chosen,
            }
            for number, (signal, noise, chosen) in enumerate(rows)
        ]

    def findings(
        self, title: str = "Invariance", settings: Mapping[str, Any] | None = None, more: Sequence[Part] = ()
    ) -> Findings:
        """The document, with ``more`` sections at its end."""
        unit = f" ({self.unit})" if self.unit else ""
        titles = {"model": "the model itself (the published metric)", "truth": "the true property",
                  "judge": "an independent judge"}  # fmt: skip
        deviations = [
            {"opinion": titles[one.opinion], "real": one.real, "generated": one.generated, "excess": one.excess}
            for one in self.deviations
        ]
        values = [
            Value("x_error", "Error of observations", self.x_error, False, chance=self.mean_x_error),
            Value("y_error", f"Error of the property{unit}", self.y_error, False, chance=self.mean_y_error),
            Value("judge_error", f"Error of the judge, from observations{unit}", self.judge_error, False),
            Value("leakage", "R² of the property from Z1", self.leakage, False),
            Value("leakage_of_means", "R² of the property from the means of Z1", self.leakage_of_means, False),
            Value("ceiling", "R² of the property from observations", self.ceiling, True),
        ]
        parts: list[Part] = [
            Records(
                name="deviations",
                title="How far the property moves when Z1 is resampled",
                hint="Summed over the numbers of the property. Real observations show the error of each predictor "
                "without a new Z1. A model can be wrong in its own favour; the other predictors do not depend "
                "on it.",
                rows=deviations,
                columns=(
                    Column("opinion", "Predicted by"),
                    Column("real", f"Real{unit}", "%.4g"),
                    Column("generated", f"Generated{unit}", "%.4g"),
                    Column("excess", "Ratio", "%.2f"),
                ),
            ),
            Values(
                name="errors",
                title="Errors and leakage",
                hint="By chance: the error of always predicting the mean.",
                entries=values,
            ),
            Records(
                name="latents",
                title="Selected latents",
                hint="Selected: the signal, the standard deviation of the means, exceeds the noise.",
                rows=self.records(),
                columns=(
                    Column("latent", "No.", "z%d"),
                    Column("part", "Part"),
                    Column("signal", "Signal", "%.3g"),
                    Column("noise", "Noise", "%.3g"),
                    Column("selected", "Selected"),
                ),
            ),
            Chart(
                name="signals",
                title="Signal and noise of each latent",
                draw=lambda: signal_bars(self.signal, self.noise, self.property_latents),
            ),
        ]
        zero, one = self.selected_counts
        facts = {
            "tells_property": self.tells_property,
            "judged": self.judged,
            "lost": self.lost,
            "hidden": self.hidden,
            "leaks": self.leaks,
            "selected": {"z0": zero, "z1": one},
            "far": self.far,
            "count": self.count,
        }
        return Findings(title, f"{self.headline}.", [*parts, *more], self.notes, facts, settings=settings or {})


@dataclass(frozen=True, eq=False)
class SplitCode:
    """The number of first latents that form Z0, and the function from Z0 to the property."""

    latents: int
    tells: Callable[[Tensor], Tensor]
    notes: tuple[str, ...] = ()


@torch.no_grad()
def audit_invariance(
    model: Any,
    data: Data | None = None,
    *,
    property_latents: int | None = None,
    tells: Callable[[Tensor], Tensor] | None = None,
    split: Split | None = None,
    count: int = 2000,
    samples: int = 1,
    reach: float = 1.0,
    centred: bool = False,
    judged_on: int = 2000,
    seed: int = 0,
) -> InvarianceAudit:
    """Resample Z1 with Z0 kept, and measure how far the property moves, by the model, the truth and a judge.

    Z1 is uniform within ``reach`` standard deviations of its signal, around 0 as published, or around its mean if
    ``centred``; each of ``count`` held-out examples gets ``samples`` of them. Your own model must encode and decode;
    ``property_latents`` is the number of its first latents that form Z0, and ``tells`` is its function from Z0 to the
    property. Without ``tells``, a judge is fitted from Z0 to the property of training examples, and a note says so. The
    world has the property as its targets, which are numbers. Judge and probes learn from ``judged_on`` training
    examples.
    """
    if samples < 1 or count < 8 or not reach > 0:
        raise ValueError(
            f"an audit needs at least 8 examples, 1 sample of each and a positive reach; got {count}, {samples} and "
            f"{reach}"
        )
    subject, world = subject_and_world(model, data)
    if any(target.kind != "number" for target in targets_of(world)):
        raise ValueError("the invariance of a property needs targets that are numbers: use the view properties")
    train, test = audited_numbers(subject, world, split, judged_on, count, seed)
    if not np.ptp(target_values(world, test), axis=0).any():
        raise ValueError(
            f"the property is the same in all {len(test):,} held-out examples, so nothing can be measured about it: "
            "hold out others, or more"
        )
    x, known = (to_tensor(world.observe(numbers)) for numbers in (test, train))
    subject = subject.understood(x)
    if subject.decodes is None:
        raise TypeError(f"{subject.name} does not decode, so it cannot generate with a new Z1")
    own = _own_units(world)
    targets = target_values(world, train)
    y, y_train = own(target_values(world, test)), own(targets)
    with subject.at_rest():
        torch.manual_seed(seed)
        code, code_train = encoded(subject, x), encoded(subject, known)
        parts = split_code(subject, code_train["mean"], targets, property_latents, tells, seed)
        first = parts.latents
        mean = code["mean"]
        signal = mean.std(0)
        predicted = own(parts.tells(mean[:, :first]))
        reconstructed = decoded(subject, mean, tuple(world.shape))
        drawn = reach * signal[first:] * (2 * torch.rand(samples * len(mean), mean.shape[1] - first) - 1)
        drawn = drawn + mean[:, first:].mean(0) if centred else drawn
        kept = mean[:, :first].repeat(samples, 1)
        generated = decoded(subject, torch.cat([kept, drawn], 1), tuple(world.shape))
        again = own(parts.tells(encoded(subject, generated)["mean"][:, :first]))
        back = own(parts.tells(encoded(subject, reconstructed)["mean"][:, :first]))
    noisy, noisy_train = code.get("sample", mean), code_train.get("sample", code_train["mean"])
    wanted = np.tile(predicted, (samples, 1))
    judge = fit_judge(known.numpy(), y_train, seed)
    judged = judge(x.numpy())
    deviations = [Deviation("model", summed_absolute_error(back, predicted), summed_absolute_error(again, wanted))]
    truth = true_property(world, generated.numpy())
    if truth is not None:
        real = true_property(world, x.numpy())
        assert real is not None
        deviations.append(
            Deviation("truth", summed_absolute_error(own(real), predicted), summed_absolute_error(own(truth), wanted))
        )
    seen = judge(generated.numpy())
    far = float(neighbourhood(known, x, generated)[2].mean())
    deviations.append(Deviation("judge", summed_absolute_error(judged, predicted), summed_absolute_error(seen, wanted)))
    return InvarianceAudit(
        count=len(test),
        samples=samples,
        property_latents=first,
        x_error=summed_absolute_error(reconstructed.numpy(), x.numpy()),
        mean_x_error=mean_model_error(x.numpy()),
        y_error=summed_absolute_error(predicted, y),
        mean_y_error=mean_model_error(y),
        deviations=tuple(deviations),
        leakage=_probed(noisy_train, noisy, y_train, y, first, seed),
        leakage_of_means=_probed(code_train["mean"], mean, y_train, y, first, seed),
        ceiling=explained(judged, y),
        judge_error=summed_absolute_error(judged, y),
        far=far,
        signal=signal.double().numpy(),
        noise=_noise(code),
        unit=_unit(world),
        notes=(
            *_unequal(world, y_train),
            *own_notes(subject),
            *parts.notes,
            *(() if truth is not None else (NO_TRUTH,)),
            *((DISTANT.format(share=far),) if truth is None and far >= MANY_FAR else ()),
            *(() if subject.run is None else adversary_notes(subject.run)),
        ),
    )


def own_notes(subject: Subject) -> tuple[str, ...]:
    """The assumptions about a subject, without the one about all data, because the examples here are held-out ones."""
    own_data = OWN_DATA.format(run=subject.run.id) if subject.run is not None else ""
    return tuple(note for note in subject.notes if note != own_data)


NO_TRUTH = (
    "The true property of generated observations cannot be computed in this world; the judge's prediction counts."
)
DISTANT = (
    "{share:.0%} of the generated observations are far from the training data: the judge was not tested there, so it "
    "can be wrong about how far the property moves."
)
FITTED = "The model has no function from Z0 to the property, so a judge was fitted to Z0 of training examples."


def audited_numbers(
    subject: Subject, world: World, split: Split | None, judged_on: int, count: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of training examples for the judge, and of held-out ones."""
    parts = split_parts(subject, world, split)
    if len(parts.held_out) < 8 or len(parts.train) < 8:
        raise ValueError(
            "a judge and its error need at least 8 examples to train on and 8 held-out ones, but the split has "
            f"{len(parts.train)} and {len(parts.held_out)}: hold out more, or give more data"
        )
    generator = np.random.default_rng(seed)
    train = generator.permutation(parts.train)[:judged_on]
    return np.sort(train), np.sort(generator.permutation(parts.held_out)[:count])


def split_parts(subject: Subject, world: World, split: Split | None) -> Parts:
    """The parts of a split: a given one, that of a run, or the usual one of the world."""
    if split is None and subject.run is not None:
        from polariscope.training.run import config_of  # here, as training takes a second to import

        split = config_of(subject.run).split
    return (split or usual_split(world)).parts(world)


def split_code(
    subject: Subject,
    z: Tensor,
    y: NDArray[Any],
    latents: int | None,
    tells: Callable[[Tensor], Tensor] | None,
    seed: int,
) -> SplitCode:
    module: Any = subject.module
    if latents is None and hasattr(module, "property_of") and hasattr(module, "property_latents"):
        if module.property_latents >= module.latents:
            raise ValueError(f"all latents of {subject.name} are in Z0, so there is no Z1 to resample")
        return SplitCode(module.property_latents, module.property_of)
    if latents is None or not 0 < latents < z.shape[1]:
        raise ValueError(
            f"give the number of first latents of {subject.name} that encode the property (property_latents): 1 to "
            f"{z.shape[1] - 1}; got {latents}"
        )
    if tells is not None:
        return SplitCode(latents, tells)
    judge = fit_judge(z[:, :latents].numpy(), y, seed)
    return SplitCode(latents, lambda z0: torch.from_numpy(judge(z0.numpy())), (FITTED,))


def _own_units(world: World) -> Callable[[Any], Floats]:
    """Properties from the units of the targets to their own."""
    there = inside(world, OwnUnits)

    def own(values: Any) -> Floats:
        numbers = np.asarray(values.detach().double().numpy() if isinstance(values, Tensor) else values, np.float64)
        return numbers if there is None else there[0].original_target(numbers)

    return own


def _unit(world: World) -> str:
    """The unit in the names of the targets, in brackets; none if they differ."""
    units = {target.name.rpartition("(")[2][:-1] if target.name.endswith(")") else "" for target in targets_of(world)}
    return units.pop() if len(units) == 1 else ""


def _unequal(world: World, y: Floats) -> list[str]:
    """A note if one number of the property is spread much wider than another, so that it decides every sum."""
    targets, spread = targets_of(world), y.std(axis=0)
    several = len(targets) > 1 and len(property_scale(world).names) == len(targets) == len(spread)
    if not several or not spread.min() > 0 or spread.max() <= UNEQUAL * spread.min():
        return []
    names = targets[int(spread.argmin())].name, targets[int(spread.argmax())].name
    return [
        f"Errors are summed in the properties' own units, and {names[1]} is spread {spread.max() / spread.min():.3g} "
        f"times as widely as {names[0]}: the results are mainly about {names[1]}."
    ]


def encoded(subject: Subject, x: Tensor) -> dict[str, Tensor]:
    parts = [subject.encode(part) for part in x.split(AT_ONCE)]
    return {name: torch.cat([part[name].float().cpu() for part in parts]) for name in parts[0]}


def decoded(subject: Subject, z: Tensor, shape: tuple[int, ...]) -> Tensor:
    return torch.cat([subject.generate(part, shape).cpu() for part in z.split(AT_ONCE)])


def picture_limits(observed: NDArray[Any]) -> Limits:
    """The numbers that pictures of decoded images show as black and white: the range of the data."""
    return (0.0, 1.0) if observed.dtype == np.uint8 or observed.ndim != 4 else limits_of([observed])


def _noise(code: Mapping[str, Tensor]) -> Floats:
    """The standard deviation of the noise of each latent; 0 for a code without noise."""
    var = code.get("var")
    return np.zeros(code["mean"].shape[1]) if var is None else var.double().mean(0).sqrt().numpy()


def _probed(z_train: Tensor, z_test: Tensor, y_train: Floats, y: Floats, first: int, seed: int) -> float:
    """R² of the property from Z1 on held-out examples."""
    return explained(fit_judge(z_train[:, first:].numpy(), y_train, seed)(z_test[:, first:].numpy()), y)
