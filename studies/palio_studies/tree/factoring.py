"""Factoring: a tree for each value of the index attributes (gryphon 4, third optimization).

Index attributes are some that nearly every subscription tests for a value. Instead of testing them,
an event's values pick one tree at once, and that tree tests the other attributes only. A
subscription that does not care about an index attribute, or asks something else of it than one
value, is in the trees of all its values: the price in space, and why the attributes should be few
and often tested.

The values that have trees are those that some subscription asks for. All others, and absence, share
the tree `OTHERS`, where what remains to be asked of the attribute is asked as ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import product
from math import prod
from typing import Final, TypeAlias

from palio.model.limits import check_limit
from palio_studies.tree.attribute_tests import Path, Result, Value, ValueSource
from palio_studies.tree.nodes import KeyedPath, TreePlace, grow

MAX_TREES: Final = 4_096
"""Trees of one forest: the product over the index attributes of their number of values plus one."""


class Others(Enum):
    """The type of `OTHERS`."""

    OTHERS = "others"


OTHERS: Final = Others.OTHERS
"""Stands for the values of an index attribute that no subscription names."""

Choice: TypeAlias = tuple[Result, ...]
"""A label, or `OTHERS`, for each index attribute."""


class Forest:
    """Matching trees by the values of the index attributes; without such attributes, one tree."""

    def __init__(
        self,
        attributes: Sequence[str],
        paths: Sequence[KeyedPath],
        slots: Mapping[ValueSource, int],
    ) -> None:
        self.attributes = tuple(attributes)
        asked = [self._asked(path) for path, _ in paths]
        self._options: list[dict[Result, None]] = [
            dict.fromkeys([each[place] for each in asked if each[place] is not OTHERS] + [OTHERS])
            for place in range(len(self.attributes))
        ]
        """For each index attribute, the values that have trees."""
        size = prod(map(len, self._options))
        names = ", ".join(self.attributes)
        check_limit(f"the number of trees for {names}", "MAX_TREES", MAX_TREES, size)
        planted: dict[Choice, list[KeyedPath]] = {each: [] for each in product(*self._options)}
        for (path, key), wanted in zip(paths, asked, strict=True):
            for choice in self._choices(wanted):
                rest = self._rest(path, choice)
                if rest is not None:
                    planted[choice].append((rest, key))
        self.trees: dict[Choice, TreePlace | None] = {
            choice: grow(some, slots) for choice, some in planted.items()
        }
        """The roots; None of a tree without paths."""

    def root_for(self, labels: Choice) -> TreePlace | None:
        """The tree for an event with these labels at the index attributes."""
        known = zip(labels, self._options, strict=True)
        return self.trees[tuple(each if each in options else OTHERS for each, options in known)]

    def _asked(self, path: Path) -> Choice:
        """The value that a path asks of each index attribute, `OTHERS` where of none."""
        values = {
            step.test.source.attribute: step.result
            for step in path.steps
            if isinstance(step.test, Value)
        }
        return tuple(values.get(name, OTHERS) for name in self.attributes)

    def _choices(self, wanted: Choice) -> product[Choice]:
        """The trees whose events may take a path."""
        return product(
            *(
                options if each is OTHERS else [each]
                for each, options in zip(wanted, self._options, strict=True)
            )
        )

    def _rest(self, path: Path, choice: Choice) -> Path | None:
        """What is left of a path in a tree."""
        rest: Path | None = path
        for name, each in zip(self.attributes, choice, strict=True):
            if rest is not None and each is not OTHERS:
                rest = rest.without(name, each)
        return rest
