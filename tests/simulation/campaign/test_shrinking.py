from __future__ import annotations

from typing import Any

from palio.simulation.campaign import Breach, Ending, Script, Step, play
from palio.simulation.campaign.scripts import Border
from palio.simulation.campaign.shrinking import as_test, shrink

STEPS = tuple(Step(float(number), "reset", ("b1", "b2")) for number in range(40))
SCRIPT = Script(1, "acyclic", ("b1", "b2"), (("b1", "b2"),), STEPS)


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
