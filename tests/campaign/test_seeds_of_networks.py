"""What the campaign has found about brokers and the ways between them, shrunk from its seeds."""

from __future__ import annotations

import pytest

from tests.campaign.judgement import play
from tests.campaign.scripts import Border, Script, Step


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


@pytest.mark.parametrize(
    ("listens", "publishes"), [("b1", "ob3"), ("ob3", "b1"), ("b1", "b3"), ("b3", "b1")]
)
def test_what_came_to_or_from_a_gateway_over_a_link_that_broke_does_not_come_again(
    listens: str, publishes: str
) -> None:
    """Seeds 105578 and 108017: a tree has no detours, and a graph knows events by their numbers."""
    script = Script(
        seed=108017,
        routing="acyclic",
        brokers=("ob3", "b1", "b3"),
        edges=(("ob3", "b1"), ("b1", "b3")),
        steps=(
            Step(0.0, "join", ("listener1", listens)),
            Step(0.0, "join", ("publisher0", publishes)),
            Step(0.8, "hear", ("listener1", "live5", "EXISTS kind", {}, False)),
            Step(7.0, "publish", ("publisher0", False, {"kind": 2, "x": 5, "s": "b"})),
            Step(7.1, "half-open", (listens, publishes)),
        ),
        gate=Border("b1", "general", ("ob3",)),
    )
    assert play(script).breaches == ()


