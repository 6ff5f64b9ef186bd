"""The client in JavaScript beside clients in Python, at brokers that are processes."""

from __future__ import annotations

import asyncio
import re
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.relay import Relay
from palio.client.connection import Client, connect
from palio.errors import InvalidBinding, ParseError
from palio.protocol.wire import CONTROL, HEAD, Decoder, framed
from palio.server.keyfiles import create_key, load_private_key
from palio.server.tokens import Claims, sign
from palio.testing.fleet import Fleet
from tests.javascript.agents import EXAMPLE, PATIENCE_S, Agent, Refused, installed
from tests.protocol.test_vectors import cases
from tests.protocol.vectors import ARROW, ENDS, plain

pytestmark = pytest.mark.xdist_group("javascript")

TIME = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
EVENT: dict[str, Any] = {
    "symbol": "Zürich €",
    "price": 9.0,
    "count": -(2**62),
    "open": True,
    "raw": b"\x00\xff",
    "at": TIME,
}
"""One value of each type..."""
AS_JSON = {
    "symbol": "Zürich €",
    "price": 9.0,
    "count": {"int64": str(-(2**62))},
    "open": True,
    "raw": {"binary": "00ff"},
    "at": {"timestamp": "2026-01-02T03:04:05.678Z"},
}
"""...and as the agent says them."""


@pytest.fixture(scope="module")
def folder() -> Path:
    return installed()


@pytest.fixture
async def agent(folder: Path) -> AsyncIterator[Agent]:
    async with Agent(folder) as agent:
        yield agent


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with Fleet(("b1",), tmp_path, limits={"heartbeat_s": 0.2}) as fleet:
        yield fleet


@pytest.fixture
async def ann(fleet: Fleet) -> AsyncIterator[Client]:
    """A client in Python."""
    async with connect(fleet.url("b1"), name="ann") as ann:
        yield ann


def int64(value: int) -> dict[str, str]:
    return {"int64": str(value)}


async def test_events_of_all_types_go_both_ways(agent: Agent, fleet: Fleet, ann: Client) -> None:
    publisher = await agent.call("connect", fleet.url("b1"), {"name": "js"})
    assert publisher.startswith("js/")
    subscription = await ann.subscribe("price > 0")
    await subscription.settled()
    assert await agent.call("publish", AS_JSON) == {"seq": 1, "level": "memory"}
    event = await asyncio.wait_for(subscription.receive(), PATIENCE_S)
    assert dict(event) == EVENT
    await agent.call("subscribe", "price > 0")
    await agent.call("settled")
    await ann.publish(EVENT)
    delivered = await agent.next("delivered")
    assert delivered["event"] == AS_JSON
    assert delivered["seq"] == 1
    assert delivered["publisher"].startswith("ann/")


async def test_batches_are_read_and_rows_that_others_want_left_out(
    agent: Agent, fleet: Fleet, ann: Client
) -> None:
    await agent.call("connect", fleet.url("b1"))
    await agent.call("subscribe", "n > 1")
    await agent.call("settled")
    long = "x" * 3_000
    await ann.publish(
        [
            {"n": 1, **EVENT},
            {"n": 2, **EVENT},
            {"n": 0, "open": False},
            {"n": 3, "symbol": long, "open": False},
        ]
    )
    assert (await agent.next("delivered"))["event"] == {"n": int64(2), **AS_JSON}
    assert (await agent.next("delivered"))["event"] == {
        "n": int64(3),
        "symbol": long,
        "open": False,
    }


async def test_parameters_are_updated_and_filters_replaced(
    agent: Agent, fleet: Fleet, ann: Client
) -> None:
    await agent.call("connect", fleet.url("b1"))
    key = await agent.call("subscribe", "n < :limit", {"limit": 10})

    async def hears(*numbers: int) -> list[int]:
        for number in numbers:
            await ann.publish({"n": number})
        await ann.publish({"n": -1})
        heard: list[int] = []
        while -1 not in heard:
            heard.append(int((await agent.next("delivered"))["event"]["n"]["int64"]))
        return heard[:-1]

    assert await hears(5, 15) == [5]
    await agent.call("update", key, {"limit": int64(20)})
    assert await hears(15, 25) == [15]
    await agent.call("replace", key, "n > :least OR n = -1", {"least": 20})
    assert await hears(15, 25) == [25]
    await agent.call("unsubscribe", key)
    assert await agent.next("unsubscribed") == {"key": key}


