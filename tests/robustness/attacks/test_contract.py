"""Every registered attack keeps its promises; an attack that breaks one is caught at it; a plug-in is an attack."""

import pytest

from polariscope.robustness.attacks import attacks
from polariscope.robustness.attacks.contract import check_attack, curved
from polariscope.robustness.attacks.fast_gradient import FastGradient
from polariscope.robustness.attacks.transfer import Transfer
from polariscope.subjects import as_subject

# Settings under which an attack is quick; all others are checked as they come.
QUICK = {
    "apgd": [{"steps": 8}, {"steps": 6, "loss": "dlr", "classes": 3}],
    "boundary": [{"steps": 40}],
    "carlini-wagner": [{"steps": 20, "searches": 2}],
    "ddn": [{"steps": 20}, {"steps": 20, "levels": 256}],
    "estimated": [
        {"of": {"name": "deepfool", "steps": 5}, "sizes": [0.01]},
        {"of": "fast-gradient", "method": "nes", "samples": 20, "sizes": [0.01]},
    ],
    "fab": [{"steps": 5, "classes": 2, "restarts": 2}],
    "gaussian-noise": [{"repeats": 2}],
    "mim": [{"steps": 6}],
    "pgd": [{"steps": 6, "restarts": 2}],
    "pointwise": [{"restarts": 2, "passes": 2, "bisections": 5}],
    "salt-and-pepper": [{"repeats": 2}],
    "sigma-zero": [{"steps": 40}],
    "square": [{"steps": 8}],
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
