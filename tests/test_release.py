"""What belongs to a release: the public surface, one version, a wheel and an sdist that install."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import polariscope
from polariscope.training.reference import SHIPPED

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_every_public_name_is_there():
    assert sorted(polariscope.__all__) == polariscope.__all__
    for name in polariscope.__all__:
        assert getattr(polariscope, name) is not None
    shown = {name for name in dir(polariscope) if not name.startswith("_")}
    assert set(polariscope.__all__) - {"__version__"} <= shown


def test_the_version_is_said_in_one_place():
    assert polariscope.__version__ == PROJECT["version"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == PROJECT["version"]
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = re.compile(rf"[\"']{re.escape(PROJECT['version'])}[\"']")
    assert not [path for path in (ROOT / "src").rglob("*.py") if version.search(path.read_text(encoding="utf-8"))]


def test_the_workflow_tests_what_we_say_we_support():
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    versions = re.search(r"python: \[(.*)\]", workflow)[1]
    for name in re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"])):
        assert f'"{name}"' in versions
    assert "ubuntu-latest" in workflow
    assert "macos-latest" in workflow
    for name in ("torch", "numpy"):  # the oldest are tested, and are those that the package asks for
        least = next(need.partition(">=")[2] for need in PROJECT["dependencies"] if need.startswith(name))
        assert f"{name}=={least}.*" in workflow
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: the workflow is not parsed")
    for file in [*ROOT.glob(".github/**/*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff"]:
        assert yaml.safe_load(file.read_text(encoding="utf-8"))


def built(folder: Path) -> tuple[Path, Path]:
    """Wheel and sdist of this checkout."""
    script = (
        "import sys; from setuptools import build_meta as b; out = sys.argv[1]; "  # setuptools writes to sys.argv
        "b.build_sdist(out); b.build_wheel(out)"
    )
    copy = folder / "source"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    for name in filter(None, map(os.fsdecode, files)):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run([sys.executable, "-c", script, str(folder)], cwd=copy, check=True, capture_output=True)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


@pytest.mark.deep
def test_wheel_and_sdist_install_in_a_clean_environment(tmp_path):
    wheel, sdist = built(tmp_path)
    inside = set(zipfile.ZipFile(wheel).namelist())
    wanted = [
        path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".jinja", ".js", ".css", ".html", ".csv")
    ]
    wanted += [path for path in SHIPPED.rglob("*") if path.is_file()]
    assert {str(path.relative_to(ROOT / "src")) for path in wanted} <= inside
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("src/polariscope/app/page/app.js") for name in archive.getnames())
    place = tmp_path / "clean"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    python = place / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, f"{wheel}[app]"], check=True)
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    run = [str(place / "bin" / "polariscope")]
    version = subprocess.run([*run, "version"], env=clean, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert PROJECT["version"] in version.stdout
    train = ["train", "mini-sprites", "--training.steps", "3", "--training.batch-size", "8"]
    subprocess.run([*run, *train], env=clean, cwd=tmp_path, check=True, capture_output=True)
    subprocess.run(
        [*run, "examine", "latest", "--count", "50"], env=clean, cwd=tmp_path, check=True, capture_output=True
    )
    script = "from polariscope.app.server import FILES, page_file; [page_file(name) for name in FILES]"
    subprocess.run([str(python), "-c", script], env=clean, cwd=tmp_path, check=True)
