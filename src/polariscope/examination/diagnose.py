"""Diagnose a classifier: did training turn its tangent kernel, or would a fixed kernel have done the same?

A network is *lazy* if its tangent kernel stays what it was at the start; it is then a kernel machine. It *learns
features* if the kernel turns towards the labels. :func:`diagnose` compares the kernels before and after training on
examples the network has not seen, for any ``nn.Module`` with outputs ``(n, C)`` or ``(n,)``: the "diagnostic of
compression" of Paccolat et al. 2021, section 6 (Spec 004, sections 5, 7 and 10). This is the call behind
``polariscope kernel``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

from polariscope.atomic import atomic
from polariscope.findings import Chart, Column, Findings, Records, Text
from polariscope.kernels.empirical import Kind, tangent_kernel
from polariscope.kernels.machine import rank_of_spectrum, solve
from polariscope.kernels.principal import (
    KernelChange,
    KernelPCA,
    centre,
    kernel_change,
    kernel_distances,
    kernel_pca,
    separability,
    target_alignment,
    targets,
)
from polariscope.measures.intrinsic_dimension import mle_from_distances
from polariscope.measures.mutual_information import label_information, permutation_floor
from polariscope.nets.scaled import Scaled, loss_scale
from polariscope.objectives.predict import Classify
from polariscope.report import kernel_figures
from polariscope.subjects.subject import misfit
from polariscope.tabular import Tabular
from polariscope.training.config import TrainingConfig
from polariscope.training.loop import Listeners
from polariscope.training.run import train_module
from polariscope.user_code import user_code
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.targets import Examples

Verdict = Literal["lazy", "in between", "learns features"]
Form = Literal["trace", "pseudo"]

STILL = 0.02
"""1 − CKA of the kernels before and after up to which a network counts as lazy: it turned by less than 12 degrees."""
TURNED = 0.1
"""1 − CKA from which the kernel has turned enough for a network to have learned features."""
GAINED = 1.2
"""Factor by which the kernel's alignment with the labels must have risen for them to be features of the task."""
RIDGES = tuple(10.0**power for power in range(-5, 3))
"""Ridges to choose from; smaller ones would fit the rounding of kernels in single precision."""
TITLES = {
    "projections": "Labels in the components",
    "information": "Information in the components",
    "scatter": "The plane of two components",
    "spectrum": "Spectrum",
}
NEIGHBOURS = 5
"""Neighbours of the mutual information, as published."""


@dataclass(frozen=True, eq=False)
class Labelled:
    """Inputs ``(n, ...)`` as the network takes them, and their classes 0, 1, ... ``(n,)``."""

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if self.y.ndim != 1 or len(self.x) != len(self.y):
            raise ValueError(f"{len(self.x)} inputs need as many labels, in one column; got {tuple(self.y.shape)}")
        if self.y.is_floating_point() or self.y.is_complex():
            raise TypeError(f"labels are whole numbers, one class each; got {self.y.dtype}")
        if len(self.y) and int(self.y.min()) < 0:
            raise ValueError(f"classes are counted from 0; the least label is {int(self.y.min())}")

    def __len__(self) -> int:
        return len(self.y)

    @property
    def classes(self) -> int:
        return int(self.y.max()) + 1


