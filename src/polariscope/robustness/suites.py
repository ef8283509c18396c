"""The attacks that a card runs: by norm and by budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from polariscope.robustness.attacks import Attack, Norm, attacks
from polariscope.robustness.attacks.binarised import Binarised
from polariscope.robustness.synthesis.classifier import ABSClassifier
from polariscope.subjects import Subject

Budget = Literal["quick", "standard", "full"]
Chosen = tuple[tuple[str, dict[str, Any]], ...]

QUICK: dict[Norm, Chosen] = {
    "l2": (("ddn", {"steps": 50}), ("gaussian-noise", {"repeats": 3})),
    "linf": (("fast-gradient", {}), ("pgd", {"steps": 20})),
    "l0": (("sigma-zero", {"steps": 100}), ("pointwise", {"restarts": 1})),
}
STANDARD: dict[Norm, Chosen] = {
    "l2": (
        ("fast-gradient", {}),
        ("deepfool", {}),
        ("ddn", {"steps": 200}),
        ("carlini-wagner", {}),
        ("fab", {}),
        ("gaussian-noise", {}),
        ("pointwise", {"restarts": 1}),
        ("boundary", {"steps": 1000}),
    ),
    "linf": (
        ("fast-gradient", {}),
        ("deepfool", {}),
        ("pgd", {}),
        ("mim", {}),
        ("apgd", {"loss": "ce"}),
        ("apgd", {"loss": "dlr"}),
        ("fab", {}),
        ("square", {"steps": 500}),
    ),
    "l0": (("sigma-zero", {}), ("salt-and-pepper", {}), ("pointwise", {"restarts": 3})),
}
FULL: dict[Norm, Chosen] = {
    "l2": (
        *(one for one in STANDARD["l2"] if one[0] not in ("pointwise", "boundary")),
        ("apgd", {"loss": "ce", "restarts": 5}),
        ("apgd", {"loss": "dlr", "restarts": 5}),
        ("square", {"steps": 5000}),
        ("pointwise", {"restarts": 10}),
        ("boundary", {}),
    ),
    "linf": (
        *(one for one in STANDARD["linf"] if one[0] not in ("apgd", "square")),
        ("apgd", {"loss": "ce", "restarts": 5}),
        ("apgd", {"loss": "dlr", "restarts": 5}),
        ("square", {"steps": 5000}),
    ),
    "l0": (("sigma-zero", {"steps": 1000}), ("salt-and-pepper", {}), ("pointwise", {"restarts": 10})),
}
SUITES: dict[Budget, dict[Norm, Chosen]] = {"quick": QUICK, "standard": STANDARD, "full": FULL}

# A classifier that gives no gradient is attacked by its scores in place of them.
BY_SCORES: dict[Budget, dict[Norm, Chosen]] = {
    "quick": {
        "l2": (("estimated", {"of": "fast-gradient", "method": "nes", "samples": 25, "sizes": [0.1]}),),
        "linf": (("square", {"steps": 200}),),
        "l0": (),
    },
    "standard": {
        "l2": (
            ("estimated", {"of": "fast-gradient", "method": "nes"}),
            ("estimated", {"of": {"name": "ddn", "steps": 20}, "method": "nes", "sizes": [0.1]}),
            ("square", {"steps": 500}),
        ),
        "linf": (
            ("estimated", {"of": "fast-gradient", "method": "nes"}),
            ("estimated", {"of": {"name": "pgd", "steps": 10}, "method": "nes", "sizes": [0.1]}),
        ),
        "l0": (),
    },
    "full": {
        "l2": (
            ("estimated", {"of": "fast-gradient"}),
            ("estimated", {"of": "deepfool"}),
            ("estimated", {"of": {"name": "ddn", "steps": 50}, "sizes": [0.1]}),
        ),
        "linf": (
            ("estimated", {"of": "fast-gradient"}),
            ("estimated", {"of": "deepfool"}),
            ("estimated", {"of": {"name": "pgd", "steps": 20}, "sizes": [0.1]}),
        ),
        "l0": (),
    },
}

# A classifier that searches for codes to answer is attacked on a shorter search, with its gradient at the codes found
# (the envelope theorem); its full search decides what counts.
BY_SYNTHESIS: dict[Budget, dict[Norm, Chosen]] = {
    "quick": {
        "l2": (("latent-descent", {"form": "segment"}), ("verified", {"of": {"name": "deepfool", "steps": 10}})),
        "linf": (("latent-descent", {"form": "segment"}), ("verified", {"of": {"name": "deepfool", "steps": 10}})),
        "l0": (("verified", {"of": {"name": "pointwise", "restarts": 1}}),),
    },
    "standard": {
        "l2": (
            ("latent-descent", {"form": "segment"}),
            ("latent-descent", {"step": 0.05, "steps": 60}),
            ("verified", {"of": "fast-gradient"}),
            ("verified", {"of": {"name": "deepfool", "steps": 20}}),
            ("verified", {"of": {"name": "ddn", "steps": 50}}),
            ("verified", {"of": {"name": "gaussian-noise", "repeats": 1}}),
            ("verified", {"of": {"name": "boundary", "steps": 300}}),
        ),
        "linf": (
            ("latent-descent", {"form": "segment"}),
            ("verified", {"of": "fast-gradient"}),
            ("verified", {"of": {"name": "deepfool", "steps": 20}}),
            ("verified", {"of": {"name": "pgd", "steps": 20}}),
            ("verified", {"of": {"name": "mim", "steps": 20}}),
        ),
        "l0": (
            ("verified", {"of": {"name": "sigma-zero", "steps": 100}}),
            ("verified", {"of": {"name": "pointwise", "restarts": 1}}),
        ),
    },
    "full": {
        "l2": (
            ("latent-descent", {"form": "segment"}),
            ("latent-descent", {}),
            ("verified", {"of": "fast-gradient"}),
            ("verified", {"of": "deepfool"}),
            ("verified", {"of": {"name": "ddn", "steps": 200}}),
            ("verified", {"of": {"name": "pgd", "steps": 40}}),
            ("verified", {"of": "gaussian-noise"}),
            ("verified", {"of": {"name": "pointwise", "restarts": 1}}),
            ("verified", {"of": {"name": "boundary", "steps": 5000}}),
        ),
        "linf": (
            ("latent-descent", {}),
            ("verified", {"of": "fast-gradient"}),
            ("verified", {"of": "deepfool"}),
            ("verified", {"of": {"name": "pgd", "steps": 40}}),
            ("verified", {"of": {"name": "mim", "steps": 40}}),
            ("verified", {"of": {"name": "apgd", "steps": 50}}),
        ),
        "l0": (
            ("verified", {"of": {"name": "sigma-zero", "steps": 300}}),
            ("verified", {"of": "salt-and-pepper"}),
            ("verified", {"of": {"name": "pointwise", "restarts": 10}}),
        ),
    },
}


def attack_suite(
    norm: Norm,
    budget: Budget,
    subject: Subject | None = None,
    *,
    gradients: bool = True,
    also: Sequence[Attack] = (),
) -> list[Attack]:
    """The attacks of a budget in a norm, the cheapest first; ``also`` adds further attacks if they work in that norm.

    A classifier by synthesis that searches for its codes has its own attacks, and without ``gradients`` attacks by
    scores replace those that need them. For a classifier that binarises its images, every attack undoes the changes
    that the threshold hides.
    """
    if budget not in SUITES:
        raise ValueError(f"the budget is {budget!r}: quick, standard or full")
    module = None if subject is None else subject.module
    searches = isinstance(module, ABSClassifier) and not callable(getattr(module, "linear_generators", None))
    chosen = list((BY_SYNTHESIS if searches else SUITES)[budget][norm])
    if isinstance(module, ABSClassifier) and not searches and norm != "l0":
        chosen.append(("latent-descent", {}))
    suite = [attacks.build({"name": name, **settings}) for name, settings in chosen]
    if not gradients:
        suite += [attacks.build({"name": name, **settings}) for name, settings in BY_SCORES[budget][norm]]
    suite += [attack for attack in also if norm in attack.norms]
    if norm != "l0" and _binarises(module):
        suite = [Binarised(attack, float(getattr(module, "threshold", 0.5))) for attack in suite]
    return suite


def left_out(suite: Sequence[Attack], larger: Sequence[Attack]) -> list[str]:
    """Kinds of attacks that a larger suite has and another one has not.

    >>> left_out(attack_suite("l0", "quick"), attack_suite("l0", "full"))
    ['salt-and-pepper']
    """
    kinds = [_kind(attack) for attack in suite]
    return list(dict.fromkeys(kind for kind in map(_kind, larger) if kind not in kinds))


def _kind(attack: Attack) -> str:
    """The names of an attack and of the attack that it holds."""
    inner = getattr(attack, "of", None)
    return " ".join([attacks.name_of(attack), *([_kind(inner)] if isinstance(inner, Attack) else [])])


def _binarises(module: Any) -> bool:
    return callable(getattr(module, "binarised", None)) and bool(getattr(module, "binary", True))


def attack_title(attack: Attack) -> str:
    """An attack with the settings that differ from its defaults.

    >>> attack_title(attack_suite("linf", "quick")[1])
    'pgd steps=20'
    >>> attack_title(attacks.build({"name": "binarised", "of": {"name": "pgd", "steps": 20}}))
    'binarised pgd steps=20'
    """
    name = attacks.name_of(attack)
    words = [name]
    for one in dataclasses.fields(attack):  # type: ignore[arg-type]  # attacks are dataclasses
        value = getattr(attack, one.name)
        if isinstance(value, Attack):
            words.append(attack_title(value))
        elif value != _default(one):
            words.append(f"{one.name}={value.name if isinstance(value, Subject) else value}")
    return " ".join(words)


def _default(setting: dataclasses.Field[Any]) -> Any:
    if setting.default is not dataclasses.MISSING:
        return setting.default
    return None if setting.default_factory is dataclasses.MISSING else setting.default_factory()
