"""What the campaign has found, each shrunk from its seed, and not to come back."""

from __future__ import annotations

import pytest

from palio.simulation.campaign import Border, Script, Step, play
from palio.simulation.campaign.drawing import OFFER


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


def test_settled_waits_for_a_broker_that_was_named_and_is_back() -> None:
    """Seed 218: ob1 came back without its disk, and stopped before it had heard of anything."""
    script = Script(
        seed=218,
        routing="acyclic",
        brokers=("ob1", "ob2", "b1", "b2", "b3"),
        edges=(("ob1", "ob2"), ("ob1", "b1"), ("b1", "b2"), ("b2", "b3")),
        steps=(
            Step(0.0, "join", ("listener1", "b3")),
            Step(0.0, "join", ("publisher1", "ob2")),
            Step(8.066, "wipe", ("ob1", 6.332)),
            Step(10.365, "torn", ("ob1", 7.192)),
            Step(13.634, "hear", ("listener1", "durable11", "x >= 1", {}, True)),
            Step(15.956, "publish", ("nobody", False, {"kind": 0})),
            Step(16.428, "publish", ("publisher1", True, {"kind": 1, "x": 1})),
        ),
        sync_s=0.0005,
        window_bytes=6_000,
        queue_bytes=12_000,
        gate=Border("b1", "hierarchical", ("ob1", "ob2")),
    )
    assert play(script).breaches == ()


def test_a_new_session_hears_live_events_once_it_has_subscribed_anew() -> None:
    """Seed 220: it had been told of a gap when the event came, and its wish was on its way."""
    script = Script(
        seed=220,
        routing="centralized",
        brokers=("b1",),
        edges=(),
        steps=(
            Step(0.0, "join", ("listener0", "b1")),
            Step(0.0, "join", ("publisher1", "b1")),
            Step(1.26, "hear", ("listener0", "live2", "x >= :least", {"least": 4}, False)),
            Step(16.449, "delay", ("listener0", "b1", 0.145, 6.084)),
            Step(21.295, "crash", ("b1", 0.021)),
            Step(21.773, "publish", ("publisher1", True, {"kind": 2, "x": 5, "s": "a"})),
        ),
        sync_s=0.005,
    )
    assert play(script).breaches == ()


def test_what_a_disk_refused_is_not_asked_for_twice_in_a_new_session() -> None:
    """Seed 1058: the client asked again for what its new session had said already."""
    script = Script(
        seed=1058,
        routing="general",
        brokers=("b1", "b2", "b3", "b4"),
        edges=(("b1", "b2"), ("b1", "b3"), ("b3", "b4")),
        steps=(
            Step(0.0, "join", ("listener0", "b1")),
            Step(0.0, "join", ("publisher2", "b4")),
            Step(1.0, "hear", ("listener0", "durable2", "EXISTS kind", {}, True)),
            Step(15.7, "fsync", ("b1", 2.3)),
            Step(16.0, "hear", ("listener0", "durable6", "EXISTS kind", {}, True)),
            Step(17.3, "fsync", ("b1", 3.3)),
            Step(18.3, "publish", ("publisher2", True, {"kind": 1, "x": 2, "s": "a"})),
            Step(19.6, "torn", ("b3", 0.365)),
            Step(21.0, "torn", ("b1", 0.035)),
        ),
        sync_s=0.05,
    )
    assert play(script).breaches == ()


def test_a_broker_that_answers_when_it_is_needed_no_longer_is_no_neighbour() -> None:
    """Seed 34: b5 had begun to dial b7 and found another way; the link stayed for good."""
    script = Script(
        seed=34,
        routing="general",
        brokers=("b3", "b5", "b6", "b7"),
        edges=(("b5", "b6"), ("b6", "b7"), ("b7", "b3")),
        steps=(
            Step(4.7, "partition", (("b6", "b3", "b5"), 2.8)),
            Step(8.5, "partition", (("b5", "b6", "b3"), 2.0)),
        ),
        find=True,
    )
    assert play(script).breaches == ()


def test_nobody_is_missed_for_ever_who_was_a_stand_in() -> None:
    """Seed 150: b6 had not heard that its link to b5 was a stand-in when it broke, and kept others
    for it.
    """
    script = Script(
        seed=150,
        routing="general",
        brokers=("b1", "b3", "b4", "b5", "b6", "b7"),
        edges=(("b1", "b4"), ("b1", "b3"), ("b4", "b5"), ("b4", "b6"), ("b4", "b7")),
        steps=(
            Step(19.0, "silence", (("b1", "b4", "b6"), 4.4)),
            Step(23.0, "silence", (("b6", "b5", "b3"), 1.1)),
            Step(24.0, "silence", (("b5", "b3", "b4"), 6.6)),
        ),
        find=True,
    )
    assert play(script).breaches == ()


def test_what_was_asked_about_a_refused_subscription_says_nothing_of_the_next_one() -> None:
    """Seed 5292: what a disk refused was said anew in a new session, and the answer was old."""
    script = Script(
        seed=5292,
        routing="centralized",
        brokers=("b1",),
        edges=(),
        steps=(
            Step(0.0, "join", ("listener0", "b1")),
            Step(0.0, "join", ("publisher1", "b1")),
            Step(9.6, "fsync", ("b1", 7.9)),
            Step(12.0, "hear", ("listener0", "durable8", "EXISTS kind", {}, True)),
            Step(15.2, "crash", ("b1", 0.3)),
            Step(15.8, "publish", ("nobody", False, {"kind": 0})),
            Step(18.1, "publish", ("publisher1", True, {"kind": 2, "x": 4, "s": "ab"})),
        ),
    )
    assert play(script).breaches == ()


def test_what_is_carried_again_is_heard_by_a_later_filter_and_out_of_order() -> None:
    """Seed 7059: the first event was not wanted until the filter was changed."""
    script = Script(
        seed=7059,
        routing="flooded",
        brokers=("b1", "b2"),
        edges=(("b1", "b2"),),
        steps=(
            Step(0.0, "join", ("listener1", "b1")),
            Step(0.0, "join", ("publisher2", "b2")),
            Step(0.8, "hear", ("listener1", "durable5", "EXISTS kind", {}, True)),
            Step(1.2, "hear", ("listener1", "durable6", "NOT kind = 2 AND EXISTS s", {}, True)),
            Step(13.5, "clog", ("b2", "b1", 6.1)),
            Step(14.0, "publish", ("publisher2", True, {"kind": 2, "x": 3})),
            Step(14.1, "publish", ("publisher2", True, {"kind": 0, "x": 5, "s": "b"})),
            Step(16.1, "pause", ("b1", 4.9)),
            Step(16.7, "silence", (("b2",), 7.7)),
            Step(22.0, "change", ("listener1", "durable6", "kind = 2 THEN x >= 1 WITHIN 4s")),
        ),
    )
    assert play(script).breaches == ()


def test_of_two_stand_ins_that_stand_in_for_each_other_one_ends() -> None:
    """Seed 105793: b1 found both others, and neither could be reached without what was found."""
    script = Script(
        seed=105793,
        routing="proxies",
        brokers=("b1", "b2", "b3"),
        edges=(("b1", "b2"), ("b2", "b3")),
        steps=(
            Step(15.4, "cut", ("b3", "b2", 7.8)),
            Step(16.6, "damage", ("b1", "b2")),
        ),
        find=True,
    )
    assert play(script).breaches == ()
