"""Writes docs/reference.md: everything one can import, by room, with the first sentence of its docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
SOURCE = DOCS.parent / "src" / "polariscope"
LEFT_OUT = {"cli", "__main__", "__init__"}
HEAD = """# Reference

Everything that can be imported, by room. `from polariscope.theory.pca import pca_optimum` and the like; what the
top level offers directly (`polariscope.examine`, `polariscope.train`, ...) is in the [README](../README.md). Names in
brackets are those of the command line and of configuration files. A name with † is called by nothing else in the
package: it is there for your own code, and in `theory` it is an oracle, a closed form that the tests compare trained
models with. This page is made by `python docs/make_reference.py`.
"""


def reference() -> str:
    rooms: dict[str, list[Path]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        of_one_study = room == "studies" and len(path.relative_to(SOURCE).parts) > 2
        if room not in LEFT_OUT and not path.stem.startswith("_") and not of_one_study:
            rooms.setdefault(room, []).append(path)
    lines = [HEAD]
    called = names_in_use()
    for room, paths in rooms.items():
        lines.append(f"## {room}\n")
        package = SOURCE / room / "__init__.py"
        if package.exists():
            lines.append(f"{_sentence(ast.parse(package.read_text(encoding='utf-8')))}\n")
        for path in paths:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            entries = list(_public(tree, called))
            if entries:
                module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
                lines += [f"**`{module}`**: {_sentence(tree)}\n", *entries, ""]
    return "\n".join(lines).rstrip() + "\n"


def names_in_use() -> set[str]:
    """Names that some code of the package uses, be it by a lazy import, which has them as text."""
    used = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name):
                used.add(node.id)
            elif isinstance(node, ast.Attribute):
                used.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                used.add(node.value)
    return used


def _public(tree: ast.Module, called: set[str]) -> Iterator[str]:
    for node in tree.body:
        documented = isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and documented and not node.name.startswith("_"):
            name = _registered(node)
            named = any("register" in ast.unparse(one) or "router." in ast.unparse(one) for one in node.decorator_list)
            mark = "" if named or node.name in called else " †"
            yield f"- `{node.name}`{mark}{f' [{name}]' if name else ''}: {_sentence(node)}"


def _registered(node: ast.FunctionDef | ast.ClassDef) -> str:
    for decorator in node.decorator_list:
        match = re.fullmatch(r"\w+\.register\('([\w-]+)'(, .*)?\)", ast.unparse(decorator))
        if match:
            return match[1]
    return ""


def _sentence(node: ast.Module | ast.FunctionDef | ast.ClassDef) -> str:
    """The first sentence of a docstring, as plain Markdown."""
    text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
    if text.startswith(">>>"):
        return "shown by its example."
    text = re.sub(r":\w+:`~?([\w.]*\.)?(\w+)`", r"`\2`", text).replace("``", "`").replace("|", "\\|")
    return re.split(r"(?<=[.!?])\s(?=[A-Z])", text)[0]


if __name__ == "__main__":
    (DOCS / "reference.md").write_text(reference(), encoding="utf-8")
