"""Durable events between brokers: what is promised holds, whatever is lost on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from palio.node import durable, log, streams
from palio.node.operations import Append, Claim, Numbered, Retarget
from palio.protocol.messages import Carry
from tests.conftest import seeds
from tests.node import durable_world
from tests.node.durable_world import World
from tests.node.events import parcel

STEPS: Final = 800
TRIES: Final = 60


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two or three entries are on their way to a home at once."""
    monkeypatch.setattr(streams, "WINDOW_BYTES", 3 * parcel({"n": 1}).held_bytes)


def play(seed: int, *, moves: bool = True) -> World:
    """Everything that may happen, and then nothing more."""
    world = World(seed)
    world.moves = moves
    for _ in range(STEPS):
        world.step()
    world.settle()
    world.check()
    return world


def play_many() -> None:
    for seed in range(TRIES):
        play(seed)


@pytest.mark.parametrize("seed", seeds(12, nightly=4_000))
def test_owners_move_and_disks_refuse(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("seed", seeds(6, nightly=2_000))
def test_order_and_once_while_nobody_moves(seed: int) -> None:
    play(seed, moves=False)


def test_a_play_has_much_in_it() -> None:
    worlds = [play(seed) for seed in range(4)]
    assert sum(world.published for world in worlds) > 200
    assert sum(owner.session_epoch for world in worlds for owner in world.owners.values()) > 40
    assert sum(len(o.acked) for world in worlds for o in world.owners.values()) > 300


@pytest.mark.parametrize("seed", seeds(8, nightly=2_000))
def test_a_lost_disk_is_told(seed: int) -> None:
    world = World(seed)
    world.moves = seed % 2 == 0
    for step in range(STEPS):
        world.step()
        if step == STEPS // 2:
            world.lose(world.random.choice(list(world.brokers.values())))
    world.settle()
    before = world.published
    for broker in world.brokers.values():
        world.publish(broker)
    world.settle()
    for owner in world.owners.values():
        is_told = owner.losses or owner.ended
        assert is_told, f"nobody has told {owner.subject} of the loss"
        late = {number for number in owner.wanted if number > before}
        assert late
        assert late <= owner.acked
    assert not any(broker.events.queues.entries for broker in world.brokers.values())


def check_what_comes_later(world: World) -> None:
    """What is published from now on arrives, and nothing is kept after that."""
    before = world.published
    for broker in world.brokers.values():
        world.publish(broker)
    world.settle()
    for owner in world.owners.values():
        late = {number for number in owner.wanted if number > before}
        assert len(late) == len(world.brokers)
        assert late <= owner.acked
    assert not any(broker.events.queues.entries for broker in world.brokers.values())


@pytest.mark.parametrize("seed", seeds(8, nightly=2_000))
def test_a_journal_that_is_cut_short_keeps_nobody_waiting(seed: int) -> None:
    world = World(seed)
    for step in range(STEPS):
        world.step()
        if step == STEPS // 2:
            world.truncate(world.random.choice(list(world.brokers.values())))
    world.settle()
    check_what_comes_later(world)


@pytest.mark.parametrize("seed", seeds(8, nightly=2_000))
def test_a_broker_is_removed_for_good(seed: int) -> None:
    world = World(seed, "abcd")
    for step in range(STEPS):
        world.step()
        if step == STEPS // 2:
            world.remove(world.random.choice(list(world.brokers.values())))
    world.settle()
    check_what_comes_later(world)


@pytest.mark.parametrize(("publishers", "first"), [(3, "p0"), (5, "p0"), (6, "p2")])
def test_the_publishers_heard_of_longest_ago_are_forgotten(
    publishers: int, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is too many is told, and is gone with what is written after that."""
    monkeypatch.setattr(durable, "MAX_PUBLISHERS", 3)
    world = World(0)
    (a, *_) = world.brokers.values()
    for owner in world.owners.values():
        world.session_epoch(owner, a)
    world.settle()
    for number in range(publishers):
        events = parcel({"n": number}, publisher=f"p{number}")
        world.now += 1.0
        world.follow(a, a.events.publish(world.now, 0, events, dict.fromkeys(world.owners), "any"))
        world.write(a)
    assert next(iter(a.events.queues.published)) == first
    assert a.events.last_published(f"p{publishers - 1}") == 1


# --- planted errors: each is noticed ---


def restart_forgets(patch: pytest.MonkeyPatch) -> None:
    """After a restart nothing counts as sent (D4)."""
    made = streams.Flow.__init__
    patch.setattr(streams.Flow, "__init__", lambda flow, base, _sent: made(flow, base, base))


def retargets_sent(patch: pytest.MonkeyPatch) -> None:
    """What was sent to the old home follows, too (D4)."""
    patch.setattr(streams.Streams, "sent", ())


def sends_what_moves(patch: pytest.MonkeyPatch) -> None:
    """An entry goes out while its Retarget is under way (D4)."""
    patch.setattr(streams.Streams, "_is_leaving", lambda *_: False)


def waits_for_no_home(patch: pytest.MonkeyPatch) -> None:
    """A publisher that wants to know of homes is answered as any other."""
    patch.setattr(streams.Streams, "has_unacked", lambda *_: False)


def does_not_follow(patch: pytest.MonkeyPatch) -> None:
    """Who waits for a home does not wait for the one to which an event goes instead."""
    patch.setattr(durable.DurableEvents, "_retarget_publications", lambda *_: None)


def takes_early(patch: pytest.MonkeyPatch) -> None:
    """A home takes whatever is above its cursor (D1)."""
    carry = durable.DurableEvents.carry

    def early(events: Any, now: float, wall_us: int, message: Carry) -> Any:
        stored = events.queues.cursors.get(message.origin)
        known = 0 if stored is None or stored.log != message.log else stored.offset
        cursor = events.overlay.cursor(message.origin)
        known = known if cursor is None else cursor.offset
        if message.offset > known:
            message = msgspec.structs.replace(message, previous=known)
        return carry(events, now, wall_us, message)

    patch.setattr(durable.DurableEvents, "carry", early)


def acks_later(patch: pytest.MonkeyPatch) -> None:
    """What an owner has dealt with is let go after its queue has gone (D6)."""
    patch.setattr(log.Log, "release", lambda *_: None)


def spotty(patch: pytest.MonkeyPatch) -> None:
    """After a refused append the next one is stored (L1)."""

    def write(disk: Any, what: Append) -> bool:
        disk.term = what.term
        is_written = original(disk, what)
        disk.is_full = disk.is_full and is_written
        return is_written

    original = durable_world.Disk.write
    patch.setattr(durable_world.Disk, "write", write)


def keeps_the_overlay(patch: pytest.MonkeyPatch) -> None:
    """What was under way counts although it was refused (L3)."""
    refused = log.Log.refused

    def kept(this: Any, now: float, ticket: int) -> Any:
        overlay = this.overlay
        thrown = refused(this, now, ticket)
        this.overlay = overlay
        return thrown

    patch.setattr(log.Log, "refused", kept)


def stays(patch: pytest.MonkeyPatch) -> None:
    """What waits at the old home stays there (D5)."""
    opening = durable.DurableEvents._opening

    def without(events: Any, claim: Claim) -> Any:
        return [each for each in opening(events, claim) if not isinstance(each, Retarget)]

    patch.setattr(durable.DurableEvents, "_opening", without)


def forgets_publishers(patch: pytest.MonkeyPatch) -> None:
    """What a publisher says again, without an answer, is kept twice."""
    patch.setattr(durable.DurableEvents, "last_published", lambda *_: 0)
    patch.setattr(durable, "Numbered", lambda publisher, last: Numbered(f"{last}", last))


PLANTED: Final = (
    forgets_publishers,
    restart_forgets,
    retargets_sent,
    sends_what_moves,
    waits_for_no_home,
    does_not_follow,
    takes_early,
    acks_later,
    spotty,
    keeps_the_overlay,
    stays,
)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_an_error_is_noticed(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        play_many()
