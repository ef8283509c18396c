"""Empirical tangent kernels against explicit Jacobians, by every route, in every kind."""

import gc

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from polariscope.kernels import as_matrix, layer_kernels, tangent_blocks, tangent_kernel
from polariscope.kernels import empirical as module
from polariscope.nets.classifiers import Weights, lenet, mlp


class Shared(nn.Module):
    """Layers used twice, that share weights, or on sequences, and a bare parameter: what does not factorise."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Linear(6, 6)
        self.tied, self.mate = nn.Linear(6, 6), nn.Linear(6, 6)
        self.tied.weight = self.mate.weight
        self.gain = nn.Parameter(torch.linspace(0.5, 1.5, 6))
        self.norm = nn.LayerNorm(6)
        self.tokens = nn.Linear(3, 4)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.output = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.tied(torch.tanh(self.mate(x))))
        x = self.norm(torch.tanh(self.twice(torch.tanh(self.twice(x)))) * self.gain)
        return self.output(torch.relu(self.frozen(self.tokens(x.unflatten(1, (2, 3))).flatten(1))))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding="same", dilation=2),
        nn.ReLU(inplace=True),
        nn.Conv2d(3, 4, (2, 3), stride=(2, 1), padding=(1, 0)),
        nn.BatchNorm2d(4),
        nn.Tanh(),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.LazyLinear(3),
    )


def network(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """A network in float64 with 5 and 2 inputs."""
    torch.manual_seed(0)
    model, shape = {
        "lenet": (lenet(shape=(2, 12, 14), outputs=3), (2, 12, 14)),
        "ntk lenet": (lenet(1, (2, 12, 14), 3, "average", Weights("ntk", 2.0, 0.3)), (2, 12, 14)),
        "mlp": (mlp(6, (8, 7), 3), (6,)),
        "convolutional": (convolutional(), (2, 9, 8)),
        "shared": (Shared(), (6,)),
    }[name]
    x = torch.randn(7, *shape)
    model.train()
    model(x)  # gives lazy layers their shape and batch normalisation its statistics
    return model.double().eval(), x[:5].double(), x[5:].double()


def explicit(model: nn.Module, x: Tensor) -> Tensor:
    """The Jacobian ``(n, C, p)``, one backward pass an entry."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for one in x:
        outputs = model(one[None])[0]
        gradients = [torch.autograd.grad(o, parameters, retain_graph=True, materialize_grads=True) for o in outputs]
        rows.append(torch.stack([torch.cat([g.flatten() for g in gradient]) for gradient in gradients]))
    return torch.stack(rows)


NETWORKS = ("lenet", "ntk lenet", "mlp", "convolutional", "shared")


