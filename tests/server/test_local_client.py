from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from palio.errors import Closed, Unreachable
from palio.model.events import stamped, to_batch
from palio.protocol.limits import ACK_EVERY_BYTES, MAX_BATCH_ROWS
from palio.protocol.messages import (
    Accepted,
    Acknowledge,
    Bye,
    Deliver,
    Done,
    Failed,
    Failure,
    Hello,
    Message,
    Parcel,
    Ping,
    Pong,
    Publish,
    Query,
    Redirect,
    Refused,
    StreamAck,
    Subscribe,
    Update,
    Welcome,
)
from palio.protocol.streams import size_of
from palio.server.local_client import KEY, Declined, InternalClient, Link
from tests.server.helpers import publish_by

BATCH = to_batch({"x": 1})


def delivery(size: int = 100) -> Deliver:
    return Deliver(Parcel("p", stamped(to_batch({"x": "a" * size}), 1, 0)))


class Node:
    """A node that says what the test tells it to, and keeps what it was told."""

    def __init__(self, *, resumed: bool = False, welcome: Message | None = None) -> None:
        self.said: list[Message] = []
        self.left = False
        self._welcome = welcome or Welcome("b", "s1", resumed, 0, "me/1")
        self._spoke = asyncio.Event()

    def __call__(
        self,
        on_message: Callable[[Message], None],
        on_close: Callable[[str], None],
    ) -> Link:
        self.tell = on_message
        self.end = on_close
        return self

    def send(self, message: Message) -> None:
        self.said.append(message)
        self._spoke.set()
        if isinstance(message, Hello):
            asyncio.get_running_loop().call_soon(self.tell, self._welcome)

    async def has_said(self, kind: type[Any], count: int) -> None:
        while sum(isinstance(each, kind) for each in self.said) < count:
            self._spoke.clear()
            await self._spoke.wait()

    def close(self) -> None:
        self.left = True

    def last(self, kind: type[Any]) -> Any:
        return [each for each in self.said if isinstance(each, kind)][-1]


async def opened() -> tuple[Node, InternalClient]:
    node = Node()
    return node, await InternalClient.open(node, name="http")


async def begun(call: Any) -> asyncio.Task[Any]:
    """A call that has said what it has to say."""
    task: asyncio.Task[Any] = asyncio.create_task(call)
    await asyncio.sleep(0)
    return task


async def test_the_greeting() -> None:
    node = Node()
    client = await InternalClient.open(node, name="http", token="t", session="s0", received=4)
    hello = node.last(Hello)
    assert (hello.role, hello.name, hello.token) == ("client", "http", "t")
    assert (hello.session, hello.received) == ("s0", 4)
    assert (client.session, client.publisher, client.resumed) == ("s1", "me/1", False)


async def test_who_is_not_welcome_is_told_why() -> None:
    with pytest.raises(Declined, match="who are you") as caught:
        await InternalClient.open(Node(welcome=Bye("NotAuthenticated", "who are you")), name="http")
    assert caught.value.kind == "NotAuthenticated"


async def test_requests_are_answered_by_number() -> None:
    node, client = await opened()
    first = await begun(client.ask(Subscribe(0, KEY, "x = 1")))
    second = await begun(client.ask(Update(0, KEY, {"y": 2})))
    ids = [each.id for each in node.said if isinstance(each, Subscribe | Update)]
    assert len(set(ids)) == 2
    node.tell(Failed(ids[1], Failure("InvalidBinding", "no :y")))
    node.tell(Done(ids[0]))
    await first
    with pytest.raises(Declined, match="no :y"):
        await second
    assert node.last(Subscribe).filter == "x = 1"


async def test_publications_are_answered_at_their_level() -> None:
    node, client = await opened()
    kept = await begun(publish_by(client, BATCH, durable=True))
    light = await begun(publish_by(client, BATCH))
    assert [each.first_seq for each in node.said if isinstance(each, Publish)] == [1, 2]
    node.tell(Accepted(2, "memory"))
    assert (await light).level == "memory"
    assert not kept.done()
    node.tell(Accepted(1, "durable"))
    assert (await kept).level == "durable"


async def test_refused_rows_are_named() -> None:
    node, client = await opened()
    publication = await begun(publish_by(client, BATCH))
    refused = Refused(1, 1, Failure("NotPermitted", "no"))
    node.tell(refused)
    node.tell(Accepted(1, "memory"))
    receipt = await publication
    assert (receipt.first_seq, receipt.last_seq, receipt.refused) == (1, 1, (refused,))


async def test_events_are_seen_when_the_consumer_is_done_with_them() -> None:
    node, client = await opened()
    node.tell(delivery())
    node.tell(delivery())
    assert not any(isinstance(each, StreamAck) for each in node.said)
    assert (await client.next()).position == 1
    client.done()
    assert not any(isinstance(each, StreamAck) for each in node.said)  # one more waits
    assert (await client.next()).position == 2
    client.done()
    assert node.last(StreamAck).count == 2
    node.tell(Done(99))
    assert node.last(StreamAck).count == 3


async def test_much_is_said_to_be_seen_although_more_waits() -> None:
    node, client = await opened()
    for _ in range(3):
        node.tell(delivery(ACK_EVERY_BYTES))
    await client.next()
    client.done()
    assert node.last(StreamAck).count == 1


