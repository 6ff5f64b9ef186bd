from __future__ import annotations

import pytest

from tests.campaign.hostile import HARMS
from tests.campaign.judgement import play
from tests.campaign.plays import Play
from tests.campaign.scripts import Script, Step
from tests.campaign.verdicts import verdicts

STEPS = (
    Step(0.0, "join", ("alice", "b1")),
    Step(0.0, "join", ("bob", "b2")),
    Step(0.5, "hear", ("alice", "live", "EXISTS kind", {}, False)),
    Step(0.5, "hear", ("alice", "kept", "x > 1", {}, True)),
)


def script_of(*harms: str) -> Script:
    """Two clients, and a third that does these things while they talk."""
    steps = list(STEPS)
    for number, harm in enumerate(harms):
        at_s = 3.0 + number
        steps += [
            Step(at_s, "harm", ("mallory0", "b1", harm)),
            Step(at_s, "harm", ("mallory1", "b2", harm)),
            Step(at_s, "publish", ("bob", number % 2 == 0, {"kind": 1, "x": 2})),
        ]
    return Script(1, "acyclic", ("b1", "b2"), (("b1", "b2"),), tuple(steps))


@pytest.mark.parametrize("kind", HARMS)
def test_nobody_else_notices(kind: str) -> None:
    found = Play(script_of(kind, kind, kind))
    found.run()
    assert list(verdicts(found)) == []
    alice = found.actors["alice"]
    assert len([each for each in alice.live if each.publisher == "bob/1" and each.key == -1]) >= 3


def test_all_together_harm_nobody_either() -> None:
    assert play(script_of(*HARMS, *reversed(HARMS))).breaches == ()


def test_who_says_what_only_brokers_say_is_thrown_out_and_comes_again() -> None:
    found = Play(script_of("as a broker", "nonsense"))
    found.run()
    illegal = [report for _, report in found.world.reports if report.level in {"warning", "error"}]
    assert illegal
    assert found.world.nodes["b1"].status()["sessions"]
