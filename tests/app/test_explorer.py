"""The explorer as a visitor uses it, in a real browser."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from polariscope.lab.store import Store


@pytest.fixture(scope="module")
def page(chromium, served):
    page = chromium()
    page.open(f"{served.address}/")
    page.wait("document.querySelectorAll('tbody tr').length === 3")
    return page


def visit(page, served, place, until):
    page.open("about:blank")
    page.open(f"{served.address}/#/{place}")
    return page.wait(until)


def pixels(page, canvas):
    return page.ask(
        f"(() => {{ const c = document.querySelector('{canvas}'); "
        "return [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].filter((_, i) => i % 4 === 0) })()"
    )


def test_runs_are_searched_and_filtered(page):
    names = "[...document.querySelectorAll('tbody .name')].map(a => a.textContent).join(' ')"
    page.move("#search", "beta-vae tested")
    assert set(page.ask(names).split()) == {"first", "second"}
    page.move("#search", "")
    page.move("select[aria-label*=objective]", "classify", "change")
    assert page.ask(names) == "classifier"


def test_a_slider_moves_and_the_image_is_the_decoders(page, served, trained):
    from polariscope.examination.latent_space import latent_space

    run = trained[1]["first"]
    visit(page, served, f"run/{run.id}/explore", "document.querySelectorAll('#walks canvas').length === 45")
    page.wait("document.getElementById('decoded').dataset.code")
    before = pixels(page, "#decoded")
    first = "document.querySelector('input[data-latent]')"
    page.move("input[data-latent]", 2.5)
    page.wait(f"document.getElementById('decoded').dataset.code.split(' ')[{first}.dataset.latent] === '2.500'")
    after = pixels(page, "#decoded")
    assert after != before
    code = [float(x) for x in page.ask("document.getElementById('decoded').dataset.code").split()]
    image = latent_space(run, count=50).decoded([code])[0, 0]
    assert np.abs(np.asarray(after).reshape(image.shape) - image.astype(int)).max() <= 1
    # The keyboard moves it as well.
    page.ask(f"{first}.focus()")
    page.key("ArrowLeft")
    code = "document.getElementById('decoded').dataset.code"
    page.wait(f"{first}.value !== '2.5' && {code}.includes(Number({first}.value).toFixed(3))")


def test_an_example_gives_its_code_and_two_codes_have_a_way_between_them(page, served, trained):
    run = trained[1]["first"]
    visit(page, served, f"run/{run.id}/explore", "document.querySelectorAll('#between canvas').length === 11")
    page.ask("document.querySelectorAll('#examples button')[5].click()")
    values = "[...document.querySelectorAll('input[data-latent]')].map(i => Number(i.value)).join()"
    pressed = "document.querySelectorAll('#examples button')[5].getAttribute('aria-pressed') === 'true'"
    fifth = page.wait(f"{pressed} && {values}")
    page.ask("document.getElementById('keep-A').click()")
    page.ask("document.querySelectorAll('#examples button')[9].click()")
    ninth = page.wait(f"{values} !== '{fifth}' && {values}")
    page.ask("document.getElementById('keep-B').click()")
    page.move("#along", 0.5)
    middle = np.asarray(page.ask(values).split(","), float)
    ends = np.asarray(fifth.split(","), float), np.asarray(ninth.split(","), float)
    np.testing.assert_allclose(middle, (ends[0] + ends[1]) / 2, atol=0.011)  # sliders have steps of 0.01


def test_the_map_is_coloured_by_any_factor_and_leads_to_the_sliders(page, served, trained):
    run = trained[1]["first"]
    count = visit(page, served, f"run/{run.id}/map", "document.querySelectorAll('.map circle').length")
    assert count > 100
    colours = "new Set([...document.querySelectorAll('.map circle')].map(c => c.style.fill)).size"
    by_shape = page.ask(colours)
    page.move("#map-colour", "2", "change")
    assert page.ask(colours) != by_shape
    page.move("#map-colour", "", "change")
    assert page.ask(colours) == 1
    page.ask("document.querySelectorAll('.map circle')[7].dispatchEvent(new MouseEvent('click'))")
    page.wait("!document.querySelector('.map button').disabled")
    page.ask("document.querySelector('.map button').click()")
    page.wait("document.querySelectorAll('#walks canvas').length === 45")


def test_variables_and_their_factors_are_shown(page, served, trained):
    from polariscope.examination.latent_space import latent_space

    run = trained[1]["first"]
    visit(page, served, f"run/{run.id}/variables", "document.querySelectorAll('#matrix tbody tr').length === 5")
    space = latent_space(run, count=1500)
    kinds = page.ask("[...document.querySelectorAll('table:not(.matrix) .badge')].map(b => b.textContent)")
    assert kinds == [v.kind for v in space.variables]
    shown = page.ask("[...document.querySelectorAll('#matrix tbody td')].map(c => parseFloat(c.title))")
    order = [v.number for v in space.variables]
    np.testing.assert_allclose(np.reshape(shown, (5, -1)), 100 * space.factor_information[order], atol=0.06)


def test_two_runs_are_compared_layer_by_layer(page, served, trained):
    first, second = trained[1]["first"].id, trained[1]["second"].id
    visit(page, served, f"compare/{first}/{second}", "document.querySelectorAll('#heat tbody td').length > 20")
    label = page.ask("document.querySelector('#heat tbody td').getAttribute('aria-label')")
    assert label == "input and input: 1.00"
    visit(page, served, f"compare/{first}/{first}", "document.querySelectorAll('#heat tbody td').length > 20")
    mean = "[...document.querySelectorAll('#heat td')].map(c => c.title).find(t => t.startsWith('mean and mean'))"
    assert page.ask(mean) == "mean and mean: 1.00"


def test_an_attack_is_played_step_by_step(page, served, trained):
    run = trained[1]["classifier"]
    visit(page, served, f"run/{run.id}/attack", "document.querySelectorAll('.gallery canvas').length === 36")
    page.ask("document.getElementById('go').click()")
    steps = page.wait("Number(document.getElementById('step').max)")
    assert steps >= 1
    first = pixels(page, "#attacked")
    page.move("#step", steps)
    assert len(page.ask("[...document.querySelectorAll('.probability')].map(p => p.textContent)")) == 3
    if "misclassified without" not in page.ask("document.body.innerText"):
        assert pixels(page, "#attacked") != first


def test_a_property_slider_generates(chromium, serving, generating):
    from polariscope.examination.property_sliders import property_sliders

    folder, run = generating
    served = serving(folder)
    try:
        page = chromium()
        visit(page, served, f"run/{run.id}/generate", "document.getElementById('made').dataset.values")
        captions = "[...document.querySelectorAll('#made figcaption')].map(c => c.textContent)"
        read = page.ask(captions)
        slider = "document.querySelector('input[data-property=x]')"
        top = page.ask(f"{slider}.max")
        page.move("input[data-property=x]", top)
        values = "document.getElementById('made').dataset.values"
        wanted = page.wait(f"{values}.startsWith(Number({slider}.value).toFixed(4)) && {values}")
        assert page.ask(captions) != read
        assert "may be unreachable" in page.ask("document.getElementById('property-words').textContent")
        after = pixels(page, "#made figure canvas:last-child")
        sliders = property_sliders(run, count=500)
        moved = sliders.moved([float(value) for value in wanted.split()], [0])
        assert np.abs(np.asarray(after).reshape(moved.observations[0, 0].shape) - moved.observations[0, 0]).max() <= 1
        assert page.ask("document.documentElement.scrollWidth") <= 1280
        narrow = chromium(390, 900, True)
        visit(narrow, served, f"run/{run.id}/generate", "document.getElementById('made').dataset.values")
        assert narrow.ask("document.documentElement.scrollWidth") <= 390
    finally:
        served.close()


def test_a_map_has_layers_and_years(chromium, serving, mapping_run):
    from polariscope.mapping.map_layers import map_layers

    folder, run = mapping_run
    served = serving(folder)
    try:
        page = chromium()
        loaded = "[...document.querySelectorAll('#stage img')].every(i => i.complete && i.naturalWidth)"
        visit(page, served, f"run/{run.id}/maps", f"document.querySelectorAll('#stage img').length > 2 && {loaded}")
        first, second = map_layers(run.path / "maps")
        assert (first.year, second.year) == (2000, 2016)
        assert page.ask("document.getElementById('stage').dataset.map") == first.name
        page.move("#year", 1)
        page.wait(f"document.getElementById('stage').dataset.map === '{second.name}' && {loaded}")
        assert page.ask("document.getElementById('year-words').textContent") == "2016"
        layers = "[...document.querySelectorAll('#stage img')].map(i => i.dataset.layer)"
        assert page.ask(layers) == ["image", *(f"class {number}" for number in second.classes)]
        page.ask(f"document.querySelector('[data-class=\"{second.classes[0]}\"]').click()")
        page.ask("document.getElementById('layer-image').click()")
        page.move("#layer-probability", str(second.classes[1]), "change")
        page.wait(loaded)
        assert page.ask(layers) == ["probability", *(f"class {number}" for number in second.classes[1:])]
        # The picture is the map's: as many coloured pixels as the class has.
        shown = page.ask("""(async () => { const image = document.querySelector("#stage img:last-child"); await image.decode();
            const canvas = document.createElement("canvas"); canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
            const context = canvas.getContext("2d"); context.drawImage(image, 0, 0);
            return [...context.getImageData(0, 0, canvas.width, canvas.height).data].filter((v, i) => i % 4 === 3 && v).length })()""")  # fmt: skip # noqa: E501
        labels = second.labels.read(0, 0, *second.shape)
        assert shown == int((labels == second.classes[-1]).sum())
        areas, unit = second.areas
        assert unit == "ha"
        cell = page.ask("document.querySelector('td.now').textContent")
        assert (
            abs(float(cell.split()[0].replace(",", "")) - areas[second.classes[0]]) <= 0.006 * areas[second.classes[0]]
        )
        # The document of the map has its pictures, though it may load nothing.
        page.open(f"{served.address}/documents/{run.id}/map")
        page.wait("document.querySelectorAll('img').length")
        assert page.wait(
            "[...document.querySelectorAll('figure.map img')].every(i => i.complete && i.naturalWidth > 50)"
        )
        narrow = chromium(390, 900, True)
        visit(narrow, served, f"run/{run.id}/maps", f"document.querySelectorAll('#stage img').length > 2 && {loaded}")
        assert narrow.ask("document.documentElement.scrollWidth") <= 390
    finally:
        served.close()


def test_the_claims_are_shown_and_filtered(chromium, serving, trained, tmp_path):
    from polariscope.studies.board import board

    (tmp_path / "linear-solver").mkdir()
    table = Path(__file__).resolve().parents[2] / "docs" / "results" / "linear-solver" / "table.parquet"
    shutil.copy(table, tmp_path / "linear-solver")
    served = serving(trained[0], results=[tmp_path])
    try:
        page = chromium(390, 900, True)
        rows = "document.querySelectorAll('tbody tr').length"
        shown = visit(page, served, "board", rows)
        claims = board([tmp_path]).records()
        assert shown == len(claims) > 0
        assert page.ask("document.querySelector('tbody b').textContent") == claims[0]["text"]
        page.move("#verdict", claims[0]["verdict"], "change")
        assert page.ask(rows) == sum(claim["verdict"] == claims[0]["verdict"] for claim in claims)
        page.move("input[type=search]", "no claim has these words")
        assert page.ask(rows) == 0
        assert page.ask("document.documentElement.scrollWidth") <= 390
    finally:
        served.close()


def test_a_training_is_started_watched_stopped_and_resumed(page, served, trained, command):
    visit(page, served, "new", "document.getElementById('train')")
    for field, value in {"world": "mini-sprites", "steps": 100_000, "latents": 3, "name": "watched"}.items():
        page.move(f"#{field}", value, "change")
    page.move("#setting-beta", 3)
    page.ask("document.getElementById('train').click()")
    page.wait("location.hash.startsWith('#/run/') && document.querySelector('.badge.running')")
    run = Store(trained[0]).open("watched")
    assert (run.config["objective"]["beta"], run.config["model"]["latents"]) == (3.0, 3)
    step = "Number(document.querySelector('[data-term=loss]').dataset.step)"
    early = page.wait(step)
    page.wait(f"{step} > {early}")  # the curve goes on while the run trains
    page.ask("document.getElementById('do-stop').click()")
    page.wait("document.querySelector('.badge.interrupted')")
    run.reload()
    assert run.status == "interrupted"
    kept = run.result["step"]
    page.wait("document.getElementById('do-resume')")
    page.ask("document.getElementById('do-resume').click()")
    page.wait("document.getElementById('do-stop')")
    page.wait(f"{step} > {kept}")
    page.ask("document.getElementById('do-stop').click()")
    page.wait("document.querySelector('.badge.interrupted')")
    run.reload()
    assert run.result["step"] > kept


def test_a_report_is_opened(page, served, trained):
    from polariscope.findings import Findings
    from polariscope.lab.run_documents import keep_findings

    run = trained[1]["second"]
    keep_findings(Findings("second", "A finding to be seen."), "kernel", run)
    visit(page, served, f"run/{run.id}/documents", "document.querySelector('iframe')?.src")
    assert page.ask("document.querySelector('[data-kind]').textContent") == "Kernel"
    assert page.ask("document.querySelector('iframe').getAttribute('sandbox')") == ""
    page.open(f"{served.address}/documents/{run.id}/kernel")
    assert "A finding to be seen." in page.wait("document.body.innerText")


def test_nothing_is_fetched_from_elsewhere_and_the_console_is_silent(page, served):
    assert {address.split("/")[2] for address in page.fetched() if address.startswith("http")} == {served.address[7:]}
    assert [words for words in page.complaints() if "getImageData" not in words] == []  # that was this test's own look


@pytest.mark.parametrize(("width", "dark"), [(1280, True), (390, False), (390, True)])
def test_every_page_fits_its_window(chromium, served, trained, width, dark):
    page = chromium(width, 900, dark)
    first, classifier = trained[1]["first"].id, trained[1]["classifier"].id
    places = {
        "": "document.querySelectorAll('tbody tr').length",
        f"run/{first}/explore": "document.querySelectorAll('#walks canvas').length",
        f"run/{first}/map": "document.querySelectorAll('.map circle').length",
        f"run/{first}/variables": "document.getElementById('matrix')",
        f"run/{first}/learning": "document.querySelectorAll('.chart svg').length",
        f"run/{classifier}/attack": "document.querySelectorAll('.gallery canvas').length",
        f"compare/{first}/{first}": "document.getElementById('heat')",
        "new": "document.getElementById('train')",
    }
    for place, until in places.items():
        visit(page, served, place, f"({until}) ? true : false")
        assert page.ask("document.documentElement.scrollWidth") <= width, place
        # A page's colours follow the reader's.
        light = page.ask("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0] > 128")
        assert light is not dark


def test_light_and_dark_are_changed_by_a_button_and_the_page_by_keys(page, served):
    visit(page, served, "", "document.querySelectorAll('tbody tr').length")
    colour = "getComputedStyle(document.body).backgroundColor"
    before = page.ask(colour)
    page.ask("document.getElementById('theme').focus()")
    page.key("Enter")
    assert page.ask(colour) != before
    page.key("/")
    assert page.ask("document.activeElement.id") == "search"
