"""What a number was made with: versions, machine, and the very code, so that anyone can make it again."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
RECORDED = ("polariscope", "torch", "numpy", "scipy", "scikit-learn")


@lru_cache(maxsize=1)
def environment() -> dict[str, str]:
    """Enough to explain a difference between two machines, nothing personal."""
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        **{package: _version(package) for package in RECORDED},
        "code": code(),
    }


@lru_cache(maxsize=1)
def code() -> str:
    """The commit of a checkout, with a hash of the package behind it if that was changed since; or the hash alone."""
    digest = package_hash()[:12]
    # Only a repository that holds this very file: an installed package may lie inside of somebody else's.
    if _git("ls-files", "--error-unmatch", str(Path(__file__).name), folder=Path(__file__).parent) is None:
        return f"package {digest}"
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--", ".")
    return f"commit {commit}" + (f"+{digest}" if changed else "")


@lru_cache(maxsize=1)
def package_hash() -> str:
    """SHA-256 over the names and texts of the package's modules."""
    digest = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*.py")):
        digest.update(file.relative_to(PACKAGE).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _git(*arguments: str, folder: Path = PACKAGE) -> str | None:
    """What git answers, or None where there is no git or it refuses."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    """The processor's name: kernels of the linear-algebra libraries are chosen by it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
