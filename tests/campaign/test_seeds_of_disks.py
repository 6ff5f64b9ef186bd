"""What the campaign has found about disks that refuse, or are lost, shrunk from its seeds."""

from __future__ import annotations

from tests.campaign.drawing import OFFER
from tests.campaign.judgement import play
from tests.campaign.scripts import Border, Script, Step


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


def test_a_subscription_that_was_refused_anew_is_asked_for_in_the_next_session() -> None:
    """Seed 106137: its disk was full as the broker came back, and then it stopped again."""
    script = Script(
        seed=106137,
        routing="centralized",
        brokers=("b1",),
        edges=(),
        steps=(
            Step(0.0, "join", ("listener0", "b1", "team")),
            Step(0.0, "join", ("listener1", "b1", "team")),
            Step(0.0, "join", ("publisher2", "b1")),
            Step(1.2, "hear", ("listener1", "durable5", "EXISTS kind", {}, True)),
            Step(6.6, "crash", ("b1", 2.4)),
            Step(8.7, "full", ("b1", 2.3)),
            Step(10.2, "publish", ("publisher2", True, {"kind": 0, "x": 4, "s": "ab"})),
            Step(10.9, "crash", ("b1", 0.0)),
        ),
    )
    assert play(script).breaches == ()


def test_what_was_refused_to_one_that_came_back_is_asked_for_again_though_its_session_ends() -> (
    None
):
    """Seed 109246: its client does not say it again in a new session, so the actor has to."""
    script = Script(
        seed=109246,
        routing="centralized",
        brokers=("b1",),
        edges=(),
        steps=(
            Step(0.0, "join", ("listener0", "b1")),
            Step(0.8, "hear", ("listener0", "durable3", "EXISTS kind", {}, True)),
            Step(5.9, "crash", ("b1", 4.3)),
            Step(11.4, "fsync", ("b1", 7.8)),
            Step(12.5, "wipe", ("b1", 0.0)),
        ),
    )
    assert play(script).breaches == ()


def test_what_an_owner_ended_where_he_came_last_has_ended() -> None:
    """Seed 905374: a broker whose clock was ahead claimed it by an earlier visit."""
    script = Script(
        seed=905374,
        routing="flooded",
        brokers=("b1", "b2"),
        edges=(("b1", "b2"),),
        steps=(
            Step(0.0, "join", ("listener0", "b2")),
            Step(0.0, "join", ("publisher1", "b2")),
            Step(0.6, "hear", ("listener0", "durable1", "EXISTS kind", {}, True)),
            Step(7.4, "fsync", ("b2", 5.9)),
            Step(9.3, "away", ("listener0", 1.546)),
            Step(9.6, "clog", ("b1", "b2", 7.2)),
            Step(10.1, "clock", ("b2", 600.0)),
            Step(10.2, "change", ("listener0", "durable1", "kind = 2 AND x >= 0")),
            Step(11.181, "move", ("listener0", "b1")),
            Step(16.7, "end", ("listener0", "durable1")),
            Step(22.0, "publish", ("publisher1", True, {"kind": 0, "x": 2, "s": "b"})),
        ),
        sync_s=0.3,
    )
    assert play(script).breaches == ()


def test_a_broker_that_stops_with_a_disk_that_refuses_may_not_know_what_others_said() -> None:
    """Seed 2001027: events came before it was linked again."""
    script = Script(
        seed=2001027,
        routing="source-trees",
        brokers=("b1", "b2", "b3", "b4"),
        edges=(("b1", "b3"), ("b2", "b4"), ("b3", "b4")),
        steps=(
            Step(0.0, "join", ("listener0", "b4")),
            Step(0.0, "join", ("listener1", "b1")),
            Step(0.0, "join", ("publisher0", "b3")),
            Step(7.5, "fsync", ("b3", 7.4)),
            Step(11.1, "hear", ("listener1", "durable8", "EXISTS kind", {}, True)),
            Step(14.5, "torn", ("b3", 7.463)),
            Step(21.0, "publish", ("publisher0", True, {"kind": 2, "x": 4, "s": "b"})),
            Step(21.2, "one way", (("b3", "b2"), 1.4)),
        ),
    )
    assert play(script).breaches == ()


def test_a_subscription_that_is_refused_whole_once_more_is_asked_for_whole() -> None:
    """Seed 2832830: a client of the campaign changed what its broker did not have, and gave up."""
    script = Script(
        seed=2832830,
        routing="general",
        brokers=("ob2", "ob3", "b1", "b3"),
        edges=(("ob2", "ob3"), ("ob2", "b1"), ("b3", "b1")),
        steps=(
            Step(0.0, "join", ("listener0", "b3")),
            Step(0.8, "hear", ("listener0", "durable2", "EXISTS kind", {}, True)),
            Step(6.7, "full", ("b1", 7.7)),
            Step(9.9, "move", ("listener0", "b1")),
            Step(11.8, "move", ("listener0", "ob2")),
            Step(14.3, "change", ("listener0", "durable2", "kind = 2 AND x >= 2")),
            Step(14.7, "full", ("ob3", 6.3)),
            Step(18.8, "move", ("listener0", "ob3")),
        ),
        gate=Border(broker="b1", routing="general", beyond=("ob2", "ob3")),
    )
    assert play(script).breaches == ()


