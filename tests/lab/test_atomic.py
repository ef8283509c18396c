"""Files appear whole or not at all, are on the disk before their name is, and all have the same mode."""

import os
import stat

import numpy as np
import pytest
from safetensors.numpy import save_file

from polariscope.atomic import atomic


def test_a_file_appears_whole_or_not_at_all(tmp_path) -> None:
    target = tmp_path / "a.txt"
    with atomic(target) as draft:
        draft.write_text("first")
        assert not target.exists()
    with pytest.raises(RuntimeError), atomic(target) as draft:
        draft.write_text("second, ha")
        raise RuntimeError
    assert target.read_text() == "first"
    assert list(tmp_path.iterdir()) == [target]


def test_a_block_that_writes_nothing_replaces_nothing(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("first")
    with pytest.raises(FileNotFoundError), atomic(tmp_path / "a.txt"):
        pass
    assert (tmp_path / "a.txt").read_text() == "first"


def test_the_content_is_on_the_disk_before_the_name_and_the_name_before_we_go_on(tmp_path, monkeypatch) -> None:
    done = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(descriptor: int) -> None:
        done.append(("sync", os.fstat(descriptor).st_ino, os.fstat(descriptor).st_size))
        fsync(descriptor)

    def noted_replace(source, target) -> None:
        done.append(("replace", os.stat(source).st_ino))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    with atomic(tmp_path / "a.txt") as draft:
        draft.write_text("12345")
    file, folder = (tmp_path / "a.txt").stat(), tmp_path.stat()
    assert done == [("sync", file.st_ino, 5), ("replace", file.st_ino), ("sync", folder.st_ino, folder.st_size)]


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_the_umask_decides_the_mode_whoever_writes(tmp_path, umask) -> None:
    before = os.umask(umask)
    try:
        with atomic(tmp_path / "a.safetensors") as draft:
            save_file({"a": np.zeros(1)}, draft)
        with atomic(tmp_path / "b.txt") as draft:
            draft.touch(mode=0o600)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o666 & ~umask}