@dataclass(frozen=True, eq=False)
class KernelView:
    """What one kernel sees of the data; components are those of the centred kernel."""

    name: str
    error: float
    """Share of held-out examples that ridge regression with this kernel gets wrong. Its loss is the squared one: a
    network trained on the cross-entropy can be ahead of it even where it is lazy."""
    ridge: float
    """Ridge of that regression, relative to the kernel's mean diagonal."""
    alignment: float
    """Alignment of the centred kernel with the labels."""
    projections: list[float]
    """ω², the share of the labels in each leading component."""
    captured: float
    """Their sum: the share of the labels in all leading components shown."""
    information: list[float]
    """Bits that each leading component tells about the label."""
    separability: float
    """How well neighbours tell the class in the plane of the first two components."""
    effective_rank: float
    """That of the centred kernel: how many directions it spreads over."""
    rkhs_norm: float
    """Squared norm of the labels, with a ridge of 1e-2 of the trace: smaller is easier to learn."""
    dimension: float | None
    """Intrinsic dimension of the examples as the kernel sees them, from two neighbours."""
    shares: list[float]
    """Leading eigenvalues as shares of the trace."""
    scatter: NDArray[np.float64] = field(repr=False)
    """The first two components ``(n, 2)``."""


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(Tabular):
    """The findings about one network."""

    verdict: Verdict
    reasons: list[str]
    change: KernelChange
    """From the initial to the final kernel."""
    views: list[KernelView]
    """initial, final and, where the network ends in a dense layer, last layer initial and final."""
    network_error: float
    """Share of held-out examples that the network itself gets wrong."""
    chance: float
    """Error of always saying the most frequent class."""
    floor: float
    """What the estimate of information gives for shuffled labels, in bits."""
    form: Form
    labels: NDArray[np.int64] = field(repr=False)
    """Classes of the examples in the scatter plots."""
    fitted: int = 0
    tested: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def headline(self) -> str:
        return f"{self.verdict}{self._doubt}. {self.reasons[0]}"

    @property
    def learned(self) -> bool:
        """Whether the network errs less than the most frequent class does, by more than two standard errors."""
        noise = math.sqrt(self.chance * (1 - self.chance) / max(self.tested, 1))
        return self.network_error < self.chance - 2 * noise

    @property
    def _doubt(self) -> str:
        """A network that learned nothing says nothing about how it learns."""
        if self.learned:
            return ""
        return (
            f", but the network has not learned its task: it errs in {self.network_error:.1%}, and always answering "
            f"the most frequent class in {self.chance:.1%}"
        )

    def records(self) -> list[dict[str, Any]]:
        """A row for each kernel, of its single numbers."""
        return [{k: v for k, v in vars(view).items() if v is None or isinstance(v, str | float)} for view in self.views]

    def view(self, name: str) -> KernelView:
        return next(view for view in self.views if view.name == name)

    def findings(
        self, title: str = "network", settings: Mapping[str, Any] | None = None, classes: Sequence[str] = ()
    ) -> Findings:
        """The document; ``classes`` are the names of the labels."""
        labels = np.asarray(classes)[self.labels] if classes else self.labels
        rows = [{k: v for k, v in vars(view).items() if k != "scatter"} for view in self.views]
        for row in rows:
            row |= {"labels_in_first": row["projections"][0], "bits_of_first": row["information"][0]}
        shown = len(self.views[0].projections)
        hint = (
            f"Kernels over {self.fitted} examples. The network gets {self.network_error:.1%} of {self.tested} held-out "
            f"examples wrong; always answering the most frequent class would get {self.chance:.1%} wrong. With several "
            f"outputs the kernel is {'their mean' if self.form == 'trace' else 'that of their sum'}."
        )
        return Findings(
            title,
            f"Verdict: {self.verdict}{self._doubt}.",
            [
                Text(name="reasons", title="Why", lines=self.reasons),
                Records(name="kernels", title="Kernels", hint=hint, rows=rows, columns=_columns(shown)),
                *self._charts(labels),
            ],
            self.notes,
            {
                "verdict": self.verdict,
                "change": asdict(self.change),
                "network_error": self.network_error,
                "chance": self.chance,
                "information_floor": self.floor,
                "kernel_form": self.form,
                "examples": {"kernel": self.fitted, "held_out": self.tested},
                "classes": list(classes) or int(self.labels.max()) + 1,
            },
            {"labels": self.labels, **{f"scatter/{view.name}": view.scatter for view in self.views}},
            settings=settings or {},
        )

    def _charts(self, labels: NDArray[Any]) -> list[Chart]:
        def column(key: str) -> dict[str, Any]:
            return {view.name: getattr(view, key) for view in self.views}

        drawn: dict[str, tuple[str, Callable[[], Figure]]] = {
            "projections": (
                "How much of the labels lies in each principal component of each kernel. Learning features moves "
                "them to the front.",
                lambda: kernel_figures.projection_bars(column("projections"), 1 / self.fitted),
            ),
            "information": (
                "What each component tells about the label by itself, in any way, not only linearly.",
                lambda: kernel_figures.information_curves(column("information"), self.floor),
            ),
            "scatter": (
                "The examples in the plane of the first two components. Noise before training and separate clouds "
                "after it are the mark of compression.",
                lambda: kernel_figures.component_scatter(column("scatter"), labels, column("separability")),
            ),
            "spectrum": (
                "Eigenvalues of the centred kernels. A network that compresses keeps few directions.",
                lambda: kernel_figures.spectrum_curves(column("shares")),
            ),
        }
        return [Chart(name=name, title=TITLES[name], hint=hint, draw=draw) for name, (hint, draw) in drawn.items()]


