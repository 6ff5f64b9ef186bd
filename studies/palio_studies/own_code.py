"""Which code this is: runs of a study are kept, and must not be mixed with those of other code."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

__all__ = ["digest_of", "own_code"]

LENGTH: Final = 16
"""Hexadecimal digits: enough that two of some thousand versions do not agree by chance."""


@cache
def own_code() -> str:
    """A digest of all modules of Palio and its studies as they are installed here.

    >>> len(own_code())
    16
    """
    return digest_of(files("palio"), files("palio_studies"))


def digest_of(*packages: Traversable) -> str:
    """A digest of the names and texts of the modules of packages."""
    digest = hashlib.sha256()
    for package in packages:
        digest.update(b"package\n")
        for name, module in _modules(package, ""):
            text = module.read_bytes()
            digest.update(f"{name} {len(text)}\n".encode() + text)
    return digest.hexdigest()[:LENGTH]


def _modules(folder: Traversable, above: str) -> Iterator[tuple[str, Traversable]]:
    for each in sorted(folder.iterdir(), key=lambda one: one.name):
        if each.is_dir():
            yield from _modules(each, f"{above}{each.name}/")
        elif each.name.endswith(".py"):
            yield f"{above}{each.name}", each
