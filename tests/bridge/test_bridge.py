from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

import palio
from palio.bridge import bridge as module
from palio.bridge.bridge import LETTER_BYTES, MARK, Bridge, BridgeSettings, address_of
from palio.bridge.links import Inbox, Message
from palio.errors import InvalidEvent, NotStored, Unreachable
from tests.cli.brokers import PATIENCE_S, broker


class Other:
    """The other system, in memory: what it stores, refuses and delivers, and when it is away."""

    def __init__(self) -> None:
        self.stored: list[Message] = []
        self.acked: list[Message] = []
        self.refused: dict[str, str] = {}
        self.failures = 0
        """Calls that lose the connection before it works again."""
        self.has_changed = asyncio.Condition()
        self._inbox = Inbox()
        self._unacked: list[Message] = []

    def deliver(self, *bodies: Any, id: str = "") -> None:
        for body in bodies:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self._inbox.put(Message("in", data, id))

    @asynccontextmanager
    async def connect(self, _: str) -> AsyncIterator[Other]:
        self._fail()
        for message in self._unacked:
            self._inbox.put(message)
        self._unacked = []
        yield self

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise Unreachable("the other system is away")

    async def send(self, messages: Sequence[Message]) -> list[str]:
        taken = [each for each in messages if each.address not in self.refused]
        await self._add(self.stored, taken)
        self._fail()  # it has stored them, and the confirm is lost
        return [self.refused.get(each.address, "") for each in messages]

    async def take(self) -> Sequence[Message]:
        self._unacked = await self._inbox.take()
        return self._unacked

    async def ack(self, messages: Sequence[Message]) -> None:
        self._fail()
        self._unacked = []
        await self._add(self.acked, messages)

    async def _add(self, to: list[Message], messages: Sequence[Message]) -> None:
        async with self.has_changed:
            to.extend(messages)
            self.has_changed.notify_all()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S), self.has_changed:
            await self.has_changed.wait_for(is_so)


Running = Callable[..., Awaitable[Bridge]]

OUT: Final = {"filter": "EXISTS n", "to": "out.{n}"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with broker("b1", tmp_path_factory.mktemp("journal")) as address:
        yield address


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).partition("[")[0]


@pytest.fixture
async def client(url: str) -> AsyncIterator[palio.Client]:
    async with palio.connect(url) as client:
        yield client


@pytest.fixture
def other() -> Other:
    return Other()


@pytest.fixture
async def run(
    url: str, name: str, other: Other, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Running]:
    """Start a bridge; it is stopped at the end of the test, and whatever it raises is raised."""
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr("palio.language.webhooks.FIRST_DELAY_S", 0.01)
    running = list[tuple[Bridge, asyncio.Task[None]]]()
    async with palio.connect(url, name=name) as client:

        async def run(**route: Any) -> Bridge:
            reports, is_subscribed = list[str](), asyncio.Event()

            def report(line: str) -> None:
                reports.append(line)
                if "reads" not in line:
                    is_subscribed.set()

            settings, progress = BridgeSettings(name, **route), list[int]()
            bridge = Bridge(client, other.connect, settings, report, progress.append)
            bridge.progress = progress  # type: ignore[attr-defined]  # for tests
            task = asyncio.create_task(bridge.run())
            running.append((bridge, task))
            bridge.reports, bridge.task = reports, task  # type: ignore[attr-defined]  # for tests
            if "to" in route:
                await is_subscribed.wait()
            return bridge

        yield run
        for bridge, task in running:
            bridge.stop()
            await task


async def acknowledged(client: palio.Client, name: str) -> None:
    while (await client.admin.query("status"))["custody_waiting"][f"{name}/bridge"]:
        pass


def bodies(messages: Sequence[Message]) -> list[Any]:
    return [json.loads(each.body) for each in messages]


# --- out ---


async def test_events_leave_with_their_attributes_and_an_id(
    client: palio.Client, other: Other, run: Running, name: str
) -> None:
    await run(**OUT)
    await client.publish({"n": 7, "size": {"x": 1}, "tags": ["a"], "raw": b"\0"}, durable=True)
    await other.until(lambda: bool(other.stored))
    (message,) = other.stored
    assert bodies([message]) == [
        {"n": 7, "size": {"x": 1}, "tags": ["a"], "raw": "AA==", MARK: name}
    ]
    assert (message.address, message.id) == ("out.7", f"{client.publisher}/1")
    await acknowledged(client, name)


