"""The report: one whole page whatever is missing, true to its numbers, quiet on the network, fit for a phone."""

import base64
import re
import shutil
import subprocess
import tomllib
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from scipy.stats import pearsonr

from polariscope.examination.examine import Examination, Value, Variable
from polariscope.lab.store import Store
from polariscope.measures.polarisation import polarised_sample, variable_types
from polariscope.report import Case, figures, page, write_report
from polariscope.representation import Representation
from polariscope.studies import Table
from polariscope.studies.polarised.polarised_regime import PolarisedRegime
from polariscope.worlds.factors import Factor

SECTIONS = (
    "headline",
    "learning",
    "reconstructions",
    "traversals",
    "variables",
    "factors",
    "histograms",
    "measures",
    "again",
)
VOID = {"meta", "img", "br", "hr", "link", "input"}
TYPES = ("active", "active", "active", "mixed", *["passive"] * 6)
FACTORS = (
    Factor("shape", 3, "categorical"),
    Factor("scale", 6),
    Factor("orientation", 40, "periodic"),
    Factor("x position", 32),
    Factor("y position", 32),
)


class Page(HTMLParser):
    """Tags with their attributes, numbers in ``<data>``, text by section; complains about tags that do not close."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.numbers, self.text = [], [], {"": ""}
        self._open, self._section = [], ""
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if tag == "data":
            self.numbers.append((self._section, float(attributes["value"])))
        if tag == "section":
            self._section = attributes["id"]
            self.text[self._section] = ""
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag
        if tag == "section":
            self._section = ""

    def handle_data(self, data):
        if not self._open or self._open[-1] != "style":
            self.text[self._section] += data

    def of(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def sprites(x, y, scale, shape, side=64):
    """Soft squares, discs and diamonds: ``uint8 (n, 1, side, side)`` from arrays of positions and sizes."""
    grid = np.arange(side) + 0.5
    u = (grid[None, None] - np.asarray(x)[:, None, None]) / np.asarray(scale)[:, None, None]
    v = (grid[None, :, None] - np.asarray(y)[:, None, None]) / np.asarray(scale)[:, None, None]
    distances = np.stack([np.maximum(abs(u), abs(v)) + 0 * u, np.hypot(u, v), abs(u) + abs(v)])
    distance = distances[np.asarray(shape), np.arange(len(x))]
    return (255 / (1 + np.exp(9 * (distance - 1)))).astype(np.uint8)[:, None]


def examination(seed=0, count=2000):
    """Ten latents of the three types on a sprite-like world, made by hand: three active, one mixed, six passive."""
    generator = np.random.default_rng(seed)
    kinds = np.array(TYPES)
    var = np.where(kinds == "active", 0.02, 0.97) * generator.uniform(0.7, 1.03, (count, 10))
    switched = generator.random(count) < 0.5
    var[:, 3] = np.where(switched, 0.08, 0.95) * generator.uniform(0.8, 1.05, count)
    spread = np.where(kinds == "active", 1.0, 0.03)
    mean = spread * generator.normal(size=(count, 10))
    mean[:, 3] = np.where(switched, generator.normal(size=count), 0)
    factors = np.stack([generator.integers(0, f.size, count) for f in FACTORS], 1)
    representation = Representation(
        mean.astype(np.float32),
        var.astype(np.float32),
        (mean + np.sqrt(var) * generator.normal(size=mean.shape)).astype(np.float32),
        factors,
        FACTORS,
    )
    order = [1, 0, 2, 3, 4, 5, 6, 7, 8, 9]
    information = generator.uniform(0, 0.03, (10, 5))
    information[[1, 0, 2, 3], [3, 4, 1, 0]] = 0.81, 0.74, 0.55, 0.21
    information[2, 2] = 0.12
    kl = 0.5 * (mean**2 + var - np.log(var) - 1).mean(0)
    best = information.argmax(1)
    variables = [
        Variable(
            j,
            TYPES[j],
            float(var[:, j].mean()),
            float(mean[:, j].var()),
            float(kl[j]),
            FACTORS[best[j]].name,
            float(information[j, best[j]]),
        )
        for j in order
    ]
    values = [
        Value("mig", "Mutual information gap", 0.412345 + seed / 10, True),
        Value("total_correlation", "Gaussian total correlation of the means (nats)", 0.0731, False),
        Value("effective_rank", "Effective rank of the means", 3.87, None),
        Value("collapse", "Nothing to measure", None, True, "there is no variable of the type asked for"),
    ]
    x, y, size = generator.uniform(16, 48, 12), generator.uniform(16, 48, 12), generator.uniform(7, 13, 12)
    shape = generator.integers(0, 3, 12)
    steps, still = np.linspace(14, 50, 9), np.full(9, 32.0)
    moves = {
        1: (steps, still, still / 3.2, [1] * 9),
        0: (still, steps, still / 3.2, [1] * 9),
        2: (still, still, steps / 3.2, [1] * 9),
        3: (still, still, still / 3.2, [0] * 3 + [1] * 3 + [2] * 3),
    }
    strips = [sprites(*moves.get(j, (still, still, still / 3.2, [1] * 9))) for j in order]
    blurred = (0.85 * sprites(x + 0.6, y, size * 1.06, np.ones(12, int)).astype(float) + 9).astype(np.uint8)
    notes = ["Variables 4, 5, 6, 7, 8, 9 are passive: leave their means out of anything that scales features."]
    return Examination(
        representation, variables, values, information, sprites(x, y, size, shape), blurred, np.stack(strips), notes
    )


def settings(objective="beta-vae", **strength):
    return {
        "world": {"name": "sprites", "size": 64, "shapes": ["square", "ellipse", "heart"]},
        "objective": {"name": objective, **strength},
        "model": {
            "latents": 10,
            "architecture": {"name": "conv", "channels": [32, 32, 64, 64]},
            "posterior": "auto",
            "variance": 1.0,
            "learn_variance": False,
        },
        "training": {"steps": 3000, "batch_size": 64, "learning_rate": 1e-05, "seed": 0, "note": None},
    }


def metrics(seed=0, steps=3000, beta=4.0):
    generator = np.random.default_rng(seed)
    rows = []
    for split, every, shift in (("train", 50, 0.0), ("held_out", 500, 1.5)):
        for step in range(every, steps + 1, every):
            reconstruction = 32 + shift + 620 * np.exp(-step / 250) + generator.normal(0, 0.6)
            kl = 9.5 * (1 - np.exp(-step / 500)) + generator.normal(0, 0.1)
            terms = {"loss": reconstruction + beta * kl, "reconstruction": reconstruction, "kl": kl}
            rows += [(step, split, term, float(value)) for term, value in terms.items()]
    return rows


@pytest.fixture(scope="module")
def case():
    environment = {"python": "3.11.9", "torch": "2.13.0", "numpy": "2.2.0", "cores": "2"}
    return Case("beta-vae (beta 4)", settings(beta=4.0), metrics(), examination(), environment)


@pytest.fixture(scope="module")
def other():
    return Case("vae", settings("vae"), metrics(1, beta=1.0), examination(1), {"python": "3.11.9"})


def written(tmp_path, *cases, title="A beta-VAE on sprites"):
    path = tmp_path / "report.html"
    write_report(path, cases, title)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def single(tmp_path_factory, case):
    """The page of one case."""
    return written(tmp_path_factory.mktemp("single"), case)


@pytest.fixture(scope="module")
def double(tmp_path_factory, case, other):
    """The page of two cases."""
    return written(tmp_path_factory.mktemp("double"), case, other)


def test_every_section_is_there_once_and_every_tag_closes(single):
    parsed = Page(single)
    assert [attributes["id"] for attributes in parsed.of("section")] == list(SECTIONS)
    assert [a["href"] for a in parsed.of("a")] == [f"#{name}" for name in SECTIONS]
    assert parsed.of("html")[0]["lang"] == "en"
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in parsed.of("meta")
    levels = [int(tag[1]) for tag, _ in parsed.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))


def test_nothing_is_fetched(double):
    addresses = set(re.findall(r"""(?:https?:)?//[\w.-]+[^\s"'<>)]*""", re.sub(r"base64,[\w+/=]+", "", double)))
    assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "@import" not in double
    assert "url(#" in double
    assert re.findall(r"url\((?!#)", double) == []
    parsed = Page(double)
    assert not parsed.of("script")
    assert not parsed.of("link")
    for _, attributes in parsed.tags:
        assert not attributes.keys() & {"srcset", "data-src", "action", "onload"}
        for key in ("src", "href", "xlink:href"):
            assert attributes.get(key, "#").startswith(("data:image/png;base64,", "#"))


