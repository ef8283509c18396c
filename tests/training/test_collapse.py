"""The monitor of posterior collapse: it warns while a model trains, and the run remembers since when."""

import pytest

from polariscope.cli import main
from polariscope.lab.store import Store
from polariscope.training.collapse import PATIENCE, collapsed_since

SETTINGS = "mini-sprites --objective beta-vae --model.architecture linear --training.steps 240 --training.log-every 20"


@pytest.mark.spec("002/V07")
@pytest.mark.parametrize(("beta", "collapses"), [("100000", True), ("0.1", False)])
def test_a_training_warns_when_all_variables_are_passive(tmp_path, monkeypatch, capsys, beta, collapses) -> None:
    monkeypatch.chdir(tmp_path)
    more = ["--objective.beta", beta, "--training.learning-rate", "0.01", "--training.threads", "1"]
    assert main(["train", *SETTINGS.split(), *more]) == 0
    printed = capsys.readouterr()
    (run,) = Store(tmp_path / "runs").runs()
    divergences = {step: value for step, split, term, value in run.metrics() if (split, term) == ("train", "kl")}
    assert (list(divergences.values())[-1] < 0.01) == collapses
    for text in (printed.out, printed.err):  # at the end, and while it trained
        assert ("all latent variables have been passive since step" in text) == collapses
    since = run.result.get("collapsed_since")
    assert (since is not None) == collapses
    if since is not None:
        assert max(value for step, value in divergences.items() if step >= since) < 0.01
        assert since == min(divergences) or divergences[since - 20] >= 0.01


def test_a_code_that_is_used_again_has_not_collapsed() -> None:
    idle = [(step, "train", "kl", 0.0) for step in range(PATIENCE)]
    assert collapsed_since(idle) == 0
    assert collapsed_since(idle[1:]) is None, "too few records"
    assert collapsed_since([*idle, (PATIENCE, "train", "kl", 1.0)]) is None
    assert collapsed_since([*idle, (PATIENCE, "held_out", "kl", 1.0)]) == 0, "only one split counts"
    assert collapsed_since([(step, "train", "loss", 0.0) for step in range(9)]) is None, "no divergence"
