"""Brokers of an older grammar: they cannot read something that others say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from palio.errors import InvalidInput
from palio.language.parsing import parse_advertisement, parse_filter
from palio.model.filters import TRUE, Filter
from palio.node import fact_verifier
from palio.node.interests import Interests
from palio.node.operations import Claim
from palio.protocol import wire
from palio.simulation.pipes import End

NEWER: Final = "666"
"""What is in a filter that they cannot read."""


@contextmanager
def older_brokers(*names: str) -> Iterator[None]:
    """Some brokers of a virtual network cannot read what is `NEWER`; of unnamed ones none can, but
    for what their own clients ask.
    """
    reader = ""
    take, read = End.take, Interests._read

    def takes(self: End, data: bytes | None) -> None:
        nonlocal reader
        reader = self.pipe.names[self._side]
        take(self, data)

    def parses(right: Any) -> Any:
        def parse(text: str) -> Any:
            if NEWER in text and (not names or reader in names):
                raise InvalidInput(f"what does {NEWER} mean?")
            return right(text)

        return parse

    def reads(self: Interests, claim: Claim) -> Filter | None:
        is_other = claim.home != self.name
        if NEWER in claim.filter and is_other and (not names or self.name in names):
            return TRUE
        return read(self, claim)

    with ExitStack() as stack:
        for owner, name, wrong in (
            (End, "take", takes),
            (wire, "parse_filter", parses(parse_filter)),
            (wire, "parse_advertisement", parses(parse_advertisement)),
            (Interests, "_read", reads),
            (fact_verifier, "parse_filter", parses(parse_filter) if names else parse_filter),
        ):
            stack.enter_context(patch.object(owner, name, wrong))
        yield
