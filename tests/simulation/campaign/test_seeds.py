"""What the campaign has found, each shrunk from its seed, and not to come back."""

from __future__ import annotations

import pytest

from palio.simulation.campaign import Script, Step, play


@pytest.mark.parametrize("ends_after_s", [0.1, 0.517, 3.0])
def test_what_a_neighbour_refuses_is_not_missing_once_it_was_withdrawn_meanwhile(
    ends_after_s: float,
) -> None:
    """Seed 59: withdrawn while it was tried, it was named by `settled` for ever."""
    script = Script(
        seed=59,
        routing="hierarchical",
        brokers=("b1", "b2"),
        edges=(("b1", "b2"),),
        steps=(
            Step(0.0, "join", ("publisher0", "b2")),
            Step(5.155, "unreadable", ("publisher0", "poison0", ends_after_s)),
        ),
    )
    assert play(script).breaches == ()


def test_settled_is_answered_though_a_full_disk_kept_a_broker_from_telling_something() -> None:
    """Seed 254: where a subscription had gone could not be written, and nobody was told again."""
    script = Script(
        seed=254,
        routing="advertised",
        brokers=("b1", "b4", "b5"),
        edges=(("b1", "b4"), ("b4", "b5")),
        steps=(
            Step(0.0, "join", ("listener0", "b5")),
            Step(0.0, "join", ("publisher2", "b5")),
            Step(1.46, "hear", ("listener0", "durable1", "kind = 2", {}, True)),
            Step(18.711, "full", ("b5", 6.254)),
            Step(19.97, "move", ("listener0", "b4")),
        ),
        sync_s=0.005,
    )
    assert play(script).breaches == ()


def test_settled_names_who_was_lost_before_his_neighbour_heard_the_question() -> None:
    """Seed 58: b5 stopped after b1 had asked and before b4 was told; b4 had nobody left to ask."""
    silent = ("b1", "b2", "b4")
    words = ("publisher2", True, *({"kind": 0, "s": "a"} for _ in range(5)))
    script = Script(
        seed=58,
        routing="acyclic",
        brokers=("b1", "b2", "b3", "b4", "b5", "b6", "b7"),
        edges=tuple((f"b{one}", f"b{one + 1}") for one in range(1, 7)),
        steps=(
            Step(0.0, "join", ("listener0", "b1")),
            Step(0.0, "join", ("publisher2", "b1")),
            Step(12.638, "crash", ("b5", 0.241)),
            Step(12.773, "hear", ("listener0", "durable6", "NOT kind = 1 AND EXISTS s", {}, True)),
            Step(12.835, "silence", (silent, 2.938)),
            Step(14.613, "crash", ("b5", 4.648)),
            Step(16.684, "move over", ("publisher2", "b6")),
            Step(18.679, "publish", words),
        ),
        sync_s=0.05,
    )
    assert play(script).breaches == ()
