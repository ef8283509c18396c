"""One function picks the bounds of a classifier by what it can do; certificates are in order with what attacks find."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from polariscope.nets.nearest_neighbour import NearestNeighbour
from polariscope.nets.smoothed import Smoothed
from polariscope.robustness.attacks.pgd import PGD
from polariscope.robustness.bounds import Bounds, BoundSettings, NoBound, bounds
from polariscope.robustness.bounds.result import combined
from polariscope.robustness.synthesis.linear import LinearABS
from polariscope.subjects import as_subject

QUICK = BoundSettings(seeds=2, rounds=3, descent=5, first=50, draws=200)


def linear_classifier(seed: int, latents: int = 2, binary: bool = False) -> tuple[LinearABS, Tensor, Tensor]:
    """Linear synthesis of near-binary images of 8 pixels, with images that it classifies rightly."""
    rng = np.random.default_rng(seed)
    means = torch.from_numpy(rng.beta(0.3, 0.3, (3, 8)))
    model = LinearABS(torch.from_numpy(rng.normal(0, 0.3, (3, 8, latents))), means, (8,), binary=binary)
    x = (means[rng.integers(0, 3, 4)] + torch.from_numpy(rng.normal(0, 0.1, (4, 8)))).clamp(0, 1)
    return model, x, model(x).argmax(1)


@pytest.mark.spec("001b/B-11", "001b/B-12", "001b/B-13")
@settings(max_examples=3)
@given(st.integers(0, 5000), st.sampled_from(["l2", "linf"]), st.sampled_from([0, 2]))
def test_separate_shared_exact_and_attack_are_in_order(seed: int, norm: str, latents: int) -> None:
    """For every image of linear synthesis and of prototypes."""
    model, x, y = linear_classifier(seed, latents)
    result = bounds(model, x, y, norm, BoundSettings(box=False))
    attacked = PGD(steps=8)(model, x, y, norm=norm)
    assert result.kind == "certificate"
    separate, shared = (result.by_method[name][0] for name in ("separate", "shared"))
    assert (separate <= shared + 1e-12).all()
    if norm == "l2":
        exact = result.by_method["exact"][0]
        assert (shared <= exact + 1e-9).all()
        assert (exact <= attacked.distances * (1 + 1e-5)).all()
        if not latents:
            np.testing.assert_allclose(shared, exact, rtol=1e-6)  # the shared bound of prototypes is exact
    boxed = bounds(model, x, y, norm)
    assert (boxed.lower >= result.lower * (1 - 1e-3)).all()
    assert (boxed.lower <= attacked.distances * (1 + 1e-5)).all(), "attacks stay in the box"


@pytest.mark.spec("001b/B-10")
@settings(max_examples=3)
@given(st.integers(0, 5000), st.sampled_from(["l2", "linf"]))
def test_a_nearest_neighbour_is_certified_below_every_attack(seed: int, norm: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    examples, labels = torch.rand(12, 1, 3, 3, generator=generator), torch.arange(12) % 3
    model = NearestNeighbour((1, 3, 3), 3, 12)
    model.remember(examples, nn.functional.one_hot(labels, 3), 0)
    x = (examples[:5] + 0.1 * torch.randn(5, 1, 3, 3, generator=generator)).clamp(0, 1)
    y = model(x).argmax(1)
    result = bounds(model.eval(), x, y, norm)
    attacked = PGD(steps=8)(model, x, y, norm=norm)
    assert (result.by_method["separate"] <= result.by_method["shared"] + 1e-12).all()
    assert (result.lower <= attacked.distances * (1 + 1e-5)).all()
    if norm == "l2":
        gaps = torch.cdist(x.flatten(1), examples.flatten(1))
        own = torch.where(labels == y[:, None], gaps, torch.inf).amin(1)
        other = torch.where(labels == y[:, None], torch.inf, gaps).amin(1)
        torch.testing.assert_close(torch.from_numpy(result.by_method["separate"][0]).float(), (other - own) / 2)


@pytest.mark.spec("001b/B-46")
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_verified_distances_of_a_network_are_below_attacks(norm: str) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)).eval()
    x = torch.rand(6, 1, 8, 8)
    y = network(x).argmax(1)
    result = bounds(network, x, y, norm)
    attacked = PGD(steps=8)(network, x, y, norm=norm)
    assert set(result.by_method) == {"interval bound propagation", "cross-Lipschitz"}
    assert (result.lower > 0).all()
    assert (result.lower <= attacked.distances * (1 + 1e-5)).all()
    assert result.accuracy(0.0) == 1
    assert bounds(network, x, (y + 1) % 3, norm).lower.tolist() == [0] * 6, "what is wrong has no bound"


@pytest.mark.spec("001b/B-14", "001b/B-15")
@settings(max_examples=3)
@given(st.integers(0, 5000))
def test_fewer_flips_than_certified_change_no_binary_classifier(seed: int) -> None:
    """All sets of fewer flips, and the price of the cheapest of them in the image."""
    model, x, y = linear_classifier(seed, binary=True)
    model.gamma.copy_(torch.tensor([1.0, 0.96, 1.05]))
    y = model(x).argmax(1)
    result = bounds(model, x, y, "l0")
    bits = (x >= 0.5).double()
    flips = torch.arange(256)[:, None] >> torch.arange(8) & 1
    flipped = (bits[:, None] - flips).abs()
    wrong = model(flipped.flatten(0, 1)).argmax(1).reshape(4, 256) != y[:, None]
    fewest = torch.where(wrong, flips.sum(1), torch.inf).amin(1).numpy()
    assert (result.lower >= 1).all()
    assert (result.lower <= fewest).all()
    for norm in ("l2", "linf"):
        raw = bounds(model, x, y, norm)
        cost = torch.where(
            wrong, ((x - 0.5).abs()[:, None] * flips).norm(2 if norm == "l2" else torch.inf, dim=2), torch.inf
        )
        assert (raw.lower <= cost.amin(1).numpy() + 1e-9).all()
        assert raw.space == "raw"
        assert raw.binarised.space == "binarised"
        inside = torch.where(wrong, flips.double().norm(2 if norm == "l2" else torch.inf, dim=1), torch.inf).amin(1)
        assert (raw.binarised.lower <= inside.numpy() + 1e-9).all()


class Certified(nn.Module):
    """A model that knows its own bound."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x.sum(1), 1 - x.sum(1)], 1)

    def certify(self, x: Tensor, y: Tensor, norm: str) -> Bounds:
        return combined(norm, "certificate", {"its own": np.full(len(x), 0.25)}, np.ones(len(x), bool))


