"""Which latents become active at which compression: the signals of a code during training, beside theory.

λ grows during the training of a bottleneck, so its snapshots are codes at several λ. In theory, a component of variance
v with error weight w becomes active in a linear bottleneck at λ = 1/(2owv) (Spec 000, section 4.5): the principal
components of the observations, and those of the predictable part of the property.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from polariscope.findings import Chart, Column, Part, Records
from polariscope.lab.store import Run
from polariscope.measures.judge import fit_judge
from polariscope.report.invariance_figures import awakening_curves
from polariscope.theory.sparse_bottleneck import activation_value
from polariscope.training.run import config_of, load_model
from polariscope.worlds.targets import target_values
from polariscope.worlds.world import to_tensor

Floats = NDArray[np.float64]
SHARE = 0.01
"""Components below this share of the largest are noise and are skipped."""


@dataclass(frozen=True, eq=False)
class Awakening:
    """Signals over noise ``(snapshots, latents)`` at each λ, and the λ at which components become active in theory."""

    steps: NDArray[np.int64]
    lams: Floats
    signals: Floats
    property_latents: int
    predicted: dict[str, tuple[float, ...]]
    last_offset: float = 1.0
    """o of the last latent."""

    @property
    def woken(self) -> list[float | None]:
        """The λ of the first snapshot at which each latent's signal exceeds its noise, and does so from then on."""
        above = self.signals > 1
        stays = np.logical_and.accumulate(above[::-1], axis=0)[::-1]
        return [float(self.lams[column.argmax()]) if column.any() else None for column in stays.T]

    def parts(self) -> list[Part]:
        rows = [
            {"latent": number, "part": "Z0" if number < self.property_latents else "Z1", "woken": value}
            for number, value in enumerate(self.woken)
            if value is not None
        ]
        theory = "; ".join(
            f"{name}: {', '.join(f'{value:.3g}' for value in values)}" for name, values in self.predicted.items()
        )
        earlier = ""
        if self.last_offset > 1:
            earlier = f" The last latent becomes active {self.last_offset:g} times earlier, by its offset o."
        return [
            Chart(
                name="awakening",
                title="Signals while the compression is relaxed",
                hint="Dotted: the λ at which components of the data become active in a linear bottleneck." + earlier,
                draw=lambda: awakening_curves(self.lams, self.signals, self.property_latents, self.predicted),
            ),
            Records(
                name="woken",
                title="Selected from this λ on",
                hint=f"λ at which the components of a linear bottleneck become active: {theory}.",
                rows=rows,
                columns=(Column("latent", "No.", "z%d"), Column("part", "Part"), Column("woken", "λ", "%.3g")),
            ),
        ]


@torch.no_grad()
def awakening(run: Run, count: int = 1000, seed: int = 0) -> Awakening | None:
    """The signals of a run's snapshots; None for a run without snapshots, or without a λ."""
    config: Any = config_of(run)
    snapshots = sorted(step for step in run.snapshots() if step > 0)
    if len(snapshots) < 2 or not hasattr(config.objective, "lam"):
        return None
    world, objective = config.world, config.objective
    parts = config.split.parts(world)
    generator = np.random.default_rng(seed)
    held = np.sort(generator.permutation(parts.held_out)[:count])
    x = to_tensor(world.observe(held))
    signals, model = [], None
    for step in snapshots:
        model = load_model(run, step).eval()
        posterior = model.encode(x)
        signals.append((posterior.mean.std(0) / posterior.var.mean(0).sqrt()).double().numpy())
    assert model is not None
    train = np.sort(generator.permutation(parts.train)[:count])
    known = to_tensor(world.observe(train)).flatten(1).double().numpy()
    y = np.asarray(target_values(world, train), dtype=np.float64)
    judge = fit_judge(known, y, seed) if known.shape[1] <= 512 else None
    predictable = judge(x.flatten(1).double().numpy()) if judge is not None else y
    variance = float(getattr(getattr(model, "config", None), "variance", 1.0))
    weight = getattr(objective, "property_weight", 1.0)
    predicted = {
        "the property": _wakes(predictable, weight),
        "an observation's component": _wakes(known, 0.5 / variance),
    }
    lams = np.array([objective.lam.at(step) for step in snapshots])
    first = getattr(model, "property_latents", 0)
    offset = float(getattr(objective, "last_offset", 1.0))
    return Awakening(np.array(snapshots), lams, np.stack(signals), first, predicted, offset)


def _wakes(rows: Floats, weight: float) -> tuple[float, ...]:
    """1/(2wv) for each principal component of the rows, except the smallest."""
    if not weight > 0:
        return ()
    spectrum = np.sort(np.linalg.eigvalsh(np.cov(rows.T).reshape(rows.shape[1], -1)))[::-1]
    kept = spectrum[spectrum > SHARE * spectrum[0]][:8]
    return tuple(float(value) for value in activation_value(weight, kept))