def _columns(shown: int) -> list[Column]:
    return [
        Column("name", "kernel"),
        Column("error", "held-out error", "percent", "error"),
        Column("alignment", "alignment with labels", "%.3f", "align"),
        Column("labels_in_first", "labels in component 1 (ω²)", "%.3f", "ω² 1"),
        Column("captured", f"labels in components 1 to {shown}", "%.3f", f"ω² 1-{shown}"),
        Column("bits_of_first", "information of component 1 (bits)", "%.2f", "bits 1"),
        Column("separability", "accuracy of neighbours in 2 components", "percent", "2-PC"),
        Column("effective_rank", "effective rank", "%.1f", "rank"),
        Column("rkhs_norm", "norm of the labels", "%.3g", "norm"),
        Column("dimension", "intrinsic dimension", "%.1f", "dim."),
    ]


def diagnose(
    initial: nn.Module,
    final: nn.Module,
    fit: Labelled,
    test: Labelled,
    *,
    network: Callable[[Tensor], Tensor] | None = None,
    form: Form = "trace",
    modes: int = 10,
    ridge: float | None = None,
    seed: int = 0,
    tell: Callable[[str, float], None] = lambda kernel, share: None,
) -> Diagnosis:
    """Compare a network's tangent kernels at its initial and final parameters.

    ``fit`` are examples the network was *not* trained on: kernels are compared there and kernel machines learn from
    them (reusing the training examples flatters the final kernel). ``test`` are others, to count errors on.
    ``network`` classifies in place of ``final`` where its outputs are not the classifier's, as with an output scale.

    For C > 1 outputs, ``form`` says which single kernel stands for the C × C of them: "trace", the mean over the
    outputs, or "pseudo", the kernel of their sum. The latter is up to C times cheaper, but softmax training leaves the
    sum of the outputs alone, so that the last layer rules it. ``ridge`` is relative to the kernel's mean diagonal;
    without one, each kernel gets the best for itself by leaving one example out, which is fair to all of them.
    ``tell`` hears how much of which kernel is there: kernels of convolutions take minutes.

    >>> from polariscope.nets.classifiers import mlp
    >>> rng = torch.Generator().manual_seed(0)
    >>> x = torch.randn(300, 4, generator=rng)
    >>> net, data = mlp(4, (16,), 2), Labelled(x, (x[:, 0] > 0).long())
    >>> diagnose(net, net, data, data).verdict  # nothing was trained
    'lazy'
    """
    before, after = _evaluated(initial), _evaluated(final)
    classes, outputs = _check(before, after, fit, test, form, modes)
    y = fit.y
    plans: list[tuple[str, nn.Module, Kind]] = [("initial", before, form), ("final", after, form)]
    notes = _notes(fit, test)
    problem = _last_layer_problem(before, after, fit.x)
    if problem is None:
        plans += [("last layer, initial", before, "last_layer"), ("last layer, final", after, "last_layer")]
    else:
        notes.append(problem)
    views, grams, leading = [], [], None
    for name, model, kind in plans:
        gram = tangent_kernel(model, fit.x, None, kind, tell=partial(tell, name)).detach()
        pca = _components(gram, name)
        chosen = leave_one_out_ridge(gram, targets(y)) if ridge is None else ridge
        dual = solve(gram, targets(y), chosen, relative=True).dual
        cross = tangent_kernel(model, test.x, fit.x, kind, tell=partial(tell, f"{name}, held out")).detach()
        error = _error(cross.double() @ dual, test.y)
        views.append(_view(name, gram, pca, y, error, chosen, modes, seed))
        grams.append(gram)
        leading = pca if leading is None else leading
    assert leading is not None
    change = kernel_change(grams[0], grams[1])
    error = _error(_outputs(network or after, test.x, classes, outputs), test.y)
    verdict, reasons = judge(change, views[0], views[1], error)
    return Diagnosis(
        verdict,
        reasons,
        change,
        views,
        network_error=error,
        chance=1 - test.y.bincount().max().item() / len(test),
        floor=permutation_floor(leading.functions[:, 0].numpy(), y.numpy(), NEIGHBOURS, seed=seed),
        form=form,
        labels=y.numpy(),
        fitted=len(fit),
        tested=len(test),
        notes=notes,
    )


def judge(change: KernelChange, initial: KernelView, final: KernelView, error: float) -> tuple[Verdict, list[str]]:
    """The verdict, and the sentences with the figures behind it."""
    turned = 1 - change.cka
    degrees = math.degrees(math.acos(min(1.0, change.cka)))
    gain = final.alignment / max(initial.alignment, 1e-12)
    verdict: Verdict = "in between"
    if turned < STILL:
        verdict = "lazy"
    elif turned >= TURNED and gain >= GAINED:
        verdict = "learns features"
    moved = {"lazy": "hardly turned", "in between": "turned", "learns features": "turned far"}[verdict]
    if turned >= TURNED and verdict == "in between":
        moved = "turned far, but not towards the labels,"
    reasons = [
        f"The tangent kernel {moved} in training: CKA of before and after {change.cka:.3f} ({degrees:.0f} degrees). "
        f"It moved by {change.distance:.3g} times its own size, which counts growth as well as turning.",
        f"Its alignment with the labels went from {initial.alignment:.3f} to {final.alignment:.3f} "
        f"({gain:.2g} times), and the share of the labels in the first {len(final.projections)} components from "
        f"{initial.captured:.2f} to {final.captured:.2f}.",
        f"On held-out examples a kernel machine errs in {initial.error:.1%} with the initial kernel and in "
        f"{final.error:.1%} with the final one; the network itself in {error:.1%}.",
    ]
    return verdict, reasons


