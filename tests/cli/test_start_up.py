"""Listings start at once: nothing heavy is imported before it is needed."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from polariscope.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
heavy = [name for name in ("torch", "matplotlib", "sklearn", "scipy") if name in sys.modules]
print(heavy, file=sys.stderr)
"""


@pytest.mark.parametrize("words", [["--help"], ["version"], ["runs"], ["runs", "--help"]], ids=" ".join)
def test_listings_do_without_torch(tmp_path, words) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "[]"
    assert done.stdout


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = "import sys, polariscope; print('torch' in sys.modules, 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False False\n"