async def test_durable_events_come_again_until_they_are_acknowledged(
    agent: Agent, fleet: Fleet, ann: Client, folder: Path
) -> None:
    await agent.call("connect", fleet.url("b1"), {"name": "js"})
    key = await agent.call("subscribe", "n > 0", {}, {"durableName": "orders"})
    for number in (1, 2, 3):
        await ann.publish({"n": number}, durable=True)
    delivered = [await agent.next("delivered") for _ in range(3)]
    assert [each["event"]["n"] for each in delivered] == [int64(1), int64(2), int64(3)]
    await agent.call("acknowledge", key, delivered[1]["publisher"], delivered[1]["seq"])
    await agent.call("settled")  # the broker has taken what was said before
    await agent.call("close")
    await ann.publish([{"n": 4}, {"n": 5}], durable=True)
    async with Agent(folder) as later:
        await later.call("connect", fleet.url("b1"), {"name": "js"})
        key = await later.call("subscribe", "n > 0", {}, {"durableName": "orders"})
        again = [await later.next("delivered") for _ in range(3)]
        assert [each["event"]["n"] for each in again] == [int64(3), int64(4), int64(5)]
        # An entry of two events stays until the last of them is acknowledged.
        await later.call("acknowledge", key, again[1]["publisher"], again[1]["seq"])
        await later.call("settled")
    async with Agent(folder) as last:
        await last.call("connect", fleet.url("b1"), {"name": "js"})
        await last.call("subscribe", "n > 0", {}, {"durableName": "orders"})
        assert (await last.next("delivered"))["event"] == {"n": int64(4)}


@pytest.mark.parametrize(
    ("durable", "level"), [(False, "memory"), (True, "durable"), ("home", "home")]
)
async def test_the_receipt_names_the_level(
    agent: Agent, fleet: Fleet, durable: bool | str, level: str
) -> None:
    await agent.call("connect", fleet.url("b1"))
    answers = [agent.start("publish", {"n": 1.5}, {"durable": durable}) for _ in range(3)]
    async with asyncio.timeout(PATIENCE_S):
        assert await asyncio.gather(*answers) == [{"seq": seq, "level": level} for seq in (1, 2, 3)]


# --- connections that break ---


async def test_a_session_is_resumed_and_nothing_is_lost_or_doubled(
    agent: Agent, fleet: Fleet, ann: Client
) -> None:
    heard = await ann.subscribe("js = true")
    async with Relay(fleet.port("b1")) as relay:
        await agent.call("connect", relay.url)
        await agent.call("subscribe", "n >= 0")
        await agent.call("settled")
        await ann.publish({"n": 0})
        assert (await agent.next("delivered"))["event"] == {"n": int64(0)}
        relay.hush()  # what is said from now on is lost with the connection
        answers = [agent.start("publish", {"js": True, "m": int64(m)}) for m in range(3)]
        for number in range(1, 4):
            await ann.publish({"n": number})
        relay.cut()
        relay.speak()
        relay.mend()
        await agent.next("disconnected")
        assert await agent.next("connected") == {"resumed": True}
        async with asyncio.timeout(PATIENCE_S):
            assert [each["seq"] for each in await asyncio.gather(*answers)] == [1, 2, 3]
            assert [(await heard.receive())["m"] for _ in range(3)] == [0, 1, 2]
        await ann.publish({"n": 4})
        came = [(await agent.next("delivered"))["event"]["n"] for _ in range(4)]
        assert came == [int64(number) for number in (1, 2, 3, 4)]
        assert agent.is_silent("gaps")


async def test_a_silent_broker_is_given_up(agent: Agent, fleet: Fleet, ann: Client) -> None:
    async with Relay(fleet.port("b1")) as relay:
        await agent.call("connect", relay.url)
        await agent.call("subscribe", "n >= 0")
        relay.hush()
        await agent.next("disconnected")  # three heartbeats without a word
        relay.cut()
        relay.speak()
        relay.mend()
        assert await agent.next("connected") == {"resumed": True}
        await ann.publish({"n": 1})
        assert (await agent.next("delivered"))["event"] == {"n": int64(1)}


