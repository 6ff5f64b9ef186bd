"""What the campaign has found about clients and their subscriptions, shrunk from its seeds."""

from __future__ import annotations

import pytest

from tests.campaign.drawing import OFFER
from tests.campaign.judgement import play
from tests.campaign.plays import Play
from tests.campaign.scripts import Border, Script, Step


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


def test_who_goes_away_hears_nothing_by_what_it_has_changed_since() -> None:
    """Seed 100885: b2 was drained, and knew of no change that its client made at b1."""
    script = Script(
        seed=100885,
        routing="acyclic",
        brokers=("b1", "b2"),
        edges=(("b1", "b2"),),
        steps=(
            Step(0.0, "join", ("listener0", "b2")),
            Step(0.0, "join", ("publisher0", "b2")),
            Step(0.9, "hear", ("listener0", "live1", "x >= :least", {"least": 0}, False)),
            Step(6.648, "drain", ("b2", "restart", 2.9)),
            Step(7.0, "tune", ("listener0", "live1", 3)),
            Step(7.8, "publish", ("publisher0", False, {"kind": 0, "x": 1, "s": "b"})),
        ),
        sync_s=0.3,
        find=True,
    )
    assert play(script).breaches == ()


def test_who_goes_away_hears_nothing_by_what_it_has_changed_while_links_are_dead() -> None:
    """Seed 107247: it waited long to hear that all was in force at b6, and heard b4 as well."""
    script = Script(
        seed=107247,
        routing="proxies",
        brokers=("b4", "b5", "b6"),
        edges=(("b4", "b6"), ("b5", "b6")),
        steps=(
            Step(0.0, "join", ("listener0", "b4", "team")),
            Step(0.0, "join", ("publisher1", "b4", "team")),
            Step(0.9, "hear", ("listener0", "live1", "EXISTS kind", {}, False)),
            Step(6.4, "move over", ("listener0", "b6")),
            Step(6.5, "silence", (("b4", "b6"), 6.8)),
            Step(9.6, "change", ("listener0", "live1", "kind = 0")),
            Step(11.445, "publish", ("publisher1", False, {"kind": 1, "x": 3, "s": "ab"})),
        ),
        sync_s=0.3,
    )
    assert play(script).breaches == ()


def test_what_nobody_else_can_read_is_in_force_while_a_grant_has_something_cover_it() -> None:
    """Seed 107233: within `x < 4` the one covered the other, until that was ended."""
    script = Script(
        seed=107233,
        routing="acyclic",
        brokers=("b6", "b7"),
        edges=(("b6", "b7"),),
        steps=(
            Step(0.0, "join", ("listener0", "b6")),
            Step(0.0, "join", ("publisher2", "b6")),
            Step(13.7, "hear", ("listener0", "live4", "x < 4 OR s = 'a'", {}, False)),
            Step(18.1, "unreadable", ("publisher2", "poison0", 2.4)),
            Step(18.5, "end", ("listener0", "live4")),
        ),
        grants=True,
    )
    assert play(script).breaches == ()