# --- training a network for the diagnosis --------------------------------------------------------------------------


def train_classifier(
    network: nn.Module,
    data: Labelled,
    steps: int,
    *,
    alpha: float | None = None,
    learning_rate: float = 0.05,
    batch_size: int = 64,
    seed: int = 0,
    tell: Callable[[int, float], None] | None = None,
) -> nn.Module:
    """Train ``network`` in place by gradient descent with momentum 0.9 on the cross-entropy; returns what classifies.

    With an output scale ``alpha`` the network learns through :class:`Scaled`, which is returned, and the loss is
    divided by α (by α² above 1), so that the outputs move alike at all scales. ``tell`` is called with step and loss.
    """
    if not len(data):
        raise ValueError("there are no examples to train on")
    _width(network, data.x, data.classes)
    predictor = network if alpha is None else Scaled(network, alpha)
    objective = Classify(1.0 if alpha is None else loss_scale(alpha))
    config = TrainingConfig(
        steps, batch_size, learning_rate, "sgd", momentum=0.9, seed=seed, evaluate_every=0, log_every=steps
    )
    world = Examples(data.x.numpy(), data.y[:, None].numpy(), (data.classes,))
    listeners = Listeners(step=lambda step, loss: tell(step, float(loss))) if tell else None
    return train_module(predictor, objective, world, config, RandomSplit(0.0), listeners).cpu()


def save_networks(folder: Path, **networks: nn.Module) -> None:
    """Weights of networks that were trained for a diagnosis, a file each: they can be diagnosed again, or used."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, module in networks.items():
        with atomic(folder / f"{name}.safetensors") as draft:
            save_file({key: value.contiguous() for key, value in module.state_dict().items()}, draft)


# --- parts ---------------------------------------------------------------------------------------------------------


class _Column(nn.Module):
    """A network with outputs ``(n,)`` as one with ``(n, 1)``."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.network(x)
        return outputs[:, None] if outputs.ndim == 1 else outputs


def _evaluated(model: nn.Module) -> nn.Module:
    """A copy in evaluation mode, so that nothing of the caller's changes, with outputs in columns."""
    return _Column(copy.deepcopy(model)).eval()


def leave_one_out_ridge(gram: Tensor, y: Tensor) -> float:
    """The ridge, relative to the mean diagonal and from :data:`RIDGES`, that predicts examples best from all others.

    Leaving one out has a closed form: the residual of example i grows by 1 / (1 − H_ii), H = K (K + λ)⁻¹.
    """
    values, vectors = torch.linalg.eigh(gram.double())
    values, rotated = values.clamp_min(0), vectors.T @ y
    scale = gram.double().diagonal().mean()

    def squares(ridge: float) -> float:
        shrink = values / (values + ridge * scale)
        residual = y - vectors @ (shrink[:, None] * rotated)
        own = vectors.square() @ shrink
        return (residual / (1 - own)[:, None]).square().sum().item()

    return min(RIDGES, key=squares)


def _components(gram: Tensor, name: str) -> KernelPCA:
    if torch.linalg.matrix_norm(centre(gram)) <= 1e-9 * torch.linalg.matrix_norm(gram.double()):
        raise ValueError(
            f"to the {name} kernel all examples are alike: the network has collapsed, train it again with a lower "
            "learning rate"
        )
    return kernel_pca(gram)


