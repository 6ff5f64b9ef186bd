"""Plans that brokers change by themselves, between whole brokers on a virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from palio.multicast.broker_sets import numbered, rows_of
from palio.multicast.documents import pack
from palio.multicast.listed import ListedGroups
from palio.multicast.replanning import SentSample
from palio.node.replanning import REPLAN_S
from palio.protocol.messages import Answer, Apply, Done, Query
from palio.simulation.member import Member
from palio.simulation.world import World
from tests.node.test_multicasting import SETTINGS, flows, star, world_of

NAMES = tuple(f"b{place}" for place in range(5))
REPLANNING = replace(SETTINGS, replan=True)


def applied_world(*groups: str, replan: bool = True) -> tuple[World, Member, dict[str, Member]]:
    """A star with a plan of the groups, such as `b1 b2`, and a client at each broker."""
    world = world_of(star(4), settings=REPLANNING if replan else SETTINGS)
    publisher = world.client("pub", "b0")
    members = {name: world.client(f"at-{name}", name) for name in NAMES[1:]}
    for name, member in members.items():
        member.subscribe(f"x > 0 AND to CONTAINS '{name}'")
    world.run(1.0)
    sets = rows_of([each.split() for each in (*groups, " ".join(NAMES))], numbered(NAMES))
    plan = ListedGroups("approximated", NAMES, sets)
    id = publisher.ask(lambda id: Apply(id, pack(plan)))
    world.run(1.0)
    assert isinstance(publisher.answers[id], Done)
    return world, publisher, members


def publish(world: World, publisher: Member, to: str, seconds: float, first: int = 1) -> int:
    """Publish two events a second for the brokers that `to` names; return the next number."""
    for number in range(first, first + int(2 * seconds)):
        publisher.publish({"x": number, "to": to})
        world.run(0.5)
    return first + int(2 * seconds)


def asked(world: World, member: Member, what: str, about: Any = None) -> Any:
    id = member.ask(lambda id: Query(id, what, about))
    world.run(0.5)
    answer = member.answers[id]
    assert isinstance(answer, Answer)
    return answer.data


def in_vain(world: World, publisher: Member, to: str) -> list[str]:
    """The brokers that would get an event in vain, as `palio trace` tells it."""
    hops = asked(world, publisher, "trace", {"x": 1, "to": to})["hops"]
    groups = next(hop for hop in hops if hop["broker"] == "b0")["multicast"]["groups"]
    return [name for group in groups for name in group["in_vain"]]


def replans(world: World, member: Member) -> int:
    """How often the plan was changed, as `palio topology` tells it."""
    count: int = asked(world, member, "topology")["plan"]["replans"]
    return count


def test_the_broker_of_the_plan_changes_it_for_the_traffic_of_all() -> None:
    world, publisher, members = applied_world("b1 b2")
    assert in_vain(world, publisher, "b3 b4") == ["b1", "b2"]
    last = publish(world, publisher, "b3 b4", 3 * REPLAN_S) - 1
    assert in_vain(world, publisher, "b3 b4") == []
    assert replans(world, members["b4"]) == 1, "and equal traffic leaves it as it is"
    reported = [name for name, each in world.reports if each.event == "plan_changed"]
    assert reported == ["b0"]
    for name, member in members.items():
        wanted = list(range(1, last + 1)) if name in {"b3", "b4"} else []
        assert [row["x"] for _, _, row in member.heard] == wanted
    assert flows(world, "b0")["lost"] == 0


def test_a_plan_is_changed_for_what_other_brokers_send() -> None:
    world, _, members = applied_world("b1 b2")
    publish(world, members["b1"], "b3 b4", 3 * REPLAN_S)
    assert replans(world, members["b1"]) == 1


def test_without_the_setting_a_plan_stays() -> None:
    world, publisher, members = applied_world("b1 b2", replan=False)
    publish(world, publisher, "b3 b4", 3 * REPLAN_S)
    assert in_vain(world, publisher, "b3 b4") == ["b1", "b2"]
    assert replans(world, members["b4"]) == 0


@pytest.mark.parametrize(
    "text", ["", "?", "[" * 5_000, '{"plan":1,"events":0,"halves":[{},{}]}', "0" * 100_000]
)
def test_without_a_report_of_each_broker_a_plan_stays(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is not known to send might lose by a change; only `b0` reports here."""
    report = SentSample.report

    def said(self: SentSample, plan: int, brokers: Sequence[str]) -> str:
        return report(self, plan, brokers) if self.events else text

    monkeypatch.setattr(SentSample, "report", said)
    world, publisher, members = applied_world("b1 b2")
    publish(world, publisher, "b3 b4", 4 * REPLAN_S)
    assert replans(world, members["b4"]) == 0
    (blocked,) = [each.details for _, each in world.reports if each.event == "replan_blocked"]
    assert blocked == {"brokers": ["b1", "b2", "b3", "b4"]}


def test_brokers_that_send_nothing_say_so_once_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    report, said = SentSample.report, []

    def counted(self: SentSample, plan: int, brokers: Sequence[str]) -> str:
        said.append(plan)
        return report(self, plan, brokers)

    monkeypatch.setattr(SentSample, "report", counted)
    world, _, _ = applied_world("b1 b2")
    world.run(4 * REPLAN_S)
    assert (len(said), len(set(said))) == (len(NAMES), 1)
