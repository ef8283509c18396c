"""Progress where there is no terminal: a line now and then, and none where machines listen."""

from polariscope.cli.progress import shares


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
