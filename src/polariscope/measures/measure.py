"""The base class of measures: one number about a representation, with the facts that tables and tests need.

The mathematics is in plain functions of arrays beside each class. The class declares the inputs, the range and the
invariances of the number. The contract kit checks every registered measure against these declarations.
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
    """Its name in tables."""
    needs: ClassVar[tuple[Need, ...]] = ()
    """Parts of a representation that the measure needs besides the means."""
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = math.inf
    higher_is_better: ClassVar[bool | None] = None
    """None if neither direction is better."""
    invariant_to: ClassVar[tuple[Invariance, ...]] = ()
    """Changes of the latent space that do not change the value."""
    permutations: ClassVar[int] = 6
    """Number of permutations of the factors for its chance level, if it needs factors; fewer for slow measures."""
    halves: ClassVar[int] = 4
    """Number of random halves of the examples for its confidence interval."""

    def quick(self) -> Measure:
        """The measure to compute on permuted factors and on halves: a faster variant if this one is slow."""
        return self

    def published(self) -> Measure:
        """The measure with the probe and the sample sizes of its publication, if this one takes short cuts."""
        return self

    @abstractmethod
    def __call__(self, representation: Representation) -> SupportsFloat:
        """The number, or a :class:`~polariscope.measures.score.Score`, which also says how it was computed."""

    @classmethod
    def lacks(cls, representation: Representation) -> list[Need]:
        """The parts that the measure needs and the representation lacks."""
        return [need for need in cls.needs if getattr(representation, need) is None]

    def value(self, representation: Representation) -> float:
        """The number. Raises :class:`Undefined` if an input is missing or the measure has no value."""
        return self.measured(representation)[0]

    def measured(self, representation: Representation) -> tuple[float, str]:
        """The number, and its protocol if it has one: which variant was computed, and on what, in words. Raises
        :class:`Undefined` as :meth:`value` does."""
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
            raise Undefined(f"{self.title} is {number} on this representation")
        return number, str(getattr(result, "protocol", ""))


class FactorMeasure(Measure):
    """A measure of how a code encodes the factors, from 0 to 1, where 1 is best."""

    needs: ClassVar[tuple[Need, ...]] = ("factors",)
    high: ClassVar[float] = 1.0
    higher_is_better: ClassVar[bool | None] = True


measures: Registry[Measure] = Registry("measure")


def meaning(name: str) -> str:
    """The meaning of a registered measure: the first paragraph of its docstring, without the markup of code."""
    if name not in measures.names():
        return ""
    measure = measures.get(name)
    text = (measure.__doc__ or "").strip().split("\n\n")[0]
    if text.startswith(f"{measure.__name__}("):  # the docstring that dataclasses generate
        return ""
    return re.sub(r"(:\w+:)?`+([^`]*)`+", r"\2", " ".join(text.split()))