async def test_cloud_events_leave_as_such(
    client: palio.Client, other: Other, run: Running, name: str
) -> None:
    await run(**OUT, as_cloud_events=True)
    await client.publish({"n": 7}, durable=True)
    await other.until(lambda: bool(other.stored))
    (document,) = bodies(other.stored)
    assert (document["type"], document["data"], document[MARK]) == ("palio.event", {"n": 7}, name)


async def test_what_is_not_confirmed_is_sent_again_and_nothing_is_acknowledged_before(
    client: palio.Client, other: Other, run: Running, name: str
) -> None:
    other.failures = 4
    bridge = await run(**OUT)
    await client.publish([{"n": n} for n in range(3)], durable=True)
    await other.until(lambda: bridge.counts["sent"] == 3 or len(other.stored) >= 6)
    await acknowledged(client, name)
    assert bridge.counts["sent"] == 3
    assert {each["n"] for each in bodies(other.stored)} == {0, 1, 2}
    assert len({each.id for each in other.stored}) == 3
    assert any("connects again" in line for line in bridge.reports)  # type: ignore[attr-defined]


async def test_a_refused_event_becomes_a_dead_letter_and_others_pass(
    client: palio.Client, other: Other, run: Running, name: str
) -> None:
    letters = await client.subscribe("EXISTS dead_letter AND n >= 0", durable_name=name)
    other.refused["out.1"] = "too large"
    bridge = await run(**OUT)
    await client.publish([{"n": 1}, {"n": 2}], durable=True)
    letter = await letters.receive(PATIENCE_S)
    assert (letter["n"], letter["dead_letter"]) == (1, f"{name}/bridge")
    assert letter["dead_letter_reason"] == "too large"
    assert [each["n"] for each in bodies(other.stored)] == [2]
    assert (bridge.counts["refused"], bridge.counts["dead_letters"]) == (module.MAX_ATTEMPTS, 1)


async def test_an_event_without_an_attribute_of_the_address_is_refused(
    client: palio.Client, run: Running, name: str
) -> None:
    letters = await client.subscribe("EXISTS dead_letter AND m >= 0", durable_name=name)
    await run(filter="EXISTS m", to="out.{nowhere}")
    await client.publish({"m": 1}, durable=True)
    assert "'nowhere'" in (await letters.receive(PATIENCE_S))["dead_letter_reason"]


@pytest.mark.parametrize(
    ("template", "address"),
    [
        ("plain", "plain"),
        ("a.{x}/{size.y}", "a.b_c_/2"),
        ("{x}{size.y}", "b_c_2"),
        ("{s}", "Straße_9_5"),
    ],
)
def test_no_value_adds_a_level_or_a_wildcard(template: str, address: str) -> None:
    assert address_of(template, {"x": "b.c#", "size.y": 2, "s": "Straße 9.5"}) == address


@pytest.mark.parametrize("event", [{}, {"x": ""}])
def test_an_address_has_no_empty_part(event: dict[str, str]) -> None:
    with pytest.raises(InvalidEvent, match="EXISTS"):
        address_of("a.{x}", event)


# --- in ---


async def test_messages_enter_with_the_mark_and_are_acknowledged(
    client: palio.Client, other: Other, run: Running, name: str
) -> None:
    entering = await client.subscribe("k = 1", durable_name=name)
    await run(source="in")
    other.deliver({"k": 1, "size": {"x": 2}, "tags": ["a"], "no": None})
    event = await entering.receive(PATIENCE_S)
    assert dict(event) == {"k": 1, "size.x": 2, MARK: name}
    assert event.payload["tags"] == ["a"]
    await other.until(lambda: len(other.acked) == 1)


async def test_cloud_events_enter_as_such(
    client: palio.Client, other: Other, run: Running, name: str
) -> None:
    entering = await client.subscribe("type = 'order' AND k = 2", durable_name=name)
    await run(source="in", as_cloud_events=True)
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "order", "data": {"k": 2}}
    other.deliver(event)
    received = await entering.receive(PATIENCE_S)
    assert (received["id"], received[MARK], received.payload) == ("1", name, {"k": 2})


