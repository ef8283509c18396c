"""Which attacks a card runs: by norm and by what one is willing to spend."""

from __future__ import annotations

from typing import Any, Literal

from polariscope.robustness.attacks import Attack, Norm, attacks

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


def attack_suite(norm: Norm, budget: Budget) -> list[Attack]:
    """The attacks of a budget in a norm, the cheapest first."""
    if budget not in SUITES:
        raise ValueError(f"the budget is {budget!r}: quick, standard or full")
    return [attacks.build({"name": name, **settings}) for name, settings in SUITES[budget][norm]]


def attack_title(attack: Attack) -> str:
    """An attack with the settings that differ from its defaults.

    >>> attack_title(attack_suite("linf", "quick")[1])
    'pgd steps=20'
    """
    name = attacks.name_of(attack)
    usual, own = (attacks.describe(one) for one in (attacks.build({"name": name}), attack))
    changed = [f"{key}={value}" for key, value in own.items() if usual.get(key) != value]
    return " ".join([name, *changed])
