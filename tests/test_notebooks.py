"""The notebooks: each is valid, has no output committed, and runs from its first cell to its last."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def cells(path: Path) -> list[str]:
    """The code of each code cell."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_has_no_output(path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["cells"][0]["cell_type"] == "markdown"
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        assert cell["cell_type"] in ("markdown", "code")
        assert cell.get("outputs", []) == []
    for code in cells(path):
        ast.parse(code)


def test_there_are_four() -> None:
    assert len(NOTEBOOKS) == 4


SHOWS = """
import ast, json, sys
names = {"__name__": "__main__"}
for code in json.load(sys.stdin):
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if last is not None and not ast.unparse(last).startswith("print("):
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        assert value is not None, code
        print(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
"""


@pytest.mark.deep
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path) -> None:
    """Cell by cell, in a process of its own; what a cell ends with is shown as Jupyter would show it."""
    if "map" in path.stem:
        pytest.importorskip("rasterio")
    words = [sys.executable, "-W", "ignore", "-c", SHOWS]
    given = json.dumps(cells(path))
    done = subprocess.run(words, cwd=tmp_path, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.splitlines()) >= 3
