"""All disentanglement scores against the straightforward way to compute them: one probe, pair or vote at a time.

The straightforward way follows the published protocol with scikit-learn and SciPy: gradient boosting for every factor,
a support vector machine for every latent and factor, mutual information pair by pair, interventions vote by vote. Both
sides get the same codes, sample sizes and numbers of votes. Their scores stand beside each other, and there is a ratio
of times only where these agree. Times are those of the processor, which other work on the machine changes least.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.optimize import linear_sum_assignment
from scipy.stats import entropy, spearmanr
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import mutual_info_score, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from polariscope.measures.disentanglement import PROTOCOLS, disentanglement, perfect_code, random_rotation
from polariscope.measures.score import TEST, TRAIN, split

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
SIZES = (3, 6, 40, 32, 32)
"""dSprites."""
CLOSE = 0.01
"""Values that differ by less agree."""


def agree(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    return bool(np.abs(np.subtract(ours, theirs)).max() < CLOSE)


def learned_code(samples: int, seed: int) -> tuple[Array, Labels]:
    """Codes as a VAE leaves them: five latents that follow a factor each and lean on the others, five of noise."""
    rng = np.random.default_rng(seed)
    factors = rng.integers(0, SIZES, size=(samples, len(SIZES)))
    lean = np.eye(5) + 0.5 * random_rotation(5, rng)
    used = perfect_code(factors) @ lean + 0.1 * rng.normal(size=(samples, 5))
    return np.hstack([used, 0.1 * rng.normal(size=(samples, 5))]), factors


def pairwise_information(codes: Array, factors: Labels) -> Array:
    out = np.empty((codes.shape[1], factors.shape[1]))
    for j, z in enumerate(codes.T):
        binned = np.digitize(z, np.histogram(z, 20)[1][:-1])
        for k, v in enumerate(factors.T):
            out[j, k] = mutual_info_score(v, binned)
    return out


def best_minus_second(table: Array) -> Array:
    ordered = np.sort(table, axis=0)
    return ordered[-1] - ordered[-2]


def plain_mig(codes: Array, factors: Labels) -> dict[str, float]:
    entropies = [mutual_info_score(v, v) for v in factors.T]
    return {"mig": float(np.mean(best_minus_second(pairwise_information(codes, factors)) / entropies))}


def plain_modularity(codes: Array, factors: Labels) -> dict[str, float]:
    squares = pairwise_information(codes, factors) ** 2
    best = squares.max(axis=1)
    return {"modularity": float(np.mean(1 - (squares.sum(axis=1) - best) / (best * (factors.shape[1] - 1))))}


def scikit_probe(codes: Array, factors: Labels, seed: int, train: int = TRAIN, test: int = TEST) -> tuple[Array, Array]:
    """Importances (latents, factors) and held-out accuracies (factors,) of the published probe."""
    rows, held = split(len(codes), seed, train, test)
    importance, accuracy = [], []
    for v in factors.T:
        model = GradientBoostingClassifier(random_state=seed).fit(codes[rows], v[rows])
        importance.append(model.feature_importances_)
        accuracy.append(model.score(codes[held], v[held]))
    return np.array(importance).T, np.array(accuracy)


def plain_dci(importance: Array, accuracy: Array) -> dict[str, float]:
    per_latent = 1 - entropy(importance.T + 1e-11, base=importance.shape[1])
    per_factor = 1 - entropy(importance + 1e-11, base=importance.shape[0])
    return {
        "dci": float(per_latent @ importance.sum(axis=1) / importance.sum()),
        "completeness": float(per_factor @ importance.sum(axis=0) / importance.sum()),
        "informativeness": float(np.mean(accuracy)),
    }


def plain_sap(codes: Array, factors: Labels, seed: int) -> dict[str, float]:
    rows, held = split(len(codes), seed)
    table = np.empty((codes.shape[1], factors.shape[1]))
    for j in range(codes.shape[1]):
        for k in range(factors.shape[1]):
            machine = LinearSVC(C=0.01, class_weight="balanced").fit(codes[rows][:, [j]], factors[rows, k])
            table[j, k] = machine.score(codes[held][:, [j]], factors[held, k])
    return {"sap": float(best_minus_second(table).mean())}


def plain_explicitness(codes: Array, factors: Labels, seed: int) -> dict[str, float]:
    rows, held = split(len(codes), seed)
    areas = []
    for v in factors.T:
        model = LogisticRegression(max_iter=1000).fit(codes[rows], v[rows])
        odds = model.predict_proba(codes[held])
        areas.append(np.mean([roc_auc_score(v[held] == c, odds[:, i]) for i, c in enumerate(model.classes_)]))
    return {"explicitness": float(np.mean(areas))}


def plain_mcc(codes: Array, factors: Labels) -> dict[str, float]:
    table = np.abs([[spearmanr(z, v).statistic for v in factors.T] for z in codes.T])
    return {"mcc": float(table[linear_sum_assignment(table, maximize=True)].mean())}


def plain_neighbours(codes: Array, factors: Labels, seed: int) -> dict[str, float]:
    rows, held = split(len(codes), seed, int(0.8 * len(codes)), len(codes) - int(0.8 * len(codes)))
    gaps = []
    for v in factors.T:
        constant = np.mean(v[held] == np.bincount(v[rows]).argmax())
        gain = [
            KNeighborsClassifier().fit(codes[rows][:, [j]], v[rows]).score(codes[held][:, [j]], v[held]) - constant
            for j in range(codes.shape[1])
        ]
        gaps.append(best_minus_second(np.maximum(gain, 0)[:, None])[0] / (1 - constant))
    return {"neighbour-score": float(np.mean(gaps))}


def plain_interventions(codes: Array, factors: Labels, votes: tuple[int, int], seed: int) -> dict[str, float]:
    """Both scores vote by vote, examples with a shared value looked up in the sample."""
    rng = np.random.default_rng(seed)
    members = [[np.flatnonzero(v == value) for value in range(size)] for v, size in zip(factors.T, SIZES, strict=True)]
    spread = codes.var(axis=0, ddof=1)
    active = np.flatnonzero(np.sqrt(spread) >= 0.05)
    features, least, held = [], [], []
    for _ in range(sum(votes)):
        k = int(rng.integers(len(SIZES)))
        first = rng.integers(len(codes), size=64)
        second = np.array([rng.choice(members[k][factors[i, k]]) for i in first])
        features.append(np.abs(codes[first] - codes[second]).mean(axis=0))
        group = rng.choice(members[k][factors[first[0], k]], 64)
        least.append(active[np.argmin(codes[group][:, active].var(axis=0, ddof=1) / spread[active])])
        held.append(k)
    x, chosen, truth = np.array(features), np.array(least), np.array(held)
    train = votes[0]
    model = LogisticRegression(max_iter=10_000).fit(x[:train], truth[:train])
    table = np.zeros((codes.shape[1], len(SIZES)))
    np.add.at(table, (chosen[:train], truth[:train]), 1)
    return {
        "beta-vae-score": float(model.score(x[train:], truth[train:])),
        "factor-vae-score": float(np.mean(table.argmax(axis=1)[chosen[train:]] == truth[train:])),
    }


def main(samples: int = 15_000, votes: tuple[int, int] = (10_000, 5_000), seed: int = 0) -> None:
    """Print seconds and values of both ways score by score. Published sizes are the default and take minutes."""
    codes, factors = learned_code(samples, seed)
    plain: list[tuple[tuple[str, ...], Callable[[], dict[str, float]]]] = [
        (("beta-vae-score", "factor-vae-score"), lambda: plain_interventions(codes, factors, votes, seed)),
        (("mig",), lambda: plain_mig(codes, factors)),
        (("mcc",), lambda: plain_mcc(codes, factors)),
        (("dci", "completeness", "informativeness"), lambda: plain_dci(*scikit_probe(codes, factors, seed))),
        (("modularity",), lambda: plain_modularity(codes, factors)),
        (("explicitness",), lambda: plain_explicitness(codes, factors, seed)),
        (("sap",), lambda: plain_sap(codes, factors, seed)),
        (("neighbour-score",), lambda: plain_neighbours(codes, factors, seed)),
    ]
    protocol = replace(PROTOCOLS["fast"], votes=votes, correlation_samples=samples)
    columns = ("score", "CPU s, plain", "CPU s, ours", "times faster", "value, plain", "value, ours", "difference")
    sizes = f"{samples:,} codes of {codes.shape[1]} latents, dSprites factors, {sum(votes):,} votes"
    table = Table(*columns, title=sizes)
    bare: dict[str, Any] = {"repeats": 0, "rotations": 0, "of_factors": False}
    disentanglement(codes[:300], factors[:300], **bare)  # imports and caches
    totals = {"all but DCI": np.zeros(2), "DCI": np.zeros(2)}
    console = Console()
    for names, way in track(plain, "scores", console=console, transient=True):
        start = time.process_time()
        theirs = way()
        middle = time.process_time()
        ours = disentanglement(codes, factors, protocol, scores=names, seed=seed, **bare)
        taken = np.array([middle - start, time.process_time() - middle])
        like = agree([ours[name].value for name in names], [theirs[name] for name in names])
        if like:
            totals["DCI" if "dci" in names else "all but DCI"] += taken
        for i, name in enumerate(names):
            seconds = _seconds(taken, like) if i == 0 else ("", "", "")
            apart = ours[name].value - theirs[name]
            table.add_row(ours[name].title, *seconds, f"{theirs[name]:.3f}", f"{ours[name].value:.3f}", f"{apart:+.4f}")
    table.add_section()
    for what, taken in totals.items():
        table.add_row(f"{what}, where values agree", *_seconds(taken, taken.all()), "", "", "")
    console.print(table)


def _seconds(taken: Array, like: bool) -> tuple[str, str, str]:
    return f"{taken[0]:.2f}", f"{taken[1]:.3f}", f"{taken[0] / taken[1]:.0f}" if like else "values differ"


if __name__ == "__main__":
    main()
