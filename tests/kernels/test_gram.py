"""Whatever the processor does to a product, the kernel of a set with itself is symmetric to the last bit."""

import pytest
import torch
from torch import nn

from polariscope.kernels import (
    INFINITE_WIDTH,
    GradientFlow,
    KernelMachine,
    MeanFieldNet,
    NetKernel,
    as_matrix,
    laplace,
    layer_kernels,
    rbf,
    tangent_blocks,
    tangent_kernel,
)
from polariscope.kernels import gram as module
from polariscope.kernels.gram import gram, mirror_
from polariscope.kernels.machine import linear
from polariscope.kernels.principal import centre, kernel_distances, kernel_pca, split_invariant

COUNT, DIMENSION = 37, 13


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def symmetric(matrix: torch.Tensor) -> bool:
    return torch.equal(matrix, matrix.mT)


@pytest.mark.parametrize("tile", [module.TILE, 8, 1])
@pytest.mark.parametrize("shape", [(COUNT, DIMENSION), (3, COUNT, DIMENSION), (1, 1), (5, 0)])
def test_a_gram_is_the_product_with_itself(tile, shape, monkeypatch):
    monkeypatch.setattr(module, "TILE", tile)
    x, other = normal(*shape), normal(*shape, seed=1)
    assert symmetric(gram(x))
    torch.testing.assert_close(gram(x), x @ x.mT)
    torch.testing.assert_close(gram(x, other), x @ other.mT)


@pytest.mark.parametrize("tile", [module.TILE, 8, 1])
def test_only_what_lies_above_the_diagonal_counts(tile, monkeypatch):
    monkeypatch.setattr(module, "TILE", tile)
    matrix = normal(2, COUNT, COUNT)
    spoilt = matrix.clone()
    spoilt[:, *torch.tril_indices(COUNT, COUNT, -1)] = torch.nan
    assert mirror_(spoilt) is spoilt
    assert torch.equal(spoilt.triu(), matrix.triu())
    assert symmetric(spoilt)


class Bare(nn.Module):
    """A parameter that is no layer, so that no gradient of it factorises."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(normal(3, DIMENSION))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ self.matrix.T)


@pytest.mark.spec("000/F017")
@pytest.mark.parametrize("kind", ["full", "per_output", "trace", "pseudo"])
@pytest.mark.parametrize("route", ["contraction", "vector", "structured"])
@pytest.mark.parametrize("bare", [False, True])
def test_tangent_kernels_by_every_route_in_one_block_and_in_many(kind, route, bare):
    torch.manual_seed(0)
    model = Bare() if bare else nn.Sequential(nn.Linear(DIMENSION, 29), nn.Tanh(), nn.Linear(29, 3))
    x = normal(COUNT, DIMENSION)
    for memory in (2**28, 2**16):
        kernel = tangent_kernel(model, x, kind=kind, route=route, memory=memory)
        if kind == "per_output":
            assert symmetric(kernel.movedim(-1, 0))
        else:
            assert symmetric(as_matrix(kernel) if kind == "full" else kernel)
        for rows, columns, block in tangent_blocks(model, x, kind=kind, route=route, memory=memory):
            assert torch.equal(block, kernel[rows, columns])


def posterior(x: torch.Tensor) -> torch.Tensor:
    return KernelMachine(rbf(3.0), 1e-3).fit(x, x[:, :1]).posterior(normal(COUNT, DIMENSION, seed=1)).cov


def law(x: torch.Tensor) -> torch.Tensor:
    other = normal(COUNT, DIMENSION, seed=1)
    flow = GradientFlow(INFINITE_WIDTH.ntk(x), x[:, :1])
    kernels = INFINITE_WIDTH.ntk(other, x), INFINITE_WIDTH.nngp(x), INFINITE_WIDTH.nngp(other, x)
    return flow.law(*kernels, INFINITE_WIDTH.nngp(other), time=1.0).cov


NET = MeanFieldNet.draw(DIMENSION, 53, seed=0)
TANGENT, LAST_LAYER = NetKernel(NET), NetKernel(NET, "last_layer")
SELF_KERNELS = {
    "linear": linear,
    "rbf": lambda x: rbf(3.0)(x, None),
    "laplace": lambda x: laplace(3.0)(x, None),
    "infinite nngp": INFINITE_WIDTH.nngp,
    "infinite ntk": INFINITE_WIDTH.ntk,
    "mean-field tangent": TANGENT,
    "mean-field last layer": LAST_LAYER,
    "one layer's share": lambda x: layer_kernels(nn.Linear(DIMENSION, 3), x)["weight"],
    "last layer": lambda x: tangent_kernel(nn.Linear(DIMENSION, 3), x, kind="last_layer"),
    "centred": lambda x: centre(LAST_LAYER(x)),
    "reconstructed": lambda x: kernel_pca(LAST_LAYER(x), modes=20).reconstruct(),
    "distances": lambda x: kernel_distances(TANGENT(x)),
    "informative part": lambda x: split_invariant(TANGENT, x, 2).informative,
    "mixed part": lambda x: split_invariant(TANGENT, x, 2).mixed,
    "posterior": posterior,
    "law": law,
}


@pytest.mark.parametrize("kernel", SELF_KERNELS.values(), ids=SELF_KERNELS.keys())
def test_every_kernel_of_a_set_with_itself(kernel):
    result = kernel(normal(COUNT, DIMENSION))
    assert result.shape == (COUNT, COUNT)
    assert symmetric(result)