async def test_a_message_that_comes_twice_enters_once_if_it_has_an_id(
    client: palio.Client, other: Other, run: Running, name: str
) -> None:
    entering = await client.subscribe("k = 3", durable_name=name)
    bridge = await run(source="in")
    other.deliver({"k": 3, "of": 0}, id="0")
    await other.until(lambda: len(other.acked) == 1)
    other.failures = 1  # the ack
    other.deliver({"k": 3, "of": 1}, id="1")
    await other.until(lambda: len(other.acked) == 2)
    other.deliver({"k": 3, "of": 2}, id="2")
    assert [(await entering.receive(PATIENCE_S))["of"] for _ in range(3)] == [0, 1, 2]
    await other.until(lambda: len(other.acked) == 3)
    assert bridge.counts["received"] == 4


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 50_000, "not JSON"),
        (b"[1]", "not an event"),
        (b'{"$seq": 1}', "belongs to Palio"),
        (b'{"x": 1e999999, "y": 123456789012345678901234567890}', "y"),
        (b"[" + b"1," * 2_000_000 + b"1]", "MAX_JSON_PARTS"),
    ],
)
async def test_what_is_no_event_becomes_a_dead_letter_and_the_next_enters(
    client: palio.Client, other: Other, run: Running, name: str, body: bytes, reason: str
) -> None:
    letters = await client.subscribe("EXISTS dead_letter OR k = 4", durable_name=name)
    bridge = await run(source="in")
    other.deliver(body, {"k": 4})
    events = [await letters.receive(PATIENCE_S) for _ in range(2)]
    (letter,) = (each for each in events if "dead_letter" in each)
    assert letter["dead_letter"] == f"{name}/bridge"
    assert reason in letter["dead_letter_reason"]
    assert (letter["bytes"], letter["address"]) == (len(body), "in")
    assert letter["data"] == body[:LETTER_BYTES].decode(errors="backslashreplace")
    await other.until(lambda: len(other.acked) == 2)
    assert (bridge.counts["received"], bridge.counts["dead_letters"]) == (1, 1)
    await letters.delete()


async def test_a_broker_that_cannot_store_ends_the_bridge_and_keeps_the_message_there(
    other: Other,
) -> None:
    with broker("b2") as diskless:
        async with palio.connect(diskless) as client:
            bridge = Bridge(client, other.connect, BridgeSettings("x", source="in"), lambda _: None)
            other.deliver({"k": 5}, b"{")
            with pytest.raises(NotStored, match="disk"):
                await bridge.run()
    assert other.acked == []


# --- both ---


async def test_a_bridge_of_two_directions_echoes_nothing(
    client: palio.Client, other: Other, run: Running, name: str
) -> None:
    bridge = await run(**OUT, source="in")
    other.deliver({"n": 1})
    await other.until(lambda: len(other.acked) == 1)
    await client.publish({"n": 2}, durable=True)
    await other.until(lambda: len(other.stored) == 1)
    assert bodies(other.stored) == [{"n": 2, MARK: name}]
    other.deliver(*bodies(other.stored))
    await other.until(lambda: len(other.acked) == 2)
    await acknowledged(client, name)
    assert (bridge.counts["received"], bridge.counts["looped"]) == (1, 2)
    assert bridge.progress[-1] <= bridge.counts.total() == 4  # type: ignore[attr-defined]
    assert "--name of its own" in "".join(bridge.reports)  # type: ignore[attr-defined]


async def test_events_of_another_bridge_pass_and_bear_both_names(
    client: palio.Client, other: Other, run: Running, name: str
) -> None:
    await run(**OUT)
    await client.publish({"n": 1, MARK: "south"}, durable=True)
    await other.until(lambda: bool(other.stored))
    assert bodies(other.stored) == [{"n": 1, MARK: f"south/{name}"}]


async def test_a_bridge_that_is_stopped_while_the_other_system_is_away_ends_at_once(
    other: Other, run: Running
) -> None:
    other.failures = 1_000_000
    bridge = await run(source="in")
    bridge.stop()
    await asyncio.wait_for(bridge.task, PATIENCE_S)  # type: ignore[attr-defined]
