"""Every registered attack keeps its promises; an attack that breaks one is caught at it; a plug-in is an attack."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from polariscope import plugins
from polariscope.robustness.attacks import Attack, attacks
from polariscope.robustness.attacks.fast_gradient import FastGradient
from polariscope.robustness.attacks.transfer import Transfer
from polariscope.subjects import as_subject
from polariscope.testing import check_attack
from polariscope.testing.attacks import curved, curved_examples

# Settings under which an attack is quick; all others are checked as they come.
QUICK = {
    "apgd": [{"steps": 5}, {"steps": 4, "loss": "dlr", "classes": 2}],
    "boundary": [{"steps": 40}],
    "carlini-wagner": [{"steps": 20, "searches": 2}],
    "ddn": [{"steps": 20}, {"steps": 20, "levels": 256}],
    "estimated": [
        {"of": {"name": "deepfool", "steps": 5}, "sizes": [0.01]},
        {"of": "fast-gradient", "method": "nes", "samples": 20, "sizes": [0.01]},
    ],
    "fab": [{"steps": 5, "classes": 2, "restarts": 2}],
    "gaussian-noise": [{"repeats": 2}],
    "mim": [{"steps": 5}],
    "pgd": [{"steps": 4, "restarts": 2}],
    "pointwise": [{"restarts": 2, "passes": 2, "bisections": 5}],
    "salt-and-pepper": [{"repeats": 2}],
    "sigma-zero": [{"steps": 40}],
    "square": [{"steps": 6}],
}


@pytest.mark.parametrize(("name", "settings"), [(n, s) for n in attacks.names() for s in QUICK.get(n, [{}])], ids=str)
def test_registered_attacks_keep_the_contract(name, settings):
    if name == "transfer":  # it holds a model
        check_attack(Transfer(curved, FastGradient()))
        return
    attack = attacks.build({"name": name, **settings})
    if not attack.applies(as_subject(curved)):
        pytest.skip(f"{name} is made for classifiers by synthesis, on which test_latent_descent.py checks it")
    check_attack(attack)


@dataclass(frozen=True)
class Breaker(Attack):
    """An attack that finds something, and breaks one promise."""

    how: str

    needs: ClassVar = "decision"
    norms: ClassVar = ("l2",)

    def run(self, trial):
        target = torch.full_like(trial.x, 0.5)
        if self.how == "batch":  # what it does to an image depends on the others
            target = target + 0.1 * (len(trial.x) % 3)
        if self.how == "seed":
            target = torch.rand_like(trial.x)
        for share in torch.linspace(0.1, 1, 10, dtype=trial.x.dtype):
            trial.reached(trial.x + share * (target - trial.x))
        if self.how == "box":
            trial.best += 1.0
        if self.how == "norm":
            trial.distance *= 0.9
        if self.how == "adversarial":
            trial.best[:] = trial.x
            trial.distance[:] = 1e-9
        if self.how == "nothing":
            trial.distance[:] = torch.inf


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("batch", "in other batches"),
        ("seed", "in other batches"),
        ("box", "let it clamp its points"),
        ("norm", "other than the norms of its changes"),
        ("adversarial", "does not misclassify"),
        ("nothing", "found no adversarial image"),
    ],
)
def test_an_attack_that_breaks_a_promise_is_caught(how, sentence):
    torch.manual_seed(0)
    with pytest.raises((AssertionError, ValueError), match=sentence):
        check_attack(Breaker(how))


@pytest.mark.parametrize("asks_for", ["scores", "gradient"])
def test_an_attack_gets_no_more_than_it_declares_to_need(asks_for):
    @dataclass(frozen=True)
    class Greedy(Attack):
        needs: ClassVar = "decision"
        norms: ClassVar = ("l2",)

        def run(self, trial):
            getattr(trial, asks_for)(trial.x, trial.rows)

    x, y = curved_examples()
    with pytest.raises(AssertionError, match="needs"):
        Greedy()(curved, x, y, norm="l2")


GREY = '''
from dataclasses import dataclass
from typing import ClassVar

from polariscope.robustness.attacks import Attack, attacks
from polariscope.robustness.attacks.line_search import search_line


@attacks.register("to-grey")
@dataclass(frozen=True)
class ToGrey(Attack):
    """Less and less contrast."""

    grey: float = 0.5

    needs: ClassVar = "decision"
    norms: ClassVar = ("l2", "linf")

    def run(self, trial):
        longest = trial.distance.new_ones(len(trial.x))
        search_line(trial, trial.rows, self.grey - trial.x, longest)
'''


def test_a_plug_in_file_is_an_attack_like_ours(tmp_path, monkeypatch):
    assert "to-grey" not in attacks.names()
    for one, kept in ((attacks, "_entries"), (attacks, "_about"), (plugins, "_FILES")):
        monkeypatch.setattr(one, kept, dict(getattr(one, kept)))
    file = tmp_path / "mine.py"
    file.write_text(GREY, encoding="utf-8")
    plugins.load_plugin(file)
    attack = attacks.build({"name": "to-grey", "grey": 0.4})
    check_attack(attack)
    x, y = curved_examples()
    result = attack(curved, x, y, norm="linf")
    assert result.attacks == ("to-grey",)
    assert np.isfinite(result.distances).any()
