"""Of packets of which most are no datagrams, nothing opens that was not sealed, or twice."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any, Final

import pytest

from palio.protocol import datagrams
from palio.protocol.group_keys import Ciphers
from tests.mutations import Mutation, nothing
from tests.protocol.datagram_fuzz import Fuzz

PACKETS: Final = 6_000
"""Of which some are of every kind: most bugs show in so many."""

FUZZES: Final = 10
"""In which every bug shows, and every reason to drop a packet comes."""

GROWTH_KIB = 64 << 10
"""What the opener may take beside what this test remembers."""


def test_nothing_opens_that_was_not_sealed_or_twice(seed: int) -> None:
    reasons = {"truncated", "oversized", "forged", "own", "replayed", "stale", "illegal"}
    for number in range(FUZZES):
        fuzz = Fuzz(seed + number)
        fuzz.run(PACKETS)
        assert fuzz.opened > 300
        assert fuzz.opened < fuzz.sent["real"]
        assert min(fuzz.sent.values()) > 10
        reasons -= {reason for reason, count in fuzz.opener.dropped.items() if count}
        if not reasons:
            return
    pytest.fail(f"dropped nothing as {reasons}")


@pytest.mark.nightly
def test_a_million_packets_take_no_memory(seed: int) -> None:
    fuzz = Fuzz(seed)
    fuzz.run(100_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fuzz.run(1_000_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH_KIB


# --- the fuzz itself ---


def _always(answer: object) -> Callable[..., Any]:
    return lambda _: lambda *_args: answer


class _Unsealed:
    """A cipher that opens whatever it is given: GCM is its own inverse but for the seal."""

    def __init__(self, right: Any) -> None:
        self.encrypt = right.encrypt

    def decrypt(self, nonce: bytes, data: bytes, head: bytes) -> bytes:
        opened: bytes = self.encrypt(nonce, data[:-16], head)[:-16]
        return opened


def _unsealed(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, stream: _Unsealed(right(self, stream))


def _of_any_life(right: Callable[..., Any]) -> Callable[..., Any]:
    """A sender that starts anew is heard as if it went on."""

    def wrong(self: Any, incarnation: int) -> None:
        newest, seen = getattr(self, "newest", -1), getattr(self, "seen", 0)
        right(self, incarnation)
        self.newest, self.seen = newest, seen

    return wrong


MUTATIONS: Final = (
    Mutation("packets are not noted", datagrams._Sender, "note", nothing),
    Mutation("all packets are fresh", datagrams._Sender, "is_fresh", _always(True)),
    Mutation("an incarnation begins where another was", datagrams._Sender, "begin", _of_any_life),
    Mutation("nothing is refused", datagrams._Incoming, "refuses", _always("")),
    Mutation("seals are not looked at", Ciphers, "cipher", _unsealed),
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_bug_is_noticed(mutation: Mutation, seed: int) -> None:
    seen = mutation.noticed_at(lambda one: Fuzz(one).run(PACKETS), range(seed, seed + FUZZES))
    assert seen is not None, f"{mutation.name}: {FUZZES} times {PACKETS} packets saw nothing"
