"""Answers for facts: each is for what it names, `settle` is true, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from msgspec import structs

from palio.node.echoes import Echoes, KnownNeighbour, PendingSettle
from palio.node.limits import MAX_FACTS, MAX_UNANSWERED
from palio.node.registry import Registry
from palio.node.vouching import LINKS, Vouching
from palio.protocol.limits import PORTION_FACTS
from palio.protocol.messages import Echo, Fact, Facts, Known
from palio.simulation.randomness import Randomness
from tests.conftest import seeds
from tests.node.badges import Badge, Names, broker
from tests.node.mesh import AT, Mesh, VouchingFor
from tests.timing import within

SEEDS: Final = seeds(25, nightly=3_000)


def registry(*neighbours: str) -> Registry:
    """A broker b with neighbours that know nothing."""
    found = Registry("b")
    found.begin(10)
    for name in neighbours:
        found.join(name, AT)
        found.receive(name, Known({}), AT)
    found.tell(10**9)
    found.outbox.clear()
    return found


def answers(found: Registry, name: str) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
    """What a neighbour is answered for facts of `far`."""
    said = (each for to, each in found.outbox if to == name and isinstance(each, Echo))
    return [(each.versions, each.unreached) for each in said if each.origin == "far"]


def fact(version: int, subject: str = "a/d") -> Fact:
    return Fact("far", version, subject, filter=f"x = {version}")


def test_an_answer_for_something_newer_is_none_for_what_is_older() -> None:
    """Seed 937782: the neighbour knew the newer from elsewhere, and waits for others still."""
    b = registry("m", "n")
    b.receive("m", Facts((fact(5),)), AT)
    b.receive("m", Facts((fact(6, "a/e"),)), AT)
    b.receive("n", Echo("far", (6,)), AT)
    assert answers(b, "m") == [((6,), ())]
    b.receive("n", Echo("far", (5,)), AT)
    assert answers(b, "m") == [((6,), ()), ((5,), ())]


def test_who_was_not_reached_is_named_to_those_who_ask_later() -> None:
    b = registry("n")
    b.receive("n", Facts((Fact("far", 1, LINKS, ("n",)), Fact("n", 1, LINKS, ("b", "far")))), AT)
    b.settle(1)
    b.tell(10**9)
    b.receive("n", Echo("b", tuple(range(10, 20))), AT)
    b.announce("a/d", filter="x = 1")
    b.tell(10**9)
    b.receive("n", Echo("b", tuple(range(10, 20)), ("far",)), AT)
    b.settle(2)
    assert b.settled == [(1, ()), (2, ("far",))]


@pytest.mark.parametrize("is_equal", [True, False])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_who_answers_for_nothing_is_waited_for_with_so_much_and_then_named(
    more: int, is_equal: bool
) -> None:
    near = {"m": KnownNeighbour(0.0), "n": KnownNeighbour(0.0), "o": KnownNeighbour(0.0)}
    for name in ("m", "n", "o"):
        near[name].is_equal = name != "n" or is_equal
    echoes = Echoes("b", near)
    for version in range(1, MAX_UNANSWERED + more + 1):
        said = [fact(version)]
        owed = echoes.owe(said, "m")
        for name in ("n", "o") if is_equal else ("o",):
            echoes.sent(name, said)
        echoes.answered("o", "far", [version])
        echoes.look(owed.values())
    given_up = [{"m": (version,)} for version in range(1, more + 1)]
    assert [(each.to, list(each.unreached)) for each in echoes.take()] == [
        (to, ["n"]) for to in given_up
    ]
    assert all(len(each.awaited) <= MAX_UNANSWERED for each in near.values())
    echoes.answered("n", "far", [1])
    assert len(echoes.take()) == (is_equal and more <= 0), "if it is late that says nothing"


def test_a_neighbour_that_comes_and_goes_keeps_nobody_waiting_for_others() -> None:
    b = registry("m")
    b.settle(1)
    b.tell(10**9)
    for _ in range(3):
        b.join("h", AT)
        b.receive("h", Known({}), AT)
        b.leave("h")
    b.receive("m", Echo("b", tuple(range(10, 14))), AT)
    assert b.settled == [(1, ("h",))], "what was said of its links since was not asked about"


def test_who_came_and_went_before_it_was_told_of_is_not_named_for_ever() -> None:
    b = registry("m", "n")
    b.bide()
    b.join("o", AT)
    b.leave("o")
    b.catch_up()
    b.receive("m", Facts((fact(5),)), AT)
    b.receive("n", Echo("far", (5,)), AT)
    assert answers(b, "m") == [((5,), ())]


def test_a_new_neighbour_costs_no_more_for_many_facts_about_one_subject() -> None:
    b = registry("m", "n")
    for start in range(1, MAX_UNANSWERED, PORTION_FACTS):
        facts = tuple(fact(each, LINKS) for each in range(start, start + PORTION_FACTS))
        b.receive("m", Facts(facts), AT)
    b.join("o", AT)
    with within(1.0, "what takes seconds if it takes a square"):
        b.receive("o", Known({}), AT)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_who_answers_for_nothing_that_this_broker_said_is_named_to_who_asked(more: int) -> None:
    near = {"n": KnownNeighbour(0.0)}
    near["n"].is_equal = True
    echoes = Echoes("b", near)
    echoes.ask(PendingSettle(0, 1, 1, frozenset()))
    said = Fact("b", 0, "a/d")
    count = MAX_FACTS + more
    echoes.sent("n", (structs.replace(said, version=each) for each in range(1, count + 1)))
    assert [(each.ticket, list(each.unreached)) for each in echoes.answers(count + 1)] == [
        (1, ["n"])
    ] * max(more, 0)


# --- in any order ---


class Play:
    """Facts, questions, links that come and go, and links on which nothing moves for a while."""

    def __init__(self, seed: int, vouching: VouchingFor, *, links_change: bool) -> None:
        self.random = Randomness(seed)
        self.links_change = links_change
        size = self.random.between(3, 6)
        self.mesh = Mesh(seed, size, vouching)
        self.names = list(self.mesh.members)
        for number in range(1, size):
            self.mesh.join(self.names[number], self.names[self.random.below(number)])
        for _ in range(self.random.below(size)):
            self.mesh.join(*self.random.sample(self.names, 2))
        self.mesh.rest()
        self.asked: dict[tuple[str, int], dict[str, int]] = {}
        """By question, the facts that all are to know."""
        self.checked: set[tuple[str, int]] = set()
        self.held: dict[tuple[str, str], int] = {}
        """By link, for how many steps nothing moves on it."""

    def step(self) -> None:
        one, other = self.random.sample(self.names, 2)
        match self.random.below(20):
            case 0 if self.links_change:
                self.mesh.cut(one, other)
            case 1 if self.links_change:
                self.mesh.join(one, other)
            case 2 | 3:
                for _ in range(self.random.between(1, 3)):
                    text = f"x = {self.random.below(9)}"
                    self.mesh.members[one].announce(f"a/{self.random.below(2)}", filter=text)
            case 4:
                self.ask(one)
            case 5 if self.mesh.links:
                self.held[self.random.choice(list(self.mesh.links))] = self.random.between(5, 60)
            case 6:
                for member in self.mesh.members.values():
                    member.again(AT)
            case _:
                self.move(self.random.below(6))
        self.mesh.collect()
        self.held = {ends: left - 1 for ends, left in self.held.items() if left > 1}
        self.check()

    def ask(self, name: str) -> None:
        member = self.mesh.members[name]
        said = {each.subject: each.version for each in member.facts() if each.origin == name}
        ticket = len(self.asked)
        self.asked[name, ticket] = said
        member.settle(ticket)

    def move(self, count: int) -> None:
        for _ in range(count):
            if self.random.chance(0.5):
                self.mesh.write()
            waiting = [ends for ends, queue in self.mesh.links.items() if queue]
            free = [ends for ends in waiting if ends not in self.held]
            if free:
                self.mesh.receive(*self.random.choice(free))
            self.check()

    def check(self) -> None:
        """What is answered without a name is known to all."""
        for question in self.mesh.settled.keys() - self.checked:
            self.checked.add(question)
            if self.mesh.settled[question]:
                continue
            for subject, version in self.asked[question].items():
                for name in self.names:
                    known = self.mesh.members[name].fact(question[0], subject)
                    assert known is not None, (question, subject, name)
                    assert known.version >= version, (question, subject, name)


def keyed(name: str) -> Vouching:
    return Vouching(name, Badge(name), Names(*(broker(f"b{number}") for number in range(6))))


@pytest.mark.parametrize("links_change", [True, False])
@pytest.mark.parametrize("vouching", [Vouching, keyed])
def test_what_is_settled_is_known_to_all_and_everything_is_answered(
    vouching: Callable[[str], Vouching], links_change: bool
) -> None:
    clean = 0
    for seed in SEEDS:
        try:
            play = Play(seed, vouching, links_change=links_change)
            for _ in range(play.random.between(20, 150)):
                play.step()
            play.mesh.rest()
            play.check()
            assert play.mesh.settled.keys() == play.asked.keys(), "some are not answered"
            for name in play.names:
                play.ask(name)
            play.mesh.collect()
            play.mesh.rest()
            play.check()
            assert play.mesh.settled.keys() == play.asked.keys(), "some are not answered"
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        clean += sum(not unreached for unreached in play.mesh.settled.values())
    assert clean > 3 * len(SEEDS), "hardly anything was settled"
