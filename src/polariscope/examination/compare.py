"""Are two models the same inside? Every layer of one held against every layer of the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from polariscope.measures.similarity import SimilarityMatrix, similarity_matrix
from polariscope.representation import represent
from polariscope.subjects import as_subject
from polariscope.subjects.layers import layer_names
from polariscope.worlds.world import World

Activations = dict[str, NDArray[np.float32]]


def layer_activations(
    model: Any, world: World, count: int = 2000, seed: int = 0, noise_seed: int = 0, layers: Sequence[str] | None = None
) -> Activations:
    """Input, encoder layers, mean, variance, sample, decoder layers: activations of the same examples, in that order.

    ``layers`` are by default those that :func:`~polariscope.subjects.layers.layer_names` finds in the module. Two
    models that are to be compared need the same ``seed`` (examples) and different ``noise_seed``s: shared noise makes
    the sampled layers of unrelated models alike.
    """
    subject = as_subject(model)
    if subject.encodes is None:  # a plain classifier: what it predicts is its last layer
        subject = replace(subject, encodes=subject.predicts)
    if layers is None and subject.module is not None:
        layers = [name for name in layer_names(subject.module) if not name.endswith("flatten")]
    rep = represent(subject, world, count=count, layers=layers or (), seed=seed, noise_seed=noise_seed)
    assert rep.index is not None
    found: Activations = {"input": world.observe(rep.index).reshape(rep.count, -1).astype(np.float32)}
    # Where forward is what encodes, the decoder runs in the same pass.
    decoder = [name for name in rep.layers if name in rep.decoder_layers or name.startswith("decoder.")]
    found |= {name: values for name, values in rep.layers.items() if name not in decoder}
    found["mean"] = rep.mean
    if rep.var is not None and rep.sample is not None:
        found |= {"variance": rep.var, "sampled": rep.sample}
    return found | {name: rep.layers[name] for name in decoder}


def compare(
    first: Any,
    second: Any,
    world: World,
    *,
    measure: Literal["cka", "procrustes"] = "cka",
    debiased: bool = False,
    count: int = 2000,
    seed: int = 0,
) -> SimilarityMatrix:
    """Layer-by-layer similarity of two models on one world, with notes on what not to read into it.

    The models are subjects, or whatever can be wrapped into one: modules of any kind, ours or not.
    """
    a, still_a = _moving(layer_activations(first, world, count, seed, noise_seed=seed + 1), "first")
    b, still_b = _moving(layer_activations(second, world, count, seed, noise_seed=seed + 2), "second")
    found = similarity_matrix(a, b, measure, debiased)
    return replace(found, notes=(*found.notes, *still_a, *still_b))


def _moving(layers: Activations, whose: str) -> tuple[Activations, list[str]]:
    """The layers that differ between examples; what is constant is like nothing, and said."""
    still = [name for name, values in layers.items() if (values == values[0]).all()]
    notes = [f"{name} of the {whose} model is constant over the examples, and was left out" for name in still]
    return {name: values for name, values in layers.items() if name not in still}, notes


def encoder_layers(names: tuple[str, ...]) -> int:
    """How many layers come before the latent ones: where a heatmap draws its line."""
    return next((i for i, name in enumerate(names) if name == "mean"), len(names))
