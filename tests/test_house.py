"""The house rules that a machine can check: imports go one way, names say something, nothing forbidden is used."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "polariscope"

# Each room with the rooms it may import. Imports go down this list's order of dependence, never up.
GROUND = {
    "atomic",
    "command",
    "damaged_files",
    "documents",
    "findings",
    "foreign_files",
    "grammar",
    "lazy",
    "memory",
    "plugins",
    "registry",
    "strict_json",
    "tabular",
    "user_code",
}
GROUND |= {"console", "interrupts", "printable", "release"}
MAY_IMPORT = {
    "theory": set(),
    "lab": GROUND,
    "worlds": GROUND | {"theory"},
    "nets": GROUND,
    "objectives": GROUND | {"nets"},
    "training": GROUND | {"objectives", "nets", "worlds", "lab"},
    "subjects": GROUND | {"lab", "worlds", "training"},  # a run is a model too, and brings its data
    "representation": GROUND | {"worlds", "subjects"},
    "measures": GROUND | {"representation", "theory"},
    # The document of every result and its figures: below all who have results.
    "report": GROUND | {"worlds", "measures", "representation"},
    "dimension": GROUND
    | {"measures", "representation", "theory", "training", "worlds", "nets", "objectives", "lab", "report"},
    "kernels": GROUND | {"nets", "theory", "worlds", "objectives", "training", "subjects"},
    "robustness": GROUND
    | {"nets", "training", "worlds", "objectives", "measures", "theory", "report", "subjects", "lab"},
    "examination": GROUND
    | {
        "robustness",
        "measures",
        "representation",
        "worlds",
        "subjects",
        "nets",
        "theory",
        "kernels",
        "objectives",
        "training",
        "lab",
        "report",
    },
    "manipulation": GROUND
    | {"worlds", "nets", "objectives", "training", "representation", "measures", "examination", "report", "subjects"},
    "mapping": GROUND | {"nets", "training", "worlds", "objectives", "measures", "subjects", "theory", "report", "lab"},
    "studies": None,  # everything below
    "testing": GROUND
    | {
        "lab",
        "worlds",
        "objectives",
        "measures",
        "representation",
        "nets",
        "report",
        "robustness",
        "studies",
        "subjects",
    },
    "app": None,  # everything below: it shows whatever the house can say
    "cli": None,
    "__init__": None,
    "__main__": {"cli"},
}
ORDER = list(MAY_IMPORT)
SHOWN_BY = {"findings": {"report"}, "documents": {"report"}}
"""Modules of the ground that import other rooms inside functions: a document is drawn and shown by the report."""


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path, at_once: bool = False) -> set[str]:
    """Rooms that a module imports; with ``at_once`` only those that it imports when it is imported itself."""
    rooms = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if at_once else ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module == "polariscope":
            names = [f"polariscope.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("polariscope.")}
    return rooms


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    room = room_of(path)
    if room in GROUND:
        assert imported_rooms(path, at_once=True) <= GROUND
        assert imported_rooms(path) <= GROUND | SHOWN_BY.get(room, set())
        return
    assert room in MAY_IMPORT, f"{room} is a new room: say in this test what it may import"
    allowed = MAY_IMPORT[room]
    if allowed is None:
        allowed = GROUND | set(ORDER[: ORDER.index(room)])
    assert imported_rooms(path) - {room} <= allowed


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), "a module needs a docstring"
    assert path.stem not in {"utils", "util", "helpers", "helper", "common", "misc"}


def test_nothing_forbidden_is_imported() -> None:
    forbidden = re.compile(r"^\s*(import|from) (torchvision|tensorflow|lightning|hydra|timm)\b", re.MULTILINE)
    # Of pickle only the name of its error may be known, and torch.load only with the safe reader.
    pickle = re.compile(r"^\s*import pickle\b|^\s*from pickle import (?!UnpicklingError$)", re.MULTILINE)
    unsafe = re.compile(r"allow_pickle\s*=\s*True|weights_only\s*=\s*False|torch\.load\((?!.*weights_only=True\))")
    for path in modules():
        text = path.read_text(encoding="utf-8")
        assert not forbidden.search(text), path
        assert not pickle.search(text), path
        assert not unsafe.search(text), path


def test_the_command_line_writes_no_file_itself() -> None:
    """Documents have one writer, which is not here; what is written elsewhere is written atomically there."""
    writing = re.compile(r"polariscope\.atomic|\.write_text\(|\.write_bytes\(|savefig\(|save_file\(|open\([^)]*[\"']w")
    for path in modules():
        if room_of(path) == "cli":
            assert not writing.search(path.read_text(encoding="utf-8")), path


def test_commands_print_json_that_every_reader_takes() -> None:
    """Python's own writer puts out words for infinity and NaN that are no JSON."""
    for path in modules():
        if room_of(path) == "cli" or path.name == "terminal.py":
            assert "json.dumps(" not in path.read_text(encoding="utf-8"), f"{path}: use json_text"


def test_the_command_line_shows_names_from_data_and_obeys_none() -> None:
    """What people read goes through say or Terminal, which leave out what moves a cursor; JSON has its own escapes."""
    bare = re.compile(r"(?<![.\w])print\((?!json\.dumps\(|json_text\(|\"\[\]\")|rich\.console import .*\bConsole\b")
    for path in modules():
        if (room_of(path) == "cli" and path.stem != "parsing") or path.stem == "terminal":  # help is ours, with colours
            hint = f"{path}: say() of polariscope.printable for people, Terminal of polariscope.console for tables"
            assert not bare.search(path.read_text(encoding="utf-8")), hint


def test_no_study_imports_another() -> None:
    """What studies share lives in a module that registers none."""
    texts = {path: path.read_text(encoding="utf-8") for path in modules() if room_of(path) == "studies"}
    ours = {".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path, text in texts.items()
            if "@studies.register(" in text}  # fmt: skip
    for path, text in texts.items():
        assert not ours & set(re.findall(r"^from (polariscope\.studies\.[\w.]+) import", text, re.MULTILINE)), path


STEPS_AN_OPTIMISER = {
    "kernels/gradient_flow.py": "integrates an ODE with any optimiser, to see how far it keeps a symmetry",
}
"""Modules outside of training/ that step a torch optimiser, with the reason."""


def test_only_the_training_loop_steps_an_optimiser() -> None:
    """Whatever is trained elsewhere would have no folder, no resume and no learning curve."""
    result = set()
    for path in modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        # A schedule's or a solver's own step takes arguments; that of an optimiser takes none.
        steps = any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "step"
            and not node.args
            and not node.keywords
            for node in ast.walk(tree)
        )
        if steps and room_of(path) != "training":
            result.add(str(path.relative_to(SOURCE)))
    assert result == set(STEPS_AN_OPTIMISER)
