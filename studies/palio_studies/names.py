"""The names of studies and scales, and what a result is: for `palio --help`, nothing is loaded."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias

Value: TypeAlias = bool | int | float | str
Row: TypeAlias = dict[str, Value]
"""One line of results: its parameters, the seed, and what was measured."""

STUDIES: Final[tuple[str, ...]] = ("siena", "gryphon", "parametric", "proxy", "multicast")
"""In the order of their papers; each is the constant `STUDY` of a module of this package."""


MATCHINGS: Final = {
    "index": "the compiled engine",
    "poset": "a walk from wider to narrower filters",
    "reference": "one filter after the other",
}
"""The kinds of matching behind a simulated router. Their answers are the same, and what they cost
is compared; the first is what brokers use."""


class Scale(StrEnum):
    """How much of a study is run."""

    SMALL = "small"
    """Every figure and claim in seconds, on little networks: what a test run can afford."""
    PAPER = "paper"
    """The sizes of the paper."""
    BEYOND = "beyond"
    """What the paper left out."""
