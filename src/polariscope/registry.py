"""One registry for each kind of object: a decorator registers a class, a name finds it, a dictionary builds an
instance.

A registered class is a frozen dataclass whose fields *are* its configuration, so the same class is the Python API, the
command line (through tyro), the TOML file and the JSON in a run folder. Adding a world, an objective or a study is
therefore one new file with one decorator, in any room: no list is edited. A registry finds its entries by reading the
source of the package for lines like ``@worlds.register("sprites")``, and imports a module when one of its entries is
first used. Installed plug-ins are loaded when names are looked up; the user's files are loaded by name (see
:mod:`polariscope.plugins`).

Registered objects nest: a field whose type is that of a registry (a :class:`~polariscope.worlds.world.World` in a view,
an architecture in a model) holds a registered object, and is described and built by its name like the outer one.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import os
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

from polariscope import plugins

T = TypeVar("T")
E = TypeVar("E")
Settings = Mapping[str, Any]
"""Values of fields as in a TOML file: numbers, words, lists, and tables for things that are held."""

_BY_TYPE: dict[Any, Registry[Any]] = {}
"""The registry for the values of a field, by the field's type."""


def registry_of(hint: Any) -> Registry[Any] | None:
    """The registry for the values of a field of this type, if there is one; ``X | None`` counts as ``X``."""
    options = [hint, *(typing.get_args(hint) if isinstance(hint, types.UnionType) else ())]
    return next((_BY_TYPE[option] for option in options if isinstance(option, type) and option in _BY_TYPE), None)


def held(thing: Any) -> dict[str, Registry[Any]]:
    """Fields of a configuration (or its class) that hold registered things, with the registry of each."""
    cls = thing if isinstance(thing, type) else type(thing)
    hints = typing.get_type_hints(cls)
    registries = {field.name: registry_of(hints[field.name]) for field in dataclasses.fields(cls) if field.init}
    return {name: registry for name, registry in registries.items() if registry is not None}


def required(cls: type[Any]) -> list[str]:
    """Fields of a configuration that have no default."""
    missing = dataclasses.MISSING
    fields = (field for field in dataclasses.fields(cls) if field.init)
    return [field.name for field in fields if field.default is missing and field.default_factory is missing]


def nearest(name: str, valid: Iterable[str], most: int | None = None) -> str:
    """The end of an error sentence: the nearest valid name if there is one, and all of them. Of more than ``most``,
    only the nearest are named; if no name is valid, it says that there is none.

    >>> nearest("spirtes", ["digits", "sprites"])
    "did you mean 'sprites'? (known: digits, sprites)"
    >>> nearest("spirtes", ["digits", "sprites", "shapes"], most=2)
    "did you mean 'sprites'?"
    >>> nearest("beta", [])
    'there are none'
    """
    valid = sorted(valid)
    if not valid:
        return "there are none"
    if most is not None and len(valid) > most:
        for cutoff in (0.7, 0.5, 0.0):
            if several := difflib.get_close_matches(name, valid, n=3, cutoff=cutoff):
                break
        return f"did you mean {' or '.join(map(repr, several))}?"
    close = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    known = f"known: {', '.join(valid)}"
    return f"did you mean {close[0]!r}? ({known})" if close else known


