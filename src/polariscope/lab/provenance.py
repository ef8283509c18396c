"""The origin of a number: versions, machine and code, so that anyone can reproduce it."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

PACKAGE = Path(__file__).resolve().parents[1]
RECORDED = ("polariscope", "torch", "numpy", "scipy", "scikit-learn")
BLOCK = 2**18
"""Bytes of a sample of a large file."""
BLOCKS = 64
"""Number of samples of a large file, from its beginning to its end; files of at most their total size are read
whole."""
FILES = 2**11
"""About how many files of a folder have their bytes hashed; of the others, only name and size are."""


@lru_cache(maxsize=1)
def environment() -> dict[str, str]:
    """Versions and hardware: enough to explain a difference between two machines, but nothing personal."""
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
    """The commit of a checkout, followed by a hash of the package if it was changed since; otherwise only the hash."""
    digest = package_hash()[:12]
    # Only a repository that tracks this file: an installed package may lie inside another repository.
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
    """The output of git, or None if there is no git or it fails."""
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
    """The processor's name, by which linear-algebra libraries choose their kernels."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def data_record(paths: Sequence[str], whole: bool = False) -> list[dict[str, Any]]:
    """JSON-ready records of data files and folders: size, time and SHA-256. The hash covers samples of a large file, or
    all its bytes with ``whole``. Missing files are skipped."""
    return [_data_entry(path, whole) for path in paths if Path(path).expanduser().exists()]


def data_changes(paths: Sequence[str], recorded: Iterable[Any]) -> list[str]:
    """A clause for each file or folder that differs from all that were recorded under its path."""
    earlier: dict[str, list[Mapping[str, Any]]] = {}
    for entry in recorded:
        if isinstance(entry, Mapping) and isinstance(entry.get("path"), str):
            earlier.setdefault(entry["path"], []).append(entry)
    clauses = []
    for path in paths:
        if path not in earlier or not Path(path).expanduser().exists():
            continue
        now = {whole: _data_entry(path, whole) for whole in {bool(entry.get("whole")) for entry in earlier[path]}}
        if not any(_same(entry, now[bool(entry.get("whole"))]) for entry in earlier[path]):
            was, last = earlier[path][-1], next(iter(now.values()))
            clauses.append(f"{path} has changed ({_in_words(was)} then, {_in_words(last)} now)")
    return clauses


def _same(entry: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    return (entry.get("bytes"), entry.get("sha256")) == (now["bytes"], now["sha256"])


def _in_words(entry: Mapping[str, Any]) -> str:
    return f"{entry.get('bytes')!s:.20} bytes with SHA-256 {entry.get('sha256')!s:.12}"


def _data_entry(path: str, whole: bool) -> dict[str, Any]:
    place = Path(path).expanduser()
    files = sorted(file for file in place.rglob("*") if file.is_file()) if place.is_dir() else [place]
    digest = hashlib.sha256()
    looked_at = range(len(files)) if whole else set(range(0, len(files), max(1, len(files) // FILES)))
    for number, file in enumerate(files):
        name = file.relative_to(place).as_posix() if file != place else ""
        digest.update(f"{name}\0{file.stat().st_size}\0".encode(errors="surrogateescape"))
        if number in looked_at:
            with file.open("rb") as opened:
                _update(digest, opened, file.stat().st_size, whole)
    newest = max((file.stat().st_mtime for file in files), default=place.stat().st_mtime)
    return {
        "path": path,
        "bytes": sum(file.stat().st_size for file in files),
        "modified": datetime.fromtimestamp(newest, UTC).isoformat(timespec="seconds"),
        "sha256": digest.hexdigest(),
        "whole": whole,
    }


def _update(digest: Any, file: BinaryIO, size: int, whole: bool) -> None:
    """Hash all bytes, or samples at equal distances from the beginning to the end of the file."""
    if whole or size <= BLOCK * BLOCKS:
        while block := file.read(BLOCK):
            digest.update(block)
        return
    for number in range(BLOCKS):
        file.seek(number * (size - BLOCK) // (BLOCKS - 1))
        digest.update(file.read(BLOCK))
