"""`benchmarks.healing` with six brokers and one fault: what it measures is what was promised."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks import healing
from benchmarks.healing import BEGIN, FAULTS, LINKED, renew, run
from benchmarks.healing_load import Listener, Load, Publisher
from benchmarks.healing_network import hierarchy, within_reach
from benchmarks.namespaces import why_not

LASTS_S = 5.0
RESUMED_S = 4.0
"""Silence of three seconds and one more, which is the most where there is another way."""
BEATS_S = 3.0


@pytest.mark.nightly
def test_deliveries_go_on_when_an_inner_broker_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if reason := why_not():
        pytest.skip(f"no namespaces here: {reason}")
    monkeypatch.setattr(healing, "AFTER_S", 4.0)
    monkeypatch.setattr(healing, "IDLE_S", 0.5)
    fault = next(each for each in FAULTS if each.name == "an inner broker is killed")
    fault = fault._replace(lasts_s=LASTS_S)
    found = asyncio.run(run(hierarchy(6, 2), "general", (fault,), {"peer_grace_s": 1.0}))
    assert found["durable_lost"] == found["twice"] == found["disordered"] == 0
    assert found["unreachable"] == []
    linked = [row for row in found["faults"] if row["pairs"] == LINKED]
    assert {row["events"] for row in linked} == {"live", "durable"}
    for row in linked:
        assert row["resumed_s"] < RESUMED_S + BEATS_S
        assert row["untold"] == 0
    docs = tmp_path / "docs"
    for name in ("measured", "concepts"):
        (docs / name).mkdir(parents=True)
    page = docs / "concepts" / "healing.md"
    page.write_text(f"before\n{BEGIN}\n<!-- end of measured -->\nafter\n")
    for _ in range(2):  # a later run takes the place of an earlier one
        renew(found, docs)
    lines = [line for line in page.read_text().splitlines() if line.startswith(f"| {fault.name}")]
    assert len(lines) == 1
    assert page.read_text().startswith("before")
    assert page.read_text().endswith("after\n")


def test_most_brokers_have_two_ways_up_and_some_have_one() -> None:
    shape = hierarchy(100)
    assert len(shape.below("b1")) == 100
    left = [link for link in shape.links if "b10" not in link]
    lost = set(shape.names) - within_reach(left, "b1") - {"b10"}
    assert lost == {"b39", "b41"}  # of its four children two have another way


async def test_an_outage_is_told_by_what_came_late_or_never() -> None:
    publisher = Publisher("live p", "b1", durable=False)
    listener = Listener("l", "b2", durable=False)
    load = Load([publisher], [listener])
    publisher.published = [0.0, 1.0, 2.0, 3.0, 4.0]
    listener.heard = {"live p": [(0, 0.1), (2, 3.5), (3, 3.6), (4, 4.1), (4, 4.2)]}
    (pair,) = load.pairs
    outage = load.outage([pair], 1.5, 9.0)
    assert outage == (1, 1, 2.1, 1, 1)  # 1 never came and 2 late; 3 came in time, at 3.6
    listener.gaps.append(5.0)
    assert load.outage([pair], 1.5, 9.0).untold == 0
    assert load.outage([pair], 3.5, 9.0).interrupted == 0
    assert load.repeated()["twice"] == 1
