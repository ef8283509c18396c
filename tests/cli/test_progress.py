"""Progress where there is no terminal: a line now and then, and none where machines listen."""

from polariscope.cli.progress import shares


def test_lines_tell_how_long_the_rest_takes(capsys, monkeypatch) -> None:
    clock = iter([0.0, 10.0, 40.0, 70.0])
    monkeypatch.setattr("polariscope.cli.progress.time.monotonic", lambda: next(clock))
    with shares(every=5.0) as tell:
        for share in (0.1, 0.4, 0.7):
            tell("attacks in L2", share)
    lines = ["attacks in L2: 10%", "attacks in L2: 40%, about 60 s left", "attacks in L2: 70%, about 30 s left"]
    assert capsys.readouterr().err.splitlines() == lines


def test_work_without_a_terminal_tells_its_share_in_lines(capsys) -> None:
    with shares(every=0.0) as tell:
        tell("kernel, initial", 0.25)
        tell("kernel, final", 1.0)
    assert capsys.readouterr().err.splitlines() == ["kernel, initial: 25%", "kernel, final: 100%"]
    with shares(every=3600.0) as tell:
        tell("kernel, initial", 0.25)
    with shares(quiet=True, every=0.0) as tell:
        tell("kernel, initial", 0.25)
    assert capsys.readouterr().err == ""
