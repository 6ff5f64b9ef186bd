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

from collections.abc import Sequence
from enum import Enum
from itertools import product
from typing import Final, TypeAlias

from palio.errors import LimitExceeded
from palio_studies.tree.attribute_tests import Path, Result, TotalOrder, Value
from palio_studies.tree.events import SourceSlots
from palio_studies.tree.nodes import Leaf, MatchingTree

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

    def __init__(self, attributes: Sequence[str], order: TotalOrder, slots: SourceSlots) -> None:
        self.attributes = tuple(attributes)
        self._order = order
        self._slots = slots
        self._users: list[dict[Result, int]] = [{} for _ in self.attributes]
        """For each index attribute, how many paths ask for each of its values."""
        self.trees: dict[Choice, MatchingTree] = {(OTHERS,) * len(self.attributes): self._tree()}

    def tree_for(self, labels: Choice) -> MatchingTree:
        """The tree for an event with these labels at the index attributes."""
        known = zip(labels, self._users, strict=True)
        return self.trees[tuple(each if each in users else OTHERS for each, users in known)]

    def add(self, path: Path, key: int) -> None:
        """Enter a key into every tree whose events may take its path."""
        asked = self._asked(path)
        for place, wanted in enumerate(asked):
            if wanted is OTHERS:
                continue
            users = self._users[place]
            if wanted not in users:
                self._split(place, wanted)
            users[wanted] = users.get(wanted, 0) + 1
        for choice, rest in self._plantings(path, asked):
            self.trees[choice].add(rest, key)

    def remove(self, path: Path, key: int) -> None:
        """Take it out of all of them again."""
        asked = self._asked(path)
        for choice, rest in self._plantings(path, asked):
            self.trees[choice].remove(rest, key)
        for place, wanted in enumerate(asked):
            if wanted is OTHERS:
                continue
            users = self._users[place]
            users[wanted] -= 1
            if not users[wanted]:
                del users[wanted]
                for choice in [each for each in self.trees if each[place] == wanted]:
                    del self.trees[choice]

    def check_size(self, path: Path) -> None:
        """Refuse a path that would make more trees than `MAX_TREES`."""
        size = 1
        for wanted, users in zip(self._asked(path), self._users, strict=True):
            size *= len(users) + 1 + (wanted is not OTHERS and wanted not in users)
        if size > MAX_TREES:
            raise LimitExceeded(
                f"the number of trees for {', '.join(self.attributes)}",
                limit="MAX_TREES",
                maximum=MAX_TREES,
                actual=size,
            )

    def _tree(self) -> MatchingTree:
        return MatchingTree(self._order, self._slots)

    def _asked(self, path: Path) -> Choice:
        """The value that a path asks of each index attribute, `OTHERS` where of none."""
        values = {
            step.test.source.attribute: step.result
            for step in path.steps
            if isinstance(step.test, Value)
        }
        return tuple(values.get(name, OTHERS) for name in self.attributes)

    def _plantings(self, path: Path, asked: Choice) -> list[tuple[Choice, Path]]:
        """The trees that a path belongs to, each with what is left of the path there."""
        options = [
            [wanted] if wanted is not OTHERS else [*users, OTHERS]
            for wanted, users in zip(asked, self._users, strict=True)
        ]
        found = []
        for choice in product(*options):
            rest = self._rest(path, choice)
            if rest is not None:
                found.append((choice, rest))
        return found

    def _rest(self, path: Path, choice: Choice) -> Path | None:
        rest: Path | None = path
        for name, each in zip(self.attributes, choice, strict=True):
            if rest is not None and each is not OTHERS:
                rest = rest.without(name, each)
        return rest

    def _split(self, place: int, value: Result) -> None:
        """Trees for a new value of an index attribute: so far it was among the others."""
        for choice in [each for each in self.trees if each[place] is OTHERS]:
            tree = self._tree()
            source = self.trees[choice]
            for each in source.places():
                if not isinstance(each, Leaf):
                    continue
                rest = source.path_to(each).without(self.attributes[place], value)
                if rest is not None:
                    for key in each.keys.elements():
                        tree.add(rest, key)
            self.trees[(*choice[:place], value, *choice[place + 1 :])] = tree
