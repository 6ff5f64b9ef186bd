"""The adapter at the cluster that librdkafka keeps in the process for tests: it needs no server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from palio.bridge.kafka import connect
from palio.bridge.links import Message
from palio.errors import InvalidInput, Unreachable
from tests.bridge.servers import kafka

pytestmark = pytest.mark.xdist_group("kafka")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with kafka() as address:
        yield f"kafka://{address}?session.timeout.ms=6000"


async def test_messages_come_back_with_their_ids_until_their_offsets_are_committed(
    url: str,
) -> None:
    async with connect(url, "b", "") as link:
        sent = [Message(f"t/{n % 3}", b'{"n": %d}' % n, f"p/{n}") for n in range(100)]
        assert await link.send(sent) == [""] * 100
    ids = list[set[str]]()
    for is_acked in (False, True):
        async with connect(url, "b", "t") as link:
            seen = dict[str, int]()
            while len(seen) < 100:
                messages = await link.take()
                seen |= {each.id: json.loads(each.body)["n"] for each in messages}
                if is_acked:
                    await link.ack(messages)
            assert sorted(seen.values()) == list(range(100))
            ids.append(set(seen))
    assert ids[0] == ids[1]
    async with connect(url, "b", "") as link:
        assert await link.send([Message("t/0", b"after")]) == [""]
    async with connect(url, "b", "t") as link:
        assert [each.body for each in await link.take()] == [b"after"]


async def test_a_message_that_is_too_large_is_refused_and_others_are_not(url: str) -> None:
    async with connect(url, "b", "") as link:
        sent = [Message("sizes", b"x" * size) for size in (10, 3_000_000, 20)]
        first, large, last = await link.send(sent)
    assert (first, last) == ("", "")
    assert "too large" in large


async def test_an_unknown_setting_is_a_mistake(url: str) -> None:
    with pytest.raises(InvalidInput, match='No such configuration property: "colour"'):
        async with connect(f"{url}&colour=red", "b", ""):
            pass


async def test_a_topic_that_is_not_there_is_unreachable(url: str) -> None:
    with pytest.raises(Unreachable, match="no where"):
        async with connect(f"{url}&allow.auto.create.topics=false", "b", "no where") as link:
            await link.take()


async def test_a_cluster_that_is_away_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palio.bridge.kafka.TIMEOUT_S", 1.0)
    with pytest.raises(Unreachable):
        async with connect("kafka://127.0.0.1:1", "b", "") as link:
            await link.send([Message("t", b"x")])
    with pytest.raises(Unreachable):
        async with connect("kafka://127.0.0.1:1", "b", "t") as link:
            await link.take()