@pytest.mark.spec("000/F017")
@pytest.mark.parametrize("route", ["auto", "contraction", "vector", "structured"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_route_is_the_product_of_jacobians(name, route):
    model, x, y = network(name)
    left, right = explicit(model, x), explicit(model, y)
    for memory in (module.MEMORY, 1):  # all at once, and one input a block
        for second, jacobian in ((y, right), (None, left)):
            full = torch.einsum("icp,jdp->ijcd", left, jacobian)
            expected = {
                "full": full,
                "per_output": full.diagonal(dim1=2, dim2=3),
                "trace": full.diagonal(dim1=2, dim2=3).mean(-1),
                "pseudo": full.sum((2, 3)) / 3,
            }
            for kind, kernel in expected.items():
                if memory == 1 and kind in ("per_output", "pseudo"):
                    continue
                result = tangent_kernel(model, x, second, kind, route, memory=memory)
                assert result.shape == kernel.shape
                torch.testing.assert_close(result, kernel, rtol=1e-9, atol=1e-9)


@pytest.mark.spec("000/F017")
@pytest.mark.parametrize("name", ["lenet", "ntk lenet", "shared"])
def test_last_layer_is_that_of_its_parameters_alone(name):
    model, x, y = network(name)
    kernel = tangent_kernel(model, x, y, "last_layer")
    symmetric = tangent_kernel(model, x, kind="last_layer")
    model.requires_grad_(False)
    model.output.requires_grad_(True)
    expected = torch.einsum("icp,jdp->ijcd", explicit(model, x), explicit(model, y))
    torch.testing.assert_close(expected, kernel[:, :, None, None] * torch.eye(3, dtype=torch.float64))
    assert torch.equal(symmetric, symmetric.T)


@pytest.mark.spec("000/F017")
def test_the_kernel_is_the_sum_over_layers():
    model, x, y = network("lenet")
    shares = layer_kernels(model, x, y)
    assert list(shares) == [name for name, _ in model.named_parameters()]
    torch.testing.assert_close(sum(shares.values()), tangent_kernel(model, x, y, "trace"))


def test_matrix_is_symmetric_and_positive():
    model, x, _ = network("lenet")
    kernel = tangent_kernel(model, x)
    matrix = as_matrix(kernel)
    assert torch.equal(matrix, matrix.T)
    assert torch.linalg.eigvalsh(matrix)[0] > -1e-12
    assert matrix[2 * 3 + 1, 4 * 3 + 2] == kernel[2, 4, 1, 2]
    assert matrix.data_ptr() == kernel.data_ptr()  # a view: the matrix is how the kernel is stored


def test_tiles_do_not_change_the_product(monkeypatch):
    model, x, _ = network("lenet")
    whole = tangent_kernel(model, x)
    monkeypatch.setattr(module, "TILE", 6)  # two inputs of three outputs a tile
    monkeypatch.setattr(module, "BATCH", 3)
    torch.testing.assert_close(tangent_kernel(model, x), whole, rtol=1e-12, atol=1e-12)


def test_blocks_come_once_and_cover_the_upper_triangle():
    model, x, _ = network("mlp")
    one = sum(f.right[0].numel() + f.left[0].numel() for f in module._Gradients(model, x[:1], "trace").structured(x))
    blocks = list(tangent_blocks(model, x, kind="trace", route="structured", memory=2 * 8 * one))
    assert [(r.start, c.start) for r, c, _ in blocks] == [(i, j) for i in (0, 2, 4) for j in (0, 2, 4) if j >= i]
    whole = tangent_kernel(model, x, kind="trace")
    for rows, columns, block in blocks:
        torch.testing.assert_close(block, whole[rows, columns])


def test_the_share_that_is_there_grows_to_the_whole():
    model, x = nn.Linear(6, 2), torch.randn(50, 6)
    for other in (None, torch.randn(30, 6)):
        heard: list[float] = []
        tangent_kernel(model, x, other, "trace", memory=1000, tell=heard.append)
        assert len(heard) > 3
        assert heard == sorted(heard)
        assert heard[-1] == 1.0


def test_out_may_be_a_file(tmp_path):
    model, x, _ = network("mlp")
    held = np.memmap(tmp_path / "kernel", np.float64, "w+", shape=(5, 5))
    tangent_kernel(model, x, kind="pseudo", out=torch.from_numpy(held), memory=1)
    np.testing.assert_allclose(held, tangent_kernel(model, x, kind="pseudo"))
    with pytest.raises(ValueError, match="out needs shape"):
        tangent_kernel(model, x, out=torch.empty(5, 5))


def test_auto_takes_the_cheaper_route():
    model, x, _ = network("lenet")
    assert module._Gradients(model, x[:1], "full").cheapest() == "structured"

    class Bare(nn.Module):
        """A large matrix that is no layer: every entry would be a gradient, for every pair of outputs."""

        def __init__(self) -> None:
            super().__init__()
            self.matrix = nn.Parameter(torch.randn(20, 50))

        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(x @ self.matrix.T)

    model, x = Bare(), torch.randn(3, 50)
    assert module._Gradients(model, x[:1], "full").cheapest() == "vector"
    assert module._Gradients(model, x[:1], "pseudo").cheapest() == "structured"
    full = torch.einsum("icp,jdp->ijcd", *[explicit(model, x)] * 2)
    torch.testing.assert_close(tangent_kernel(model, x), full, rtol=1e-4, atol=1e-4)


def test_many_inputs_stay_far_below_the_jacobian():
    """Nothing as large as a fifth of the Jacobian is ever allocated."""
    model, count = lenet(shape=(1, 12, 12)), 600
    parameters = sum(p.numel() for p in model.parameters())
    x = torch.randn(count, 1, 12, 12)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            result = function(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple | list) else [result]:
                if isinstance(tensor, Tensor):
                    largest = max(largest, tensor.untyped_storage().nbytes())
            return result

    with Watch():
        kernel = tangent_kernel(model, x, kind="pseudo")
    gc.collect()
    assert largest < count * parameters * 4 / 5
    probe = [0, 300, 599]
    expected = tangent_kernel(model, x[probe], kind="pseudo", route="contraction")
    torch.testing.assert_close(kernel[probe][:, probe], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "kind", "route", "sentence"),
    [
        (nn.Linear(3, 2), "fulll", "auto", "did you mean 'full'"),
        (nn.Linear(3, 2), "full", "vectr", "did you mean 'vector'"),
        (nn.Linear(3, 2), "last_layer", "vector", "route 'auto'"),
        (nn.Linear(3, 2).requires_grad_(False), "full", "auto", "requires gradients"),
        (nn.Sequential(nn.Linear(3, 2), nn.Dropout()), "full", "auto", "model.eval"),
        (nn.Sequential(nn.Linear(3, 2), nn.Tanh()), "last_layer", "auto", "ends in an nn.Linear"),
        (nn.Sequential(nn.Linear(3, 2), nn.Flatten(0)), "full", "auto", "outputs \\(n, C\\)"),
    ],
)
def test_what_has_no_tangent_kernel_is_refused(model, kind, route, sentence):
    with pytest.raises(ValueError, match=sentence):
        tangent_kernel(model, torch.ones(2, 3), kind=kind, route=route)


def test_a_model_that_gives_nan_is_refused():
    model = nn.Linear(3, 2)
    with pytest.raises(ValueError, match="NaN"):
        tangent_kernel(model, torch.full((2, 3), torch.nan))
    with pytest.raises(ValueError, match="at least one input"):
        tangent_kernel(model, torch.ones(0, 3))


def test_parameters_outside_of_layers_have_a_kernel_too():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))

        def forward(self, x):
            return (x @ self.weight).tanh()

    x = torch.randn(5, 2)
    torch.testing.assert_close(tangent_kernel(Scale(), x), tangent_kernel(Scale(), x, route="contraction"))


