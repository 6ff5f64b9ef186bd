"""The trace: equal steps have equal hashes, in every process, and different steps do not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from msgspec.structs import astuple

from palio.routing.messages import Batch, Flood, LinkState, Settled, Subscribe, Unsubscribe, Update
from palio.simulation.trace import Costs, Trace, describe
from tests.routing.helpers import numbered, parse

MESSAGES = [
    Batch((Subscribe(0, parse("a > :x"), {"x": 1}),)),
    Batch((Subscribe(0, parse("a > :x"), {"x": 2}),)),
    Batch((Subscribe(0, parse("a >= :x"), {"x": 1}),)),
    Batch((Subscribe(0, parse("a > :x"), {"x": 1}),), fresh=True),
    Batch((Update(0, {"x": 1}, 1),)),
    Batch((Update(0, {"x": 1}, 2),)),
    Batch((Unsubscribe(0),)),
    Flood("b1", (Unsubscribe(0),), version=1),
    Flood("b2", (Unsubscribe(0),), version=1),
    LinkState("b1", 1, ("b2",)),
    Settled(1),
    Settled(1, ("b2",)),
    numbered("p", (0, 1)),
    numbered("p", (0, 2)),
    "crash",
]


def hash_of(*whats: object) -> str:
    trace = Trace()
    for what in whats:
        trace.note(0, "a", "b", what)
    return trace.hash


def test_different_messages_have_different_hashes() -> None:
    assert len({hash_of(each) for each in MESSAGES}) == len(MESSAGES)
    assert len({describe(each) for each in MESSAGES}) == len(MESSAGES)


def test_equal_messages_have_equal_hashes() -> None:
    for text in ("a > 1 AND b = 'x'", "d IN ('x', 'y')"):
        one, other = (Batch((Subscribe(0, parse(text)),)) for _ in range(2))
        assert hash_of(one) == hash_of(other)


@pytest.mark.parametrize("step", [(8, "a", "b"), (7, "c", "b"), (7, "a", "c"), (7, "b", "a")])
def test_time_and_ends_count(step: tuple[int, str, str]) -> None:
    one, other = Trace(), Trace()
    one.note(7, "a", "b", "x")
    other.note(*step, "x")
    assert one.hash != other.hash


def test_order_counts() -> None:
    assert hash_of("x", "y") != hash_of("y", "x")


def test_steps_are_kept_if_wanted() -> None:
    trace = Trace(keep=True)
    trace.note(5, "a", "b", Batch((Unsubscribe(3),)))
    trace.note(6, "b", "b", "crash")
    assert trace.steps is not None
    assert trace.steps[1] == (6, "b", "b", "crash")
    assert "Unsubscribe 3" in trace.steps[0][3]
    assert trace.count == 2
    assert Trace().steps is None


def test_costs_begin_at_nothing() -> None:
    assert set(astuple(Costs())) == {0}


def test_another_process_with_another_hash_seed_has_the_same_hash() -> None:
    """Frozen sets of texts are what would differ."""
    program = (
        "from palio.simulation import Network, ring\n"
        "from palio.routing.source_trees import SourceTrees\n"
        "network = Network.of(ring(4), SourceTrees, seed=3)\n"
        "alice = network.client('alice', 'b1')\n"
        "alice.subscribe(\"d IN ('x', 'y', 'z') AND e != 'q'\")\n"
        "network.run()\n"
        "network.client('bob', 'b3').publish({'d': 'x', 'e': 'y'})\n"
        "network.run()\n"
        "print(len(alice.received), network.trace.hash)\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
    assert said.pop().startswith("1 ")
