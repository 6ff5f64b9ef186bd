"""What is signed says all of it, and nothing that means anything else."""

from __future__ import annotations

import msgspec
import pytest

from palio.node.identity import NOBODY, fact_text, handshake_text
from palio.protocol.messages import NO_SESSION_EPOCH, Fact, SessionEpoch


@pytest.mark.parametrize(
    "change",
    [
        {"origin": "b"},
        {"version": 2},
        {"subject": "s"},
        {"links": ("x",)},
        {"filter": "x = 1"},
        {"claimed_us": 1},
        {"session_epoch": SessionEpoch("o/1", 1)},
        {"session_epoch": SessionEpoch("o/2", 2)},
        {"session_epoch": NO_SESSION_EPOCH},
    ],
)
def test_every_part_of_a_fact_is_signed(change: dict[str, object]) -> None:
    fact = Fact("a", 1, "o/d", ("n",), "x = 2", 5, SessionEpoch("o/1", 2))
    assert fact_text(msgspec.structs.replace(fact, **change)) != fact_text(fact)
    assert fact_text(msgspec.structs.replace(fact, signature=b"x")) == fact_text(fact)


def test_nothing_runs_together() -> None:
    one = handshake_text("a", "a", "b", "12", "3")
    assert handshake_text("a", "a", "b", "1", "23") != one
    assert one != fact_text(Fact("a", 1, "o/d"))
    assert (NOBODY.token, NOBODY.sign(b"x")) == ("", b"")
