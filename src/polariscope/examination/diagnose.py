"""Diagnose a classifier: is it lazy (its tangent kernel stays fixed), or does it learn features?

A network is *lazy* if its tangent kernel stays as it was at the start; it is then a kernel machine. It *learns
features* if the kernel turns towards the labels. :func:`diagnose` compares the kernels before and after training on
examples the network has not seen, for any ``nn.Module`` with outputs ``(n, C)`` or ``(n,)``: the "diagnostic of
compression" of Paccolat et al. 2021, section 6 (Spec 004, sections 5, 7 and 10). This is the call behind ``polariscope
kernel``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from polariscope.examination.classifier_training import save_networks as save_networks
from polariscope.examination.classifier_training import train_classifier as train_classifier
from polariscope.examination.diagnosis import Diagnosis, Form, KernelView, Verdict
from polariscope.examination.labelled import NEIGHBOURS, check_examples, output_width
from polariscope.kernels.empirical import Kind, tangent_kernel
from polariscope.kernels.machine import leave_one_out_ridge, rank_of_spectrum, solve
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
from polariscope.subjects.labelled import ONE_PROBABILITY, RETURN_LOGIT, is_one_probability
from polariscope.training.progress import TellShare
from polariscope.worlds.targets import Examples

STILL = 0.02
"""1 − CKA of the kernels before and after up to which a network counts as lazy: it turned by less than 12 degrees."""
TURNED = 0.1
"""1 − CKA from which the kernel has turned enough for a network to have learned features."""
GAINED = 1.2
"""Factor by which the kernel's alignment with the labels must have risen for them to be features of the task."""


def diagnose(
    initial: nn.Module,
    final: nn.Module,
    fit: Examples,
    test: Examples,
    *,
    network: Callable[[Tensor], Tensor] | None = None,
    form: Form = "trace",
    modes: int = 10,
    ridge: float | None = None,
    seed: int = 0,
    tell: TellShare = lambda kernel, share: None,
) -> Diagnosis:
    """Compare a network's tangent kernels at its initial and final parameters.

    ``fit`` are examples the network was *not* trained on: kernels are compared on them and kernel machines learn from
    them (on training examples the final kernel would look too good). Errors are counted on other examples, ``test``.
    ``network`` classifies in place of ``final`` if the outputs of ``final`` are not class scores, as with an output
    scale.

    For C > 1 outputs, ``form`` says which single kernel replaces the C × C kernels: "trace", the mean over the outputs,
    or "pseudo", the kernel of their sum. The latter is up to C times cheaper, but softmax training does not change the
    sum of the outputs, so the last layer dominates it. ``ridge`` is relative to the kernel's mean diagonal; by default
    each kernel gets its best ridge by leave-one-out, which treats all kernels fairly. ``tell`` is called with the
    progress of each kernel: kernels of convolutions take minutes.

    >>> from polariscope.nets.classifiers import mlp
    >>> rng = torch.Generator().manual_seed(0)
    >>> x = torch.randn(300, 4, generator=rng)
    >>> net, data = mlp(4, (16,), 2), Examples(x, (x[:, 0] > 0).long())
    >>> diagnose(net, net, data, data).verdict  # nothing was trained
    'lazy'
    """
    before, after, fit, test = _evaluated(initial), _evaluated(final), fit.tensors(), test.tensors()
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
    scores = _outputs(network or after, test.x, classes, outputs)
    if outputs == 1 and is_one_probability(torch.nn.functional.pad(2 * scores[:, 1:], (1, 0))):
        notes.append(f"{ONE_PROBABILITY} {RETURN_LOGIT}")
    error = _error(scores, test.y)
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
        f"It changed by {change.distance:.3g} times its own size, including growth.",
        f"Its alignment with the labels went from {initial.alignment:.3f} to {final.alignment:.3f} "
        f"({gain:.2g} times), and the share of the labels in the first {len(final.projections)} components from "
        f"{initial.captured:.2f} to {final.captured:.2f}.",
        f"On held-out examples, a kernel machine has an error of {initial.error:.1%} with the initial kernel and of "
        f"{final.error:.1%} with the final one; the network itself has an error of {error:.1%}.",
    ]
    return verdict, reasons


class _Column(nn.Module):
    """A network with outputs ``(n,)`` as one with ``(n, 1)``."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.network(x)
        return outputs[:, None] if outputs.ndim == 1 else outputs


def _evaluated(model: nn.Module) -> nn.Module:
    """A copy in evaluation mode with outputs in columns; the caller's network does not change."""
    return _Column(copy.deepcopy(model)).eval()


def _components(gram: Tensor, name: str) -> KernelPCA:
    if torch.linalg.matrix_norm(centre(gram)) <= 1e-9 * torch.linalg.matrix_norm(gram.double()):
        raise ValueError(
            f"the {name} kernel is the same for all examples: the network has collapsed; train it again with a lower "
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
    before: nn.Module, after: nn.Module, fit: Examples, test: Examples, form: str, modes: int
) -> tuple[int, int]:
    """Numbers of classes and of outputs; a network or data that do not fit are refused."""
    if form not in ("trace", "pseudo"):
        raise ValueError(f"the form of the kernel is 'trace' or 'pseudo'; got {form!r}")
    if modes < 2:
        raise ValueError(f"modes is {modes}: at least 2 components are needed")
    classes = check_examples(fit, test)
    shapes = [{n: tuple(p.shape) for n, p in model.named_parameters()} for model in (before, after)]
    if shapes[0] != shapes[1]:
        raise ValueError("the initial and the final network have different parameters: they need the same architecture")
    return classes, output_width(after, fit.x, classes)


def _scores(outputs: Tensor, classes: int, width: int) -> Tensor:
    """Logits ``(n, classes)``: for one output f they are −f/2 and f/2, so that its sign is the class."""
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


def _notes(fit: Examples, test: Examples) -> list[str]:
    notes = []
    if len(fit) < 200:
        notes.append(f"Only {len(fit)} examples: alignments and information are biased upwards.")
    if len(test) < 200:
        notes.append(f"Only {len(test)} held-out examples: errors are accurate to about {50 / len(test) ** 0.5:.0f} %.")
    counts = fit.y.bincount()
    if counts.max() > 2 * counts.min():
        notes.append(f"The classes are unbalanced ({counts.tolist()} examples): compare errors with chance.")
    return notes