async def test_the_last_of_it_is_kept_for_resuming() -> None:
    node = Node()
    size = size_of(delivery())
    client = await InternalClient.open(node, name="http", keep_bytes=2 * size)
    for _ in range(4):
        node.tell(delivery())
        await client.next()
        client.done()
    assert node.last(StreamAck).count == 2


async def test_a_resumed_session_goes_on_counting() -> None:
    node = Node(resumed=True)
    client = await InternalClient.open(node, name="http", session="s1", received=7)
    node.tell(delivery())
    assert (await client.next()).position == 8


async def test_a_ping_is_answered() -> None:
    node = Node()
    await InternalClient.open(node, name="http")
    node.tell(Ping())
    assert isinstance(node.last(Pong), Pong)


async def test_a_session_that_the_node_ends_ends_everything() -> None:
    node, client = await opened()
    asking = await begun(client.ask(Query(0, "topology")))
    publishing = await begun(publish_by(client, BATCH))
    listening = await begun(client.next())
    assert node.end is not None
    node.end("the server is stopping")
    for waiting in (asking, publishing, listening, publish_by(client, BATCH)):
        with pytest.raises(Unreachable, match="the server is stopping"):
            await waiting
    assert not client.is_open


async def test_closing_says_goodbye_and_leaving_does_not() -> None:
    node, client = await opened()
    client.close()
    client.close()
    assert node.last(Bye).code == "closed"
    assert node.left
    with pytest.raises(Closed):
        await client.next()
    other = Node()
    (await InternalClient.open(other, name="http")).leave()
    assert other.left
    assert not any(isinstance(each, Bye) for each in other.said)


async def test_who_is_sent_elsewhere_hears_and_publishes_no_more() -> None:
    node, client = await opened()
    publishing = await begun(publish_by(client, BATCH))
    node.tell(Redirect(("palio://b2:7400",)))
    with pytest.raises(Unreachable, match="the broker is about to shut down"):
        await publish_by(client, BATCH)
    assert not any(isinstance(each, Bye) for each in node.said), "it is not answered yet"
    node.tell(Accepted(len(BATCH), "memory"))
    assert (await publishing).level == "memory"
    assert node.last(Bye).code == "closed"
    with pytest.raises(Unreachable, match="the broker is about to shut down"):
        await client.next()


async def test_acknowledging() -> None:
    node, client = await opened()
    _subscribing = await begun(client.ask(Subscribe(0, KEY, "x = 1", {}, "d")))
    client.table.acknowledge(KEY, 5)
    assert node.last(Acknowledge) == Acknowledge(1, 5)


async def test_a_large_batch_is_published_in_parts_with_one_receipt() -> None:
    node, client = await opened()
    rows = 3 * MAX_BATCH_ROWS
    publishing = asyncio.create_task(publish_by(client, pa.record_batch({"x": range(rows)})))
    await node.has_said(Publish, 4)
    sent = [each for each in node.said if isinstance(each, Publish)]
    ends = [each.first_seq + len(each.parcel) for each in sent]
    assert [each.first_seq for each in sent] == [1, *ends[:-1]]
    assert [each.parcel.batch["x"][0].as_py() + 1 for each in sent] == [1, *ends[:-1]]
    node.tell(Refused(5, 7, Failure("InvalidEvent", "no")))
    node.tell(Accepted(ends[2] - 1, "memory"))
    await asyncio.sleep(0)
    assert not publishing.done()
    node.tell(Accepted(rows, "memory"))
    receipt = await publishing
    assert (receipt.first_seq, receipt.last_seq) == (1, rows)
    assert [each.first_seq for each in receipt.refused] == [5]


class QuickNode(Node):
    """A node that answers the first publication before another one is sent."""

    def __init__(self, answer: Message) -> None:
        super().__init__()
        self._answer = answer

    def send(self, message: Message) -> None:
        super().send(message)
        if isinstance(message, Publish) and message.first_seq == 1:
            self.tell(self._answer)


async def test_what_is_refused_of_a_part_before_the_last_is_sent_is_in_the_receipt() -> None:
    node = QuickNode(Refused(1, 2, Failure("NotPermitted", "no")))
    client = await InternalClient.open(node, name="a")
    rows = 3 * MAX_BATCH_ROWS
    publishing = asyncio.create_task(publish_by(client, pa.record_batch({"x": range(rows)})))
    await node.has_said(Publish, 4)
    node.tell(Accepted(rows, "memory"))
    assert [each.last_seq for each in (await publishing).refused] == [2]


async def test_a_session_that_ends_between_two_parts_ends_their_publication() -> None:
    node = QuickNode(Bye("NotPermitted", "no more"))
    client = await InternalClient.open(node, name="a")
    with pytest.raises(Declined, match="no more"):
        await publish_by(client, pa.record_batch({"x": range(3 * MAX_BATCH_ROWS)}))


async def test_no_events_are_answered_without_asking() -> None:
    node, client = await opened()
    receipt = await publish_by(client, BATCH.slice(0, 0), durable=True)
    assert (receipt.first_seq, receipt.last_seq, receipt.level) == (1, 0, "durable")
    assert not [each for each in node.said if isinstance(each, Publish)]
