from __future__ import annotations

from palio.multicast.documents import unpack
from palio.simulation.disks import Disk
from tests.campaign.casting import out_of_use, packed_plan
from tests.campaign.plays import Play
from tests.campaign.scripts import Script, Step
from tests.campaign.verdicts import verdicts

BROKERS = ("b1", "b2", "b3")
EDGES = (("b1", "b2"), ("b2", "b3"))
STEPS = (
    Step(0.0, "join", ("alice", "b1")),
    Step(0.0, "join", ("bob", "b2")),
    Step(0.0, "join", ("carol", "b3")),
    *(Step(0.5, "hear", (name, "live", "x > 0", {}, False)) for name in ("alice", "carol")),
    Step(1.0, "apply", ("bob", BROKERS, (BROKERS,))),
    *(Step(3.0 + number / 10, "publish", ("bob", False, {"x": 1})) for number in range(20)),
)


def test_a_plan_has_the_groups_that_were_drawn() -> None:
    plan, _ = unpack(packed_plan(("b1", "b2", "b3"), (("b1", "b2"), ("b3",))))
    assert (plan.brokers, plan.group_count) == (("b1", "b2", "b3"), 2)


def test_events_go_by_datagrams_and_a_broker_that_does_not_go_by_the_plan_is_named() -> None:
    script = Script(1, "flooded", BROKERS, EDGES, STEPS, multicast=True)
    play = Play(script)
    play.run()
    assert list(verdicts(play)) == []
    assert play.world.nodes["b2"].status()["multicast"]["datagrams"] > 5
    play.world.kill("b1")
    play.world.disks["b1"] = Disk()
    play.world.start("b1")
    assert set(out_of_use(play.world.nodes)) == set(BROKERS)
