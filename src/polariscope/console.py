"""A terminal on which names from somebody's data are shown, and never obeyed."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from polariscope.printable import printable


class Terminal(Console):
    """A console of rich that prints text as text: what moves a cursor are rich's own control segments."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def notice(sentence: str) -> None:
    """Tell the user something on standard error, above progress bars."""
    Terminal(stderr=True, markup=False, emoji=False, highlight=False).print(sentence, soft_wrap=True)
