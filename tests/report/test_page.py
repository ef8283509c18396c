"""The page of any findings: whole whatever is missing, true to its numbers, quiet on the network, fit for a phone."""

import base64
import copy
import re
import shutil
import subprocess
import tomllib
from dataclasses import replace
from io import BytesIO, StringIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console

from polariscope.dimension.results import dimension_findings
from polariscope.dimension.trained import Reading, StableDimension, search_dimension
from polariscope.examination.diagnose import diagnose
from polariscope.examination.examination import Examination, Variable, about_run, held_out_terms
from polariscope.findings import Chart, Column, Curves, Records, Text, Value, Values
from polariscope.lab.store import Store
from polariscope.nets.classifiers import mlp
from polariscope.report import Findings, figures
from polariscope.report.page import as_toml, page
from polariscope.report.terminal import side_by_side
from polariscope.representation import Representation
from polariscope.studies import Claim, Study, Table, studies
from polariscope.studies.criteria import AtLeast
from polariscope.studies.study import Origin, Outcome
from polariscope.worlds.factors import Factor
from polariscope.worlds.targets import Examples

SECTIONS = (
    "summary",
    "learning",
    "reconstructions",
    "traversals",
    "variables",
    "factors",
    "histograms",
    "measures",
    "again",
)


def test_every_section_is_there_once_and_every_tag_closes(single, parsed):
    shown = parsed(single)
    assert [attributes["id"] for attributes in shown.of("section")] == list(SECTIONS)
    assert [a["href"] for a in shown.of("a")] == [f"#{name}" for name in SECTIONS]
    assert shown.of("html")[0]["lang"] == "en"
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in shown.of("meta")
    levels = [int(tag[1]) for tag, _ in shown.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))


def quick(findings):
    """The same with one curve and empty figures: drawing is what takes time."""
    parts = [replace(part, draw=Figure) if isinstance(part, Chart) else part for part in findings.parts]
    parts = [
        replace(part, metrics=[row for row in part.metrics if row[2] == "kl"]) if isinstance(part, Curves) else part
        for part in parts
    ]
    return replace(findings, parts=parts)


