"""Examples in docstrings as blocks of code: the site's Markdown would read their brackets as links."""

from __future__ import annotations

import re
from typing import Any

import griffe


def fenced(text: str) -> str:
    """A docstring whose examples, each from its first prompt to the next empty line, are fenced."""
    return re.sub(
        r"(?:^>>> .*\n?(?:^(?!\s*$).*\n?)*)", lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text, flags=re.M
    )


class FencedExamples(griffe.Extension):
    """Applied to every object that the reference of the site shows."""

    def on_instance(self, *, obj: Any, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
