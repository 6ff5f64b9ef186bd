from __future__ import annotations

import pytest

from palio.node.readiness import Readiness, check_peers
from palio.node.settings import Settings
from palio.protocol.messages import Digest
from palio.simulation.topologies import line
from palio.simulation.world import World
from tests.node.alone import Alone


def codes(readiness: Readiness) -> list[str]:
    return [each.code for each in readiness.reasons]


PEERS = {
    "here": {"peer": "b2", "url": "palio://b2", "kind": "configured", "up": True},
    "away": {"peer": "b3", "url": "palio://b3", "kind": "configured", "up": False},
    "never": {"peer": "", "url": "palio://b4", "kind": "added", "up": False},
    "stands in": {"peer": "b5", "url": "palio://b5", "kind": "found", "up": True},
    "is tried": {"peer": "b5", "url": "palio://b5", "kind": "found", "up": False},
    "dials": {"peer": "b6", "url": "", "kind": "dials", "up": True},
    "dialed once": {"peer": "b6", "url": "", "kind": "dials", "up": False},
}


@pytest.mark.parametrize(
    ("peers", "is_ready", "named"),
    [
        ((), True, ()),
        (("here",), True, ()),
        (("away",), False, ("b3",)),
        (("away", "never"), False, ("b3", "palio://b4")),
        (("here", "away", "never"), True, ("b3", "palio://b4")),
        (("away", "stands in"), True, ("b3",)),
        (("away", "is tried"), False, ("b3",)),
        (("away", "dials"), False, ("b3",)),
        (("dials", "dialed once"), True, ()),
    ],
)
def test_one_peer_away_is_a_warning_and_all_of_them_a_reason(
    peers: tuple[str, ...], is_ready: bool, named: tuple[str, ...]
) -> None:
    found = check_peers([PEERS[each] for each in peers])
    assert found.is_ready == is_ready
    problems = (*found.reasons, *found.warnings)
    assert [each.peers for each in problems] == ([named] if named else [])


def test_names_of_peers_are_shown_to_those_who_may_know_them() -> None:
    (problem,) = check_peers([PEERS["away"]]).reasons
    assert problem.shown(with_peers=True)["peers"] == ("b3",)
    assert "b3" not in str(problem.shown(with_peers=False))


def test_a_broker_whose_disk_is_new_is_not_ready_until_it_has_caught_up() -> None:
    alone = Alone(settings=Settings(peers=("palio://b2",)), known=Digest({"b1": 11}))
    assert "catching_up" in codes(alone.node.readiness())
    alone.now += alone.node._core.settings.peer_grace_s
    alone.rest()
    assert "catching_up" not in codes(alone.node.readiness())


def test_a_broker_whose_disk_refuses_writes_is_not_ready_until_it_takes_them() -> None:
    world = World.of(line(1))
    owner, publisher = world.client("a", "b1"), world.client("p", "b1")
    owner.subscribe("x > 0", durable="d")
    world.run(1.0)
    assert codes(world.nodes["b1"].readiness()) == []
    world.disks["b1"].is_full = True
    publisher.publish({"x": 1}, durable=True)
    world.run(0.5)
    assert codes(world.nodes["b1"].readiness()) == ["storage_unwritable"]
    world.disks["b1"].is_full = False
    world.run(2.0)
    assert codes(world.nodes["b1"].readiness()) == []
