"""Deliberate bugs, of which tests must notice each: how one is planted and found, and the plainest.

Each room has a list of its own, which its storms try (`tests/*/mutations.py`); the campaign has the
bugs of all rooms (`tests/campaign/planted`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias
from unittest.mock import patch

Method: TypeAlias = Callable[..., Any]

Trial: TypeAlias = Callable[[int], object]
"""One storm, by its seed. It raises what it notices."""


@dataclass(frozen=True)
class Mutation:
    """A bug: what to replace by what."""

    name: str
    owner: type | ModuleType
    attribute: str
    wrong: Callable[[Method], Method]

    @property
    def place(self) -> str:
        """Which method it is planted in, for people."""
        if isinstance(self.owner, ModuleType):
            return self.owner.__name__.removeprefix("palio.")
        return f"{self.owner.__module__.removeprefix('palio.')}: {self.owner.__name__}"

    @contextmanager
    def planted(self) -> Iterator[None]:
        """While it is there."""
        right = getattr(self.owner, self.attribute)
        with patch.object(self.owner, self.attribute, self.wrong(right)):
            yield

    def noticed_at(self, trial: Trial, seeds: Iterable[int]) -> int | None:
        """The first seed at which a trial fails with the bug, and not without it."""
        for seed in seeds:
            try:
                with self.planted():
                    trial(seed)
            except Exception:  # noqa: BLE001  # whatever it is, somebody noticed
                trial(seed)  # it is no merit to fail on what is right
                return seed
        return None


def picked(mutations: Iterable[Mutation], *names: str) -> tuple[Mutation, ...]:
    """Some of a list of bugs, by name."""
    known = {each.name: each for each in mutations}
    return tuple(known[name] for name in names)


def nothing(_: Method) -> Method:
    """Not done at all."""
    return lambda *_args, **_named: None


def all_fresh(_: Method) -> Method:
    """Numbers that came before are taken for new."""
    return lambda _self, _publisher, numbers: [True] * len(numbers)
