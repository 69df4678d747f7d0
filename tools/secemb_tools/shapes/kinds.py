"""What shapes of JSON are made of.

A shape is made of `str`, `int`, `float` (any number), `bool` and their unions with None; a dictionary of members, those
that are not always there with a `?` behind their name; and of the classes below.
"""

from dataclasses import dataclass
from types import UnionType
from typing import TypeAlias, Union

Shape: TypeAlias = Union[type, UnionType, dict[str, "Shape"], "Many", "Named", "OneOf", "Lines", None]


@dataclass(frozen=True, slots=True)
class Many:
    """A list of things of one shape."""

    of: Shape
    may_be_empty: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """An object whose members all have one shape, under names that differ from case to case."""

    of: Shape
    may_be_empty: bool = False


@dataclass(frozen=True, slots=True)
class OneOf:
    """One shape or another."""

    first: Shape
    second: Shape


@dataclass(frozen=True, slots=True)
class Lines:
    """One object a line, for as long as the command runs."""

    of: Shape


def every(kind: Shape, *names: str) -> dict[str, Shape]:
    """Return members of these names, all of one kind."""
    return dict.fromkeys(names, kind)
