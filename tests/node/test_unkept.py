"""`Unkept`: what a disk did not take of what other brokers say is written later."""

from __future__ import annotations

from palio.node.effects import Moment
from palio.node.registry import Registry
from palio.node.unkept import Unkept
from palio.protocol.limits import PORTION_FACTS
from palio.protocol.messages import Fact, Facts
from palio.simulation.campaign import Script, Step, play


def test_it_is_written_as_it_is_known_then_and_in_portions() -> None:
    registry = Registry("b1")
    unkept = Unkept(registry)
    facts = [Fact("b2", 1 + n, f"ann/{n}", filter="x > 0") for n in range(PORTION_FACTS + 1)]
    unkept.refuse([facts[0], Fact("b3", 1, "links")])
    assert unkept.take() == []  # nobody has said any of that
    registry.join("b2", Moment(0.0, 0))
    registry.receive("b2", Facts(tuple(facts[:PORTION_FACTS])), Moment(0.0, 0))
    registry.receive("b2", Facts(tuple(facts[PORTION_FACTS:])), Moment(0.0, 0))
    unkept.refuse(facts)
    registry.receive("b2", Facts((Fact("b2", 999, "ann/0"),)), Moment(0.0, 0))
    assert len(unkept) == PORTION_FACTS + 1
    first = unkept.take()
    assert first == [Fact("b2", 999, "ann/0"), *facts[1:PORTION_FACTS]]
    assert unkept.take() == facts[PORTION_FACTS:]
    assert not len(unkept)


def test_what_is_new_goes_behind_what_waits() -> None:
    """Or a broker that starts again would know the new, and be told nothing of what came before."""
    registry = Registry("b1")
    unkept = Unkept(registry)
    facts = [Fact("b2", 1 + n, f"ann/{n}", filter="x > 0") for n in range(PORTION_FACTS + 1)]
    own = Fact("b1", 1, "links")
    assert unkept.before([facts[0], own]) == [facts[0], own]
    registry.join("b2", Moment(0.0, 0))
    registry.receive("b2", Facts(tuple(facts[:PORTION_FACTS])), Moment(0.0, 0))
    registry.receive("b2", Facts(tuple(facts[PORTION_FACTS:])), Moment(0.0, 0))
    unkept.refuse(facts[:2])
    assert unkept.before([facts[2], own]) == [own, *facts[:3]]
    unkept.refuse(facts)
    newer = Fact("b2", 999, "ann/0")
    registry.receive("b2", Facts((newer,)), Moment(0.0, 0))
    assert unkept.before([newer]) == facts[1:]
    assert unkept.before([own]) == [own, newer]


def test_what_is_refused_again_stays_before_what_waits() -> None:
    facts = [Fact("b2", 1 + n, f"ann/{n}", filter="x > 0") for n in range(PORTION_FACTS + 5)]
    unkept = Unkept(Registry("b1", facts))
    unkept.refuse(facts)
    first = unkept.take()
    assert first == facts[:PORTION_FACTS]
    unkept.refuse(first)
    assert unkept.take() == first
    assert unkept.take() == facts[PORTION_FACTS:]


def test_a_broker_whose_disk_was_full_knows_after_a_restart_who_wants_durable_events() -> None:
    script = Script(
        seed=129,
        routing="proxies",
        brokers=("b2", "b3"),
        edges=(("b2", "b3"),),
        steps=(
            Step(0.0, "join", ("listener0", "b3")),
            Step(0.0, "join", ("publisher2", "b2")),
            Step(4.5, "fsync", ("b2", 6.8)),
            Step(5.2, "hear", ("listener0", "durable5", "EXISTS kind", {}, True)),
            Step(7.3, "hear", ("listener0", "live6", "EXISTS kind", {}, False)),
            Step(8.3, "crash", ("b3", 2.6)),
            Step(18.1, "crash", ("b2", 0.6)),
            Step(18.8, "publish", ("publisher2", True, {"kind": 0, "x": 5})),
        ),
    )
    assert play(script).breaches == ()
