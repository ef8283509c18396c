"""Findings made by hand, whose every number is known, and a reader of the pages made of them."""

from html.parser import HTMLParser

import numpy as np
import pytest

from polariscope.examination.examination import Examination, Variable
from polariscope.findings import Value
from polariscope.report.page import page
from polariscope.representation import Representation
from polariscope.worlds.factors import Factor

VOID = {"meta", "img", "br", "hr", "link", "input"}
TYPES = ("active", "active", "active", "mixed", *["passive"] * 6)
KINDS = {"mixed": "switching"}
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

    def shown(self, section):
        """The numbers of a section."""
        return [value for name, value in self.numbers if name == section]


def sprites(x, y, scale, shape, side=64):
    """Soft squares, discs and diamonds: ``uint8 (n, 1, side, side)`` from arrays of positions and sizes."""
    grid = np.arange(side) + 0.5
    u = (grid[None, None] - np.asarray(x)[:, None, None]) / np.asarray(scale)[:, None, None]
    v = (grid[None, :, None] - np.asarray(y)[:, None, None]) / np.asarray(scale)[:, None, None]
    distances = np.stack([np.maximum(abs(u), abs(v)) + 0 * u, np.hypot(u, v), abs(u) + abs(v)])
    distance = distances[np.asarray(shape), np.arange(len(x))]
    return (255 / (1 + np.exp(9 * (distance - 1)))).astype(np.uint8)[:, None]


def examination(seed=0, count=2000):
    """Ten latents of the three types on a sprite-like world, made by hand: three active, one switching, six passive."""
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
            kind=KINDS.get(TYPES[j], TYPES[j]),
            detail="used for 50% of them" if TYPES[j] == "mixed" else "",
        )
        for j in order
    ]
    values = [
        Value("mig", "Mutual information gap", 0.412345 + seed / 10, True),
        Value("total_correlation", "Gaussian total correlation of the means (nats)", 0.0731, False),
        Value("effective_rank", "Effective rank of the means", 3.87, None, meaning="How many directions are used."),
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


@pytest.fixture(scope="session")
def made_examination():
    """``made_examination(seed, count)``: an examination made by hand."""
    return examination


@pytest.fixture(scope="session")
def made_metrics():
    """``made_metrics(seed)``: learning curves made by hand."""
    return metrics


@pytest.fixture(scope="session")
def made_settings():
    """``made_settings(objective, beta=4.0)``: the configuration of a run."""
    return settings


@pytest.fixture(scope="session")
def parsed():
    """``parsed(text)``: a page, taken apart."""
    return Page


@pytest.fixture(scope="session")
def found():
    """The examination behind ``one``."""
    return examination()


@pytest.fixture(scope="session")
def one(found):
    """Findings about a beta-VAE that was trained here."""
    environment = {"python": "3.11.9", "torch": "2.13.0", "numpy": "2.2.0", "cores": "2"}
    return found.findings("beta-vae (beta 4)", settings(beta=4.0), metrics(), environment)


@pytest.fixture(scope="session")
def two():
    """Findings about a VAE."""
    return examination(1).findings("vae", settings("vae"), metrics(1, beta=1.0), {"python": "3.11.9"})


@pytest.fixture(scope="session")
def bare(found):
    """Findings about a model without factors, pictures, variances or curves."""
    encoder = Examination(
        Representation(found.representation.mean),
        [Variable(v.number, "active", 0.0, v.var_of_mean, None, None, None) for v in found.variables],
        [Value("mig", "Mutual information gap", None, True, "Mutual information gap needs factors")],
        None,
    )
    return encoder.findings("Mine", {"model": "mine.py:Mine", "data": "x.npz"})


@pytest.fixture(scope="session")
def single(one):
    """The page of one."""
    return page([one], "A beta-VAE on sprites")


@pytest.fixture(scope="session")
def double(one, two):
    """The page of two side by side."""
    return page([one, two], "Two models")