def test_events_are_not_kept_for_a_subscription_that_a_disk_alone_refused() -> None:
    """Seed 2837755: the disk took the events and not whom they were for, and the broker stopped."""
    first = (True, False, True, False, True, True, False, False)
    second = (True, True, False, True, False, False, True, False)
    script = Script(
        seed=2837755,
        routing="general-advertised",
        brokers=("b1", "b2", "b3", "b4", "b5"),
        edges=(("b2", "b3"), ("b3", "b4"), ("b4", "b5"), ("b5", "b1")),
        steps=(
            Step(0.0, "join", ("listener0", "b3")),
            Step(0.0, "join", ("listener1", "b4")),
            Step(0.0, "join", ("publisher0", "b1", "team")),
            Step(0.0, "join", ("publisher1", "b3")),
            Step(
                0.2,
                "offer",
                ("publisher0", OFFER),
            ),
            Step(
                0.2,
                "offer",
                ("publisher1", OFFER),
            ),
            Step(0.8, "hear", ("listener1", "durable5", "EXISTS kind", {}, True)),
            Step(0.8, "hear", ("listener0", "durable3", "EXISTS kind", {}, True)),
            Step(1.3, "hear", ("listener0", "durable2", "EXISTS kind", {}, True)),
            Step(4.2, "move", ("listener1", "b1")),
            Step(6.5, "move over", ("listener0", "b4")),
            Step(10.3, "spotty", ("b5", first, 1.2)),
            Step(10.4, "publish", ("publisher0", True, {"kind": 1, "x": 3})),
            Step(10.4, "publish", ("publisher0", True, {"kind": 0, "x": 2, "s": "a"})),
            Step(10.5, "move", ("listener0", "b5")),
            Step(11.451, "spotty", ("b5", second, 0.5)),
            Step(11.5, "publish", ("publisher1", True, {"kind": 0, "x": 1})),
            Step(11.5, "hear", ("listener1", "durable8", "EXISTS kind", {}, True)),
            Step(11.6, "publish", ("publisher1", True, {"kind": 0, "x": 2, "s": "b"})),
            Step(11.6, "publish", ("publisher1", True, {"kind": 0, "x": 2, "s": "ab"})),
            Step(11.7, "publish", ("publisher1", True, {"kind": 0, "x": 1})),
            Step(11.7, "publish", ("publisher1", True, {"kind": 1, "x": 0})),
            Step(12.1, "crash", ("b5", 3.0)),
            Step(12.1, "move over", ("listener0", "b2")),
        ),
        sync_s=0.3,
    )
    assert play(script).breaches == ()


def test_what_two_disk_failures_in_a_row_undo_is_known_as_undone() -> None:
    """Seed 20023: two writes fail, one after the other, and the broker stops."""
    script = Script(
        seed=20023,
        routing="flooded",
        brokers=("b2", "b3", "b4", "b5", "b6"),
        edges=(("b2", "b3"), ("b3", "b4"), ("b4", "b5"), ("b3", "b6")),
        steps=(
            Step(0.0, "join", ("listener1", "b6")),
            Step(0.0, "join", ("publisher1", "b3")),
            Step(0.0, "join", ("publisher2", "b2")),
            Step(1.3, "hear", ("listener1", "durable6", "EXISTS kind", {}, True)),
            Step(19.4, "publish", ("publisher1", True, {"kind": 1, "x": 4})),
            Step(19.4, "fsync", ("b6", 3.2)),
            Step(21.1, "publish", ("publisher2", True, {"kind": 1, "x": 5})),
            Step(21.2, "publish", ("publisher2", True, {"kind": 2, "x": 2, "s": "b"})),
            Step(21.8, "torn", ("b6", 0.5)),
        ),
        sync_s=0.3,
    )
    assert play(script).breaches == ()


def test_a_plan_outlives_two_disks() -> None:
    """Seed 509805: who had stated it asked a neighbour that had forgotten it too."""
    script = Script(
        seed=509805,
        routing="flooded",
        brokers=("b1", "b3", "b4"),
        edges=(("b1", "b3"), ("b3", "b4")),
        steps=(
            Step(0.0, "join", ("publisher2", "b1")),
            Step(
                20.5,
                "apply",
                ("publisher2", ("b3", "b1", "b4"), (("b3",), ("b3", "b1", "b4"), ("b4",))),
            ),
            Step(21.4, "wipe", ("b3", 4.8)),
            Step(22.0, "wipe", ("b1", 1.7)),
        ),
        multicast=True,
    )
    assert play(script).breaches == ()