async def test_heartbeats_keep_an_idle_connection(agent: Agent, fleet: Fleet) -> None:
    async with Relay(fleet.port("b1")) as relay:
        await agent.call("connect", relay.url)
        before = relay.forth_bytes
        ping_bytes = 9 + len(b"\x81\xa4type\xa4Ping")
        async with asyncio.timeout(PATIENCE_S):
            while relay.forth_bytes < before + 10 * ping_bytes:  # noqa: ASYNC110  # a relay tells nobody
                await asyncio.sleep(0.01)
        assert agent.is_silent("disconnected")


async def test_a_slow_consumer_is_told_what_the_broker_dropped(
    agent: Agent, tmp_path: Path
) -> None:
    """Acknowledgements are held back beyond MAX_QUEUED events, so the broker's window closes."""
    async with (
        Fleet(("b1",), tmp_path, limits={"queue_bytes": 1 << 20}) as fleet,
        connect(fleet.url("b1"), name="ann") as ann,
    ):
        await agent.call("connect", fleet.url("b1"))
        await agent.call("subscribe", "n >= 0")
        await agent.call("pause")
        await ann.publish([{"n": 0}] * 10_500)
        for number in range(1, 13):
            await ann.publish({"n": number, "s": "x" * 900_000})
            await agent.call("settled")  # it has read what was sent before that
        await agent.call("resume")
        (gap, *_) = await agent.next("gaps")
        assert gap["publisher"].startswith("ann/")
        assert gap["count"] > 0
        await ann.publish({"n": 13})
        while (await agent.next("delivered"))["event"]["n"] != int64(13):
            pass


@pytest.mark.parametrize("side", ["client", "broker"])
async def test_what_was_damaged_is_sent_again(
    agent: Agent, fleet: Fleet, ann: Client, side: str
) -> None:
    marks = [b"of javascript" if side == "client" else b"of python"]

    def spoil(data: bytes) -> bytes:
        """Damage the mark where it passes first."""
        return data.replace(marks.pop(), b"?" * 9, 1) if marks and marks[0] in data else data

    async with Relay(fleet.port("b1"), spoil=spoil) as relay:
        await agent.call("connect", relay.url)
        await agent.call("subscribe", "n >= 0")
        await agent.call("settled")
        if side == "client":
            assert (await agent.call("publish", {"s": "of javascript"}))["seq"] == 1
        else:
            await ann.publish({"n": 1, "s": "of python"})
            event = (await agent.next("delivered"))["event"]
            assert event == {"n": int64(1), "s": "of python"}
        assert await agent.next("connected") == {"resumed": True}


async def test_a_broker_that_forgot_the_session_is_told_everything_again(
    agent: Agent, tmp_path: Path
) -> None:
    async with Fleet(("b1",), tmp_path, limits={}) as fleet:
        await agent.call("connect", fleet.url("b1"))
        key = await agent.call("subscribe", "n < :limit", {"limit": 0})
        await agent.call("update", key, {"limit": 10})
        await fleet.kill("b1")
        await agent.next("disconnected")
        kept = agent.start("publish", {"n": int64(3)}, {"durable": True})
        unknown = agent.start("publish", {"n": int64(4)})
        await fleet.start("b1")
        assert await agent.next("connected") == {"resumed": False}
        async with asyncio.timeout(PATIENCE_S):
            assert await kept == {"seq": 1, "level": "durable"}
            with pytest.raises(Refused, match="the session was lost") as refused:
                await unknown
        assert refused.value.kind == "Unreachable"
        assert (await agent.next("delivered"))["event"] == {"n": int64(3)}


# --- refusals ---


@pytest.fixture
async def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    """A broker that wants tokens."""
    create_key(tmp_path / "signing")
    monkeypatch.setenv("PALIO__AUTH__KEYS", str(tmp_path / "signing.pub"))
    fleet = Fleet(("b1",), tmp_path)
    await fleet.start("b1")  # to enter it would ask the broker, without a token
    try:
        yield fleet
    finally:
        await fleet.stop()


def token(folder: Path, *, expires: int = 2**33) -> str:
    claims = Claims("js", "1", 0, expires, allow_publish="n < 10", allow_subscribe="n < 10")
    return sign(claims, load_private_key(folder / "signing"))