def test_who_goes_away_hears_what_both_brokers_find_as_long_as_it_is_at_both() -> None:
    """Seed 107786: links were slow, so that took four seconds. The other broker began anew."""
    script = Script(
        seed=107786,
        routing="advertised",
        brokers=("b1", "b2", "b3", "b4", "b6", "b7"),
        edges=(("b1", "b2"), ("b2", "b3"), ("b3", "b4"), ("b4", "b6"), ("b6", "b7")),
        steps=(
            Step(0.0, "join", ("listener0", "b6")),
            Step(0.0, "join", ("publisher0", "b6")),
            Step(0.0, "join", ("publisher2", "b2")),
            Step(0.2, "offer", ("publisher0", OFFER)),
            Step(0.2, "offer", ("publisher2", OFFER)),
            Step(
                0.5, "seek", ("listener0", "pair", "kind = 0 THEN kind = 1 THEN EXISTS s WITHIN 3s")
            ),
            Step(0.8, "hear", ("listener0", "live1", "EXISTS kind", {}, False)),
            Step(17.5, "delay", ("b1", "b2", 0.445, 1.9)),
            Step(18.1, "publish", ("publisher2", False, {"kind": 0, "x": 0})),
            Step(18.2, "move over", ("listener0", "b7")),
            Step(18.7, "delay", ("b3", "b4", 0.433, 5.3)),
            Step(19.3, "delay", ("b2", "b3", 0.231, 4.4)),
            Step(19.4, "change", ("listener0", "live1", "s = 'b' THEN kind < 2 AND x = 2")),
            Step(19.6, "one way", (("b6", "b2"), 0.6)),
            Step(21.0, "publish", ("publisher0", False, {"kind": 0, "x": 3, "s": "a"})),
            Step(
                21.0,
                "publish",
                (
                    "publisher0",
                    False,
                    {"kind": 1, "x": 3, "s": "ab"},
                    {"kind": 1, "x": 3, "s": "b"},
                ),
            ),
        ),
    )
    assert play(script).breaches == ()


def test_what_is_adopted_late_goes_back_to_where_its_owner_is() -> None:
    """Seed 103901: a broker that had forgotten the visit of an owner offered what was his, and the
    one that adopted it heard that only when he was back.
    """
    script = Script(
        seed=103901,
        routing="hierarchical",
        brokers=("b1", "b2"),
        edges=(("b1", "b2"),),
        steps=(
            Step(0.0, "join", ("listener0", "b2")),
            Step(0.0, "join", ("listener1", "b2")),
            Step(0.0, "join", ("publisher0", "b1")),
            Step(0.0, "join", ("publisher1", "b2")),
            Step(0.0, "join", ("publisher2", "b1")),
            Step(0.9, "hear", ("listener0", "durable1", "EXISTS kind", {}, True)),
            Step(11.2, "drain", ("b2", "replace", 4.5)),
            Step(11.5, "drain", ("b1", "replace", 9.453)),
            Step(13.9, "publish", ("publisher2", False, {"kind": 0, "x": 4, "s": "ab"})),
            Step(13.9, "torn", ("b1", 4.3)),
            Step(18.5, "pause", ("b2", 3.6)),
            Step(20.7, "publish", ("publisher2", True, {"kind": 2, "x": 1})),
        ),
        find=True,
    )
    assert play(script).breaches == ()


def test_what_its_owner_has_ended_is_not_adopted() -> None:
    """Seed 106314: b2 had not heard that it had ended at b3, to which it offered it."""
    script = Script(
        seed=106314,
        routing="hierarchical",
        brokers=("b2", "b3"),
        edges=(("b2", "b3"),),
        steps=(
            Step(0.0, "join", ("listener0", "b2")),
            Step(0.0, "join", ("listener1", "b2")),
            Step(0.0, "join", ("publisher0", "b2")),
            Step(1.0, "hear", ("listener1", "durable4", "EXISTS kind", {}, True)),
            Step(1.1, "hear", ("listener0", "durable3", "EXISTS kind", {}, True)),
            Step(5.233, "cut", ("b2", "b3", 5.747)),
            Step(7.0, "drain", ("b2", "replace", 9.1)),
            Step(7.2, "end", ("listener0", "durable3")),
            Step(7.4, "publish", ("publisher0", True, {"kind": 2, "x": 4})),
        ),
        find=True,
    )
    assert play(script).breaches == ()


