from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.campaign.judgement import Ending, play
from tests.campaign.scripts import Border, Breach, Script, Step
from tests.campaign.shrinking import as_test, shrink

STEPS = tuple(Step(float(number), "reset", ("b1", "b2")) for number in range(40))
SCRIPT = Script(1, "acyclic", ("b1", "b2"), (("b1", "b2"),), STEPS)


def simplest(script: Script, fails: Callable[[Script], bool]) -> Script:
    """What is left of a script as long as it fails."""
    return shrink(script, "lost", lambda one: [Breach("lost", "")] if fails(one) else [])


def fails_with(*needed: int) -> list[Script]:
    """What is left if it fails as long as these steps are there."""
    tried: list[Script] = []

    def trial(script: Script) -> list[Breach]:
        tried.append(script)
        there = {step.at_s for step in script.steps}
        return [Breach("lost", "")] if there.issuperset(map(float, needed)) else []

    found = shrink(SCRIPT, "lost", trial)
    assert [step.at_s for step in found.steps] == [float(each) for each in needed]
    return tried


def test_just_the_steps_that_it_takes_are_left() -> None:
    fails_with()
    fails_with(0)
    fails_with(39)
    fails_with(3, 17, 18, 39)
    assert len(fails_with(3, 17)) < 80


def test_brokers_are_joined_with_their_neighbours() -> None:
    edges = (("b1", "b2"), ("b2", "b3"), ("b2", "b4"))
    steps = (
        Step(0.0, "join", ("alice", "b4")),
        Step(1.0, "cut", ("b2", "b4", 1.0)),
        Step(2.0, "partition", (("b3", "b4"), 1.0)),
    )
    script = Script(1, "acyclic", ("b1", "b2", "b3", "b4"), edges, steps)
    found = simplest(script, lambda one: len(one.brokers) > 1 and len(one.steps) == 3)
    assert (len(found.brokers), len(found.edges)) == (2, 1)
    (one, other) = found.brokers
    assert {found.steps[0].words[1], *found.steps[1].words[:2]} <= {one, other}
    alone = simplest(script, lambda one: bool(one.steps) and one.steps[0].what == "join")
    assert (len(alone.brokers), alone.edges) == (1, ())
    assert alone.steps[0].words == ("alice", alone.brokers[0])


def test_brokers_on_two_sides_of_a_gateway_stay_apart() -> None:
    edges = (("o1", "o2"), ("o2", "b1"), ("b1", "b2"))
    gate = Border("b1", "acyclic", ("o1", "o2"))
    script = Script(1, "acyclic", ("o1", "o2", "b1", "b2"), edges, STEPS[:1], gate=gate)
    found = simplest(script, lambda one: one.gate is not None)
    assert (len(found.brokers), len(found.edges)) == (2, 1)
    assert found.gate is not None
    assert found.gate.beyond == found.brokers[:1]
    assert found.gate.broker == "b1"


def test_links_that_nothing_needs_go() -> None:
    brokers = ("b1", "b2", "b3")
    edges = (("b1", "b2"), ("b2", "b3"), ("b3", "b1"))
    script = Script(1, "general", brokers, edges, STEPS[:1])
    assert len(simplest(script, lambda one: one.brokers == brokers).edges) == 2
    tree = Script(1, "acyclic", brokers, edges[:2], STEPS[:1])
    assert simplest(tree, lambda one: one.brokers == brokers).edges == edges[:2]


def test_events_filters_times_and_settings_are_plain() -> None:
    steps = (
        Step(0.123, "hear", ("alice", "one", "x > :least", {"least": 2}, True)),
        Step(1.456, "publish", ("bob", True, {"x": 1}, {"x": 2}, {"x": 3})),
        Step(1.512, "delay", ("b1", "b2", 0.377, 1.234)),
    )
    script = Script(
        1, "acyclic", ("b1", "b2"), (("b1", "b2"),), steps, sync_s=0.3, window_bytes=6_000
    )
    found = simplest(script, lambda one: len(one.steps) == 3 and len(one.brokers) == 2)
    assert (found.sync_s, found.window_bytes) == (0.002, 1 << 20)
    hear, publish, delay = found.steps
    assert (hear.at_s, hear.words) == (0.1, ("alice", "one", "EXISTS kind", {}, False))
    assert (publish.at_s, publish.words[:2], len(publish.words)) == (1.5, ("bob", False), 3)
    assert (delay.at_s, delay.words[2:]) == (1.5, (0.4, 1.2))


def test_another_failure_is_not_the_same() -> None:
    found = shrink(SCRIPT, "lost", lambda _: [Breach("doubled", "")])
    assert found == SCRIPT


def test_it_gives_up_after_some_tries() -> None:
    tries: list[Script] = []

    def trial(script: Script) -> list[Breach]:
        tries.append(script)
        return []

    shrink(SCRIPT, "lost", trial, tries=7)
    assert len(tries) == 7


def test_what_is_printed_is_a_test_of_that_script() -> None:
    script = Script(
        7,
        "acyclic",
        ("o1", "b1"),
        (("o1", "b1"),),
        (Step(0.0, "join", ("alice", "b1")), Step(0.5, "publish", ("alice", True, {"x": 1}))),
        gate=Border("b1", "acyclic", ("o1",)),
    )
    played: list[Script] = []

    def note(given: Script) -> Ending:
        played.append(given)
        return play(given)

    names: dict[str, Any] = {}  # that it can be pasted is the point
    text = as_test(script, Breach("sent twice", "alice"))
    exec(text.replace("assert play(", "assert note("), {"note": note}, names)
    test = names["test_seed_7_sent_twice"]
    test.__globals__.update(names)
    test()
    assert played == [script]
