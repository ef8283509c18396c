"""Are two models the same inside? Every layer of one held against every layer of the other."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import nn

from polariscope.measures.similarity import SimilarityMatrix, similarity_matrix
from polariscope.representation import layer_names, represent
from polariscope.worlds.world import World

Activations = dict[str, NDArray[np.float32]]


def layer_activations(
    model: nn.Module, world: World, count: int = 2000, seed: int = 0, noise_seed: int = 0
) -> Activations:
    """Input, encoder layers, mean, variance, sample, decoder layers: activations of the same examples, in that order.

    Two models that are to be compared need the same ``seed`` (examples) and different ``noise_seed``s: shared noise
    makes the sampled layers of unrelated models alike.
    """
    names = [name for name in layer_names(model) if not name.endswith("flatten")]
    rep = represent(model, world, count=count, layers=names, seed=seed, noise_seed=noise_seed)
    assert rep.index is not None
    found: Activations = {"input": world.observe(rep.index).reshape(rep.count, -1).astype(np.float32)}
    found |= {name: rep.layers[name] for name in names if not name.startswith("decoder")}
    found["mean"] = rep.mean
    if rep.var is not None and rep.sample is not None:
        found |= {"variance": rep.var, "sampled": rep.sample}
    return found | {name: rep.layers[name] for name in names if name.startswith("decoder")}


def compare(
    first: nn.Module,
    second: nn.Module,
    world: World,
    *,
    measure: Literal["cka", "procrustes"] = "cka",
    debiased: bool = False,
    count: int = 2000,
    seed: int = 0,
) -> SimilarityMatrix:
    """Layer-by-layer similarity of two models on one world, with notes on what not to read into it."""
    a = layer_activations(first, world, count, seed, noise_seed=seed + 1)
    b = layer_activations(second, world, count, seed, noise_seed=seed + 2)
    return similarity_matrix(a, b, measure, debiased)


def encoder_layers(names: tuple[str, ...]) -> int:
    """How many layers come before the latent ones: where a heatmap draws its line."""
    return next((i for i, name in enumerate(names) if name == "mean"), len(names))