def test_a_changed_subscription_is_in_order_from_when_its_filter_is_in_force_everywhere() -> None:
    """Seed 105240: an event that the old filter did not want came late, with what another client's
    subscription had left behind, when b4 knew of the new one.
    """
    script = Script(
        seed=105240,
        routing="hierarchical",
        brokers=("b2", "b4", "b6"),
        edges=(("b6", "b2"), ("b2", "b4")),
        steps=(
            Step(0.0, "join", ("listener0", "b4")),
            Step(0.0, "join", ("publisher0", "b6")),
            Step(
                0.7, "hear", ("listener0", "durable1", "s = 'b' THEN kind < 2 AND x = 2", {}, True)
            ),
            Step(5.1, "away", ("listener0", 1.7)),
            Step(5.8, "crash", ("b4", 6.8)),
            Step(7.7, "harm", ("mallory1", "b2", "hears all")),
            Step(9.1, "change", ("listener0", "durable1", "NOT kind = 1 AND EXISTS s")),
            Step(11.3, "publish", ("publisher0", True, {"kind": 2, "x": 2, "s": "a"})),
            Step(12.1, "publish", ("publisher0", True, {"kind": 0, "x": 2, "s": "ab"})),
            Step(13.2, "drain", ("b2", "replace", 2.6)),
        ),
        find=True,
    )
    assert play(script).breaches == ()


def test_what_a_small_window_brings_late_does_not_count_in_the_calm() -> None:
    """Seed 108400: what was published while its broker was away came to others seconds later."""
    script = Script(
        seed=108400,
        routing="flooded",
        brokers=("b1", "b2", "b3", "b4"),
        edges=(("b1", "b2"), ("b2", "b3"), ("b3", "b4")),
        steps=(
            Step(0.0, "join", ("listener0", "b1")),
            Step(0.0, "join", ("listener2", "b2")),
            Step(0.0, "join", ("publisher0", "b4")),
            Step(0.0, "join", ("publisher1", "b3")),
            Step(0.5, "hear", ("listener0", "wide", "EXISTS kind", {}, False)),
            Step(0.7, "hear", ("listener2", "durable9", "EXISTS kind", {}, True)),
            Step(
                2.0,
                "apply",
                (
                    "publisher1",
                    ("b4", "b3", "b2"),
                    (("b3", "b4"), ("b4", "b3"), ("b4",), ("b4", "b3", "b2")),
                ),
            ),
            Step(12.1, "publish", ("publisher0", True, {"kind": 1, "x": 2}, {"kind": 1, "x": 1})),
            Step(12.1, "torn", ("b4", 7.5)),
            Step(15.4, "publish", ("publisher0", True, {"kind": 0, "x": 2})),
            Step(
                15.454,
                "publish",
                ("publisher0", True, {"kind": 1, "x": 3}, {"kind": 0, "x": 4, "s": "b"}),
            ),
            Step(15.5, "publish", ("publisher0", True, {"kind": 1, "x": 3})),
        ),
        window_bytes=6000,
        memory_bytes=8000,
    )
    assert play(script).breaches == ()


def test_what_is_published_at_another_broker_may_overtake_what_was_published_before() -> None:
    """Seed 105102: b2 hears no datagrams for a while, and what came later came by links."""
    groups = ("b3", "b2"), ("b4", "b3"), ("b3", "b4", "b2")
    script = Script(
        seed=105102,
        routing="source-trees",
        brokers=("b2", "b3", "b4"),
        edges=(("b2", "b4"), ("b3", "b4")),
        steps=(
            Step(0.0, "join", ("listener0", "b2")),
            Step(0.0, "join", ("listener1", "b3")),
            Step(0.0, "join", ("publisher1", "b3")),
            Step(0.0, "join", ("publisher2", "b4")),
            Step(0.5, "hear", ("listener0", "wide", "EXISTS kind", {}, False)),
            Step(0.5, "hear", ("listener1", "wide", "EXISTS kind", {}, False)),
            Step(7.9, "deaf", ("b2", 4.3)),
            Step(10.0, "apply", ("publisher1", ("b3", "b4", "b2"), groups)),
            Step(10.7, "publish", ("publisher2", False, {"kind": 1, "x": 3})),
            Step(10.8, "move", ("publisher2", "b3")),
            Step(10.9, "publish", ("publisher2", False, {"kind": 2, "x": 4, "s": "b"})),
        ),
        multicast=True,
    )
    assert play(script).breaches == ()


