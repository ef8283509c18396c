"""Similarities against closed forms, their invariances, and against themselves by other routes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polariscope.measures import hsic, similarity
from polariscope.measures.similarity import (
    average_over_pairs,
    check_comparison,
    cka,
    procrustes,
    rbf_cka,
    similarity_matrix,
    smaller,
    svcca,
)
from polariscope.measures.streaming_cka import StreamingCKA


def related(samples, p, q, seed=0, shared=3):
    """Two representations with some causes in common and noise of their own, away from the origin."""
    rng = np.random.default_rng(seed)
    causes = rng.normal(size=(samples, shared))
    x, y = (causes @ rng.normal(size=(shared, width)) + rng.normal(size=(samples, width)) for width in (p, q))
    return x + 2, y - 1


def rotation(size, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]


def feature_form(x, y):
    x, y = x - x.mean(0), y - y.mean(0)
    return np.linalg.norm(x.T @ y) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))


def gram_form(x, y):
    centring = np.eye(len(x)) - 1 / len(x)
    k, kk = (centring @ z @ z.T @ centring for z in (x, y))
    return (k * kk).sum() / np.sqrt((k * k).sum() * (kk * kk).sum())


def unbiased_hsic(x, y):
    n = len(x)
    k, kk = (z @ z.T * (1 - np.eye(n)) for z in (x, y))
    terms = np.trace(k @ kk) + k.sum() * kk.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * (k @ kk).sum()
    return terms / (n * (n - 3))


def debiased_form(x, y):
    return unbiased_hsic(x, y) / np.sqrt(unbiased_hsic(x, x) * unbiased_hsic(y, y))


WIDTHS = [(200, 5, 7), (50, 300, 200), (40, 3, 500), (300, 300, 4)]


@pytest.mark.spec("002/S01")
@pytest.mark.parametrize(("samples", "p", "q"), WIDTHS)
def test_cka_is_the_feature_form_and_the_gram_form(samples, p, q):
    x, y = related(samples, p, q)
    assert cka(x, y) == pytest.approx(feature_form(x, y), abs=1e-12)
    assert cka(x, y) == pytest.approx(gram_form(x, y), abs=1e-12)


@pytest.mark.spec("002/S01")
@pytest.mark.parametrize(("samples", "p", "q"), WIDTHS)
def test_debiased_cka_is_the_ratio_of_unbiased_hsic(samples, p, q):
    x, y = related(samples, p, q)
    assert cka(x, y, debiased=True) == pytest.approx(debiased_form(x, y), abs=1e-10)


@pytest.mark.parametrize("wide", [(True, True), (False, False), (True, False)])
@pytest.mark.parametrize("debiased", [True, False])
def test_either_route_in_small_blocks_gives_the_same(monkeypatch, wide, debiased):
    x, y = related(300, 40, 60)
    expected = (debiased_form if debiased else feature_form)(x, y)
    monkeypatch.setattr(hsic, "_BLOCK_NUMBERS", 3000)
    monkeypatch.setattr(hsic, "worth_a_gram", lambda *_: np.array(wide))
    assert cka(x, y, debiased=debiased) == pytest.approx(expected, abs=1e-12)


def test_wide_layers_get_a_gram_matrix_and_narrow_ones_do_not():
    wanted = np.ones((3, 3), dtype=bool)
    assert hsic.worth_a_gram([1, 6000, 6000], 5000, wanted).tolist() == [False, True, True]
    assert not hsic.worth_a_gram([10, 30, 20], 1000, wanted).any()
    assert hsic.worth_a_gram([10, 30_000, 20_000], 1000, wanted).all()


@pytest.mark.spec("002/S01", "002/S02")
@given(st.integers(0, 10**6), st.floats(-0.95, 0.95))
@settings(max_examples=settings.default.max_examples // 4)
def test_in_one_dimension_cka_is_squared_correlation_and_procrustes_its_size(seed, slope):
    x, noise = np.random.default_rng(seed).normal(size=(2, 40))
    y = slope * x + noise
    rho = np.corrcoef(x, y)[0, 1]
    assert cka(x, y) == pytest.approx(rho**2, abs=1e-10)
    assert procrustes(x, y) == pytest.approx(abs(rho), abs=1e-10)
    assert svcca(x, y) == pytest.approx(abs(rho), abs=1e-10)


MEASURES = {
    "cka": cka,
    "debiased": lambda x, y: cka(x, y, debiased=True),
    "rbf_cka": rbf_cka,
    "rbf debiased": lambda x, y: rbf_cka(x, y, debiased=True),
    "procrustes": procrustes,
    "svcca": svcca,
    "smaller": smaller,
}


@pytest.mark.spec("002/S01", "002/S02")
@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES.keys())
@given(
    seed=st.integers(0, 10**6),
    samples=st.integers(8, 40),
    p=st.integers(1, 60),
    scale=st.floats(1e-3, 1e3),
    shift=st.floats(-100, 100),
)
@settings(max_examples=settings.default.max_examples // 8)
def test_rotation_scale_and_shift_change_nothing(measure, seed, samples, p, scale, shift):
    x, y = related(samples, p, 6, seed)
    moved = -scale * x @ rotation(p, seed) + shift
    value = measure(x, y)
    assert measure(moved, y) == pytest.approx(value, abs=1e-7)
    assert measure(y, x) == pytest.approx(value, abs=1e-9)
    assert measure(x, moved) == pytest.approx(1, abs=1e-7)
    assert value <= 1
    assert measure(np.pad(x, ((0, 0), (0, 3))), y) == pytest.approx(value, abs=1e-9)


@pytest.mark.spec("002/S02")
@pytest.mark.parametrize(("samples", "p", "q"), [(100, 8, 5), (20, 60, 60), (20, 60, 7), (20, 20, 90)])
def test_procrustes_is_the_nuclear_norm_and_the_best_rotation(samples, p, q):
    x, y = related(samples, p, q)
    x, y = (z - z.mean(0) for z in (x, y))
    x, y = (z / np.linalg.norm(z) for z in (x, y))
    assert procrustes(x, y) == pytest.approx(np.linalg.norm(y.T @ x, "nuc"), abs=1e-12)
    u, _, vt = np.linalg.svd(y.T @ x, full_matrices=False)
    if q >= p:
        assert procrustes(x, y) == pytest.approx(
            1 - (np.linalg.norm(x - y @ u @ vt) ** 2 + 1 - np.linalg.norm(y @ u) ** 2) / 2
        )


@pytest.mark.spec("002/S02")
def test_procrustes_takes_no_false_shortcut_with_few_samples():
    x, y = np.random.default_rng(0).normal(size=(2, 20, 60))
    x, y = (z - z.mean(0) for z in (x, y))
    scale = np.linalg.norm(x) * np.linalg.norm(y)
    false = np.linalg.norm(x @ y.T, "nuc") / scale
    assert abs(procrustes(x, y) - false) > 0.2
    assert procrustes(x, y) == pytest.approx(np.linalg.norm(x.T @ y, "nuc") / scale, abs=1e-12)


# Rows of spec 002, section 10.3: samples, then CKA and Procrustes for 40, 25 and no shared features of 50.
FIGURE_7_1 = [
    (50, 0.902, 0.948, 0.755, 0.876, 0.510, 0.756),
    (90, 0.875, 0.911, 0.684, 0.784, 0.364, 0.597),
    (250, 0.838, 0.859, 0.594, 0.669, 0.165, 0.369),
    (490, 0.820, 0.838, 0.550, 0.616, 0.091, 0.266),
    (970, 0.811, 0.825, 0.526, 0.579, 0.050, 0.192),
]


def independent_and_sharing(samples, seed):
    rng = np.random.default_rng(seed)
    a = rng.uniform(size=(samples, 50))
    return a, {shared: np.hstack([a[:, :shared], rng.uniform(size=(samples, 50 - shared))]) for shared in (40, 25, 0)}


@pytest.mark.spec("002/S03")
@pytest.mark.parametrize("row", FIGURE_7_1, ids=lambda row: f"{row[0]} samples")
def test_shared_features_and_few_samples_as_in_figure_7_1(row):
    samples, *expected = row
    measured = []
    for seed in range(5):
        a, others = independent_and_sharing(samples, seed)
        measured.append([m(a, other) for other in others.values() for m in (cka, procrustes)])
    assert np.mean(measured, axis=0) == pytest.approx(expected, abs=0.03)


@pytest.mark.spec("002/S03")
def test_independent_features_score_what_theory_says():
    a, others = independent_and_sharing(970, 0)
    assert cka(a, others[0]) == pytest.approx(50 / (970 + 50), rel=0.1)
    assert procrustes(a, others[0]) == pytest.approx(8 / (3 * np.pi) * np.sqrt(50 / 970), rel=0.05)
    debiased = [cka(a, others[0], debiased=True) for a, others in (independent_and_sharing(50, s) for s in range(20))]
    assert abs(np.mean(debiased)) < 0.02
    assert min(debiased) < 0  # negative, and neither clipped nor NaN


def test_rbf_cka_with_a_wide_kernel_is_linear_cka():
    x, y = related(80, 10, 6)
    assert rbf_cka(x, y, bandwidth=200) == pytest.approx(cka(x, y), abs=1e-4)
    assert rbf_cka(x, y, bandwidth=200, debiased=True) == pytest.approx(cka(x, y, debiased=True), abs=1e-4)
    assert abs(rbf_cka(x, y, bandwidth=0.3) - cka(x, y)) > 0.02


def test_svcca_does_not_see_an_invertible_map_but_cka_does():
    x, _ = related(300, 5, 5)
    y = x @ np.diag([1.0, 1, 1, 1, 30])
    assert svcca(x, y, variance=1.0) == pytest.approx(1)
    assert cka(x, y) < 0.9


def test_svcca_is_the_mean_of_the_canonical_correlations():
    """Two subspaces with known angles between them: 0, 0.3 and 1 radians, and a right one."""
    x = np.random.default_rng(0).normal(size=(40, 8))
    basis = np.linalg.qr(x - x.mean(axis=0))[0]
    angles = np.array([0.0, 0.3, 1.0, np.pi / 2])
    other = basis[:, :4] * np.cos(angles) + basis[:, 4:] * np.sin(angles)
    assert svcca(basis[:, :4], other, variance=1.0) == pytest.approx(np.cos(angles).mean())
    assert svcca(basis[:, :4] @ np.diag([1, 2, 3, 4]), other, variance=1.0) == pytest.approx(np.cos(angles).mean())


LAYERS = {"input": (20, 6, 6), "hidden": (20, 90), "code": (20, 4)}


def model(seed, samples=20, layers=LAYERS):
    rng = np.random.default_rng(seed)
    causes = np.random.default_rng(99).normal(size=(samples, 3))
    out = {}
    for name, (_, *shape) in layers.items():
        width = int(np.prod(shape))
        flat = causes @ rng.normal(size=(3, width)) + rng.normal(size=(samples, width))
        out[name] = flat.reshape(samples, *shape)
    return out


SCALARS = {
    ("cka", False): cka,
    ("cka", True): MEASURES["debiased"],
    ("rbf_cka", False): rbf_cka,
    ("rbf_cka", True): MEASURES["rbf debiased"],
    ("procrustes", False): procrustes,
    ("svcca", False): svcca,
    ("smaller", False): smaller,
}


@pytest.mark.parametrize(("measure", "debiased"), SCALARS)
def test_the_matrix_holds_the_similarity_of_every_pair(measure, debiased):
    a, b = model(1), model(2)
    result = similarity_matrix(a, b, measure, debiased=debiased)
    expected = [[SCALARS[measure, debiased](x, y) for y in b.values()] for x in a.values()]
    assert result.values == pytest.approx(np.array(expected), abs=1e-10)
    assert result.rows == result.columns == tuple(LAYERS)
    selves = similarity_matrix(a, a, measure, debiased=debiased).values
    assert selves.diagonal() == pytest.approx(1)
    assert selves == pytest.approx(selves.T)


@pytest.mark.spec("002/S05")
def test_all_seed_pairs_are_averaged_and_equal_sides_are_symmetric():
    runs_a, runs_b = [model(seed) for seed in range(5)], [model(seed) for seed in range(5, 10)]
    result = average_over_pairs(runs_a, runs_b)
    every = [similarity_matrix(a, b).values for a in runs_a for b in runs_b]
    assert len(every) == 25
    assert result.values == pytest.approx(np.mean(every, axis=0), abs=1e-10)
    matching = np.mean([similarity_matrix(a, b).values for a, b in zip(runs_a, runs_b, strict=True)], axis=0)
    assert np.abs(result.values - matching).max() > 1e-3
    itself = average_over_pairs(runs_a, runs_a)
    assert itself.values == pytest.approx(itself.values.T, abs=1e-10)
    assert "5 of 25 pairs compare a run with itself" in itself.notes


@pytest.mark.spec("002/S11")
def test_the_smaller_of_the_two_is_believed():
    a, others = independent_and_sharing(90, 0)
    assert smaller(a, others[0]) == pytest.approx(min(cka(a, others[0]), procrustes(a, others[0])))
    one_big = np.random.default_rng(1).normal(size=(200, 10)) * ([100] + [1] * 9)
    scrambled = np.hstack([one_big[:, :1], np.random.default_rng(2).normal(size=(200, 9)) * 30])
    for x, y in ((a, others[0]), (one_big, scrambled)):
        both = [similarity_matrix({"x": x}, {"y": y}, m).values[0, 0] for m in ("cka", "procrustes")]
        assert similarity_matrix({"x": x}, {"y": y}, "smaller").values[0, 0] == min(both)


@pytest.mark.parametrize("debiased", [True, False])
@pytest.mark.parametrize("batch", [7, 64, 203])
def test_the_stream_of_moments_ends_where_the_whole_does(debiased, batch):
    a, b = model(1, samples=203), model(2, samples=203)
    a["code"] = a["code"] + 1e4  # far from the origin, so that a careless sum would cancel
    stream = StreamingCKA(debiased=debiased)
    for start in range(0, 203, batch):
        stop = start + batch
        stream.update({n: x[start:stop] for n, x in a.items()}, {n: torch.tensor(x[start:stop]) for n, x in b.items()})
    assert stream.route == "moments"
    assert stream.samples == 203
    assert stream.result().values == pytest.approx(similarity_matrix(a, b, debiased=debiased).values, abs=1e-8)


def test_the_stream_of_minibatches_averages_unbiased_hsic():
    x, y = related(120, 30, 20)
    stream = StreamingCKA("minibatch")
    for start in range(0, 120, 40):
        stream.update(x[start : start + 40], y[start : start + 40])
    parts = [(x[s : s + 40], y[s : s + 40]) for s in (0, 40, 80)]
    cross, left, right = (
        np.mean([unbiased_hsic(*pair) for pair in pairs])
        for pairs in (parts, [(p, p) for p, _ in parts], [(q, q) for _, q in parts])
    )
    assert stream.result().values[0, 0] == pytest.approx(cross / np.sqrt(left * right), abs=1e-12)
    assert stream.result().values[0, 0] == pytest.approx(cka(x, y, debiased=True), abs=0.1)


def test_unequal_batches_weigh_by_their_samples_and_tiny_ones_are_left_out_with_a_note():
    x, y = related(53, 6, 5)
    stream = StreamingCKA("minibatch")
    for part in (slice(0, 40), slice(40, 50), slice(50, 53)):
        stream.update(x[part], y[part])
    cross, left, right = (
        40 * unbiased_hsic(p[:40], q[:40]) + 10 * unbiased_hsic(p[40:50], q[40:50]) for p, q in ((x, y), (x, x), (y, y))
    )
    result = stream.result()
    assert result.values[0, 0] == pytest.approx(cross / np.sqrt(left * right), abs=1e-12)
    assert result.notes == ("3 samples came in batches of fewer than four and were left out",)


@pytest.mark.parametrize("route", ["moments", "minibatch"])
def test_the_stream_does_not_grow_with_the_samples(route):
    a, b = model(1), model(2)
    stream = StreamingCKA(route)
    held = set()
    for _ in range(20):
        stream.update(a, b)
        held.add(stream.numbers_held)
    features, layers = 2 * (36 + 90 + 4), 6
    assert held == {layers**2 if route == "minibatch" else (features + layers + 1) ** 2 + features}


def test_wide_layers_stream_by_minibatches_unless_asked_otherwise():
    x = np.random.default_rng(0).normal(size=(6, 5000))
    stream = StreamingCKA()
    stream.update(x, x)
    assert stream.route == "minibatch"
    with pytest.raises(ValueError, match="too many for exact moments"):
        StreamingCKA(debiased=False).update(x, x)


def test_a_batch_in_which_a_layer_is_silent_does_not_stop_the_stream():
    x, y = related(40, 6, 5)
    stream = StreamingCKA("minibatch")
    stream.update(x, y)
    before = stream.result().values[0, 0]
    stream.update(np.zeros_like(x), np.zeros_like(y))
    assert stream.result().values[0, 0] == pytest.approx(before)


@pytest.mark.parametrize("convert", [lambda x: x.astype(np.float32), lambda x: torch.tensor(x, dtype=torch.float32)])
def test_single_precision_numpy_and_torch_agree_with_double(convert):
    for p in (10, 400):
        x, y = related(120, p, 300)
        for measure in (cka, MEASURES["debiased"], rbf_cka, procrustes):
            assert measure(convert(x), convert(y)) == pytest.approx(measure(x, y), abs=2e-6)
        assert cka(convert(x), y) == pytest.approx(cka(x, y), abs=2e-6)


def test_single_precision_far_from_the_origin_keeps_its_digits():
    x, y = (z.astype(np.float32) for z in related(200, 3, 4))
    moved = x + np.float32(1e5)
    moved_exactly = moved.astype(np.float64) - 1e5
    assert cka(moved, y) == pytest.approx(cka(moved_exactly, y), abs=1e-5)


@pytest.mark.parametrize("samples", [10, 700, 999, 5000])
def test_a_constant_is_found_although_its_mean_is_rounded(samples):
    x = np.random.default_rng(0).normal(size=(samples, 5)).astype(np.float32)
    for value in (0.1, 1 / 3, 1e6 / 7):
        constant = np.full((samples, 3), value, dtype=np.float32)
        with pytest.raises(ValueError, match="y is constant"):
            cka(x, constant)
        with_constants = np.hstack([x * 1e-6, constant])
        assert cka(x, with_constants) == pytest.approx(1, abs=1e-5)
        assert any("3 of 8 columns are constant" in note for note in check_comparison(x, with_constants))


def test_bytes_integers_read_only_arrays_and_gradients_are_taken():
    images = np.random.default_rng(0).integers(0, 256, (30, 4, 4)).astype(np.uint8)
    images.flags.writeable = False
    assert cka(images, images.astype(np.int64)) == pytest.approx(1)
    assert cka(torch.randn(30, 3, requires_grad=True), images) < 1


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES.keys())
def test_what_cannot_be_compared_is_refused_in_a_sentence(measure):
    x = np.random.default_rng(0).normal(size=(10, 3))
    with pytest.raises(ValueError, match=r"x has 10 samples and y has 9"):
        measure(x, x[:9])
    with pytest.raises(ValueError, match="y contains NaN or infinity"):
        measure(x, np.where(x > 1, np.nan, x) * np.nan)
    with pytest.raises(ValueError, match="at least 2 samples"):
        measure(x[:1], x[:1])
    with pytest.raises(ValueError, match="y is constant over its 10 samples"):
        measure(x, np.full((10, 4), 0.1, dtype=np.float32))
    with pytest.raises(ValueError, match="no features"):
        measure(x, np.zeros((10, 0)))
    with pytest.raises(TypeError, match="needs numbers"):
        measure(x, np.array(["a"] * 10))


def test_undefined_debiased_cka_says_so_instead_of_nan():
    x = np.random.default_rng(0).normal(size=(6, 3))
    for dtype in (np.float32, np.float64):
        with pytest.raises(ValueError, match="all equally far from each other"):
            cka(np.eye(6, dtype=dtype), x, debiased=True)
    assert 0 < cka(np.eye(6), x) < 1
    with pytest.raises(ValueError, match="at least four samples"):
        cka(x[:3], x[:3], debiased=True)


def test_wrong_settings_are_refused():
    x = np.random.default_rng(0).normal(size=(10, 3))
    with pytest.raises(ValueError, match="positive fraction"):
        rbf_cka(x, x, bandwidth=0)
    with pytest.raises(ValueError, match="median distance between samples of y is zero"):
        rbf_cka(x, np.repeat([[0.0], [1.0]], [9, 1], axis=0))
    with pytest.raises(ValueError, match=r"fraction in \(0, 1\]"):
        svcca(x, x, variance=2)
    with pytest.raises(ValueError, match="cannot"):
        similarity_matrix({"a": x}, {"a": x}, "procrustes", debiased=True)
    with pytest.raises(ValueError, match="measure is cka"):
        similarity_matrix({"a": x}, {"a": x}, "cca")
    with pytest.raises(ValueError, match="at least one layer"):
        similarity_matrix({}, {"a": x})
    with pytest.raises(ValueError, match="same layers"):
        average_over_pairs([{"a": x}, {"b": x}], [{"a": x}])
    with pytest.raises(ValueError, match="unbiased estimates only"):
        StreamingCKA("minibatch", debiased=False)
    with pytest.raises(ValueError, match="squares of y do not fit"):
        cka(x, (x * 1e30).astype(np.float32))
    stream = StreamingCKA()
    stream.update(x, x)
    with pytest.raises(ValueError, match="every batch needs the same layers"):
        stream.update(x[:, :2], x)
    with pytest.raises(ValueError, match="the stream has had 0"):
        StreamingCKA().result()


def test_notes_name_few_samples_constant_columns_and_shared_noise():
    rng = np.random.default_rng(0)
    assert check_comparison(rng.normal(size=(500, 3)), rng.normal(size=(500, 4))) == []
    noise = rng.normal(size=(2000, 4))
    means = rng.uniform(-2, 2, size=(2000, 2))
    collapsed = noise
    healthy = np.hstack([means + 0.1 * noise[:, :2], 0.02 * rng.normal(size=(2000, 2)) + noise[:, 2:]])
    (note,) = check_comparison(collapsed, healthy)
    assert "columns 2, 3 look like the same noise" in note
    assert check_comparison(collapsed, collapsed.copy()) == []
    fresh = np.hstack([healthy[:, :2], rng.normal(size=(2000, 2))])
    assert check_comparison(collapsed, fresh) == []
    wide = np.hstack([rng.normal(size=(20, 30)), np.full((20, 2), 0.1)])
    result = similarity_matrix({"wide": wide}, {"code": rng.normal(size=(20, 2))})
    assert any("20 samples for 32 features" in note for note in result.notes)
    assert any("2 of 32 columns are constant" in note for note in result.notes)
    assert not any("samples for" in n for n in similarity_matrix({"w": wide}, {"w": wide}, debiased=True).notes)


def test_a_layer_on_both_sides_is_looked_at_once(monkeypatch):
    looked = []
    look = hsic.look
    monkeypatch.setattr(similarity, "look", lambda x, name: looked.append(name) or look(x, name))
    a = model(1)
    similarity_matrix(a, a)
    assert looked == list(LAYERS)
