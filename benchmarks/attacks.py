"""Attacks beside those of foolbox, the Adversarial Robustness Toolbox and AutoAttack: time, and nearest adversarials.

One network is trained on digits, those of a folder of MNIST if the variable POLARISCOPE_MNIST names one. All attacks
see the same images. The second and third peer are installed into a folder of their own, without their dependencies,
which they share with us.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from polariscope.nets.model import models
from polariscope.objectives.objective import objectives
from polariscope.robustness.attacks import Norm, accuracy_at, least
from polariscope.robustness.attacks.pgd import PGD
from polariscope.robustness.suites import attack_suite
from polariscope.training import RunConfig, TrainingConfig
from polariscope.training.loop import build_state, fit
from polariscope.training.run import build_model
from polariscope.worlds.given import as_world
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.splits import SplitPart
from polariscope.worlds.targets import Task, target_values
from polariscope.worlds.world import to_tensor

PEERS = Path(tempfile.gettempdir()) / "polariscope-attack-peers"
PACKAGES = ("adversarial-robustness-toolbox==1.20.1", "pyautoattack==0.2.0", "tqdm", "six")
ROUNDS = 5
EPSILON: dict[str, float] = {"linf": 0.1, "l2": 1.0}
PEER_SCRIPT = """
import json, sys, time, warnings
warnings.filterwarnings("ignore")
import numpy as np, torch
from torch import nn
peers, folder, peer, norm, epsilon = sys.argv[1:]
sys.path.insert(0, peers)
torch.set_num_threads(1)
network = torch.load(f"{folder}/network.pt", weights_only=False).eval()
x, y = np.load(f"{folder}/x.npy"), np.load(f"{folder}/y.npy")
order = {"l2": 2, "linf": np.inf}[norm]
start = time.process_time()
if peer == "art":
    from art.attacks.evasion import AutoProjectedGradientDescent, CarliniL2Method, DeepFool
    from art.estimators.classification import PyTorchClassifier
    model = PyTorchClassifier(network, nn.CrossEntropyLoss(), x.shape[1:], 10, clip_values=(0, 1), device_type="cpu")
    if norm == "l2":
        attacks = [DeepFool(model, batch_size=len(x), verbose=False),
                   CarliniL2Method(model, max_iter=50, binary_search_steps=5, batch_size=len(x), verbose=False)]
    else:
        attacks = [AutoProjectedGradientDescent(model, norm=np.inf, eps=float(epsilon), eps_step=2 * float(epsilon),
                   max_iter=100, nb_random_init=1, batch_size=len(x), verbose=False)]
    made = [attack.generate(x, y) for attack in attacks]
else:
    from pyautoattack import AutoAttack
    attack = AutoAttack(network, norm={"l2": "L2", "linf": "Linf"}[norm], eps=float(epsilon), version="standard",
                        device="cpu")
    made = [attack.run_standard_evaluation(torch.from_numpy(x), torch.from_numpy(y))[0].numpy()]
seconds = time.process_time() - start
best = np.full(len(x), np.inf)
with torch.no_grad():
    for one in made:
        one = np.clip(one.astype(np.float32), 0, 1)
        wrong = network(torch.from_numpy(one)).argmax(1).numpy() != y
        distance = np.linalg.norm((one - x).reshape(len(x), -1).astype(np.float64), ord=order, axis=1)
        best = np.minimum(best, np.where(wrong, distance, np.inf))
    best[network(torch.from_numpy(x)).argmax(1).numpy() != y] = 0