def test_an_entry_that_cannot_be_read_is_acknowledged_though_none_comes_after_it() -> None:
    """Seed 507792: a gap was told of it, and custody kept it."""
    script = Script(
        seed=507792,
        routing="general",
        brokers=("ob3", "ob4", "b1", "b3"),
        edges=(("ob3", "ob4"), ("ob3", "b1"), ("b3", "b1")),
        steps=(
            Step(0.0, "join", ("listener0", "ob4")),
            Step(0.0, "join", ("publisher0", "b3")),
            Step(1.3, "hear", ("listener0", "durable3", "EXISTS kind", {}, True)),
            Step(18.6, "publish", ("publisher0", True, {"kind": 1, "x": 0, "s": "b"})),
            Step(18.6, "away", ("listener0", 1.6)),
            Step(19.2, "crash", ("ob4", 2.6)),
            Step(21.1, "flip", ("ob4", 11)),
        ),
        sync_s=0.005,
        gate=Border(broker="b1", routing="general", beyond=("ob3", "ob4")),
    )
    assert play(script).breaches == ()


def test_what_follows_a_subscription_that_has_moved_is_safe_before_that_is_said() -> None:
    """Seed 700503: the end of it was on the disk, and what went after it was not."""
    script = Script(
        seed=700503,
        routing="hierarchical",
        brokers=("ob2", "ob3", "ob4", "b1"),
        edges=(("ob2", "ob3"), ("ob2", "ob4"), ("ob2", "b1")),
        steps=(
            Step(0.0, "join", ("listener1", "ob4")),
            Step(0.0, "join", ("publisher0", "ob4")),
            Step(0.6, "hear", ("listener1", "durable4", "EXISTS kind", {}, True)),
            Step(14.1, "cut", ("ob2", "b1", 1.9)),
            Step(15.1, "move", ("listener1", "b1")),
            Step(15.9, "publish", ("publisher0", True, {"kind": 0, "x": 0, "s": "b"})),
            Step(16.5, "crash", ("ob4", 0.2)),
        ),
        sync_s=0.3,
        gate=Border(broker="b1", routing="acyclic", beyond=("ob2", "ob3", "ob4")),
    )
    assert play(script).breaches == ()


def test_what_reaches_the_disk_when_a_subscription_is_back_is_its_own() -> None:
    """Seed 700579: it had moved away and back meanwhile."""
    script = Script(
        seed=700579,
        routing="flooded",
        brokers=("b1", "b2", "b4"),
        edges=(("b1", "b2"), ("b2", "b4")),
        steps=(
            Step(0.0, "join", ("listener2", "b1", "team")),
            Step(0.0, "join", ("publisher2", "b1")),
            Step(1.1, "hear", ("listener2", "durable7", "EXISTS kind", {}, True)),
            Step(6.8, "move", ("listener2", "b2")),
            Step(15.6, "move", ("listener2", "b4")),
            Step(15.8, "crash", ("b4", 1.2)),
            Step(16.9, "publish", ("publisher2", True, {"kind": 1, "x": 2})),
            Step(17.1, "move", ("listener2", "b2")),
        ),
        sync_s=0.3,
    )
    assert play(script).breaches == ()