class Random(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :2] + torch.randn(len(x), 2)


def test_what_a_classifier_can_do_decides() -> None:
    x, y = torch.full((3, 4), 0.5), torch.zeros(3, dtype=torch.int64)
    own = bounds(Certified(), x, y, "l2")
    assert (own.method, own.lower.tolist()) == ("its own", [0.25] * 3)
    for subject, words in (
        (as_subject(lambda x: x[:, :2]), "not an nn.Module"),
        (Random(), "answers are random"),
        (nn.Sequential(nn.Linear(4, 3), nn.GELU()), "no interval rule for gelu"),
    ):
        result = bounds(subject, x, y, "l2")
        assert isinstance(result, NoBound)
        assert words in result.headline
        assert result.headline.startswith("No bound is known in L2: ")
        assert words in result.findings().headline
    with pytest.raises(ValueError, match="norms l0, l1, l2, linf"):
        bounds(Certified(), x, y, "l3")
    with pytest.raises(ValueError, match="labels go from"):
        bounds(Certified(), x, y + 7, "l2")
    uneven, x, _ = linear_classifier(0)
    uneven.gamma.copy_(torch.tensor([1.0, 0.9, 1.1]))
    uneven.linear_generators = None  # as a search sees it
    result = bounds(uneven, x, torch.zeros(4, dtype=torch.int64), "l2", QUICK)
    assert isinstance(result, NoBound)
    assert "different factors" in result.reason


class Several(nn.Module):
    """Returns more than its scores."""

    def __init__(self, network: nn.Module, named: bool) -> None:
        super().__init__()
        self.network, self.named = network, named

    def forward(self, x: Tensor) -> object:
        return {"logits": self.network(x), "seen": x} if self.named else (self.network(x), x)


@pytest.mark.parametrize("named", [True, False])
def test_scores_among_several_outputs_have_the_bounds_of_the_scores_alone(named: bool) -> None:
    torch.manual_seed(0)
    network, x = nn.Linear(4, 3), torch.rand(5, 4)
    alone = bounds(network, x, network(x).argmax(1), "l2")
    among = bounds(Several(network, named), x, network(x).argmax(1), "l2")
    assert alone.lower.tolist() == among.lower.tolist()


def test_blocks_of_images_and_their_order_do_not_matter(monkeypatch) -> None:
    model, x, y = linear_classifier(3)
    whole, answer = bounds(model, x, y, "l2"), []
    monkeypatch.setattr("polariscope.robustness.bounds.known.AT_ONCE", 1)
    monkeypatch.setattr("polariscope.robustness.bounds.known.LEAST", 3)
    parts = bounds(model, x, y, "l2", tell=lambda done, of: answer.append((done, of)))
    np.testing.assert_allclose(parts.lower, whole.lower, rtol=1e-9)
    assert answer == [(3, 4), (4, 4)]
    assert parts.by_method.keys() == whole.by_method.keys()
    turned = bounds(model, x.flip(0), y.flip(0), "l2")
    np.testing.assert_allclose(turned.lower[::-1], whole.lower, rtol=1e-9)