def assert_quiet(text, parsed):
    """Nothing is fetched, nothing runs, and every id is there once."""
    addresses = set(re.findall(r"""(?:https?:)?//[\w.-]+[^\s"'<>)]*""", re.sub(r"base64,[\w+/=\s]+", "", text)))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "@import" not in text
    assert re.findall(r"url\((?!#)", text) == []
    shown = parsed(text)
    assert not shown.of("script")
    assert not shown.of("link")
    for _, attributes in shown.tags:
        assert not attributes.keys() & {"srcset", "data-src", "action", "onload"}
        for key in ("src", "href", "xlink:href"):
            assert attributes.get(key, "#").startswith(("data:image/png;base64,", "#"))
    ids = [attributes["id"] for _, attributes in shown.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(|href=")#([\w-]+)', text)) <= set(ids)


def test_nothing_is_fetched_and_ids_are_unique(double, parsed):
    assert "url(#" in double
    assert_quiet(double, parsed)


def test_pictures_decode_and_have_words(single, parsed):
    shown = parsed(single)
    images = shown.of("img")
    assert len(images) == 12 + 10
    for attributes in images:
        picture = Image.open(BytesIO(base64.b64decode(attributes["src"].partition(",")[2])))
        picture.load()
        assert picture.width == 2 * int(attributes["width"])
        assert "alt" in attributes
    assert "Traversal of variable 1 of beta-vae (beta 4), active" in [a["alt"] for a in images]
    svgs = [a for a in shown.of("svg") if "aria-hidden" not in a]
    assert len(svgs) == 3 + 1 + 1
    assert all(a["role"] == "img" and a["aria-label"] for a in svgs)


def test_the_pixels_shown_are_those_examined(single, found, parsed):
    first = parsed(single).of("img")[0]
    picture = np.asarray(Image.open(BytesIO(base64.b64decode(first["src"].partition(",")[2]))))[::2, ::2]
    assert (picture[:64, :, 0] == found.originals[0, 0]).all()
    assert (picture[-64:, :, 0] == found.reconstructions[0, 0]).all()
    assert (picture[64:-64, :, 3] == 0).all()


def test_numbers_are_the_examinations(single, found, made_metrics, parsed):
    shown = parsed(single)
    table = [[v.number, v.mean_var, v.var_of_mean, v.kl, v.information] for v in found.variables]
    assert np.array_equal(np.reshape(shown.shown("variables"), (10, 5)), table)
    assert shown.shown("measures") == [0.412345, 0.0731, 3.87]
    last = {term: value for step, split, term, value in made_metrics() if (step, split) == (3000, "held_out")}
    held_out = [last["reconstruction"] + last["kl"], last["reconstruction"], last["kl"]]
    assert shown.shown("summary") == [3, 0, 1, 6, *held_out, 0.412345, 0.0731]
    assert "0.412" in shown.text["measures"]
    assert "How many directions are used." in shown.text["measures"]
    assert f"{found.variables[0].mean_var:.3f}" in shown.text["variables"]
    assert "undefined: there is no variable of the type asked for" in shown.text["measures"]
    assert found.notes[0] in shown.text[""]
    headline = "10 latent variables on 2,000 examples: 3 active, 1 switching, 6 passive"
    assert f"{headline}; trained on the world “sprites” for 3,000 steps." in shown.text[""]


def test_the_last_held_out_evaluation_counts():
    rows = [(100, "held_out", "loss", 5.0), (200, "held_out", "loss", 4.0), (300, "train", "loss", 1.0)]
    assert [(term.name, term.value) for term in held_out_terms(rows)] == [("held_out_loss", 4.0)]
    assert held_out_terms([]) == []


def test_several_models_stand_side_by_side(double, one, made_metrics, parsed):
    shown = parsed(double)
    summary = shown.shown("summary")
    assert summary[:8] == [3, 0, 1, 6, 3, 0, 1, 6]
    # Losses of two objectives cannot be read side by side; what they have in common can.
    ends = [
        {
            term: value
            for step, split, term, value in made_metrics(seed, beta=beta)
            if (step, split) == (3000, "held_out")
        }
        for seed, beta in ((0, 4.0), (1, 1.0))
    ]
    assert summary[8:10] == [end["reconstruction"] + end["kl"] for end in ends]
    assert "Held-out loss" not in double
    assert shown.shown("measures")[:2] == [0.412345, 0.512345]
    # The gap of the second model is larger and better; equal values have no best.
    assert re.findall(r'class="best">best</span> <data value="([\d.]+)"', double.partition('id="measures"')[2]) == [
        "0.512345"
    ]
    for section in ("reconstructions", "traversals", "variables", "factors", "histograms"):
        assert one.title in shown.text[section]
        assert "vae" in shown.text[section]
    assert re.findall(r'class="differs"><th scope="row"><code>([\w.]+)', double) == [
        "objective.name",
        "objective.beta",
        "torch",
        "numpy",
        "cores",
    ]


def test_of_losses_the_lower_is_the_best_and_a_lone_value_is_not():
    def marked(*values, higher):
        several = [
            Findings(f"{n}", "", [Values(name="v", title="V", entries=[Value("x", "X", value, higher)])])
            for n, value in enumerate(values)
        ]
        return re.findall(r'class="best">best</span> <data value="([\d.]+)"', page(several))

    assert marked(1.0, 2.0, 0.5, higher=False) == ["0.5"]
    assert marked(1.0, 2.0, None, 2.0, higher=True) == ["2.0", "2.0"]
    assert marked(1.0, None, higher=True) == []
    assert marked(1.0, 2.0, higher=None) == []


def test_subjects_of_one_name_are_told_apart(parsed):
    small = Examination(
        Representation(np.zeros((5, 1), np.float32)), [Variable(0, "active", 0, 0, None, None, None)], [], None
    )
    assert "vae 2" in parsed(page([quick(small.findings("vae"))] * 2)).text["summary"]


def test_names_are_words_not_markup(found, made_settings, parsed):
    evil = "<script>alert(1)</script> & $\\broken$ \"q\" 'é' 漢"
    factors = (Factor(evil, 3), *found.representation.factor_info[1:])
    poisoned = replace(
        found,
        representation=replace(found.representation, factor_info=factors),
        variables=[replace(v, factor=evil) for v in found.variables],
        values=[Value("x", evil, None, None, evil, evil), *found.values],
        notes=[evil],
    ).findings(evil, {**made_settings(), "note": evil}, [(1, "train", evil, 1.0)], {evil: evil})
    extra = [Text(name="said", title=evil, hint=evil, lines=[evil])]
    text = page([replace(poisoned, headline=evil, parts=[*poisoned.parts, *extra])], evil)
    assert "<script" not in text
    assert_quiet(text, parsed)
    shown = parsed(text)
    for section in ("learning", "traversals", "variables", "factors", "measures", "said", "again"):
        assert evil in shown.text[section], section
    assert shown.text["said"].count(evil) == 3
    assert shown.text[""].count(evil) >= 4  # window, heading, headline, note


def test_a_subject_without_factors_pictures_variances_or_curves_still_makes_a_whole_page(one, bare, parsed):
    shown = parsed(page([quick(bare)]))
    assert [a["id"] for a in shown.of("section")] == ["summary", "variables", "histograms", "measures", "again"]
    assert not shown.of("img")
    assert "Posterior variance" not in shown.text["variables"]
    assert "Main factor" not in shown.text["variables"]
    assert "undefined: Mutual information gap needs factors" in shown.text["measures"]
    assert "polariscope train" not in shown.text["again"]
    assert "mine.py:Mine" in shown.text["again"]
    moved = [[row["number"], row["var_of_mean"]] for row in bare.json()["variables"]]
    assert np.reshape(shown.shown("variables"), (10, 2)).tolist() == moved


@pytest.mark.parametrize("first", [True, False])
def test_what_one_of_two_lacks_is_said_in_its_place(one, bare, first, parsed):
    """The order of the sections is that of the fuller one, whichever comes first."""
    several = [quick(one), quick(bare)]
    text = page(several if first else several[::-1])
    assert_quiet(text, parsed)
    shown = parsed(text)
    assert [a["id"] for a in shown.of("section")] == list(SECTIONS)
    for section in ("reconstructions", "traversals", "factors"):
        assert shown.text[section].count("Not available here.") == 1
    assert "Not available" not in shown.text["variables"]
    assert "not measured" in shown.text["summary"]
    assert len(shown.of("img")) == 22
    # A curve has the colour that the legend gives its model.
    colour = figures.SUBJECTS[0 if first else 1]
    curves = text.partition('<section id="learning">')[2].partition("</section>")[0].partition("</ul>")[2]
    assert f"stroke: var(--{colour})" in curves
    assert f"stroke: var(--{figures.SUBJECTS[1 if first else 0]})" not in curves


def test_a_document_without_parts_can_stand_beside_one_with_them(one, parsed):
    shown = parsed(page([Findings("empty", "Nothing."), quick(one)]))
    assert [a["id"] for a in shown.of("section")] == list(SECTIONS)
    assert "Nothing." in shown.text[""]


def test_many_latents_are_shown_most_used_first_and_the_rest_counted(found, parsed):
    count = 40
    wide = Examination(
        Representation(np.zeros((50, count), np.float32), np.ones((50, count), np.float32)),
        [replace(found.variables[0], number=j) for j in reversed(range(count))],
        [],
        None,
        found.originals,
        found.reconstructions,
        np.repeat(found.traversals[:1], count, 0),
    )
    shown = parsed(page([quick(wide.findings("wide"))]))
    assert "The 16 most used of 40." in shown.text["traversals"]
    assert re.findall(r"z\d+", shown.text["traversals"]) == [f"z{j}" for j in range(39, 23, -1)]
    assert len(re.findall(r"z\d+", shown.text["variables"])) == count


def test_the_configuration_shown_makes_the_run_again(single, one, made_settings, parsed):
    shown = parsed(single)
    assert "polariscope train --config again.toml" in shown.text["again"]
    assert as_toml(one.settings) in shown.text["again"]
    expected = made_settings(beta=4.0)
    del expected["training"]["note"]  # TOML has no None
    assert tomllib.loads(as_toml(one.settings)) == expected


def test_toml_survives_odd_keys_and_values():
    odd = {
        "a b": 'say "é"\n',
        "list": [1, 2.5, [True], {"x": "y"}],
        "t": {"empty": {}, "nan": 1e-07, "deep": {"k": -1}},
    }
    assert tomllib.loads(as_toml(odd)) == odd


def test_a_run_adds_its_name_settings_and_curves(tmp_path, made_examination, made_metrics, made_settings, parsed):
    run = Store(tmp_path / "runs").create(made_settings(beta=4.0), "sprites beta-vae")
    run.write_metrics(made_metrics())
    findings = made_examination(count=50).findings(**about_run(run))
    assert findings.title == "beta-vae (beta 4)"
    (curves,) = findings.of(Curves)
    assert list(curves.metrics) == made_metrics()
    assert findings.settings == run.config
    assert findings.environment["run"] == run.id
    assert findings.environment["numpy"] == np.__version__
    assert run.id in parsed(page([quick(findings)])).text["again"]


def test_the_same_findings_give_the_same_small_page(one, single, double):
    assert page([one], "A beta-VAE on sprites") == single
    assert len(double) < 2_000_000


def test_two_sections_of_curves_have_ids_of_their_own(parsed):
    rows = [(step, "train", "loss", 1.0 / step) for step in (1, 2, 3)]
    parts = [Curves(name=name, title=name, metrics=rows) for name in ("inner", "outer")]
    assert_quiet(page([Findings("m", "Two trainings.", parts)]), parsed)


def test_long_tables_and_long_cells_are_set_for_reading():
    def table(rows):
        return page([Findings("m", "", [Records(name="r", title="R", rows=rows, columns=[Column("a", "A")])])])

    assert 'class="scroll tall"' in table([{"a": "x"}] * 25)
    assert 'class="scroll tall"' not in table([{"a": "x"}] * 24)
    assert 'class="variables wordy"' in table([{"a": "word " * 20}])


def test_the_diagnosis_of_kernels(parsed):
    net = mlp(4, (8,), 2)
    turned = copy.deepcopy(net)
    with torch.no_grad():
        turned.dense1.weight[:, 0] *= 20
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((60, 4))).float()
    data = Examples(x, (x[:, 0] > 0).long())
    diagnosis = diagnose(net, turned, data, data, modes=3)
    findings = diagnosis.findings("Kernels of mine", {"alpha": 1.0}, ["left", "right"])
    answer = findings.json()
    assert [row["name"] for row in answer["kernels"]] == [view.name for view in diagnosis.views]
    assert answer["kernels"][1]["error"] == diagnosis.view("final").error
    assert answer["change"]["cka"] == diagnosis.change.cka
    assert answer["classes"] == ["left", "right"]
    assert findings.arrays["scatter/final"].shape == (60, 2)
    text = page([findings])
    assert_quiet(text, parsed)
    shown = parsed(text)
    sections = ["reasons", "kernels", "projections", "information", "scatter", "spectrum", "again"]
    assert [a["id"] for a in shown.of("section")] == sections
    assert f"Verdict: {diagnosis.verdict}" in shown.text[""]
    assert all(reason in shown.text["reasons"] for reason in diagnosis.reasons)
    assert shown.shown("kernels")[:2] == [diagnosis.views[0].error, diagnosis.views[0].alignment]
    assert "right" in shown.text["scatter"], "the legend has the names of the classes"


def reading(latents, gap, seed, explained=0.7):
    return Reading(
        latents, 100, seed, 1.0, 1.0 + gap, gap, 10.0, 5.0, explained, explained < 0.1, latents, 0, 0, seconds=1.5
    )


def test_the_search_for_a_dimension(parsed):
    def seed(number, answer, explained=0.7):
        result = search_dimension(lambda n: reading(n, 2.0 * max(n - answer, 0), number, explained), 4)
        return StableDimension((result,), stable=True)

    findings = dimension_findings([seed(0, 5), seed(1, 7)], "sprites", 4)
    assert findings.headline == "5 and 7 latents over 2 seeds; mean 6.0."
    reported = findings.json()
    assert reported["answers"] == [5, 7]
    assert reported["table"][0]["n"] == "6.0 ± 1.4"
    visited = [n for search in reported["searches"] for n in search["visited"]]
    assert [row["latents"] for row in reported["readings"]] == visited
    shown = parsed(page([findings]))
    assert [a["id"] for a in shown.of("section")] == ["table", "readings", "dimension", "again"]
    assert "6.0 ± 1.4" in shown.text["table"]
    assert findings.notes == []
    single = dimension_findings([seed(0, 5, explained=0.01)], "sprites", 4)
    assert single.headline.startswith("No trusted number: ")
    assert single.headline.endswith("The search ended at 5.")
    assert "no" in parsed(page([single])).text["table"].split()
    assert "Train longer" in single.notes[0]
    (chart,) = single.of(Chart)
    assert "ended at 5, not trusted" in [line.get_label() for line in chart.draw().axes[0].lines]
    some = dimension_findings([seed(0, 5), seed(1, 7, explained=0.01)], "sprites", 4)
    assert some.headline == "5 latent variables. 1 seed of 2 had no trusted number."


@pytest.mark.parametrize(
    ("answer", "attempts", "stable", "said"),
    [
        (1, 2, True, "1 latent variable."),
        (5, 2, False, "5 latent variables; the answer still changes with more steps."),
        (5, 1, False, "5 latent variables; it is unknown whether more steps would change it."),
        (50, 2, True, "At least 16 latent variables: the search ended at its limit."),
    ],
)
def test_the_headline_of_a_dimension_is_as_strong_as_the_search(answer, attempts, stable, said):
    result = search_dimension(lambda n: reading(n, 2.0 * max(n - answer, 0), 0), 4, cap=16)
    assert dimension_findings([StableDimension((result,) * attempts, stable)], "sprites", 4).headline == said


class Squares(Study):
    """Numbers, squared."""

    title, source, question = "Squares of numbers", "Nobody, Nothing, p. 3", "Are squares positive?"
    cost = {"smoke": "nothing", "laptop": "nothing", "paper": "nothing"}

    def jobs(self, scale):
        return []

    def run(self, job, bench):
        return []

    def claims(self, scale):
        bounds = (("squares are large", 5.0), ("squares are huge", 500.0))
        return [Claim(finding, "page 3: 9.0", AtLeast("square", bound)) for finding, bound in bounds]

    def beside(self, table):
        return [{"source": "published", "square": 9.0}, {"source": "here", "square": table.mean("square")}]

    def figures(self, table):
        figure = Figure()
        figure.subplots().plot([row["square"] for row in table.rows])
        return {"all-squares": figure}


def test_the_outcome_of_a_study(monkeypatch, parsed):
    studies.names()  # find the real ones first
    monkeypatch.setattr(studies, "_entries", {"squares": Squares})
    table = Table([{"seed": seed, "square": 9.0} for seed in range(5)])
    origin = Origin("squares", "laptop", 5, 90.0, {"python": "3.11", "machine": ["one", "other"]})
    outcome = Outcome(Path("squares-laptop"), table, Squares().judge(table, "laptop"), origin)
    findings = outcome.findings()
    assert findings.headline == "Are squares positive? squares at laptop scale: 1 held, 1 not held."
    assert [row["verdict"] for row in findings.json()["claims"]] == ["held", "not held"]
    assert findings.json()["seeds"] == 5
    text = page([findings])
    assert_quiet(text, parsed)
    shown = parsed(text)
    assert [a["id"] for a in shown.of("section")] == ["claims", "beside", "all-squares", "again"]
    assert shown.text["claims"].count("not held") == 1
    assert "page 3: 9.0" in shown.text["claims"]
    assert "Source: Nobody, Nothing, p. 3." in shown.text[""]
    assert "5 rows; 5 seeds; 1.5 minutes of one core" in shown.text[""]
    assert "machine" in shown.text["again"]
    assert not outcome.findings(figures=False).of(Chart)


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


def test_what_is_no_more_than_chance_is_called_so_and_never_the_best(parsed):
    """The larger of two gaps is an accident, and the smaller one is not."""
    gaps = [Value("mig", "Gap", 0.4, True, interval=(0.3, 0.5), chance=0.01)]
    accidents = [Value("mig", "Gap", 0.6, True, chance=0.7, within_chance=True)]
    several = [
        Findings(title, "", [Values(name="measures", title="Measures", entries=entries)])
        for title, entries in (("one", gaps), ("two", accidents))
    ]
    text = page(several)
    shown = parsed(text)
    assert shown.shown("measures") == [0.4, 0.6]
    words = " ".join(shown.text["measures"].split())
    assert "0.4 0.3 to 0.5; by chance 0.01" in words
    assert "no more than chance 0.6 by chance 0.7" in words
    assert "best" not in words.replace("higher is better", "")
    console = Console(width=80, file=StringIO(), markup=False)
    side_by_side(several, console)
    assert "chance (0.6)" in console.file.getvalue()
