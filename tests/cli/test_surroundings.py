"""Where a command runs: terminals that obey, unknown letters, users without a home, places that are closed."""

import io
import sys

import numpy as np
import pytest

from polariscope.console import Terminal
from polariscope.examination.embedding import Shelf, cache_folder
from polariscope.printable import printable, spell_out

ESCAPES = "\x1b[2J\x1b]0;gone\x07\x9b31msize\u202e"


def test_names_from_data_are_shown_and_not_obeyed(run, tmp_path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (60, 16, 16), dtype=np.uint8)
    labels = np.arange(60) % 3
    np.savez(tmp_path / "evil.npz", images=images, labels=labels)
    code, out, err = run("worlds", "show", "evil.npz", f"--world.kinds.{ESCAPES}", "categorical")
    assert all(letter.isprintable() or letter == "\n" for letter in out + err), "an error has them too"
    assert code == 2


def test_a_terminal_prints_text_as_text() -> None:
    shown = io.StringIO()
    terminal = Terminal(file=shown, force_terminal=True, markup=False, highlight=False)
    terminal.print(f"factor {ESCAPES}", style="bold")
    assert printable(ESCAPES) == "[2J]0;gone31msize"
    assert "factor [2J]0;gone31msize" in shown.getvalue()
    assert shown.getvalue().startswith("\x1b[1m"), "our own styles stay"
    assert "\x1b[2J" not in shown.getvalue()
    assert "\x07" not in shown.getvalue()


def test_letters_that_a_stream_does_not_know_are_spelled_out() -> None:
    bytes_written = io.BytesIO()
    stream = io.TextIOWrapper(bytes_written, encoding="ascii")
    spell_out(stream)
    stream.write("R² ≥ 0.5 – “good” β é")
    stream.flush()
    assert bytes_written.getvalue() == b'R2 >= 0.5 - "good" ? e'


def test_an_ascii_pipe_loses_no_result(run, monkeypatch) -> None:
    """Through the command line, with names that ASCII does not have."""
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert run("studies")[0] == 0
    sys.stdout.flush()
    assert written.getvalue().isascii()
    assert b"learning-curves" in written.getvalue()


def test_a_user_without_a_home_has_no_cache(monkeypatch, tmp_path) -> None:
    for name in ("POLARISCOPE_CACHE", "XDG_CACHE_HOME", "HOME", "USERPROFILE"):
        monkeypatch.delenv(name, raising=False)

    def unknown(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    pytest.importorskip("pwd")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    (tmp_path / "model.py").write_text("")
    assert cache_folder() is None
    assert Shelf.of_source(f"{tmp_path / 'model.py'}:net") is None


PLACES = {
    "generalise": ["generalise", "mlp", "--world", "mini-sprites", "--out", "file/x.html"],
    "transitions": ["transitions", "masks", "--out", "file/x.html"],
    "corruptions": ["corruptions", "model.py:net", "digits", "--out", "file/folder/x.html"],
    "dimension": ["dimension", "sprites", "--runs", "file/runs"],
    "kernel": ["kernel", "mlp", "digits", "--runs", "file/runs"],
    "reproduce": ["reproduce", "fondue", "--scale", "smoke", "--out", "file/results"],
    "worlds": ["worlds", "show", "sprites", "--out", "file/sheet.png"],
}


@pytest.mark.parametrize("name", PLACES)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(run, tmp_path, monkeypatch, name) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr("polariscope.training.loop.fit", lambda *arguments: pytest.fail("it was worked for"))
    monkeypatch.setattr("polariscope.studies.engine.in_parallel", lambda *arguments: pytest.fail("it was worked for"))
    code, out, err = run(*PLACES[name])
    assert (code, out) == (2, "")
    option = "--runs" if "--runs" in PLACES[name] else "--out"
    assert f"cannot write to {tmp_path / 'file'}: Not a directory; name another place with {option}" in err