def test_the_document_says_what_kind_of_bound_it_is() -> None:
    model, x, y = linear_classifier(1)
    document = bounds(model, x, y, "l2").findings()
    assert document.headline.startswith("Certificate in L2 by exact: half of 4 images keep their class below a norm of")
    rows = document.json()["methods"]
    assert [row["method"] for row in rows] == ["separate", "shared", "exact"]
    assert all(row["sd"] is None for row in rows)
    assert document.arrays["lower"].shape == (4,)
    binary, x, y = linear_classifier(1, binary=True)
    spaces = [(row["method"], row["space"]) for row in bounds(binary, x, y, "l2").findings().json()["methods"]]
    assert spaces == [("cheapest flips", "raw"), ("shared, by flips", "binarised"), ("separate", "binarised")]
    smooth = bounds(Smoothed(nn.Linear(8, 3).double(), 0.25).eval(), x, y, "l2", QUICK)
    assert smooth.findings().headline.startswith("Certificate at 99.9 % confidence in L2 by randomised smoothing")


def test_a_network_in_half_precision_has_no_certificate() -> None:
    """Its rounding moves scores across the bounds: attacks succeed below what float32 would prove."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    x = torch.rand(4, 1, 4, 4)
    assert isinstance(bounds(network, x, network(x).argmax(1), "l2"), Bounds)
    labels = network(x).argmax(1)
    for kind in (torch.float16, torch.bfloat16):
        known = bounds(network.to(kind), x, labels, "l2")
        assert isinstance(known, NoBound)
        assert "give it in float32" in known.reason


class Overwrites(nn.Module):
    """Activations that overwrite what is used again."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.first, self.last = how, nn.Linear(2, 2), nn.Linear(2, 2)
        for layer in (self.first, self.last):
            layer.weight.data, layer.bias.data = torch.eye(2), torch.zeros(2)
        self.first.bias.data -= 0.9
        self.last.bias.data[1] = 0.05

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if self.how == "relu":
            return self.last(h + functional.relu(h, inplace=True))
        if self.how == "view":
            return self.last(h + functional.relu(h.reshape(-1, 2), inplace=True))
        same = h
        h += 0.4
        return self.last(same + h)


@pytest.mark.parametrize("how", ["relu", "sum", "view"])
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_a_network_that_overwrites_its_numbers_is_followed_or_refused(how: str, norm: str) -> None:
    """Certificates were those of the network without ``inplace``: .175 for an image that is misclassified."""
    network = Overwrites(how).eval()
    x = torch.tensor([[0.5, 0.1], [0.1, 0.6], [0.95, 0.1]])
    labels = network(x).argmax(1)
    result = bounds(network, x, 1 - labels, norm)
    if how == "view":
        assert isinstance(result, NoBound)
        assert "overwrite its own" in result.reason
        return
    assert len(result.by_method) == 2, "both methods follow it"
    assert result.lower.tolist() == [0, 0, 0]
    for image, label, bound in zip(x, labels, bounds(network, x, labels, norm).lower, strict=True):
        step = 0.999 * bound * functional.normalize(torch.randn(500, 2), p=2 if norm == "l2" else torch.inf, dim=1)
        assert (network((image + step).clamp(0, 1)).argmax(1) == label).all()


def test_equal_examples_of_two_classes_certify_nothing_between_them() -> None:
    """An example that is stored twice, with another label the second time; the 64 nearest are looked at closely."""
    others = torch.stack([torch.full((100,), 0.98), torch.linspace(0, 1, 100)], 1)
    memory = torch.cat([torch.tensor([[0.0, 0.5], [0.5, 0.5], [0.5, 0.5]]), others])
    network = NearestNeighbour((2,), 2, len(memory))
    network.remember(memory, functional.one_hot(torch.tensor([1, 1] + [0] * 101), 2).bool(), 0)
    for how in (BoundSettings(), BoundSettings(box=False)):
        bound = bounds(network, torch.tensor([[0.2, 0.5]]), [1], "l2", how).lower[0]
        assert bound == pytest.approx(0.05), "halfway to the example of both classes"


def test_channels_of_a_pixel_change_together() -> None:
    """Five white pixels of nine are nearer to the white image than to the black one."""
    memory = torch.stack([torch.zeros(3, 3, 3), torch.ones(3, 3, 3)])
    network = NearestNeighbour((3, 3, 3), 2, 2)
    network.remember(memory, torch.eye(2).bool(), 0)
    assert bounds(network, memory[:1], [0], "l0").lower.tolist() == [5]


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_rounding_does_not_tell_equal_examples_apart(norm: str) -> None:
    """The distances to two equal examples differ in their last digits; infinite bounds had come of it."""
    generator = torch.Generator().manual_seed(0)
    memory, labels = torch.rand(200, 30, generator=generator), torch.randint(0, 2, (200,), generator=generator)
    memory, labels = torch.cat([memory, memory[:100]]), torch.cat([labels, 1 - labels[:100]])
    network = NearestNeighbour((30,), 2, len(memory))
    network.remember(memory, functional.one_hot(labels, 2).bool(), 0)
    x = 0.9 * memory[:100] + 0.05
    nearest = torch.cdist(x, memory, compute_mode="donot_use_mm_for_euclid_dist").argmin(1) % 200
    certified = bounds(network, x, network(x).argmax(1), norm).lower
    assert (nearest < 100).sum() > 90
    assert certified[(nearest < 100).numpy()].max() < 1e-6, "the nearest example has both labels"