class UnknownName(ValueError):
    """No entry has this name. ``what`` says only that; the whole sentence also suggests similar names."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what, hint)
        self.what = what

    def __str__(self) -> str:
        return ": ".join(self.args)


class Place(NamedTuple):
    """A registration in the source of the package, with the arguments of its decorator."""

    name: str
    module: str
    summary: str = ""
    group: str = ""
    needs: str = ""


_DECORATOR = re.compile(
    r'^@(\w+)\.register\(\s*"([^"]+)"(?:,\s*"([^"]+)")?(?:,\s*group="([^"]+)")?(?:,\s*needs="([^"]+)")?,?\s*\)',
    re.MULTILINE,
)


@cache
def places() -> dict[str, list[Place]]:
    """The registrations in the source of the package, by the name of the registry: read from the files, without an
    import.

    >>> [place.module for place in places()["worlds"] if place.name == "sprites"]
    ['polariscope.worlds.renderers.sprites']
    """
    root = os.path.dirname(__file__)
    by_registry: dict[str, list[Place]] = {}
    for folder, _, files in os.walk(root):
        for file in (os.path.join(folder, name) for name in files if name.endswith(".py")):
            with open(file, "rb") as opened:
                source = opened.read()
            if b".register(" in source:
                parts = os.path.relpath(file, root).removesuffix(".py").split(os.sep)
                module = ".".join(["polariscope", *parts]).removesuffix(".__init__")
                for registry, name, *about in _DECORATOR.findall(source.decode()):
                    by_registry.setdefault(registry, []).append(Place(name, module, *about))
    return by_registry


class Catalogue(Generic[E]):
    """Names to entries of one kind: classes or functions. Their modules are imported when they are first used.

    ``kind`` is the noun for error sentences. The variable that holds the catalogue has the plural of that noun as its
    name, since decorators are found by it. ``abilities`` are the words for the needs of entries.
    """

    def __init__(self, kind: str, *, plural: str = "", abilities: Collection[str] = ()) -> None:
        self.kind = kind
        self.plural = plural or f"{kind}s"
        self.abilities = abilities
        self._entries: dict[str, E | Place] = {}
        self._registered: dict[str, E] = {}
        self._about: dict[str, Place] = {}
        self._discovered = False

    def register(self, name: str, summary: str = "", group: str = "", needs: str = "") -> Callable[[E], E]:
        """Decorator that registers a class or function under ``name``.

        The summary is its line in lists, which need no import; ``group`` is its heading, and ``needs`` declares what it
        can be used on, in words of the catalogue.
        """
        if unknown := set(needs.split()) - set(self.abilities):
            raise ValueError(f"the {self.kind} {name!r} needs {unknown.pop()!r}: {nearest(needs, self.abilities)}")

        def put(entry: E) -> E:
            module, qualname = entry.__module__, getattr(entry, "__qualname__", "")
            if not module.startswith("polariscope."):
                self._discover()  # a name that is taken is then refused where the user can do something about it
            self._refuse_second(name, module, qualname)
            self._entries[name] = self._registered[name] = entry
            self._about[name] = Place(name, module, summary, group, needs)
            return entry

        return put

    def names(self, pattern: str = "*") -> list[str]:
        """Registered names that match a shell pattern, sorted."""
        self._discover()
        plugins.load_installed()
        return sorted(name for name in self._entries if fnmatchcase(name, pattern))

    def about(self) -> list[Place]:
        """The registrations of all entries, sorted by name."""
        return [self._about[name] for name in self.names()]

    def get(self, name: str) -> E:
        """The entry called ``name``; an unknown name is a :class:`ValueError` that suggests the nearest one.

        If the name is not built in, the plug-ins of installed packages are loaded.
        """
        self._discover()
        if name not in self._entries and name not in self.names():
            raise UnknownName(f"there is no {self.kind} {name!r}", nearest(name, self._entries))
        entry = self._entries[name]
        if isinstance(entry, Place):
            importlib.import_module(entry.module)
            # A module registers once: where entries were put back since, what it registered is still known.
            entry = self._entries[name] = self._registered[name]
        return entry

    def __contains__(self, name: object) -> bool:
        self._discover()
        return name in self._entries or name in self.names()

    def _refuse_second(self, name: str, module: str, qualname: str = "") -> None:
        known = self._entries.get(name)
        if known is None:
            return
        home = known.module if isinstance(known, Place) else known.__module__
        another = qualname and not isinstance(known, Place) and getattr(known, "__qualname__", "") != qualname
        if home != module or another:
            raise ValueError(f"two {self.plural} are called {name!r}: {home} and {module}")

    def _discover(self) -> None:
        """Look through the source of the package once."""
        if not self._discovered:
            for place in places().get(self.plural, ()):
                self._refuse_second(place.name, place.module)
                self._entries.setdefault(place.name, place)
                self._about.setdefault(place.name, place)
            self._discovered = True


class Registry(Catalogue[type[T]]):
    """A catalogue of frozen dataclasses, which it describes and builds.

    ``of`` is the type that fields have which hold a thing of this kind. ``spelled`` turns a word into a description
    where more than names are understood, such as paths. ``stand_in`` gives a thing that is not registered another one
    that is, for its description.
    """

    def __init__(
        self,
        kind: str,
        *,
        plural: str = "",
        of: type[Any] | None = None,
        spelled: Callable[[str], dict[str, Any]] | None = None,
        stand_in: Callable[[Any], T] | None = None,
    ) -> None:
        super().__init__(kind, plural=plural)
        self.stand_in = stand_in
        self.spelled = spelled or (lambda word: {"name": word})
        if of is not None:
            _BY_TYPE[of] = self

    def knows(self, entry: object) -> bool:
        """Whether the class of ``entry`` is filed here."""
        return type(entry) in self._entries.values()

    def name_of(self, entry: object) -> str:
        """The name under which the class of ``entry`` (or ``entry`` itself) is filed."""
        cls = entry if isinstance(entry, type) else type(entry)
        for name, known in self._entries.items():
            if known is cls:
                return name
        raise ValueError(f"{cls.__name__} is not a registered {self.kind}")

    def describe(self, entry: object) -> dict[str, Any]:
        """A JSON-ready dictionary from which :meth:`build` makes the same thing again."""
        if self.stand_in is not None and not self.knows(entry):
            entry = self.stand_in(entry)
        return {"name": self.name_of(entry), **plain(entry)}

    def examples(self, name: str) -> list[dict[str, Any]]:
        """Descriptions of small things to try a class with: from the settings in its class variable ``examples``, or
        from its defaults."""
        cls = self.get(name)
        declared: Iterable[Settings] | None = getattr(cls, "examples", None)
        if declared is None and (missing := required(cls)):
            raise ValueError(
                f"the {self.kind} {name!r} has no default for {' and '.join(missing)}: give example settings in a "
                "class variable, examples: ClassVar = ({...},)"
            )
        return [{"name": name, **settings} for settings in (({},) if declared is None else declared)]

    def build(self, description: Mapping[str, Any] | str) -> T:
        """What a dictionary ``{"name": ..., field: value, ...}`` or a word describes. Unknown fields are refused.

        A class whose settings have changed can define ``earlier_settings(settings)``, which gives what the settings in
        files of earlier versions are called now.
        """
        fields = self.spelled(description) if isinstance(description, str) else dict(description)
        if "name" not in fields:
            raise ValueError(f"a {self.kind} needs a name {nearest('', self.names())}")
        name = fields.pop("name")
        cls: Any = self.get(name)
        if hasattr(cls, "earlier_settings"):
            fields = cls.earlier_settings(fields)
        return from_plain(cls, fields, where=f"{self.kind} {name!r}")


def plain(config: Any) -> dict[str, Any]:
    """Fields of a configuration dataclass as JSON-ready values: tuples become lists, dataclasses dictionaries, and
    registered things that it holds their descriptions."""

    def value(item: Any) -> Any:
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            named = held(item)
            own = {f.name: getattr(item, f.name) for f in dataclasses.fields(item) if f.init}
            return {
                name: named[name].describe(one) if name in named and one is not None else value(one)
                for name, one in own.items()
            }
        if isinstance(item, tuple | list):
            return [value(i) for i in item]
        if isinstance(item, dict):
            return {key: value(i) for key, i in item.items()}
        if item is None or isinstance(item, bool | int | float | str):
            return item
        return str(item)

    out = value(config)
    assert isinstance(out, dict), "a configuration is a dataclass"
    return out


def from_plain(cls: type[Any], fields: Mapping[str, Any], where: str) -> Any:
    """Build the dataclass ``cls`` from plain values; ``where`` names the place in error sentences."""
    known = {f.name: f for f in dataclasses.fields(cls) if f.init}
    for key in fields:
        if key not in known:
            raise ValueError(f"{where} has no setting {key!r}: {nearest(key, known)}")
    missing = [name for name in required(cls) if name not in fields]
    if missing:
        raise ValueError(
            f"{where} needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not given"
        )
    hints = typing.get_type_hints(cls)
    values = {key: _coerce(hints[key], item, f"{where}: {key}") for key, item in fields.items()}
    try:
        return cls(**values)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from error


def _coerce(hint: Any, item: Any, where: str) -> Any:
    """Plain values to what the field's type says, with a sentence where they do not fit."""
    origin = typing.get_origin(hint)
    registry = registry_of(hint)
    if registry is not None and isinstance(item, Mapping | str):
        return registry.build(item)
    if dataclasses.is_dataclass(hint) and isinstance(item, Mapping):
        return from_plain(typing.cast(type, hint), item, where)
    if origin in (typing.Union, types.UnionType):
        options = typing.get_args(hint)
        if item is None and type(None) in options:
            return None
        for option in (o for o in options if o is not type(None)):
            try:
                return _coerce(option, item, where)
            except ValueError as error:
                problem = error
        raise problem
    if origin is typing.Literal:
        options = typing.get_args(hint)
        if item not in options:
            raise ValueError(f"{where} is {item!r}: {nearest(str(item), map(str, options))}")
        return item
    if origin is tuple:
        if not isinstance(item, list | tuple):
            raise ValueError(f"{where} needs a list, got {item!r}")
        inner = typing.get_args(hint)
        kinds = [inner[0]] * len(item) if len(inner) == 2 and inner[1] is Ellipsis else list(inner)
        if len(kinds) != len(item):
            raise ValueError(f"{where} needs {len(kinds)} values, got {len(item)}")
        return tuple(_coerce(kind, i, where) for kind, i in zip(kinds, item, strict=True))
    if origin is dict and isinstance(item, Mapping):
        kind = typing.get_args(hint)[1]
        return {key: _coerce(kind, one, f"{where}: {key}") for key, one in item.items()}
    if hint is float and isinstance(item, int) and not isinstance(item, bool):
        return float(item)
    if hint in (int, float, bool, str):
        if not isinstance(item, hint) or (hint is int and isinstance(item, bool)):
            raise ValueError(f"{where} needs {hint.__name__}, got {item!r}")
        return item
    if isinstance(hint, type) and isinstance(item, str):  # pathlib.Path and the like, which take a string
        return hint(item)
    return item
