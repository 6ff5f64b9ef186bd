"""The catalogue: whose subscriptions a broker tells, to whom, and in pages."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from palio.errors import NotAuthenticated
from palio.language.parsing import parse_filter
from palio.model.filters import TRUE
from palio.node import questions
from palio.node.authority import Principal
from palio.node.effects import Moment
from palio.node.messages import Answer, Ask, Failed, Message
from palio.simulation.topologies import line
from palio.simulation.world import Member, World


class Tokens:
    """An authority for which a token is a principal's name."""

    def __init__(self, *principals: Principal) -> None:
        self._known = {each.name: each for each in principals}

    def authenticate(self, token: str, transport_name: str, at: Moment) -> Principal:
        if token not in self._known:
            raise NotAuthenticated(f"{token!r} is nobody ({transport_name}, {at.now})")
        return self._known[token]

    def check(self, principal: Principal, at: Moment) -> None:
        """Nobody is struck off."""


def asked(world: World, member: Member, about: Any = None) -> Message:
    world.run(1.0)
    id = member.ask(lambda id: Ask(id, "catalogue", about))
    world.run(1.0)
    return member.answers[id]


def listed(answer: Message) -> list[tuple[str, str, dict[str, Any]]]:
    assert isinstance(answer, Answer)
    found = answer.data["subscriptions"]
    return [(each["subscriber"], each["filter"], each["parameters"]) for each in found]


@pytest.fixture
def world() -> World:
    """A broker with someone who hears a part, and someone who hears all."""
    world = World.of(line(1))
    world.nodes["b1"]._core.authority = Tokens(
        Principal("part", may_hear=parse_filter("x < 5")),
        Principal("all", may_hear=TRUE),
        Principal("nearly", may_hear=TRUE, deny_hear=parse_filter("secret = true")),
    )
    return world


def member(world: World, name: str) -> Member:
    found = world.client(name, "b1")
    found.token = name
    return found


def test_filters_are_told_as_the_broker_runs_them(world: World) -> None:
    part, everyone = member(world, "part"), member(world, "all")
    part.subscribe("x > :low", {"low": 1})
    part.subscribe("y = 1", durable="d")
    everyone.subscribe("z = 1")
    assert sorted(listed(asked(world, everyone)), key=str) == [
        ("all", "z = 1", {}),
        ("part", "x < 5 AND x > :low", {"low": 1}),
        ("part", "x < 5 AND y = 1", {}),
    ]


@pytest.mark.parametrize("name", ["part", "nearly"])
def test_others_subscriptions_are_for_who_may_hear_everything(world: World, name: str) -> None:
    asker, everyone = member(world, name), member(world, "all")
    asker.subscribe("x = 1")
    asker.subscribe("x = 2", durable="d")
    everyone.subscribe("x = 3")
    refused = asked(world, asker)
    assert isinstance(refused, Failed)
    assert refused.failure.kind == "NotPermitted"
    own = listed(asked(world, asker, {"own": True}))
    assert {subscriber for subscriber, *_ in own} == {name}
    assert len(own) == 2


@pytest.mark.parametrize(("limit", "most"), [("CATALOGUE_ROWS", 3), ("CATALOGUE_BYTES", 15)])
def test_a_long_catalogue_comes_in_pages(
    world: World, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(questions, limit, most)
    everyone = member(world, "all")
    for number in range(7):
        everyone.subscribe(f"x = {number}")  # of five characters
    pages, start = [], ""
    while True:
        page = asked(world, everyone, {"from": start})
        assert isinstance(page, Answer)
        pages.append([filter for _, filter, _ in listed(page)])
        start = page.data["next"]
        if not start:
            break
    assert [len(page) for page in pages] == [3, 3, 1]
    assert sorted(chain.from_iterable(pages)) == [f"x = {number}" for number in range(7)]


def test_a_filter_that_is_larger_than_a_page_comes_by_itself(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "CATALOGUE_BYTES", 1)
    everyone = member(world, "all")
    everyone.subscribe("x = 1")
    everyone.subscribe("x = 2")
    page = asked(world, everyone)
    assert len(listed(page)) == 1
    assert isinstance(page, Answer)
    assert len(listed(asked(world, everyone, {"from": page.data["next"]}))) == 1
