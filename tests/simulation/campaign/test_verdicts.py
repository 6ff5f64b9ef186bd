"""Each promise, broken on purpose: the oracle says which, and of whom."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from palio.simulation.campaign.actors import Actor, HeardEvent
from palio.simulation.campaign.plays import Play
from palio.simulation.campaign.scripts import Script, Step
from palio.simulation.campaign.verdicts import verdicts
from palio.simulation.cluster import Cluster

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