def test_an_end_of_a_link_that_was_not_told_that_it_broke_takes_a_while_to_find_out() -> None:
    """Seed 101509: what was covered was in force by what was known, and the break was not known."""
    script = Script(
        seed=101509,
        routing="hierarchical",
        brokers=("ob3", "b1", "b4"),
        edges=(("ob3", "b1"), ("b1", "b4")),
        steps=(
            Step(0.0, "join", ("listener0", "ob3")),
            Step(0.0, "join", ("publisher0", "b4")),
            Step(1.1, "hear", ("listener0", "live3", "EXISTS kind", {}, False)),
            Step(4.0, "half-open", ("b4", "b1")),
            Step(5.5, "hear", ("listener0", "live4", "EXISTS kind", {}, False)),
            Step(6.5, "publish", ("publisher0", False, {"kind": 2, "x": 3})),
        ),
        gate=Border(broker="b1", routing="general", beyond=("ob3",)),
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


def test_what_was_heard_before_a_broker_stopped_may_come_again_where_a_graph_held_it_up() -> None:
    """Seed 200601: ob3 forgets the number, and then ob1 sends on what was clogged all the time."""
    script = Script(
        seed=200601,
        routing="general",
        brokers=("ob1", "ob2", "ob3", "b1"),
        edges=(("ob1", "ob2"), ("ob2", "ob3"), ("ob3", "ob1"), ("ob1", "b1")),
        steps=(
            Step(0.0, "join", ("listener1", "ob3")),
            Step(0.0, "join", ("listener2", "b1")),
            Step(0.0, "join", ("publisher2", "ob2")),
            Step(0.7, "hear", ("listener2", "live8", "EXISTS kind", {}, False)),
            Step(0.7, "hear", ("listener1", "durable6", "EXISTS kind", {}, True)),
            Step(1.2, "hear", ("listener1", "live5", "EXISTS kind", {}, False)),
            Step(12.1, "clog", ("ob2", "ob1", 3.2)),
            Step(13.3, "publish", ("publisher2", True, {"kind": 0, "x": 1})),
            Step(13.35, "torn", ("ob3", 0.2)),
        ),
    )
    assert play(script).breaches == ()


def test_a_stand_in_that_is_missed_and_not_known_as_one_keeps_no_others() -> None:
    """Seed 200432: b3 had found b1 and stopped before it told that the link was a stand-in. b1
    missed it for good, and kept the two that it found then, though one was enough.
    """
    script = Script(
        seed=200432,
        routing="general",
        brokers=("b1", "b2", "b3", "b4", "b5"),
        edges=(("b1", "b2"), ("b1", "b5"), ("b2", "b3"), ("b3", "b4")),
        steps=(
            Step(0.0, "join", ("listener0", "b5")),
            Step(0.0, "join", ("publisher2", "b2")),
            Step(0.8, "hear", ("listener0", "durable3", "EXISTS kind", {}, True)),
            Step(4.191, "partition", (("b1", "b3"), 1.125)),
            Step(4.7, "crash", ("b3", 0.2)),
            Step(4.9, "drain", ("b2", "replace", 4.1)),
            Step(5.3, "drain", ("b5", "restart", 8.9)),
            Step(6.948, "crash", ("b1", 0.3)),
            Step(9.5, "publish", ("publisher2", True, {"kind": 0, "x": 5, "s": "b"})),
            Step(10.072, "crash", ("b3", 4.251)),
            Step(12.1, "fsync", ("b2", 6.2)),
            Step(14.3, "clog", ("b3", "b2", 5.0)),
            Step(15.6, "crash", ("b3", 0.0)),
        ),
        sync_s=0.3,
        find=True,
    )
    assert play(script).breaches == ()


def test_ways_lead_through_a_broker_that_leaves_before_a_link_ends() -> None:
    """Seed 310563: b3 is drained, and b6 parts from b5, which is then reached by b3 alone."""
    script = Script(
        seed=310563,
        routing="general",
        brokers=("b1", "b2", "b3", "b4", "b5", "b6"),
        edges=(
            *(("b1", "b2"), ("b1", "b3"), ("b2", "b4"), ("b3", "b4")),
            *(("b3", "b5"), ("b4", "b6"), ("b5", "b6")),
        ),
        steps=(
            Step(0.0, "join", ("listener0", "b5")),
            Step(0.0, "join", ("publisher0", "b4")),
            Step(0.6, "hear", ("listener0", "live3", "EXISTS kind", {}, False)),
            Step(10.0, "drain", ("b3", "undo", 7.3)),
            Step(14.8, "part", ("b1", "b2", 2.5)),
            Step(14.853, "part", ("b6", "b5", 1.0)),
            Step(15.0, "publish", ("publisher0", False, {"kind": 1, "x": 5, "s": "ab"})),
        ),
        sync_s=0.3,
        find=True,
    )
    assert play(script).breaches == ()


def test_what_is_lacking_is_asked_of_the_next_where_no_way_leads_back() -> None:
    """Seed 400509: b1 has what b5 lacks, on the way of the question to b2. By the tree of b2 events
    go to b5 by the other half of the ring, and none from b1.
    """
    groups = (
        *(("b4", "b3", "b5", "b2", "b1"), ("b6",)),
        *(("b1", "b6", "b3", "b2"), ("b1", "b5", "b4", "b6", "b2", "b3")),
    )
    script = Script(
        seed=400509,
        routing="source-trees",
        brokers=("b1", "b2", "b3", "b4", "b5", "b6"),
        edges=(
            *(("b1", "b2"), ("b2", "b3"), ("b3", "b4")),
            *(("b4", "b5"), ("b5", "b6"), ("b6", "b1")),
        ),
        steps=(
            Step(0.0, "join", ("listener0", "b5")),
            Step(0.0, "join", ("listener1", "b4", "team")),
            Step(0.0, "join", ("publisher0", "b1")),
            Step(0.0, "join", ("publisher2", "b2")),
            Step(0.5, "hear", ("listener0", "wide", "EXISTS kind", {}, False)),
            Step(1.3, "hear", ("listener1", "live6", "EXISTS kind", {}, False)),
            Step(2.0, "apply", ("publisher0", ("b1", "b5", "b4", "b6", "b2", "b3"), groups)),
            Step(20.9, "unheard", ("b2", "b5", 0.5)),
            Step(21.2, "publish", ("publisher2", False, {"kind": 2, "x": 4, "s": "b"})),
        ),
        multicast=True,
    )
    assert play(script).breaches == ()


def test_of_two_brokers_that_are_drained_one_may_stop() -> None:
    """Seed 171 of proxies: it says goodbye, and ways lead through the other at once."""
    script = Script(
        seed=171,
        routing="proxies",
        brokers=("b2", "b3", "b5", "b6"),
        edges=(("b2", "b3"), ("b3", "b5"), ("b2", "b6"), ("b5", "b6")),
        steps=(
            Step(0.0, "join", ("listener0", "b2", "team")),
            Step(0.0, "join", ("publisher0", "b5")),
            Step(1.3, "hear", ("listener0", "live2", "EXISTS kind", {}, False)),
            Step(4.0, "hear", ("listener0", "durable7", "EXISTS kind", {}, True)),
            Step(6.3, "drain", ("b3", "restart", 3.4)),
            Step(6.5, "drain", ("b6", "restart", 4.4)),
            Step(7.5, "publish", ("publisher0", True, {"kind": 0, "x": 3, "s": "ab"})),
            Step(8.6, "publish", ("publisher0", True, {"kind": 2, "x": 4, "s": "ab"})),
        ),
        sync_s=0.05,
        find=True,
    )
    assert play(script).breaches == ()


def test_what_was_lost_before_all_was_whole_may_be_told_a_moment_later() -> None:
    """Seed 416321: brokers tell of it with their next look round."""
    script = Script(
        seed=416321,
        routing="general-advertised",
        brokers=("b1", "b3"),
        edges=(("b1", "b3"),),
        steps=(
            Step(0.0, "join", ("listener2", "b1")),
            Step(0.0, "join", ("publisher0", "b3")),
            Step(0.2, "offer", ("publisher0", "EXISTS kind AND EXISTS x")),
            Step(0.7, "hear", ("listener2", "live7", "EXISTS kind", {}, False)),
            Step(0.7, "hear", ("listener2", "durable9", "EXISTS kind", {}, True)),
            Step(19.4, "publish", ("publisher0", True, {"kind": 1, "x": 0, "s": "a"})),
            Step(20.1, "half-open", ("b3", "b1")),
            Step(20.9, "publish", ("publisher0", False, {"kind": 1, "x": 3, "s": "b"})),
        ),
    )
    assert play(script).breaches == ()


def test_who_could_not_tell_that_it_takes_part_no_longer_asks_for_what_it_lacks() -> None:
    """Seed 505193: its disk was full, and flows that others sent by were not looked after."""
    script = Script(
        seed=505193,
        routing="source-trees",
        brokers=("b1", "b2", "b3", "b4"),
        edges=(("b1", "b2"), ("b2", "b4"), ("b3", "b4")),
        steps=(
            Step(0.0, "join", ("listener0", "b2")),
            Step(0.0, "join", ("listener1", "b3")),
            Step(0.0, "join", ("listener2", "b1")),
            Step(0.0, "join", ("publisher0", "b4")),
            Step(0.0, "join", ("publisher1", "b1")),
            Step(1.2, "hear", ("listener1", "durable6", "EXISTS kind", {}, True)),
            Step(
                2.0,
                "apply",
                (
                    "publisher1",
                    ("b1", "b3", "b4", "b2"),
                    (("b1", "b4", "b3", "b2"), ("b2",), ("b1", "b4"), ("b1", "b3", "b4", "b2")),
                ),
            ),
            Step(12.1, "apply", ("publisher0", ("b4", "b3"), ())),
            Step(13.4, "wipe", ("b4", 8.0)),
            Step(
                18.0,
                "publish",
                (
                    "publisher0",
                    True,
                    {"kind": 2, "x": 0, "s": "ab"},
                    {"kind": 1, "x": 1, "s": "ab"},
                    {"kind": 2, "x": 0, "s": "b"},
                    {"kind": 0, "x": 1},
                    {"kind": 2, "x": 0},
                    {"kind": 0, "x": 1, "s": "a"},
                    {"kind": 0, "x": 4, "s": "a"},
                ),
            ),
            Step(18.6, "wipe", ("b2", 0.3)),
            Step(19.6, "publish", ("publisher0", True, {"kind": 2, "x": 1})),
            Step(20.3, "wipe", ("b1", 4.7)),
            Step(21.5, "full", ("b3", 3.3)),
        ),
        window_bytes=6000,
    )
    assert play(script).breaches == ()


def test_what_a_broker_is_reminded_of_does_not_stand_for_what_it_says_now() -> None:
    """Seed 600355: an answer for both named the older version, and `settled()` waited."""
    script = Script(
        seed=600355,
        routing="general-advertised",
        brokers=("b1", "b2", "b3", "b4"),
        edges=(("b1", "b2"), ("b1", "b3"), ("b2", "b4"), ("b3", "b4")),
        steps=(
            Step(0.0, "join", ("publisher2", "b3")),
            Step(11.5, "wipe", ("b4", 7.3)),
            Step(15.064, "wipe", ("b2", 5.215)),
            Step(17.115, "wipe", ("b3", 3.632)),
            Step(20.026, "wipe", ("b4", 0.429)),
            Step(20.6, "full", ("b3", 0.9)),
        ),
        sync_s=0.3,
        find=True,
    )
    assert play(script).breaches == ()


def test_who_could_not_be_added_is_still_looked_for() -> None:
    """Seed 601082: the broker had begun to look for it, and ceased to dial."""
    script = Script(
        seed=601082,
        routing="source-trees",
        brokers=("b1", "b2", "b3"),
        edges=(("b1", "b2"), ("b1", "b3"), ("b2", "b3")),
        steps=(
            Step(14.9, "crash", ("b3", 5.7)),
            Step(19.356, "crash", ("b3", 2.664)),
            Step(20.2, "part", ("b1", "b3", 0.044)),
            Step(22.3, "half-open", ("b3", "b1")),
        ),
        find=True,
    )
    assert play(script).breaches == ()


def test_answers_that_were_heard_of_out_of_order_are_given_in_order() -> None:
    """Seed 601869: two brokers waited for each other, and `settled()` for both."""
    script = Script(
        seed=601869,
        routing="general",
        brokers=("b1", "b2", "b3", "b4", "b5", "b6"),
        edges=(
            ("b1", "b2"),
            ("b1", "b3"),
            ("b2", "b4"),
            ("b3", "b4"),
            ("b3", "b5"),
            ("b4", "b6"),
            ("b5", "b6"),
        ),
        steps=(
            Step(0.0, "join", ("listener0", "b2")),
            Step(0.0, "join", ("publisher0", "b6")),
            Step(6.1, "full", ("b3", 6.0)),
            Step(7.9, "hear", ("listener0", "durable5", "EXISTS kind", {}, True)),
            Step(9.455, "full", ("b2", 4.841)),
            Step(10.7, "publish", ("publisher0", True, {"kind": 0, "x": 1})),
            Step(11.8, "hear", ("listener0", "durable6", "EXISTS kind", {}, True)),
            Step(20.9, "damage", ("b4", "listener0")),
        ),
        sync_s=0.05,
        find=True,
        grants=True,
    )
    assert play(script).breaches == ()


def test_what_was_withdrawn_behind_events_that_wait_is_not_missing() -> None:
    """Seed 4782: withdrawn while it was tried, behind events, `settled` named it for ever."""
    script = Script(
        seed=4782,
        routing="flooded",
        brokers=("b1", "b2"),
        edges=(("b1", "b2"),),
        steps=(
            Step(0.0, "join", ("listener0", "b1", "team")),
            Step(0.0, "join", ("listener2", "b2", "team")),
            Step(0.0, "join", ("publisher0", "b1")),
            Step(0.0, "join", ("publisher1", "b2")),
            Step(1.2, "hear", ("listener2", "durable7", "EXISTS kind", {}, False)),
            Step(2.0, "apply", ("publisher0", ("b1",), (("b1",), ("b1",), ("b1",), ("b1",)))),
            Step(15.5, "unreadable", ("publisher1", "poison1", 6.2)),
            Step(17.0, "part", ("b2", "b1", 0.0)),
            Step(18.2, "hear", ("listener0", "live12", "EXISTS kind", {}, False)),
            Step(
                19.7,
                "publish",
                ("publisher1", False, {"kind": 0, "x": 5, "s": "a"}, {"kind": 0, "x": 0, "s": "b"}),
            ),
            Step(19.8, "one way", (("b2",), 1.7)),
            Step(20.0, "publish", ("publisher1", False, {"kind": 0, "x": 4}, {"kind": 1, "x": 5})),
            Step(20.1, "publish", ("publisher1", False, {"kind": 1, "x": 1})),
        ),
        sync_s=0.05,
        window_bytes=6000,
        find=True,
    )
    assert play(script).breaches == ()


def test_a_broker_with_little_memory_sends_on() -> None:
    """Seed 705927: its flow lost what it had just sent."""
    script = Script(
        seed=705927,
        routing="source-trees",
        brokers=("b3", "b4"),
        edges=(("b3", "b4"),),
        steps=(
            Step(0.0, "join", ("listener0", "b4")),
            Step(0.0, "join", ("publisher1", "b3")),
            Step(0.0, "join", ("publisher2", "b3")),
            Step(0.5, "hear", ("listener0", "wide", "EXISTS kind", {}, False)),
            Step(4.1, "apply", ("publisher2", ("b4", "b3"), (("b3", "b4"), ("b4",), ("b4", "b3")))),
            Step(4.4, "partition", (("b3",), 7.4)),
            Step(
                5.1,
                "publish",
                ("publisher2", False, {"kind": 0, "x": 3}, {"kind": 1, "x": 0, "s": "a"}),
            ),
        ),
        memory_bytes=8000,
    )
    assert play(script).breaches == ()


def test_a_network_that_takes_itself_apart_keeps_the_order() -> None:
    """Seed 903717: what followed a subscription of a drained broker was taken for another too."""
    script = Script(
        seed=903717,
        routing="hierarchical",
        brokers=("b1", "b2", "b3", "b4"),
        edges=(("b1", "b2"), ("b2", "b3"), ("b3", "b4")),
        steps=(
            Step(0.0, "join", ("listener0", "b4")),
            Step(0.0, "join", ("listener1", "b2")),
            Step(0.0, "join", ("publisher1", "b1")),
            Step(0.8, "hear", ("listener0", "durable3", "EXISTS kind", {}, True)),
            Step(0.9, "hear", ("listener1", "durable4", "kind = 1", {}, True)),
            Step(4.8, "part", ("b4", "b3", 7.4)),
            Step(6.0, "drain", ("b2", "restart", 9.5)),
            Step(6.7, "part", ("b2", "b1", 7.3)),
            Step(11.4, "publish", ("publisher1", True, {"kind": 0, "x": 2})),
            Step(12.3, "publish", ("publisher1", True, {"kind": 1, "x": 0})),
            Step(12.9, "drain", ("b3", "replace", 2.4)),
        ),
        find=True,
    )
    assert play(script).breaches == ()


def test_what_is_published_before_links_stand_again_may_be_lost_with_a_gap() -> None:
    """Seed 962831: by that algorithm `settled()` asks nobody below."""
    script = Script(
        seed=962831,
        routing="hierarchical",
        brokers=("ob3", "b1"),
        edges=(("ob3", "b1"),),
        steps=(
            Step(0.0, "join", ("listener0", "b1")),
            Step(0.0, "join", ("publisher2", "ob3")),
            Step(1.1, "hear", ("listener0", "durable3", "EXISTS kind", {}, False)),
            Step(8.7, "pause", ("b1", 5.6)),
            Step(14.332, "hear", ("listener0", "live9", "EXISTS kind", {}, False)),
            Step(14.5, "publish", ("publisher2", False, {"kind": 1, "x": 3})),
        ),
        gate=Border(broker="b1", routing="hierarchical", beyond=("ob3",)),
    )
    assert play(script).breaches == ()


def test_a_wave_is_answered_though_whoever_asked_is_gone() -> None:
    """Seed 965149: the answer was taken for illegal, and a good link went down."""
    script = Script(
        seed=965149,
        routing="source-trees",
        brokers=("b1", "b2", "b4", "b5", "b6"),
        edges=(("b1", "b2"), ("b2", "b4"), ("b5", "b4"), ("b5", "b6")),
        steps=(
            Step(0.0, "join", ("listener0", "b2")),
            Step(0.0, "join", ("publisher0", "b6")),
            Step(0.0, "join", ("publisher2", "b5")),
            Step(0.7, "hear", ("listener0", "live1", "EXISTS kind", {}, False)),
            Step(7.8, "link", ("b6", "b1", 7.8)),
            Step(10.5, "publish", ("publisher0", False, {"kind": 2, "x": 4, "s": "a"})),
            Step(10.6, "link", ("b1", "b6", 2.8)),
            Step(13.0, "part", ("b1", "b2", 3.2)),
            Step(13.3, "publish", ("publisher2", False, {"kind": 0, "x": 2})),
        ),
        sync_s=0.3,
        find=True,
    )
    assert play(script).breaches == ()
