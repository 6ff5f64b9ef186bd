from __future__ import annotations

import pytest

from palio.node.effects import Moment
from palio.node.registry import Registry
from palio.node.vouching import ADDRESS
from palio.node.whereabouts import Whereabouts
from palio.protocol.limits import MAX_URL_CHARS
from palio.protocol.messages import Fact


def test_a_broker_says_once_where_it_can_be_reached_and_takes_it_back() -> None:
    registry = Registry("b1")
    registry.begin(7)
    known = Whereabouts(registry)
    for url in ("palio://one:1", "palio://one:1", "palios://two:2", ""):
        known.tell(url)
    said = [fact.filter for fact in registry.news if fact.subject == ADDRESS]
    assert said == ["palio://one:1", "palios://two:2", ""]
    assert known.of("b1") is None


def test_a_broker_without_an_address_says_nothing() -> None:
    registry = Registry("b1")
    Whereabouts(registry).tell("")
    assert registry.news == []


@pytest.mark.parametrize(
    ("said", "understood"),
    [
        ("palios://South.example", "palios://south.example:7400"),
        ("palio://[::1]:7", "palio://[::1]:7"),
        (
            f"palio://{'n' * (MAX_URL_CHARS - 8)}",
            f"palio://{'n' * (MAX_URL_CHARS - 8)}:7400",
        ),
        (f"palio://{'n' * (MAX_URL_CHARS - 7)}", "None"),
        ("http://south.example", "None"),
        ("palio://u:p@south.example", "None"),
        ("palio://south.example:70000", "None"),
        ("nonsense", "None"),
        ("", "None"),
    ],
)
def test_what_others_say_is_an_address_or_nothing(said: str, understood: str) -> None:
    registry = Registry("b1", [Fact("b2", 1, ADDRESS, filter=said)])
    assert str(Whereabouts(registry).of("b2")) == understood


def test_a_retired_broker_is_nowhere() -> None:
    registry = Registry("b1", [Fact("b2", 1, ADDRESS, filter="palio://b2:1")])
    registry.begin(7)
    registry.retire("b2", Moment(0.0, 9).wall_us)
    assert Whereabouts(registry).of("b2") is None
