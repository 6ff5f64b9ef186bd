"""Of packets of which most are no datagrams, nothing opens that was not sealed, or twice."""

from __future__ import annotations

import resource

import pytest

from tests.protocol.datagram_fuzz import Fuzz

GROWTH_KIB = 64 << 10
"""What the opener may take beside what this test remembers."""


def test_nothing_opens_that_was_not_sealed_or_twice(seed: int) -> None:
    fuzz = Fuzz(seed)
    fuzz.run(6_000)
    assert fuzz.opened > 300
    assert fuzz.opened < fuzz.sent["real"]
    assert min(fuzz.sent.values()) > 10
    met = {reason for reason, count in fuzz.opener.dropped.items() if count}
    assert met >= {"truncated", "oversized", "forged", "own", "replayed", "stale", "illegal"}


@pytest.mark.nightly
def test_a_million_packets_take_no_memory(seed: int) -> None:
    fuzz = Fuzz(seed)
    fuzz.run(100_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fuzz.run(1_000_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH_KIB
