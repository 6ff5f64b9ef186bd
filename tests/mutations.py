"""Deliberate bugs, of which tests must notice each: how one is planted, and two of the plainest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np

__all__ = ["Mutation", "all_fresh", "nothing"]

Method: TypeAlias = Callable[..., Any]


@dataclass(frozen=True)
class Mutation:
    """A bug: what to replace by what."""

    name: str
    owner: type
    attribute: str
    wrong: Callable[[Method], Method]

    @contextmanager
    def planted(self) -> Iterator[None]:
        right = getattr(self.owner, self.attribute)
        with patch.object(self.owner, self.attribute, self.wrong(right)):
            yield


def nothing(_: Method) -> Method:
    """Not done at all."""
    return lambda *_args, **_named: None


def all_fresh(_: Method) -> Method:
    """Numbers that came before are taken for new."""
    return lambda _self, _publisher, numbers: np.ones(len(numbers), np.bool_)
