"""The claims board on a page: every study with its claims, filtered by work and by verdict without any script."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from io import BytesIO
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image

from polariscope.findings import Part, Place
from polariscope.report.blocks import templates
from polariscope.report.figures import plain_axes

WIDTHS = (720, 600, 500, 420, 340, 260)
"""Pixels that pictures may be wide, tried from the first on."""
QUALITY = 45


@dataclass(frozen=True)
class Claimed:
    """One claim in words."""

    text: str
    tested: str
    published: str
    measured: str
    verdict: str
    note: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure inside the page."""

    title: str
    source: str
    width: int
    height: int


@dataclass(frozen=True)
class Entry:
    """A study on the board."""

    study: str
    work: str
    title: str
    question: str
    source: str
    folder: str
    scale: str
    share: str
    """How much of the published training was done, in words."""
    cost: str
    seeds: str
    command: str
    table: str
    """A hash of the table that was judged."""
    claims: Sequence[Claimed]
    beside: Sequence[Mapping[str, Any]] = ()
    """Rows of the published table with the measured figures, where no claim is judged."""
    note: str = ""
    pictures: Sequence[Picture] = field(default=(), repr=False)

    @property
    def verdicts(self) -> list[str]:
        return list(dict.fromkeys(claim.verdict for claim in self.claims))


@dataclass(frozen=True, kw_only=True)
class ClaimsPart(Part):
    """Studies with their claims, and the filters to select them."""

    entries: Sequence[Entry]
    works: Mapping[str, str]
    """What each work is, in a line."""
    verdicts: Sequence[str]

    def plain(self) -> list[dict[str, Any]]:
        about = ("study", "work", "folder", "scale", "share", "cost", "seeds", "table")
        return [
            {key: getattr(entry, key) for key in about} | asdict(claim)
            for entry in self.entries
            for claim in entry.claims
        ]

    def text(self) -> str:
        return "\n".join(
            f"{entry.study}: {claim.verdict}: {claim.text}" for entry in self.entries for claim in entry.claims
        )

    def markdown(self, pictures: str | None = "") -> list[str] | None:
        return [f"- {line}" for line in self.text().splitlines()]

    def terminal(self, later: Sequence[Part] = ()) -> Sequence[Any]:
        return ()

    def html(self, place: Place) -> str:
        template = templates().get_template("board.html.jinja")
        count = sum(len(entry.claims) for entry in self.entries)
        return Markup(template.render(part=self, key=place.key, count=count))


def pictures(figures: Mapping[str, Mapping[str, Figure]], weight: int) -> dict[str, list[Picture]]:
    """The figures of studies as pictures that weigh at most ``weight`` characters together, as wide as that allows."""
    drawn = {(study, name): _drawn(figure) for study, own in figures.items() for name, figure in own.items()}
    packed: dict[tuple[str, str], Picture] = {}
    for width in WIDTHS:
        packed = {key: _packed(key[1], image, width) for key, image in drawn.items()}
        if sum(len(picture.source) for picture in packed.values()) <= weight:
            break
    return {study: [packed[study, name] for name in own] for study, own in figures.items()}


def _drawn(figure: Figure) -> Image.Image:
    file = BytesIO()
    plain_axes(figure).savefig(file, format="png", dpi=130, bbox_inches="tight", facecolor="white")
    return Image.open(file).convert("RGB")


def _packed(name: str, image: Image.Image, width: int) -> Picture:
    width = min(width, image.width)
    small = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
    file = BytesIO()
    small.save(file, format="WEBP", quality=QUALITY, method=6)
    title = name.replace("-", " ").replace("_", " ").capitalize()
    source = f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"
    return Picture(title, source, small.width, small.height)