class Tied(nn.Module):
    """An autoencoder whose decoder is the transpose of its encoder, outside of the layer that owns the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(torch.tanh(self.encoder(x)), self.encoder.weight.t())


class Token(nn.Module):
    """A layer that sees a constant, once for any number of inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.head = nn.Linear(2, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(x * self.token(torch.ones(1, 2, dtype=x.dtype))))


def changed(how: str) -> nn.Module:
    """Networks whose layers are not what their type says."""
    first = nn.Linear(6, 20)
    if how == "pruned":
        prune.l1_unstructured(first, "weight", 0.9)
    elif how == "spectral norm":
        first = nn.utils.spectral_norm(first)
    else:
        return {"tied": Tied, "token": Token}[how]()
    return nn.Sequential(first, nn.ReLU(), nn.Linear(20, 3))


@pytest.mark.parametrize("how", ["pruned", "spectral norm", "tied", "token"])
def test_weights_that_are_computed_or_used_twice_have_their_whole_gradient(how: str) -> None:
    """The product of a layer's input and cotangent is its gradient only if its weight is its own and used there."""
    torch.manual_seed(0)
    model, x = changed(how).double().eval(), torch.randn(4, 6, dtype=torch.float64)
    expected = tangent_kernel(model, x, route="contraction")
    for route in ("auto", "structured", "vector"):
        torch.testing.assert_close(tangent_kernel(model, x, route=route), expected)


def test_outputs_that_depend_on_other_inputs_are_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 1)).eval()
    with pytest.raises(ValueError, match="without running statistics"):
        tangent_kernel(model, torch.randn(3, 3))