np.save(f"{folder}/{peer}-{norm}.npy", best)
print(json.dumps(seconds))
"""


def trained(steps: int = 400, seed: int = 100) -> tuple[nn.Module, Any]:
    """A network for digits, and digits that it was not trained on."""
    folder = os.environ.get("POLARISCOPE_MNIST")
    world = as_world(folder) if folder else Task(Digits(count=4000), "")
    training = TrainingConfig(steps=steps, batch_size=100, evaluate_every=0, seed=seed)
    config = RunConfig(world, objectives.build({"name": "classify"}), models.build({"name": "lenet"}), training)
    network = build_model(config)
    fit(build_state(network, config.objective, training), config.objective, world, training)
    return network.eval(), SplitPart(world, config.split)


def correct(network: nn.Module, world: Any, count: int) -> tuple[Tensor, Tensor]:
    """Images that the network classifies right."""
    numbers = np.arange(min(len(world), 2 * count))
    x = to_tensor(world.observe(numbers))
    y = torch.from_numpy(target_values(world, numbers)[:, 0].astype(np.int64))
    with torch.no_grad():
        right = network(x).argmax(1) == y
    return x[right][:count].contiguous(), y[right][:count]


def cpu_seconds(work: Callable[[], Any]) -> float:
    """Time that this process computed, in one thread: other processes do not count."""
    start = time.process_time()
    work()
    return time.process_time() - start


def speed(console: Console, network: nn.Module, x: Tensor, y: Tensor) -> None:
    """PGD of 40 steps on all images at a small and a large epsilon, in turns with foolbox."""
    import foolbox

    model = foolbox.PyTorchModel(network, bounds=(0, 1), device="cpu")
    table = Table("norm", "epsilon", "ours, s", "foolbox, s", "times as fast", "accuracy, ours", "foolbox")
    table.title = f"PGD, 40 steps, {len(x)} images, CPU seconds of one thread, median of {ROUNDS} rounds"
    for norm, epsilons in (("linf", (0.01, 0.1)), ("l2", (1.0,))):
        for epsilon in epsilons:
            kind = foolbox.attacks.LinfPGD if norm == "linf" else foolbox.attacks.L2PGD
            theirs = kind(steps=40, rel_stepsize=0.1)
            ours = PGD(40, 0.1)
            results: dict[str, Any] = {}

            def run_ours(norm: Any = norm, epsilon: float = epsilon, ours: Any = ours, out: Any = results) -> None:
                out["ours"] = ours(network, x, y, norm=norm, epsilons=[epsilon])

            def run_theirs(epsilon: float = epsilon, theirs: Any = theirs, out: Any = results) -> None:
                out["theirs"] = theirs(model, x, y, epsilons=[epsilon])

            run_ours(), run_theirs()
            pairs = [(cpu_seconds(run_ours), cpu_seconds(run_theirs)) for _ in range(ROUNDS)]
            first, second = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratios = [theirs / ours for ours, theirs in pairs]
            accuracy = 1 - float(results["ours"].success[:, 0].mean())
            robust = 1 - float(results["theirs"][2].float().mean())
            times = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            numbers = (f"{first:.2f}", f"{second:.2f}", times, f"{accuracy:.3f}", f"{robust:.3f}")
            table.add_row(norm, f"{epsilon:g}", *numbers)
    console.print(table)


def foolbox_minimum(network: nn.Module, x: Tensor, y: Tensor, norm: Norm) -> np.ndarray:
    """The nearest adversarials of foolbox's attacks in a norm."""
    import foolbox

    model = foolbox.PyTorchModel(network, bounds=(0, 1), device="cpu")
    several = foolbox.attacks
    chosen: dict[str, list[Any]] = {
        "l2": [several.DDNAttack(steps=200), several.L2DeepFoolAttack(), several.L2CarliniWagnerAttack(6, 200)],
        "linf": [several.LinfDeepFoolAttack(), several.LinfFastGradientAttack(), several.LinfPGD(steps=40)],
    }
    grid = [None] if norm == "l2" else list(np.geomspace(0.01, 0.5, 30))
    best = np.full(len(x), np.inf)
    for attack in chosen[norm]:
        _, clipped, reached = attack(model, x, y, epsilons=grid)
        for images, success in zip(clipped, reached, strict=True):
            change = (images - x).flatten(1).double()
            distance = change.norm(p=2 if norm == "l2" else torch.inf, dim=1).numpy()
            best = np.minimum(best, np.where(success.numpy(), distance, np.inf))
    return best


def installed(console: Console) -> bool:
    """Whether the peers in a folder of their own are there; they are installed if they are not."""
    if (PEERS / "ready").exists():
        return True
    console.print(f"Installing {', '.join(PACKAGES)} into {PEERS} ...")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(PEERS), *PACKAGES]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        console.print(f"They cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
        return False
    (PEERS / "ready").touch()
    return True


def peer_minimum(folder: Path, peer: str, norm: str, epsilon: float) -> tuple[np.ndarray, float]:
    """Distances of the adversarials of a peer, and its seconds."""
    command = [sys.executable, "-c", PEER_SCRIPT, str(PEERS), str(folder), peer, norm, str(epsilon)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return np.load(folder / f"{peer}-{norm}.npy", allow_pickle=False), json.loads(done.stdout.splitlines()[-1])


def nearest(console: Console, network: nn.Module, x: Tensor, y: Tensor) -> None:
    """The nearest adversarials of our suite beside those of each peer, image by image."""
    table = Table("norm", "peer", "ours, s", "peer, s", "median, ours", "peer", "images where the peer is nearer",
                  "accuracy at epsilon, ours", "peer")  # fmt: skip
    table.title = f"Nearest adversarials of {len(x)} images, CPU seconds; a peer is nearer by more than 1 %"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.save(network, folder / "network.pt")
        np.save(folder / "x.npy", x.numpy())
        np.save(folder / "y.npy", y.numpy())
        there = installed(console)
        norms: tuple[Norm, ...] = ("l2", "linf")
        for norm in norms:
            start = time.process_time()
            ours = least([attack(network, x, y, norm=norm) for attack in attack_suite(norm, "standard")]).distances
            own = time.process_time() - start
            start = time.process_time()
            found = {"foolbox": (foolbox_minimum(network, x, y, norm), time.process_time() - start)}
            for peer in ("art", "autoattack") if there else ():
                found[peer] = peer_minimum(folder, peer, norm, EPSILON[norm])
            for peer, (theirs, spent) in found.items():
                fixed = peer == "autoattack" or (peer == "art" and norm == "linf")  # within epsilon, not the nearest
                nearer = int((theirs < 0.99 * ours).sum())
                accuracy = [f"{float(accuracy_at(one, [EPSILON[norm]])[0]):.2f}" for one in (ours, theirs)]
                table.add_row(
                    norm, peer, f"{own:.0f}", f"{spent:.0f}", f"{np.median(ours):.4f}",
                    "-" if fixed else f"{np.median(theirs):.4f}", str(nearer), *accuracy,
                )  # fmt: skip
    console.print(table)


def main(images: int = 1000, attacked: int = 50, seed: int = 0) -> None:
    """Print both tables."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    warnings.filterwarnings("ignore", module="foolbox")
    console = Console(width=140)
    network, world = trained()
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    x, y = correct(network, world, images)
    speed(console, network, x, y)
    nearest(console, network, x[:attacked], y[:attacked])


if __name__ == "__main__":
    main()