def test_a_disk_that_refuses_what_is_carried_costs_no_live_event() -> None:
    """Seed 2500462: the link was made anew whenever the disk refused it, five times a second."""
    script = Script(
        seed=2500462,
        routing="acyclic",
        brokers=("b2", "b3"),
        edges=(("b2", "b3"),),
        steps=(
            Step(0.0, "join", ("listener0", "b3")),
            Step(0.0, "join", ("listener1", "b2")),
            Step(0.0, "join", ("publisher0", "b3")),
            Step(0.0, "join", ("publisher1", "b2")),
            Step(0.8, "hear", ("listener1", "durable5", "EXISTS kind", {}, True)),
            Step(1.1, "hear", ("listener0", "live1", "EXISTS kind", {}, False)),
            Step(5.7, "full", ("b2", 2.0)),
            Step(5.7, "publish", ("publisher0", True, {"kind": 2, "x": 4, "s": "a"})),
            Step(6.4, "publish", ("publisher1", False, {"kind": 1, "x": 4})),
        ),
    )
    assert play(script).breaches == ()


def test_a_broker_tells_of_its_new_life_though_its_disk_is_full() -> None:
    """Seed 2500220: events went to the flow of its last life, and nobody heard them."""
    script = Script(
        seed=2500220,
        routing="flooded",
        brokers=("b2", "b3"),
        edges=(("b2", "b3"),),
        steps=(
            Step(0.0, "join", ("listener2", "b3")),
            Step(0.0, "join", ("publisher0", "b2")),
            Step(0.0, "join", ("publisher2", "b2")),
            Step(0.5, "hear", ("listener2", "wide", "EXISTS kind", {}, False)),
            Step(
                11.7, "apply", ("publisher2", ("b3", "b2"), (("b3",), ("b3", "b2"), ("b2", "b3")))
            ),
            Step(16.4, "full", ("b3", 5.3)),
            Step(18.0, "crash", ("b3", 0.5)),
            Step(20.8, "publish", ("publisher0", False, {"kind": 0, "x": 2, "s": "b"})),
        ),
    )
    assert play(script).breaches == ()


def test_a_subscription_is_known_wherever_it_is_on_the_disk() -> None:
    """Seed 2861964: the disk took it, and not what is said of it; its broker stopped before that
    was tried again, and knew of nobody who wanted what came next.
    """
    script = Script(
        seed=2861964,
        routing="centralized",
        brokers=("b1",),
        edges=(),
        steps=(
            Step(0.0, "join", ("listener0", "b1")),
            Step(0.0, "join", ("publisher0", "b1")),
            Step(0.0, "join", ("publisher2", "b1")),
            Step(1.2, "hear", ("listener0", "durable2", "EXISTS kind", {}, True)),
            Step(8.5, "crash", ("b1", 2.0)),
            Step(16.03, "crash", ("b1", 0.1)),
            Step(18.424, "publish", ("publisher2", True, {"kind": 2, "x": 1, "s": "a"})),
            Step(
                18.431, "spotty", ("b1", (False, False, False, False, True, False, True, True), 0.3)
            ),
            Step(18.431, "publish", ("publisher0", True, {"kind": 1, "x": 5})),
            Step(18.471, "publish", ("publisher0", True, {"kind": 1, "x": 5, "s": "b"})),
            Step(18.5, "hear", ("listener0", "durable9", "EXISTS kind", {}, True)),
            Step(18.5, "publish", ("publisher0", True, {"kind": 2, "x": 3})),
            Step(18.7, "fsync", ("b1", 2.6)),
            Step(20.0, "crash", ("b1", 1.8)),
            Step(20.0, "publish", ("publisher0", True, {"kind": 2, "x": 4})),
        ),
    )
    assert play(script).breaches == ()


def test_what_a_broker_answers_that_has_lost_its_disk_speaks_for_that_broker_alone() -> None:
    """Seed 2881258: the campaign's own. It was asked before, at another broker that had stopped."""
    script = Script(
        seed=2881258,
        routing="general-advertised",
        brokers=("b3", "b4"),
        edges=(("b4", "b3"),),
        steps=(
            Step(0.0, "join", ("listener1", "b4")),
            Step(0.0, "join", ("publisher2", "b4")),
            Step(
                0.2,
                "offer",
                ("publisher2", "EXISTS kind AND EXISTS x AND EXISTS s OR EXISTS kind AND EXISTS x"),
            ),
            Step(12.7, "hear", ("listener1", "durable11", "x >= :least", {"least": 4}, True)),
            Step(13.7, "partition", (("b4",), 6.7)),
            Step(13.7, "crash", ("b4", 0.4)),
            Step(13.8, "change", ("listener1", "durable11", "kind = 1")),
            Step(14.0, "wipe", ("b3", 0.7)),
            Step(14.0, "move", ("listener1", "b3")),
            Step(20.3, "publish", ("publisher2", True, {"kind": 1, "x": 3, "s": "a"})),
        ),
    )
    assert play(script).breaches == ()