def test_ids_are_unique_and_references_meet_them(double):
    ids = [attributes["id"] for _, attributes in Page(double).tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(|href=")#([\w-]+)', double)) <= set(ids)


def test_pictures_decode_and_have_words(single):
    parsed = Page(single)
    images = parsed.of("img")
    assert len(images) == 12 + 10
    for attributes in images:
        picture = Image.open(BytesIO(base64.b64decode(attributes["src"].partition(",")[2])))
        picture.load()
        assert picture.width == 2 * int(attributes["width"])
        assert "alt" in attributes
    assert "Traversal of variable 1 of beta-vae (beta 4), active" in [a["alt"] for a in images]
    svgs = [a for a in parsed.of("svg") if "aria-hidden" not in a]
    assert len(svgs) == 3 + 1 + 1
    assert all(a["role"] == "img" and a["aria-label"] for a in svgs)


def test_the_pixels_shown_are_those_examined(single, case):
    first = Page(single).of("img")[0]
    picture = np.asarray(Image.open(BytesIO(base64.b64decode(first["src"].partition(",")[2]))))[::2, ::2]
    assert (picture[:64, :, 0] == case.examination.originals[0, 0]).all()
    assert (picture[-64:, :, 0] == case.examination.reconstructions[0, 0]).all()
    assert (picture[64:-64, :, 3] == 0).all()


def test_numbers_are_the_examinations(single, case):
    parsed = Page(single)
    shown = {section: [v for s, v in parsed.numbers if s == section] for section in SECTIONS}
    found = case.examination
    table = [[v.mean_var, v.var_of_mean, v.kl, v.information] for v in found.variables]
    assert np.array_equal(np.reshape(shown["variables"], (10, 4)), table)
    assert shown["measures"] == [0.412345, 0.0731, 3.87]
    terms = case.held_out
    held_out = [terms["reconstruction"] + terms["kl"], *(terms[term] for term in ("loss", "reconstruction", "kl"))]
    assert shown["headline"] == [3, 1, 6, *held_out, 0.412345, 0.0731]
    assert "0.412" in parsed.text["measures"]
    assert f"{found.variables[0].mean_var:.3f}" in parsed.text["variables"]
    assert "undefined: there is no variable of the type asked for" in parsed.text["measures"]
    assert found.notes[0] in parsed.text["headline"]
    assert "10 latent variables, trained on the world “sprites” for 3,000 steps" in parsed.text[""]


def test_the_last_held_out_evaluation_counts():
    rows = [(100, "held_out", "loss", 5.0), (200, "held_out", "loss", 4.0), (300, "train", "loss", 1.0)]
    assert Case("m", {}, rows, examination(count=10)).held_out == {"loss": 4.0}


def test_several_models_stand_side_by_side(double, case, other):
    parsed = Page(double)
    headline = [v for s, v in parsed.numbers if s == "headline"]
    assert headline[:6] == [3, 1, 6, 3, 1, 6]
    # Losses of two objectives cannot be read side by side; what they have in common can.
    bounds = [one.held_out["reconstruction"] + one.held_out["kl"] for one in (case, other)]
    assert headline[6:8] == bounds
    assert "Held-out loss" not in double
    assert [v for s, v in parsed.numbers if s == "measures"][:2] == [0.412345, 0.512345]
    # The gap of the second model is larger and better; equal values have no best.
    assert re.findall(r'class="best">best</span> <data value="([\d.]+)"', double.partition('id="measures"')[2]) == [
        "0.512345"
    ]
    for section in ("reconstructions", "traversals", "variables", "factors", "histograms"):
        assert case.name in parsed.text[section]
        assert "vae" in parsed.text[section]
    assert re.findall(r'class="differs"><th scope="row"><code>([\w.]+)', double) == [
        "objective.name",
        "objective.beta",
        "torch",
        "numpy",
        "cores",
    ]


def test_subjects_of_one_name_are_told_apart(tmp_path):
    small = Examination(
        Representation(np.zeros((5, 1), np.float32)), [Variable(0, "active", 0, 0, None, None, None)], [], None
    )
    parsed = Page(written(tmp_path, *[Case("vae", {}, [], small)] * 2))
    assert "vae 2" in parsed.text["headline"]


def test_names_are_words_not_markup(tmp_path, case):
    evil = "<script>alert(1)</script> & $\\broken$ \"q\" 'é' 漢"
    found = case.examination
    factors = (Factor(evil, 3), *FACTORS[1:])
    found = replace(
        found,
        representation=replace(found.representation, factor_info=factors),
        variables=[replace(v, factor=evil) for v in found.variables],
        values=[Value("x", evil, None, None, evil), *found.values],
        notes=[evil],
    )
    poisoned = Case(evil, {**settings(), "note": evil}, [(1, "train", evil, 1.0)], found, {evil: evil})
    text = written(tmp_path, poisoned, title=evil)
    parsed = Page(text)
    assert not parsed.of("script")
    assert "<script" not in text
    for section in ("headline", "learning", "traversals", "variables", "factors", "measures", "again"):
        assert evil in parsed.text[section], section
    assert evil in parsed.text[""]


def test_a_subject_without_factors_pictures_variances_or_curves_still_makes_a_whole_page(tmp_path, case):
    found = case.examination
    bare = Examination(
        Representation(found.representation.mean),
        [replace(v, type="active", mean_var=0.0, kl=None, factor=None, information=None) for v in found.variables],
        [Value("mig", "Mutual information gap", None, True, "Mutual information gap needs factors")],
        None,
    )
    parsed = Page(written(tmp_path, Case("Mine", {"model": "mine.py:Mine", "data": "x.npz"}, [], bare)))
    assert [a["id"] for a in parsed.of("section")] == list(SECTIONS)
    assert not parsed.of("img")
    assert "No pictures" in parsed.text["reconstructions"]
    assert "No pictures" in parsed.text["traversals"]
    assert "not known" in parsed.text["factors"]
    assert "No learning curves" in parsed.text["learning"]
    assert "no factors known" in parsed.text["variables"]
    assert "undefined: Mutual information gap needs factors" in parsed.text["measures"]
    assert "polariscope train" not in parsed.text["again"]
    assert "mine.py:Mine" in parsed.text["again"]
    assert [v for s, v in parsed.numbers if s == "variables"] == [v.var_of_mean for v in bare.variables]
    both = Page(written(tmp_path, case, Case("Mine", {}, [], bare)))
    assert "This model shows no pictures" in both.text["traversals"]
    assert "not measured" in both.text["headline"]


def test_many_latents_are_shown_most_used_first_and_the_rest_counted(tmp_path, case):
    found, count = case.examination, 40
    wide = Examination(
        Representation(np.zeros((50, count), np.float32), np.ones((50, count), np.float32)),
        [replace(found.variables[0], number=j) for j in reversed(range(count))],
        [],
        None,
        found.originals,
        found.reconstructions,
        np.repeat(found.traversals[:1], count, 0),
    )
    parsed = Page(written(tmp_path, Case("wide", {}, [], wide)))
    assert "The 16 most used of 40 variables" in parsed.text["traversals"]
    assert re.findall(r"z\d+", parsed.text["traversals"]) == [f"z{j}" for j in range(39, 23, -1)]
    assert len(re.findall(r"z\d+", parsed.text["variables"])) == count


def test_the_configuration_shown_makes_the_run_again(single, case):
    parsed = Page(single)
    assert "polariscope train --config again.toml" in parsed.text["again"]
    assert page.as_toml(case.settings) in parsed.text["again"]
    expected = settings(beta=4.0)
    del expected["training"]["note"]  # TOML has no None
    assert tomllib.loads(page.as_toml(case.settings)) == expected


def test_toml_survives_odd_keys_and_values():
    odd = {
        "a b": 'say "é"\n',
        "list": [1, 2.5, [True], {"x": "y"}],
        "t": {"empty": {}, "nan": 1e-07, "deep": {"k": -1}},
    }
    assert tomllib.loads(page.as_toml(odd)) == odd


def test_a_run_folder_becomes_a_subject(tmp_path):
    run = Store(tmp_path / "runs").create(settings(beta=4.0), "sprites beta-vae")
    run.write_metrics(metrics())
    case = Case.of_run(run, examination(count=50))
    assert case.name == "beta-vae (beta 4)"
    assert list(case.metrics) == metrics()
    assert case.settings == run.config
    assert case.environment["run"] == run.id
    assert case.environment["numpy"] == np.__version__
    assert run.id in Page(written(run.path, case)).text["again"]


def test_a_report_needs_an_examination(tmp_path):
    with pytest.raises(ValueError, match="at least one examination"):
        write_report(tmp_path / "report.html", [], "nothing")
    assert not (tmp_path / "report.html").exists()


def test_the_same_subject_gives_the_same_small_file_and_no_draft(tmp_path, single, double, case):
    assert written(tmp_path / "new", case) == single
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["report.html"]
    assert len(double) < 2_000_000


def test_a_measure_means_the_first_line_of_its_docstring(monkeypatch):
    class Gap:
        """Gap of ``mean`` and :func:`sample`, in two
        lines.

        More that is not shown.
        """

    class Bare:
        pass

    Bare.__doc__ = "Bare(bins: int = 20)"
    known = {"gap": Gap, "bare": Bare}
    monkeypatch.setattr(page.measures, "names", lambda: sorted(known))
    monkeypatch.setattr(page.measures, "get", known.__getitem__)
    assert page.meaning("gap") == "Gap of mean and sample, in two lines."
    assert page.meaning("bare") == ""
    assert page.meaning("unknown") == ""


def test_learning_curves_hold_the_rows_of_their_term():
    figure = figures.learning_curves({"a": metrics(), "b": metrics(1)}, ["kl"])
    lines = figure.axes[0].get_lines()
    assert len(lines) == 4
    for line, (seed, split) in zip(lines, [(0, "train"), (0, "held_out"), (1, "train"), (1, "held_out")], strict=True):
        expected = [(step, value) for step, s, term, value in metrics(seed) if (s, term) == (split, "kl")]
        assert np.array_equal(line.get_xydata(), expected)
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["a, training", "a, held-out", "b, training", "b, held-out"]


def test_learning_curves_are_logarithmic_where_the_loss_falls_far_and_leave_out_what_is_no_number():
    def scale(*values):
        rows = [(step, "train", "loss", value) for step, value in enumerate(values)]
        return figures.learning_curves({"m": rows}).axes[0].get_yscale()

    assert scale(600.0, 40.0, 30.0) == "log"
    assert scale(1.0, 5.0, 9.0) == "linear"
    assert scale(60.0, 40.0, 30.0) == "linear"
    assert scale(600.0, -1.0, 30.0) == "linear"
    assert scale(float("nan"), float("inf"), 3.0) == "linear"
    assert figures.terms_of([metrics(), [(1, "train", "adversary", 0.0)]]) == [
        "loss",
        "reconstruction",
        "kl",
        "adversary",
    ]


@pytest.mark.spec("002/V04")
def test_type_histograms_have_the_moments_of_the_data():
    found = examination()
    chosen = [found.variables[0], found.variables[3], found.variables[4]]
    figure = figures.variable_histograms(found.representation, chosen, bins=400)
    grid = np.reshape(figure.axes, (3, 3))
    for row, variable in zip(grid, chosen, strict=True):
        for axes, name in zip(row, ("mean", "var", "sample"), strict=True):
            density, edges, _ = axes.patches[0].get_data()
            centres, mass = (edges[1:] + edges[:-1]) / 2, density * np.diff(edges)
            values = getattr(found.representation, name)[:, variable.number]
            assert mass.sum() == pytest.approx(1)
            assert mass @ centres == pytest.approx(values.mean(), abs=0.01)
            assert mass @ centres**2 - (mass @ centres) ** 2 == pytest.approx(values.var(), abs=0.02)
            assert matplotlib.colors.to_hex(axes.patches[0].get_facecolor()) == figures.LIGHT[variable.type]
        assert row[0].get_ylabel() == f"z{variable.number} · {variable.type}"
    # The same axis for all types: a passive mean is narrow beside an active one.
    assert len({axes.get_xlim() for axes in grid[:, 0]}) == 1


def test_histograms_show_a_conditional_prior_where_there_is_one():
    found = examination()
    rep = found.representation
    rep = replace(rep, prior_mean=np.full_like(rep.mean, 5.0), prior_var=np.full_like(rep.mean, 3.0))
    mean, var, sample = figures.variable_histograms(rep, found.variables[:1]).axes
    for axes, expected in ((mean, 5.0), (var, 3.0)):
        density, edges, _ = axes.patches[1].get_data()
        peak = density.argmax()
        assert edges[peak] <= expected <= edges[peak + 1]
    assert len(sample.patches) == 1
    assert not sample.get_lines()


def test_factor_matrix_puts_the_numbers_in_the_order_of_the_variables():
    found = examination()
    figure = figures.factor_matrix(found.factor_information, found.variables, [f.name for f in FACTORS])
    axes = figure.axes[0]
    order = [v.number for v in found.variables]
    assert [t.get_text() for t in axes.texts] == [f"{v:.2f}" for v in found.factor_information[order].ravel()]
    assert np.array_equal(axes.collections[0].get_array(), found.factor_information[order])
    assert [t.get_text() for t in axes.get_yticklabels()][:2] == ["z1 · active", "z0 · active"]
    assert axes.collections[0].get_clim() == (0, 1)


@pytest.mark.spec("002/M07")
def test_correlation_heatmap_shows_the_correlations_with_passive_rows_marked():
    """The picture of the study: passive means follow active ones, active means follow none (Figure 6.9)."""
    drawn = polarised_sample(active=4, passive=3, correlation=0.8, mixed=[0.5], samples=5000)
    order = [7, 0, 5, 1, 4, 2, 6, 3]  # so that neither types nor pairs lie in a row
    mean, types = drawn.mean[:, order], variable_types(drawn.var[:, order])
    study = PolarisedRegime()
    rows = [{"beta": beta, "seed": 0, **types.counts} | study._correlations(mean, types) for beta in (1.0, 4.0)]
    figure = study.figures(Table(rows))["correlations"]
    axes = figure.axes[0]
    shown = axes.collections[0].get_array()
    for i, j in np.ndindex(8, 8):
        assert shown[i, j] == pytest.approx(pearsonr(mean[:, i], mean[:, j]).statistic, abs=6e-4)
    assert np.argwhere(np.abs(np.triu(shown, 1)) > 0.5).tolist() == [[0, 5], [1, 2], [3, 6]]
    assert axes.collections[0].get_clim() == (-1, 1)
    labels = {text.get_text(): text.get_color() for text in axes.get_yticklabels()}
    assert list(labels) == [f"{j} {drawn.labels[k]}" for j, k in enumerate(order)]
    marked = [name for name, colour in labels.items() if colour == figures.LIGHT["muted"]]
    assert marked == ["0 passive", "2 passive", "6 passive"]
    assert axes.texts[5].get_text() == f"{pearsonr(mean[:, 0], mean[:, 5]).statistic:.2f}"


def test_heatmap_is_signed_about_zero_marks_borders_and_leaves_holes_empty():
    values = np.array([[1.0, -0.4], [np.nan, 0.2]])
    figure = figures.heatmap(values, ["a", "b"], ["c", "d"], "Correlations", signed=True, separators=([1], [1]))
    axes = figure.axes[0]
    assert axes.collections[0].get_clim() == (-1, 1)
    assert [t.get_text() for t in axes.texts] == ["1.00", "-0.40", "0.20"]
    assert len(axes.get_lines()) == 2
    assert axes.get_title(loc="left") == "Correlations"
    neutral = figures.DIVERGING(0.5)[:3]
    assert max(neutral) - min(neutral) < 0.02
    large = figures.heatmap(np.eye(60), [str(i) for i in range(60)], [str(i) for i in range(60)])
    assert not large.axes[0].texts
    assert len(figures.as_svg(large)) < 200_000
    with pytest.raises(ValueError, match="2 rows and 1 columns"):
        figures.heatmap(values, ["a", "b"], ["c"])


def test_bars_of_types_stack_to_the_number_of_variables():
    counts = [{"active": 3, "mixed": 1, "passive": 6}, {"active": 2, "passive": 8}]
    figure = figures.types_by_strength([1, 4], counts, {"TC of means": [0.1, 0.4], "TC of samples": [0.1, 0.1]})
    bars, lines = figure.axes
    heights = np.reshape([bar.get_height() for bar in bars.patches], (3, 2))
    assert heights.tolist() == [[3, 2], [1, 0], [6, 8]]
    assert [bar.get_y() + bar.get_height() for bar in bars.patches[-2:]] == [10, 10]
    assert lines.get_lines()[0].get_ydata().tolist() == [0.1, 0.4]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["active", "mixed", "passive", "TC of means", "TC of samples"]
    with pytest.raises(ValueError, match="3 strengths"):
        figures.types_by_strength([1, 2, 3], counts)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_image_grid_tiles_in_reading_order(channels):
    images = np.random.default_rng(0).integers(0, 256, (2, 3, channels, 4, 5), np.uint8)
    whole = np.asarray(figures.image_grid(images, enlarge=3, gap=2))
    assert whole.shape == ((2 * 4 + 2) * 3, (3 * 5 + 4) * 3, 4)
    small = whole[1::3, 1::3]
    tile = small[6:10, 7:12]
    for channel in range(3):
        assert (tile[..., channel] == images[1, 1, 0 if channels < 3 else channel]).all()
    assert (tile[..., 3] == 255).all()
    assert (small[4:6, :, 3] == 0).all()
    with pytest.raises(ValueError, match="uint8"):
        figures.image_grid(images.astype(int))


def test_figures_leave_the_users_settings_alone():
    before = dict(matplotlib.rcParams)
    figure = figures.learning_curves({"m": metrics()})
    assert isinstance(figure, Figure)
    figures.as_svg(figure)
    assert dict(matplotlib.rcParams) == before


def test_colours_of_text_and_types_can_be_told_from_the_page():
    """WCAG: text needs a contrast of 4.5, marks one of 3, on the card they lie on, light and dark."""

    def luminance(colour):
        channels = np.array(matplotlib.colors.to_rgb(colour))
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        return linear @ (0.2126, 0.7152, 0.0722)

    for shade, card in ((0, "#ffffff"), (1, "#171f27")):
        for name, pair in figures.PALETTE.items():
            if name == "line":
                continue
            bright, dark = sorted((luminance(pair[shade]), luminance(card)), reverse=True)
            least = 4.5 if name in ("ink", "muted") else 2.9
            assert (bright + 0.05) / (dark + 0.05) >= least, name


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """``browser(*flags, page)``: what Chromium prints about a page, without display or network."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("Chromium is not installed: the page cannot be looked at in a browser")
    profile = tmp_path_factory.mktemp("chromium")
    flags = "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update "
    flags += "--disable-sync --no-first-run --hide-scrollbars --disable-dev-shm-usage"

    def run(*arguments):
        command = [program, *flags.split(), f"--user-data-dir={profile}", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    return run


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_its_window_in_a_browser(tmp_path, browser, double, width):
    # Browsers refuse windows as narrow as a phone, frames they take at any width.
    frame = tmp_path / "frame.html"
    frame.write_text(
        f'<body style="margin: 0"><iframe id="f" style="border: 0; width: {width}px; height: 2000px" srcdoc="'
        + double.replace("&", "&amp;").replace('"', "&quot;")
        + """"></iframe><p id="sizes"></p><script>f.onload = () => {
            const page = f.contentDocument, wide = page.documentElement.clientWidth;
            page.querySelectorAll("details").forEach(d => d.open = true);
            const inside = e => e.closest(".scroll, pre, svg");
            const out = [...page.body.querySelectorAll("*")].filter(
                e => !inside(e) && e.getBoundingClientRect().right > wide + 1).map(e => e.tagName + "." + e.className);
            sizes.textContent = ["sizes", wide, page.documentElement.scrollWidth, page.images.length,
                [...page.images].filter(i => i.naturalWidth > 0).length, "out", ...out].join(" ");
        }</script>""",
        encoding="utf-8",
    )
    shown = re.search(r"sizes (\d+) (\d+) (\d+) (\d+) out([^<]*)<", browser("--dump-dom", frame.as_uri()))
    assert shown is not None
    client, scroll, images, decoded = map(int, shown.groups()[:4])
    assert client == width
    assert scroll <= client
    assert images == decoded == 44
    assert shown[5].strip() == ""


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_can_be_looked_at(tmp_path, browser, single, width):
    (tmp_path / "report.html").write_text(single, encoding="utf-8")
    shot = tmp_path / "shot.png"
    browser(f"--window-size={width},2000", f"--screenshot={shot}", (tmp_path / "report.html").as_uri())
    pixels = np.asarray(Image.open(shot).convert("RGB"))
    assert pixels.shape[:2] == (2000, width)
    colours, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_counts=True)
    blue = tuple(int(figures.LIGHT["active"][i : i + 2], 16) for i in (1, 3, 5))
    assert counts[(colours == blue).all(1)].sum() > 100
    assert len(colours) > 100