def test_who_was_not_reached_and_is_back_is_asked_again() -> None:
    """Seed 707385: a change was said to be in force at a broker that was asleep."""
    script = Script(
        seed=707385,
        routing="hierarchical",
        brokers=("b1", "b2", "b3", "b4"),
        edges=(("b1", "b2"), ("b1", "b3"), ("b2", "b4")),
        steps=(
            Step(0.0, "join", ("listener2", "b4")),
            Step(0.0, "join", ("publisher0", "b3")),
            Step(0.9, "hear", ("listener2", "durable8", "x >= :least", {"least": 4}, True)),
            Step(11.2, "pause", ("b2", 3.3)),
            Step(12.7, "pause", ("b2", 3.5)),
            Step(13.2, "change", ("listener2", "durable8", "kind IN (0, 1) AND s >= 'b'")),
            Step(14.7, "pause", ("b1", 8.0)),
            Step(16.6, "pause", ("b2", 5.2)),
            Step(19.6, "pause", ("b3", 6.0)),
            Step(22.8, "hear", ("listener1", "live13", "EXISTS kind", {}, False)),
            Step(22.989, "publish", ("publisher0", False, {"kind": 1, "x": 0, "s": "ab"})),
            Step(23.2, "publish", ("publisher0", True, {"kind": 0, "x": 0, "s": "b"})),
        ),
    )
    assert play(script).breaches == ()


def test_what_a_drained_broker_cannot_read_is_told_at_the_new_home() -> None:
    """Seed 816764: the log told of it, and not the owner."""
    kind_and_x = "EXISTS kind AND EXISTS x"
    script = Script(
        seed=816764,
        routing="general-advertised",
        brokers=("b5", "b6"),
        edges=(("b5", "b6"),),
        steps=(
            Step(0.0, "join", ("listener0", "b5")),
            Step(0.0, "join", ("publisher2", "b6")),
            Step(0.2, "offer", ("publisher2", f"{kind_and_x} AND EXISTS s OR {kind_and_x}")),
            Step(1.3, "hear", ("listener0", "durable1", "EXISTS kind", {}, True)),
            Step(6.5, "publish", ("publisher2", True, {"kind": 0, "x": 3, "s": "ab"})),
            Step(6.5, "drain", ("b5", "undo", 2.6)),
            Step(6.843, "flip", ("b5", 49)),
        ),
        sync_s=0.3,
        find=True,
    )
    assert play(script).breaches == ()


def test_what_waited_for_its_publisher_to_be_back_was_published_when_it_was() -> None:
    """Seed 814194: the broker had stopped between, which was not seen."""
    script = Script(
        seed=814194,
        routing="centralized",
        brokers=("b1",),
        edges=(),
        steps=(
            *(Step(0.0, "join", (who, "b1")) for who in ("listener0", "listener1")),
            *(Step(0.0, "join", (who, "b1")) for who in ("publisher0", "publisher1")),
            Step(0.8, "hear", ("listener0", "durable1", "EXISTS kind", {}, True)),
            Step(1.4, "hear", ("listener0", "live2", "EXISTS kind", {}, False)),
            Step(5.2, "publish", ("publisher1", True, {"kind": 1, "x": 2, "s": "b"})),
            Step(5.4, "torn", ("b1", 3.5)),
            Step(8.8, "away", ("listener0", 2.2)),
            Step(10.0, "crash", ("b1", 2.5)),
            Step(14.3, "publish", ("publisher0", True, {"kind": 1, "x": 0, "s": "a"})),
            Step(16.6, "crash", ("b1", 0.7)),
            Step(17.7, "away", ("listener0", 2.2)),
        ),
        sync_s=0.3,
    )
    assert play(script).breaches == ()


def test_who_was_at_a_broker_hears_in_order_though_another_moves_there() -> None:
    """Seed 908115: what went after the other came first, and was taken for both."""
    script = Script(
        seed=908115,
        routing="flooded",
        brokers=("b2", "b3", "b4"),
        edges=(("b2", "b3"), ("b3", "b4")),
        steps=(
            Step(0.0, "join", ("listener0", "b3")),
            Step(0.0, "join", ("listener1", "b4")),
            Step(0.0, "join", ("publisher1", "b2")),
            Step(5.7, "hear", ("listener1", "durable11", "EXISTS kind", {}, True)),
            Step(8.8, "torn", ("b3", 4.4)),
            Step(10.8, "hear", ("listener0", "durable13", "x < 4 OR s = 'a'", {}, True)),
            Step(13.1, "clog", ("b4", "b3", 4.7)),
            Step(17.6, "publish", ("publisher1", True, {"kind": 0, "x": 4, "s": "ab"})),
            Step(17.6, "torn", ("b3", 5.4)),
            Step(18.8, "publish", ("publisher1", True, {"kind": 2, "x": 0})),
            Step(20.3, "move", ("listener0", "b4")),
        ),
    )
    assert play(script).breaches == ()