def _view(
    name: str, gram: Tensor, pca: KernelPCA, y: Tensor, error: float, ridge: float, modes: int, seed: int
) -> KernelView:
    count = max(2, min(modes, pca.rank))
    functions = pca.functions[:, :count].numpy()
    projections = pca.projections(y)[:count]
    nearest = kernel_distances(gram).fill_diagonal_(torch.inf).topk(2, largest=False).values
    distinct = nearest[nearest[:, 0] > 1e-6 * gram.diagonal().max().sqrt()]
    return KernelView(
        name,
        error,
        ridge,
        alignment=target_alignment(gram, y),
        projections=projections.tolist(),
        captured=projections.sum().item(),
        information=[label_information(column, y.numpy(), NEIGHBOURS) for column in functions.T],
        separability=separability(functions[:, :2], y.numpy(), seed=seed),
        effective_rank=rank_of_spectrum(pca.eigenvalues),
        rkhs_norm=pca.rkhs_norm(y),
        dimension=mle_from_distances(distinct.sort(1).values.numpy()) if len(distinct) > len(y) / 2 else None,
        shares=pca.shares[: 2 * modes].tolist(),
        scatter=np.ascontiguousarray(functions[:, :2]),
    )


def _check(
    before: nn.Module, after: nn.Module, fit: Labelled, test: Labelled, form: str, modes: int
) -> tuple[int, int]:
    """Numbers of classes and of outputs, or a sentence on what does not fit."""
    if form not in ("trace", "pseudo"):
        raise ValueError(f"the form of the kernel is 'trace' or 'pseudo'; got {form!r}")
    if modes < 2:
        raise ValueError(f"modes is {modes}: at least 2 components are needed")
    classes = check_examples(fit, test)
    shapes = [{n: tuple(p.shape) for n, p in model.named_parameters()} for model in (before, after)]
    if shapes[0] != shapes[1]:
        raise ValueError("the initial and the final network have different parameters: they need one architecture")
    return classes, _width(after, fit.x, classes)


def check_examples(fit: Labelled, test: Labelled) -> int:
    """The number of classes, or a sentence on why a diagnosis of these examples would say nothing."""
    if not len(test):
        raise ValueError("there are no held-out examples to count errors on")
    counts = fit.y.bincount()
    if len(counts) < 2 or int(counts.min()) <= NEIGHBOURS:
        raise ValueError(
            f"the diagnosis needs at least 2 classes, and more than {NEIGHBOURS} examples of every one; the examples "
            f"per class are {counts.tolist()}: take more of them (--count)"
        )
    if test.classes > len(counts):
        raise ValueError(f"class {test.classes - 1} is among the held-out examples but not among the others")
    return len(counts)


@torch.no_grad()
def _width(model: nn.Module, x: Tensor, classes: int) -> int:
    """The number of outputs, which must be enough for the classes: one each, or one for two."""
    was_training = model.training
    try:
        with user_code("the network", lambda error: misfit(error, tuple(x.shape[1:]))):
            outputs = model.eval()(x[:2])
    finally:
        model.train(was_training)
    if not isinstance(outputs, Tensor) or outputs.ndim not in (1, 2) or len(outputs) != len(x[:2]):
        got = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ValueError(f"the network needs outputs (n, C) or (n,) for n inputs; for {len(x[:2])} it gave {got}")
    width = 1 if outputs.ndim == 1 else int(outputs.shape[1])
    if width == 1 and classes > 2:
        raise ValueError(f"one output tells two classes apart, and there are {classes}")
    if 1 < width < classes:
        raise ValueError(f"the network has {width} outputs for {classes} classes; it needs one per class")
    return width


def _scores(outputs: Tensor, classes: int, width: int) -> Tensor:
    """Logits ``(n, classes)``: of one output f they are −f/2 and f/2, so that its sign is the class."""
    if width > 1:
        return outputs[:, :classes] if outputs.shape[1] > classes else outputs
    column = outputs.reshape(-1, 1)
    return torch.cat([-column, column], 1) / 2


@torch.no_grad()
def _outputs(network: Callable[[Tensor], Tensor], x: Tensor, classes: int, width: int) -> Tensor:
    return torch.cat([_scores(network(part), classes, width) for part in x.split(256)])


def _error(scores: Tensor, y: Tensor) -> float:
    return (scores.argmax(-1) != y).double().mean().item()


def _last_layer_problem(before: nn.Module, after: nn.Module, x: Tensor) -> str | None:
    """Why there is no last-layer kernel, if there is none."""
    try:
        for model in (before, after):
            tangent_kernel(model, x[:2], kind="last_layer")
    except ValueError as error:
        return f"No last-layer kernel: {error}."
    return None


def _notes(fit: Labelled, test: Labelled) -> list[str]:
    notes = []
    if len(fit) < 200:
        notes.append(f"Only {len(fit)} examples: alignments and information are biased upwards.")
    if len(test) < 200:
        notes.append(f"Only {len(test)} held-out examples: errors are known to about {50 / len(test) ** 0.5:.0f} %.")
    counts = fit.y.bincount()
    if counts.max() > 2 * counts.min():
        notes.append(f"The classes are unbalanced ({counts.tolist()} examples): compare errors with chance.")
    return notes
