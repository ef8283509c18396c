"""Which code made the rows of a study: a hash of everything its ``jobs`` and ``run`` reach.

Inside the studies it is the code itself that counts, whichever module it stands in: functions, classes and constants
that ``jobs`` or ``run`` use, directly or through others. What only speaks about rows (claims, figures) and comments do
not count, so that a changed plot does not throw hours of training away. Of the rooms below a study only the number
counts that a module declares as ``ROWS_VERSION``: raise it in a module whose numbers change.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

MAKING = ("jobs", "run")
"""Methods of a study that make its rows."""
HOUSE = "polariscope."
STUDIES = "polariscope.studies."
MACHINERY = tuple(f"{STUDIES}{name}" for name in ("study", "engine", "criteria", "page", "tables", "version", "kit"))
"""Modules and packages that run and judge all studies. They make no rows."""


def version_of(study: type) -> str:
    """A hash of the code that makes the rows of a study, and of the versions of the rooms it calls."""
    reach = Reach()
    reach.visit_study(study.__module__, study.__name__)
    parts = [f"{module}:{name}:{code}" for (module, name), code in sorted(reach.definitions.items())]
    rooms = {module: getattr(sys.modules.get(module), "ROWS_VERSION", None) for module in reach.rooms}
    parts += [f"{module}={version}" for module, version in sorted(rooms.items()) if version is not None]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Source:
    """A module as definitions by name, and names it imports with where they come from."""

    definitions: dict[str, ast.stmt]
    imports: dict[str, tuple[str, str]]


@dataclass
class Reach:
    """Definitions that were reached, as text, and the modules of other rooms among what they use."""

    definitions: dict[tuple[str, str], str] = field(default_factory=dict)
    rooms: set[str] = field(default_factory=set)
    sources: dict[str, Source] = field(default_factory=dict)

    def visit_study(self, module: str, name: str) -> None:
        """A study's class: of its methods those that ``jobs`` and ``run`` use, and the settings that these use."""
        node = self._source(module).definitions.get(name)
        if (module, name) in self.definitions or not isinstance(node, ast.ClassDef):
            return
        self.definitions[module, name] = ""
        methods = {line.name: line for line in node.body if isinstance(line, ast.FunctionDef)}
        open_names, used = [own for own in MAKING if own in methods], dict[str, ast.FunctionDef]()
        while open_names:
            own = open_names.pop()
            if own in methods and own not in used:
                used[own] = methods[own]
                open_names += [word.attr for word in ast.walk(methods[own]) if isinstance(word, ast.Attribute)]
        words = {word.attr for one in used.values() for word in ast.walk(one) if isinstance(word, ast.Attribute)}
        kept: list[ast.stmt] = [line for line in node.body if words & set(_defined(line)) and line not in used.values()]
        kept += used.values()
        self.definitions[module, name] = "\n".join(_code(line) for line in kept)
        for line in kept:
            self._follow(module, line)
        for base in node.bases:
            if isinstance(base, ast.Name):
                self._visit_base(module, base.id)

    def _visit_base(self, module: str, name: str) -> None:
        origin, own = self._source(module).imports.get(name, (module, name))
        if not _is_machinery(origin) and (origin == module or origin.startswith(STUDIES)):
            self.visit_study(origin, own)

    def _visit(self, module: str, name: str) -> None:
        source = self._source(module)
        if name in source.imports:
            origin, own = source.imports[name]
            if _is_machinery(origin):
                return
            if origin.startswith(STUDIES):
                self._visit(origin, own)
            elif origin.startswith(HOUSE):
                self.rooms.add(origin)
            return
        node = source.definitions.get(name)
        if node is None or (module, name) in self.definitions:
            return
        self.definitions[module, name] = _code(node)
        self._follow(module, node)

    def _source(self, module: str) -> Source:
        if module not in self.sources:
            self.sources[module] = _read(module)
        return self.sources[module]

    def _follow(self, module: str, node: ast.AST) -> None:
        for word in ast.walk(node):
            if isinstance(word, ast.Name):
                self._visit(module, word.id)


def _is_machinery(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in MACHINERY)


def _defined(line: ast.stmt) -> Iterator[str]:
    if isinstance(line, ast.FunctionDef | ast.ClassDef):
        yield line.name
    elif isinstance(line, ast.Assign):
        for target in line.targets:
            yield from (word.id for word in ast.walk(target) if isinstance(word, ast.Name))
    elif isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
        yield line.target.id


def _code(node: ast.stmt) -> str:
    """A definition without its comments and docstrings, wherever in the file it stands."""
    text = ast.parse(ast.unparse(node))
    for part in ast.walk(text):
        if isinstance(part, ast.FunctionDef | ast.ClassDef):
            part.body = [line for line in part.body if not _is_words(line)] or [ast.Pass()]
    return ast.dump(text)


def _is_words(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


def _read(module: str) -> Source:
    """The definitions and imports of a module, from its file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return Source({}, {})
    definitions: dict[str, ast.stmt] = {}
    imports: dict[str, tuple[str, str]] = {}
    for line in ast.parse(Path(file).read_text(encoding="utf-8")).body:
        for name in _defined(line):
            definitions[name] = line
        if isinstance(line, ast.ImportFrom) and line.module and not line.level:
            imports |= {alias.asname or alias.name: (line.module, alias.name) for alias in line.names}
    return Source(definitions, imports)
