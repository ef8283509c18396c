"""Pages of the site that are made when it is built: those at the top of the repository, and the reference of each room.

mkdocs calls the functions here (``hooks`` in mkdocs.yml).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
TOP = {"README.md": "index.md", "SECURITY.md": "", "CONTRIBUTING.md": "", "CHANGELOG.md": "", "LICENSE": ""}
SOURCE = ROOT / "src" / "polariscope"
LEFT_OUT = {"cli", "studies"}


def on_config(config: Any) -> Any:
    """A guide that mkdocs.yml does not know yet stands behind the other guides."""
    listed = re.findall(r"[\w-]+\.md", str(config.nav))
    guides = next(section["Guides"] for section in config.nav if "Guides" in section)
    guides += [page.name for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in listed]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages at the top of the repository, and one for each room."""
    for name, place in TOP.items():
        content = (ROOT / name).read_text(encoding="utf-8")
        content = re.sub(r"\]\(docs/", "](", content).replace("](README.md", "](index.md")
        content = content.replace("](spec)", "](spec/000-informed-representations.md)")
        content = content.replace("[Notebooks](notebooks)", "Notebooks (folder `notebooks`)")
        files.append(File.generated(config, place or name, content=content))
    for room in rooms():
        files.append(File.generated(config, f"api/{room}.md", content=room_page(room)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links that lead out of docs/ lead to the pages made above; the list of rooms ends the reference."""
    for name, place in TOP.items():
        markdown = markdown.replace(f"](../{name}", f"]({place or name}")
    if page.file.src_uri == "reference.md":
        links = " · ".join(f"[{room}](api/{room}.md)" for room in rooms())
        markdown = f"{markdown}\n## In full\n\nSignatures and whole docstrings, by room: {links}\n"
    return markdown


def rooms() -> list[str]:
    """Packages of the house."""
    return sorted(path.parent.name for path in SOURCE.glob("*/__init__.py") if path.parent.name not in LEFT_OUT)


def room_page(room: str) -> str:
    """A page with every module of a room."""
    modules = [path for path in sorted((SOURCE / room).rglob("*.py")) if not path.stem.startswith("_")]
    names = [".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in modules]
    return "\n".join([f"# {room}", "", *(f"::: {name}\n" for name in names)])