async def test_tokens_are_shown_and_wrong_ones_refused(
    agent: Agent, guarded: Fleet, tmp_path: Path
) -> None:
    good = token(tmp_path)
    for wrong in ("", "nonsense", good[:-2], token(tmp_path, expires=1)):
        with pytest.raises(Refused) as refused:
            await agent.call("connect", guarded.url("b1"), {"name": "js", "token": wrong})
        assert refused.value.kind == "NotAuthenticated"
    assert await agent.call("connect", guarded.url("b1"), {"name": "js", "token": good})


async def test_refusals_name_their_class_and_leave_the_session_as_it_was(
    agent: Agent, guarded: Fleet, tmp_path: Path
) -> None:
    options = {"name": "js", "token": token(tmp_path)}
    await agent.call("connect", guarded.url("b1"), options)

    async def kind_of(call: str, *args: Any) -> str:
        with pytest.raises(Refused) as refused:
            await agent.call(call, *args)
        return refused.value.kind

    assert await kind_of("publish", {"n": int64(11)}) == "NotPermitted"
    assert await kind_of("subscribe", "n > 10") == "NotPermitted"
    assert await kind_of("subscribe", "n >") == ParseError.__name__
    key = await agent.call("subscribe", "n < :limit", {"limit": 5})
    assert await kind_of("update", key, {"limti": 5}) == InvalidBinding.__name__
    assert await agent.call("publish", {"n": int64(2)}) == {"seq": 2, "level": "memory"}
    assert (await agent.next("delivered"))["event"] == {"n": int64(2)}
    assert agent.is_silent("disconnected")


async def test_nobody_who_answers_is_an_error(agent: Agent, fleet: Fleet) -> None:
    await fleet.kill("b1")
    with pytest.raises(Refused, match="ECONNREFUSED"):
        await agent.call("connect", fleet.url("b1"))


async def test_the_example_of_the_readme_runs(folder: Path, fleet: Fleet) -> None:
    """It hears what it publishes itself, and ends."""
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^ {4}import .*\n(?:(?: {4}.*)?\n)*", readme, re.MULTILINE)
    program = folder / "readme.mjs"
    program.write_text(code.replace("palio://127.0.0.1:7401", fleet.url("b1")), encoding="utf-8")
    running = await asyncio.create_subprocess_exec("node", str(program), stdout=PIPE)
    async with asyncio.timeout(PATIENCE_S):
        output, _ = await running.communicate()
    assert running.returncode == 0
    assert output.decode().startswith("ann/")
    assert output.decode().endswith(" 1 { symbol: 'IBM', price: 9.5 }\n")


# --- recorded frames ---


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("call", ["decode", "decodeBytewise"])
async def test_recorded_frames_are_read(agent: Agent, end: str, call: str) -> None:
    for case in cases(end):
        if case["name"] == ARROW:
            continue  # for who can read Arrow
        assert await agent.call(call, case["frames"]) == case["messages"], case["name"]


async def test_what_a_client_says_is_read_as_what_was_recorded(agent: Agent) -> None:
    for case in cases("client"):
        encoded = await agent.call("encode", [for_encoder(each) for each in case["messages"]])
        came = [plain(each) for each in Decoder("javascript").feed(bytes.fromhex(encoded))]
        assert came == case["messages"], case["name"]


def for_encoder(message: dict[str, Any]) -> dict[str, Any]:
    """A message with its event as applications give it."""
    parcel = message.get("parcel")
    if parcel is None:
        return message
    names = [name for name, _ in parcel["columns"]]
    event = dict(zip(names, parcel["rows"][0], strict=True))
    return {**message, "parcel": {"publisher": parcel["publisher"], "event": event}}


@pytest.mark.parametrize("bit", range(8))
async def test_a_bit_that_flips_is_noticed(agent: Agent, bit: int) -> None:
    frame = bytearray.fromhex(cases("client")[0]["frames"][0])
    for place in range(4, len(frame)):
        damaged = bytearray(frame)
        damaged[place] ^= 1 << bit
        with pytest.raises(Refused, match="checksum"):
            await agent.call("decode", [damaged.hex()])


@pytest.mark.parametrize("size", [0, 1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 1024, 1025, 70_000])
async def test_checksums_are_those_of_python(agent: Agent, size: int, rng: Random) -> None:
    body = rng.randbytes(size)
    head = framed(CONTROL, body)[: HEAD.size]
    assert await agent.call("checksum", body.hex()) == HEAD.unpack(head)[2]
