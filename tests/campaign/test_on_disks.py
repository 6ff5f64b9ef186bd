from __future__ import annotations

from palio.node.operations import PutFacts
from palio.protocol.messages import Fact
from palio.simulation.disks import Disk
from palio.simulation.topologies import line
from palio.simulation.world import World
from tests.campaign.on_disks import ends_only_on, events_on, lacks_claims


def disk(*facts: Fact) -> Disk:
    found = Disk()
    found.synced.write([PutFacts(facts)])
    return found


LIVES = Fact("b1", 4, "ann/d", filter="x = 1")
ENDED = Fact("b1", 5, "ann/d")


def test_an_end_is_gone_with_a_disk_if_no_other_has_just_that() -> None:
    assert ends_only_on("b1", {"b1": disk(LIVES), "b2": disk()}) == set()
    assert ends_only_on("b1", {"b1": disk(ENDED), "b2": disk(LIVES)}) == {"ann/d"}
    assert ends_only_on("b1", {"b1": disk(ENDED), "b2": disk(), "b3": disk(ENDED)}) == set()
    assert ends_only_on("b2", {"b1": disk(ENDED), "b2": disk(ENDED)}) == set()


def test_a_disk_lacks_what_the_disk_of_its_origin_says_of_durable_subscriptions() -> None:
    assert not lacks_claims("b2", {"b1": disk(LIVES), "b2": disk(LIVES)})
    assert lacks_claims("b2", {"b1": disk(ENDED), "b2": disk(LIVES)})
    assert not lacks_claims("b2", {"b1": disk(Fact("b1", 6, "links")), "b2": disk()})
    assert not lacks_claims("b1", {"b1": disk(), "b2": disk(LIVES)}), "who says so is another"


def test_events_are_known_by_publisher_and_number() -> None:
    world = World.of(line(1))
    bob = world.client("bob", "b1")
    bob.subscribe("x = 1", durable="d")
    world.run(1.0)
    bob.vanish()
    ann = world.client("ann", "b1")
    ann.publish({"x": 1}, {"x": 1}, durable=True)
    world.run(1.0)
    assert events_on(world.disks["b1"]) == {("ann/1", 1), ("ann/1", 2)}