def test_an_end_that_is_gone_with_the_only_disk_that_had_it_is_not_waited_for() -> None:
    """Seed 980232: its broker was cut off from the end until it lost its disk."""
    script = Script(
        seed=980232,
        routing="acyclic",
        brokers=("b2", "b3"),
        edges=(("b2", "b3"),),
        steps=(
            Step(0.0, "join", ("listener2", "b2")),
            Step(0.0, "join", ("publisher0", "b2")),
            Step(6.5, "hear", ("listener2", "durable10", "EXISTS kind", {}, True)),
            Step(10.0, "partition", (("b3",), 5.7)),
            Step(10.7, "move", ("listener2", "b3")),
            Step(12.6, "end", ("listener2", "durable10")),
            Step(15.6, "wipe", ("b3", 1.0)),
            Step(16.0, "publish", ("publisher0", True, {"kind": 0, "x": 0, "s": "a"})),
        ),
    )
    assert play(script).breaches == ()


def test_an_end_that_a_neighbour_remembers_outlives_the_disk_of_its_broker() -> None:
    """Seed 1002114: it was taken back without the visit that had ended it, and ended nothing."""
    script = Script(
        seed=1002114,
        routing="hierarchical",
        brokers=("ob2", "ob3", "b1", "b3"),
        edges=(("ob2", "ob3"), ("ob3", "ob2"), ("ob3", "b1"), ("b1", "b3")),
        steps=(
            Step(0.0, "join", ("listener1", "ob2")),
            Step(0.0, "join", ("publisher1", "ob2")),
            Step(1.4, "hear", ("listener1", "durable6", "EXISTS kind", {}, True)),
            Step(7.3, "silence", (("ob2", "b3", "b1"), 2.9)),
            Step(8.0, "move", ("listener1", "b1")),
            Step(8.2, "end", ("listener1", "durable6")),
            Step(9.3, "clog", ("b1", "ob3", 1.3)),
            Step(10.4, "wipe", ("b1", 2.2)),
            Step(11.6, "publish", ("publisher1", True, {"kind": 0, "x": 3})),
        ),
        gate=Border(broker="b1", routing="general", beyond=("ob2", "ob3")),
    )
    assert play(script).breaches == ()


@pytest.mark.parametrize("withdraws", [False, True])
def test_a_client_without_an_offer_goes_by_those_of_its_identity(withdraws: bool) -> None:
    """Seed 2840511: another of its identity had ended its offer, and made one just before."""
    withdrawn = [
        Step(5.0, "offer", ("publisher1", OFFER)),
        Step(9.0, "withdraw", ("publisher0", OFFER)),
    ]
    script = Script(
        seed=2840511,
        routing="general-advertised",
        brokers=("b3", "b4"),
        edges=(("b3", "b4"),),
        steps=(
            Step(0.0, "join", ("listener2", "b3")),
            Step(0.0, "join", ("publisher0", "b4", "team")),
            Step(0.0, "join", ("publisher1", "b4", "team")),
            *(withdrawn if withdraws else ()),
            Step(19.1, "hear", ("listener2", "live1", "kind = 2", {}, False)),
            Step(20.637, "offer", ("publisher0", OFFER)),
            Step(20.645, "publish", ("publisher1", False, {"kind": 2, "x": 1, "s": "a"})),
            Step(25.0, "publish", ("publisher1", False, {"kind": 2, "x": 1, "s": "b"})),
        ),
    )
    assert play(script).breaches == ()
    played = Play(script)
    played.run()
    assert [each.announced for each in played.published] == [False, True]
