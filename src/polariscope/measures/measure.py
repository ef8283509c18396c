"""The base class of measures: one number about a representation, with the facts that tables and tests need.

The mathematics lives in plain functions of arrays beside each class; the class says what the number needs, where it
can lie, and what must not change it. The contract kit checks every registered measure against these facts.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from typing import ClassVar, Literal, SupportsFloat

from polariscope.registry import Registry
from polariscope.representation import Representation

Need = Literal["var", "sample", "factors"]
Invariance = Literal["permutation", "sign", "scale", "isotropic_scale", "rotation", "translation"]


class Undefined(ValueError):
    """A measure has no value on this representation, for the reason given."""


class Measure(ABC):
    """A new measure is one file: functions of arrays, and a registered frozen dataclass that calls them."""

    title: ClassVar[str]
    """What tables call it."""
    needs: ClassVar[tuple[Need, ...]] = ()
    """What a representation must hold besides the means."""
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = math.inf
    higher_is_better: ClassVar[bool | None] = None
    """None where neither direction is better in itself."""
    invariant_to: ClassVar[tuple[Invariance, ...]] = ()
    """Changes of the latent space that leave the value alone."""
    permutations: ClassVar[int] = 6
    """How many permutations of the factors its chance level comes from, if it needs factors; fewer for dear ones."""
    halves: ClassVar[int] = 4
    """How many random halves of the examples its interval comes from."""

    def quick(self) -> Measure:
        """What takes its place on permuted factors and on halves: itself, unless it takes too long for that."""
        return self

    def published(self) -> Measure:
        """The same by the published protocol, its probe and sample sizes: itself, unless it takes short cuts."""
        return self

    @abstractmethod
    def __call__(self, representation: Representation) -> SupportsFloat:
        """The number, or a :class:`~polariscope.measures.score.Score`, which also says how it was computed."""

    @classmethod
    def lacks(cls, representation: Representation) -> list[Need]:
        """What the measure needs and the representation does not have."""
        return [need for need in cls.needs if getattr(representation, need) is None]

    def value(self, representation: Representation) -> float:
        """The number; :class:`Undefined` if the representation lacks what it needs or it has no value there."""
        return self.measured(representation)[0]

    def measured(self, representation: Representation) -> tuple[float, str]:
        """The number, and its protocol where the measure has one: in words, which of its variants was computed, and on
        what. :class:`Undefined` as for :meth:`value`."""
        for need in self.lacks(representation):
            raise Undefined(f"{self.title} needs {need}, which this representation does not have")
        try:
            result = self(representation)
            number = float(result)
        except Undefined:
            raise
        except ValueError as error:
            raise Undefined(str(error)) from error
        if not math.isfinite(number):
            raise Undefined(f"{self.title} is {number} here")
        return number, str(getattr(result, "protocol", ""))


measures: Registry[Measure] = Registry("measure")


def meaning(name: str) -> str:
    """The meaning of a registered measure: the first paragraph of its docstring, without the markup of code."""
    if name not in measures.names():
        return ""
    measure = measures.get(name)
    text = (measure.__doc__ or "").strip().split("\n\n")[0]
    if text.startswith(f"{measure.__name__}("):  # what dataclasses write where nobody has
        return ""
    return re.sub(r"(:\w+:)?`+([^`]*)`+", r"\2", " ".join(text.split()))
