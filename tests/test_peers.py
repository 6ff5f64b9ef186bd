"""`benchmarks.peers` at its smallest size: each installed system delivers what it should."""

from __future__ import annotations

from typing import Final

import pytest

from benchmarks import peers
from benchmarks.peer_systems.fanout import EVENTS, Fanout
from benchmarks.peer_systems.registry import SYSTEMS
from benchmarks.peer_systems.table import markdown, text
from tests.conftest import share

SMALL: Final = peers.Options(seconds=0.02, warm_s=0.02, filters=100, clients=5)


@pytest.mark.parametrize("name", share(SYSTEMS, 2))
def test_a_system_has_a_figure_for_every_row_or_a_reason(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "LONGEST_S", 200.0)
    system = SYSTEMS[name]()
    if reason := system.missing():
        pytest.skip(reason)
    report = peers.compare([name], SMALL)
    assert report.problems == {}
    parts = {part for row in peers.ROWS.values() for part in row}
    without = {part for part in parts if peers.row_of(part) in system.cannot}
    found = report.figures[name]
    assert found.keys() - {"fanout-quiet"} == parts - without
    assert all(figure >= 0 for figures in found.values() for figure in figures.values())
    for shown in (text(report), markdown(report)):
        assert system.name in shown
        assert all(reason in shown for reason in system.cannot.values())
    if "fanout" in found:
        assert found["fanout"]["pairs"] > 0
        assert "exactly the right pairs" in text(report)


def test_a_system_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SYSTEMS["nats"], "program", "no-such-server")
    report = peers.compare(["nats"], SMALL)
    assert report.figures == {}
    assert report.left_out == {"nats": "no-such-server is not installed"}
    assert "NATS is left out: no-such-server is not installed" in text(report)


def test_who_hears_an_event_is_found_by_looking_at_every_filter() -> None:
    fanout = Fanout(1_000, 20)
    assert sum(map(len, fanout.wanted)) == 1_000
    assert len(fanout.events) == len(fanout.hearers) == EVENTS
    for event, hearers in zip(fanout.events[:50], fanout.hearers, strict=False):
        assert len(event) == 10
        assert hearers == [
            client
            for client, wanted in enumerate(fanout.wanted)
            for each in wanted
            if event["a"] == each.a and event["b"] == each.b and event["c"] < each.x
        ]


def test_pairs_that_are_missing_strange_or_doubled_are_found() -> None:
    fanout = Fanout(100, 5)
    events = EVENTS + 10
    right = [
        (number, client)
        for number in range(events)
        for client in fanout.by_hand(fanout.events[number % EVENTS])
    ]
    assert fanout.check(right[::-1], events) == len(right)
    with pytest.raises(RuntimeError, match="1 were not delivered, 0 others were, and 0 more"):
        fanout.check(right[:-1], events)
    with pytest.raises(RuntimeError, match="0 were not delivered, 1 others were, and 0 more"):
        fanout.check([*right, (events, 0)], events)
    with pytest.raises(RuntimeError, match="0 were not delivered, 0 others were, and 1 more"):
        fanout.check([*right, right[0]], events)
