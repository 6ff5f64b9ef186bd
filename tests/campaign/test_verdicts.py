"""Each promise, broken on purpose: the oracle says which, and of whom."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import msgspec
import pytest

from palio.protocol.messages import Gap
from palio.simulation.cluster import Cluster
from tests.campaign.actors import Actor, Cancelled, HeardEvent
from tests.campaign.drawing import OFFER
from tests.campaign.faults import Blank
from tests.campaign.plays import Play
from tests.campaign.scripts import Script, Step
from tests.campaign.verdicts import verdicts

STEPS = (
    Step(0.0, "join", ("alice", "b1")),
    Step(0.0, "join", ("bob", "b2")),
    Step(0.5, "hear", ("alice", "live", "x > 1", {}, False)),
    Step(0.5, "hear", ("alice", "kept", "x > 2", {}, True)),
    Step(3.0, "publish", ("bob", True, {"x": 3}, {"x": 4})),
    Step(3.5, "publish", ("bob", False, {"x": 5}, {"x": 6})),
)
SCRIPT = Script(1, "acyclic", ("b1", "b2"), (("b1", "b2"),), STEPS)


def played(script: Script = SCRIPT) -> tuple[Play, Actor, list[HeardEvent]]:
    """A play, its listener, and what its durable subscription heard."""
    play = Play(script)
    play.run()
    alice = play.actors["alice"]
    return play, alice, alice.durable[alice.interests["kept"].key]


def kinds(play: Play) -> list[str]:
    return [each.kind for each in verdicts(play)]


def test_nothing_is_wrong_where_nothing_went_wrong() -> None:
    play, alice, kept = played()
    assert [each.seq for each in kept] == [1, 2]
    assert len(alice.live) == 2 + 2 * 2  # what was published live came for both subscriptions
    assert kinds(play) == []


Tamper = Callable[[Play, Actor, list[HeardEvent]], object]


@pytest.mark.parametrize(
    ("kind", "tamper"),
    [
        ("lost", lambda _play, _alice, kept: kept.pop()),
        ("doubled", lambda _play, _alice, kept: kept.append(kept[-1])),
        ("doubled", lambda _play, alice, _kept: alice.live.append(alice.live[-1])),
        ("disordered", lambda _play, _alice, kept: kept.reverse()),
        ("outside", lambda _play, _alice, kept: kept.append(kept[0]._replace(seq=99))),
        ("outside", lambda _play, _alice, kept: kept.append(kept[0]._replace(row={"x": 9}))),
        ("sent twice", lambda _play, alice, _kept: alice.doubled.append((1, "bob/1", 1))),
        ("unconverged", lambda play, _alice, _kept: setattr(play, "converged_s", None)),
        ("untold", lambda _play, alice, _kept: alice.live.clear()),
    ],
)
def test_each_promise_that_is_broken_is_named(kind: str, tamper: Tamper) -> None:
    play, alice, kept = played()
    tamper(play, alice, kept)
    assert kind in kinds(play)


@pytest.mark.parametrize(
    ("breaks", "expected"), [((), ["disordered"]), (((-3.0, -2.0),), []), (((3.4, 3.6),), [])]
)
def test_on_any_graph_live_events_are_in_order_while_nothing_breaks(
    breaks: tuple[tuple[float, float], ...], expected: list[str]
) -> None:
    def turn(play: Play, alice: Actor, _: object) -> None:
        alice.live[-2:] = alice.live[:-3:-1]
        play.faults.breaks += breaks

    script = Script(1, "general", SCRIPT.brokers, SCRIPT.edges, STEPS)
    assert [each for each in after(turn, script) if each == "disordered"] == expected


def after(tamper: Tamper, script: Script = SCRIPT) -> list[str]:
    """What is wrong with a play once it was tampered with."""
    play, alice, kept = played(script)
    tamper(play, alice, kept)
    return kinds(play)


def test_a_gap_excuses_nothing_if_nothing_broke_since_it_was_asked_whether_all_is_in_force() -> (
    None
):
    def lose(play: Play, alice: Actor, _: object) -> None:
        alice.gaps_s.append(play.world.now)
        alice.live.clear()

    def lose_what_broke(play: Play, alice: Actor, _: object) -> None:
        lose(play, alice, _)
        play.faults.breaks.append((3.0, 3.1))

    assert after(lose) == ["unsettled"]
    assert after(lose_what_broke) == []


def test_what_was_on_a_disk_that_is_gone_may_be_lost_and_nothing_else() -> None:
    def wipe(play: Play, _: object, kept: list[HeardEvent]) -> None:
        lost = kept.pop()
        play.faults.wiped.add((lost.publisher, lost.seq))

    def wipe_one_and_lose_two(play: Play, _: object, kept: list[HeardEvent]) -> None:
        wipe(play, _, kept)
        kept.clear()

    def wipe_and_tell(play: Play, alice: Actor, kept: list[HeardEvent]) -> None:
        wipe(play, alice, kept)
        alice.gaps += [Gap("*", 0, 0, 0, each.key) for each in alice.interests.values()]

    assert after(wipe) == ["lost"], "nobody was told"
    assert after(wipe_and_tell) == []
    assert after(wipe_one_and_lose_two) == ["lost"]


@pytest.mark.parametrize(("until_s", "expected"), [(inf, []), (1.0, ["lost"])])
def test_what_is_published_where_nobody_is_known_any_more_is_owed_to_nobody(
    until_s: float, expected: list[str]
) -> None:
    def forget(play: Play, _: object, kept: list[HeardEvent]) -> None:
        kept.clear()
        play.faults.blanks.append(Blank("b2", 0.0))
        play.faults.blanks[0].until_s = until_s

    assert after(forget) == expected


def test_what_was_published_again_may_come_twice() -> None:
    def repeat(play: Play, alice: Actor, _: object) -> None:
        alice.live.append(next(each for each in alice.live if each.seq == 1))
        play.actors["bob"].said_again.add(1)

    assert after(repeat) == []


@pytest.mark.parametrize(("after_s", "expected"), [(1.0, []), (-0.1, ["doubled"])])
def test_who_moves_may_hear_again_what_it_had_heard_before_it_set_out(
    after_s: float, expected: list[str]
) -> None:
    def move(_: object, alice: Actor, __: object) -> None:
        first = next(each for each in alice.live if each.seq == 3)
        alice.live.append(first._replace(at_s=first.at_s + 2.0))
        alice.moves_s.append(first.at_s + after_s)

    assert after(move) == expected


@pytest.mark.parametrize(
    ("routing", "broker", "after_s", "expected"),
    [
        ("general", "b1", 1.0, []),
        ("general", "b1", -0.1, ["doubled"]),
        ("general", "b2", 1.0, ["doubled"]),
        ("acyclic", "b1", 1.0, ["doubled"]),
    ],
)
def test_on_a_graph_what_was_heard_before_a_broker_stopped_may_come_there_again(
    routing: str, broker: str, after_s: float, expected: list[str]
) -> None:
    play, alice, _ = played(msgspec.structs.replace(SCRIPT, routing=routing))
    first = next(each for each in alice.live if each.seq == 3)
    alice.live.append(first._replace(at_s=first.at_s + 2.0))
    play.faults.stops.append((broker, first.at_s + after_s))
    assert [each for each in kinds(play) if each != "disordered"] == expected


@pytest.mark.parametrize(("broke_s", "expected"), [(2.0, []), (9.0, ["untold"])])
def test_who_moves_before_it_knows_that_its_connection_is_dead_is_told_of_no_gap(
    broke_s: float, expected: list[str]
) -> None:
    def leave(play: Play, alice: Actor, _: object) -> None:
        alice.live.clear()
        alice.moves_s.append(6.0)
        play.faults.breaks.append((broke_s, broke_s))

    assert after(leave) == expected


@pytest.mark.parametrize(("silent_s", "expected"), [(9.0, []), (3.5, ["untold"])])
def test_a_broker_that_stops_twice_and_is_never_linked_in_between_forgets_what_it_took(
    silent_s: float, expected: list[str]
) -> None:
    def stop_twice(play: Play, alice: Actor, _: object) -> None:
        first = min(event.at_s for event in play.published)
        alice.live.clear()
        broker = play.actors["bob"].broker
        play.faults.stops += [(broker, first - 1.0), (broker, first + 8.0)]
        play.faults.breaks += [(first - 1.0, first), (first - 0.5, first + silent_s)]

    assert after(stop_twice) == expected


def test_what_waits_is_named_unless_a_broker_may_not_know_that_it_is_over() -> None:
    play, alice, _ = played()
    assert play.waiting == {}
    alice.acknowledges = False
    play.publish(play.actors["bob"], ({"x": 3},), durable=True)
    play.world.run(1.0)
    assert play.waiting == {"alice/kept": 1, "b1": 1}
    alice.vanish()
    alice.end("kept")
    assert play.waiting == {}


SOUGHT = Script(
    1,
    "advertised",
    ("b1", "b2"),
    (("b1", "b2"),),
    (
        Step(0.0, "join", ("alice", "b1", "team")),
        Step(0.0, "join", ("bob", "b2", "team")),
        Step(0.2, "offer", ("alice", OFFER)),
        Step(0.2, "offer", ("bob", OFFER)),
        Step(0.5, "seek", ("alice", "pair", "kind = 0 THEN x >= 2 WITHIN 4s")),
        Step(0.5, "hear", ("alice", "live", "x > 1", {}, False)),
        Step(3.0, "publish", ("bob", False, {"kind": 0, "x": 1}, {"kind": 1, "x": 2})),
        Step(3.0, "publish", ("bob", False, {"kind": 0, "x": 1}, {"kind": 1, "x": 2, "s": "a"})),
    ),
)


def sought(script: Script = SOUGHT) -> tuple[Play, Actor]:
    play = Play(script)
    play.run()
    play.world.run(3.0)
    return play, play.actors["alice"]


def test_what_brokers_assemble_is_what_was_asked_for() -> None:
    play, alice = sought()
    assert [[part.seq for part in each.parts] for each in alice.quests["pair"].found] == [
        [1, 2],
        [3, 4],
    ]
    assert kinds(play) == []


@pytest.mark.parametrize("which", [0, 1])
def test_what_brokers_did_not_find_is_noticed(which: int) -> None:
    play, alice = sought()
    del alice.quests["pair"].found[which]
    assert kinds(play) == ["astray"]


def test_what_is_never_found_is_noticed_in_the_calm_whatever_broke() -> None:
    play, alice = sought()
    play.faults.breaks.append((1.0, 2.0))
    alice.deliver_assembled = lambda message: None  # type: ignore[method-assign]
    assert kinds(play) == ["astray"]


@pytest.mark.parametrize(("text", "expected"), [("x > 0", []), ("x > 2", ["cancelled"])])
def test_a_subscription_ends_only_if_another_of_its_identity_cancels_as_much(
    text: str, expected: list[str]
) -> None:
    cancel = Step(2.5, "cancel", ("bob", "x > 0"))
    beside = Step(0.0, "join", ("bob", "b1", "team"))
    play, alice = sought(SOUGHT.with_steps((beside, *SOUGHT.steps, cancel)))
    (interest,) = alice.past
    assert (interest.name, interest.is_cancelled) == ("live", True)
    play.actors["bob"].cancels[:] = [Cancelled(2.5, text)]
    assert kinds(play) == expected


def test_who_withdraws_for_all_of_an_identity_is_refused_and_nobody_is_owed_that() -> None:
    withdraw = Step(2.5, "withdraw", ("alice", OFFER))
    play, alice = sought(SOUGHT.with_steps((*SOUGHT.steps, withdraw)))
    apart, _ = sought(SOUGHT.with_steps((*SOUGHT.steps[:1], *SOUGHT.steps[2:], withdraw)))
    assert kinds(play) == kinds(apart) == []
    assert {each.failure.kind for each in alice.refused} <= {"NotAdvertised"}


def test_who_has_not_been_announced_everywhere_is_owed_to_nobody() -> None:
    play, alice = sought()
    alice.live.clear()
    play.published[:] = [each._replace(announced=False) for each in play.published]
    assert kinds(play) == []


def test_what_is_over_is_over_for_what_is_published_later() -> None:
    change = Step(3.2, "change", ("alice", "live", "x > 5"))
    play, alice, _ = played(SCRIPT.with_steps((*STEPS, change)))
    assert kinds(play) == []
    interest = alice.interests["live"]
    late = next(each for each in play.published if each.seq == 3)
    alice.live.append(HeardEvent(late.at_s, late.publisher, 3, late.row, -1))
    alice.interests.pop("kept")
    assert interest.versions[0].over_s < late.at_s
    assert "outside" in kinds(play)


def test_what_is_heard_in_the_calm_is_what_was_asked_for() -> None:
    play, alice, _ = played()
    alice.interests["live"].versions[-1].values["unused"] = 1
    Cluster.kill(play.world, "b2")
    assert "dull" in kinds(play)


def test_no_grant_admits_what_it_does_not_match() -> None:
    script = Script(1, "acyclic", ("b1", "b2"), (("b1", "b2"),), STEPS, grants=True)
    play = Play(script)
    play.run()
    alice = play.actors["alice"]
    assert alice.live == []  # events without `kind` may not be published
    first = play.published[0]
    alice.live.append(HeardEvent(play.world.now, first.publisher, first.seq, first.row, -1))
    assert "outside" in kinds(play)
