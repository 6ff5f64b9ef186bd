from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from datetime import UTC, datetime
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # it has no types here
import pytest

import palio
from palio.client.connection import connect
from palio.client.events import Event, Gap
from palio.client.roaming import MAX_PENDING_STATES, ConnectionState
from palio.client.subscription import SETTLE_TIMEOUT_S, Subscription
from palio.errors import (
    Closed,
    FileDamaged,
    InvalidBinding,
    InvalidConfiguration,
    InvalidEvent,
    InvalidFilter,
    InvalidInput,
    LimitExceeded,
    NoAnswer,
    NotAdvertised,
    Unreachable,
    Unsettled,
)
from palio.model.limits import MAX_LONE_BYTES
from palio.multicast.documents import encode
from palio.multicast.listed import flooding
from palio.node.settings import Settings
from palio.testing import Network
from tests.client.helpers import drain, plain, seqs
from tests.client.virtual import in_virtual_time


async def take(subscription: Subscription, count: int) -> list[Event]:
    return [await subscription.receive() for _ in range(count)]


async def quiet(seconds: float = 1.0) -> None:
    """Let everything that is under way arrive (in virtual time)."""
    await asyncio.sleep(seconds)


# --- the verbs ---


@in_virtual_time
async def test_events_cross_three_brokers() -> None:
    async with Network("line:3") as net:
        alice, bob = await net.connect("b1", name="alice"), await net.connect("b3")
        heard = await bob.subscribe("price < :limit", {"limit": 10})
        await heard.settled()
        receipt = await alice.publish([{"price": 9}, {"price": 11}, {"price": 8}])
        assert (receipt.first_seq, receipt.last_seq, receipt.level) == (1, 3, "memory")
        assert receipt.deliveries is None
        events = await take(heard, 2)
        assert plain(events) == [{"price": 9}, {"price": 8}]
        assert seqs(events) == [1, 3]
        assert {event.publisher for event in events} == {alice.publisher}
        assert alice.publisher.startswith("alice/")
        assert (alice.broker, bob.broker) == ("b1", "b3")


@in_virtual_time
async def test_publications_of_one_moment_leave_as_one_batch() -> None:
    async with Network() as net:
        client = await net.connect("b1")
        other = await net.connect("b1")
        heard = await client.subscribe("x > 0")
        receipts = await asyncio.gather(*[other.publish({"x": x}) for x in range(1, 101)])
        assert [receipt.first_seq for receipt in receipts] == list(range(1, 101))
        batch = await anext(aiter(heard.batches()))
        assert batch.num_rows == 100


@in_virtual_time
async def test_subscriptions_of_one_turn_are_in_force_or_refused_each_by_itself() -> None:
    async with Network("line:2", settings=Settings(max_subscriptions=150)) as net:
        client, other = await net.connect("b1"), await net.connect("b2")
        calls = [client.subscribe(f"x = {number}") for number in range(151)]
        made = await asyncio.gather(*calls, return_exceptions=True)
        refused = [each for each in made if isinstance(each, BaseException)]
        assert [type(each) for each in refused] == [LimitExceeded]
        assert made.index(refused[0]) == 150
        heard = [each for each in made if isinstance(each, Subscription)]
        await heard[-1].settled()
        await other.publish([{"x": number} for number in range(151)])
        assert [(await each.receive())["x"] for each in heard] == list(range(150))


class Text(str):
    """A text of an application's own."""


class Side(Enum):
    BUY = "buy"


class Size(IntEnum):
    ONE = 1


class Word(StrEnum):
    A = "a"


NOON_UTC = datetime(2026, 1, 1, 12, tzinfo=UTC)

PLAIN = {
    "numpy float": (np.float64(8), 8.0),
    "numpy small float": (np.float32(0.5), 0.5),
    "numpy integer": (np.int64(3), 3),
    "numpy text": (np.str_("a"), "a"),
    "numpy truth": (np.bool_(True), True),
    "pandas time": (pd.Timestamp(NOON_UTC), NOON_UTC),
    "subclass of text": (Text("a"), "a"),
    "integer of an enumeration": (Size.ONE, 1),
    "text of an enumeration": (Word.A, "a"),
    "bytearray": (bytearray(b"a"), b"a"),
}


@pytest.mark.parametrize("name", PLAIN)
@in_virtual_time
async def test_values_of_other_libraries_become_plain_where_they_are_given(name: str) -> None:
    given, plain_value = PLAIN[name]
    async with Network() as net:
        client = await net.connect("b1")
        one = await client.subscribe("x = :v", {"v": given})
        several = await client.subscribe("x IN :v", {"v": [given]})
        assert (type(one.params["v"]), one.params["v"]) == (type(plain_value), plain_value)
        await one.update(v=given)
        one.assign({"v": given})
        await several.update(v={given} if not isinstance(given, bytearray) else [given])
        await several.replace("x IN :w", w=(given,))
        await client.settled()
        await client.publish({"x": given})
        for each in (one, several):
            assert (await take(each, 1))[0]["x"] == plain_value


@in_virtual_time
async def test_options_of_other_libraries_travel_too() -> None:
    async with Network() as net:
        client = await net.connect("b1")
        orders = await client.subscribe(
            "x = 1", durable_name=Text("orders"), retention=np.float64(60)
        )
        await client.publish({"x": 1}, durable=True)
        assert plain(await take(orders, 1)) == [{"x": 1}]


@pytest.mark.parametrize("given", [object(), pd.NaT, np.datetime64("2026-01-01"), 2**70])
@in_virtual_time
async def test_what_is_no_value_is_refused_at_once_and_alone(given: object) -> None:
    async with Network() as net:
        client = await net.connect("b1")
        neighbour, refused = await asyncio.gather(
            client.subscribe("x > 0"),
            client.subscribe("x > :v", {"v": given}),
            return_exceptions=True,
        )
        assert isinstance(refused, InvalidBinding)
        assert isinstance(neighbour, Subscription)
        moving = await client.subscribe("x > :v", {"v": 0})
        for values in (given, [given]):
            with pytest.raises(InvalidBinding, match="parameter :v"):
                await moving.update(v=values)
        await client.publish({"x": 1})
        assert plain(await take(neighbour, 1)) == plain(await take(moving, 1)) == [{"x": 1}]


@in_virtual_time
async def test_what_is_published_after_subscribing_in_one_turn_is_heard() -> None:
    async with Network() as net:
        client = await net.connect("b1")
        subscribing = asyncio.ensure_future(client.subscribe("x > 0"))
        await asyncio.sleep(0)
        receipt = client.publish_nowait({"x": 1})
        assert plain([await (await subscribing).receive()]) == [{"x": 1}]
        await receipt


@in_virtual_time
async def test_an_event_that_is_wrong_is_refused_alone() -> None:
    async with Network() as net:
        client = await net.connect("b1")
        other = await net.connect("b1")
        heard = await client.subscribe("x > 0")
        answers = await asyncio.gather(
            other.publish({"x": 1}),
            other.publish({"x": 1 << 70}),
            other.publish({"$x": 1}),
            other.publish({"x": 3}),
            return_exceptions=True,
        )
        assert [type(answer).__name__ for answer in answers] == [
            "PublishReceipt",
            "InvalidEvent",
            "InvalidEvent",
            "PublishReceipt",
        ]
        assert plain(await take(heard, 2)) == [{"x": 1}, {"x": 3}]


@in_virtual_time
async def test_an_update_is_in_force_here_at_once_and_there_when_it_returns() -> None:
    async with Network(delay_s=0.1) as net:
        client, other = await net.connect("b1"), await net.connect("b1")
        heard = await client.subscribe("x < :limit", {"limit": 10})
        under_way = other.publish_nowait({"x": 5})
        await quiet(0.05)
        update = asyncio.ensure_future(heard.update(limit=3))
        await under_way
        assert not await drain(heard)
        assert client.stale == 1
        await update
        await other.publish([{"x": 5}, {"x": 2}])
        assert plain(await take(heard, 1)) == [{"x": 2}]
        await heard.update(limit=10)
        await other.publish({"x": 5})
        assert plain(await take(heard, 1)) == [{"x": 5}]


@in_virtual_time
async def test_nothing_comes_after_unsubscribing() -> None:
    async with Network("line:2") as net:
        client, other = await net.connect("b1"), await net.connect("b2")
        heard = await client.subscribe("x < 10")
        await heard.settled()
        await heard.unsubscribe()
        await client.settled()
        await other.publish({"x": 1})
        await quiet()
        assert client.stale == 0  # it was not even sent
        with pytest.raises(Closed):
            await heard.receive()


@in_virtual_time
async def test_settled_names_brokers_that_stay_away() -> None:
    async with Network("line:3", settings=Settings(discovery=False)) as net:
        client, other = await net.connect("b1"), await net.connect("b3")
        before = await client.subscribe("y > 0")
        await before.settled()
        net.cut("b2", "b3")
        await quiet(60.0)
        heard = await client.subscribe("x > 0")
        with pytest.raises(Unsettled, match="b3"):
            await heard.settled(timeout=0.0)
        started = asyncio.get_running_loop().time()
        with pytest.raises(Unsettled, match="b3"):
            await client.settled()
        assert asyncio.get_running_loop().time() - started >= SETTLE_TIMEOUT_S

        async def mend() -> None:
            await quiet(1.0)
            net.heal("b2", "b3")

        mending = asyncio.create_task(mend())
        await heard.settled(timeout=60.0)
        await mending
        await other.publish({"x": 1})
        assert plain(await take(heard, 1)) == [{"x": 1}]


@in_virtual_time
async def test_a_broker_that_is_gone_for_good_is_retired() -> None:
    async with Network("line:3") as net:
        alice, bob = await net.connect("b1"), await net.connect("b3", name="bob")
        heard = await bob.subscribe("x > 0", durable_name="d")
        await heard.settled()
        for broker, reason in (("b3", "not gone"), ("b1", "not gone"), ("b9", "no broker 'b9'")):
            with pytest.raises(InvalidInput, match=reason):
                await alice.admin.remove_broker(broker)
        await bob.suspend()
        net.kill("b3")
        await quiet(60.0)
        await alice.publish({"x": 1}, durable=True)
        await quiet()
        at_b2 = await net.connect("b2")
        kept = [(await each.admin.query("status"))["custody_entries"] for each in (alice, at_b2)]
        assert sum(kept) == 1
        await alice.admin.remove_broker("b3")
        await alice.settled(timeout=0.0)
        await alice.publish({"x": 2}, durable=True)
        for client in (alice, at_b2):
            assert (await client.admin.query("status"))["custody_entries"] == 0
            assert set((await client.admin.query("topology"))["brokers"]) == {"b1", "b2"}
        net.kill("b1")
        net.restart("b1")
        await quiet(60.0)
        assert set((await alice.admin.query("topology"))["brokers"]) == {"b1", "b2"}

        net.restart("b3")  # it is back in spite of that
        await quiet(60.0)
        await bob.resume()
        await alice.settled()
        await alice.publish({"x": 3}, durable=True)
        assert plain(await take(heard, 1)) == [{"x": 3}]


@in_virtual_time
async def test_a_plan_that_is_applied_is_known_to_all_and_one_after_it_counts(
    tmp_path: Path,
) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(encode(flooding(("b1", "b3", "b9"))))
    async with Network("line:3", routing="flooded") as net:
        one, other = await net.connect("b1"), await net.connect("b3")

        async def told() -> list[Any]:
            return [(await each.admin.topology())["plan"] for each in (one, other)]

        assert await told() == [None, None]
        await one.admin.apply_plan(file)
        first, same = await told()
        assert first == same
        assert (first["origin"], first["method"]) == ("b1", "flooding")
        assert (first["groups"], first["brokers"]) == (1, ["b1", "b3", "b9"])
        brokers = (await one.admin.topology())["brokers"]
        assert brokers["b1"]["durable_subscriptions"] == []
        await other.admin.apply_plan(encode(flooding(("b1", "b2"))))
        second, same = await told()
        assert second == same
        assert (second["origin"], second["brokers"]) == ("b3", ["b1", "b2"])
        assert second["epoch_us"] > first["epoch_us"]
        await one.admin.apply_plan(None)
        assert await told() == [None, None]
        with pytest.raises(FileDamaged, match="no plan"):
            await one.admin.apply_plan(b"nothing")
        with pytest.raises(FileNotFoundError):
            await one.admin.apply_plan(str(tmp_path / "none"))


@in_virtual_time
async def test_exactly_what_a_text_announces_is_delivered() -> None:
    async with Network("line:2", routing="advertised") as net:
        alice, bob = await net.connect("b1"), await net.connect("b2")
        heard = await bob.subscribe("TRUE")
        await alice.advertise("x = 1 OR (x = 1 AND y BETWEEN 2 AND :most)", {"most": 4})
        await alice.advertise("z != 1 AND z != 2")
        await alice.settled()
        await heard.settled()
        announced = [{"x": 1}, {"x": 1, "y": 3}, {"z": 1}]
        other = [{"x": 1, "y": 5}, {"x": 2}, {"x": 1, "z": 1}, {"w": 1}]
        with pytest.raises(NotAdvertised, match="4 of 7 events were not published") as told:
            await alice.publish([*other, *announced])
        assert (told.value.count, told.value.of) == (4, 7)
        assert plain(await take(heard, 3)) == announced
        await quiet()
        assert not await drain(heard)


@in_virtual_time
async def test_what_one_client_of_an_identity_advertises_another_publishes() -> None:
    async with Network("line:2", routing="advertised") as net:
        bob = await net.connect("b2")
        heard = await bob.subscribe("TRUE")
        first, second = [await net.connect("b1", identity="ann") for _ in range(2)]
        offer = await first.advertise("x > 0")
        await first.settled()
        await heard.settled()
        await second.publish({"x": 1})
        assert plain(await take(heard, 1)) == [{"x": 1}]
        elsewhere = await net.connect("b2", identity="ann")
        for publisher in (bob, elsewhere):  # another identity; another broker
            with pytest.raises(NotAdvertised, match="1 of 1"):
                await publisher.publish({"x": 2})
        await first.suspend()
        assert (await second.publish({"x": 3})).level == "memory"
        net.kill("b1")
        net.restart("b1")
        await first.resume()  # and advertises again
        await second.settled()
        await second.publish({"x": 4}, durable=True)
        await first.move("palio://b2")
        await elsewhere.publish({"x": 5})
        with pytest.raises(NotAdvertised):
            await second.publish({"x": 6})
        assert offer.is_in_force


@in_virtual_time
async def test_a_client_withdraws_what_others_of_its_identity_advertise() -> None:
    async with Network(routing="advertised") as net:
        first, second = [await net.connect("b1", identity="ann") for _ in range(2)]
        narrow, wide = await first.advertise("x > 5"), await first.advertise("x > 0")
        await second.unadvertise("x > :least", {"least": 3})
        await first.settled()
        assert (narrow.is_in_force, wide.is_in_force) == (False, True)
        await narrow.withdraw()  # that was done
        await second.publish({"x": 9})
        await second.unadvertise("x > :least", {"least": 0})
        with pytest.raises(NotAdvertised):
            await second.publish({"x": 9})
        net.kill("b1")
        net.restart("b1")
        await first.settled()  # it does not say again what was withdrawn
        with pytest.raises(NotAdvertised):
            await first.publish({"x": 9})
        last = await first.advertise("y = 1")
        await first.unadvertise("EXISTS y")
        assert not last.is_in_force
        with pytest.raises(InvalidInput, match="an identity cannot be called"):
            _ = net.client("b1", identity="a/b")


@in_virtual_time
async def test_advertising() -> None:
    async with Network("line:2", routing="advertised") as net:
        client = await net.connect("b1")
        offer = await client.advertise("x < :most", {"most": 5})
        assert str(offer.advertisement) == "x < 5"
        other = await client.advertise("x < :most", {"most": 6})
        assert str(other.advertisement) == "x < 6"
        await client.settled()
        await offer.withdraw()
        await offer.withdraw()  # again: it is withdrawn already
        with pytest.raises(InvalidFilter, match="one by one"):
            await client.advertise("x = 1 THEN x = 2")
        with pytest.raises(InvalidFilter, match="no longer has the text"):
            await client.advertise(palio.parse("x = 1"))  # type: ignore[arg-type]  # the mistake
        with pytest.raises(InvalidBinding, match="no parameter :least"):
            await client.advertise("x < 5", {"least": 1})
        with pytest.raises(InvalidBinding, match=":most has no value"):
            await client.advertise("x < :most")


@in_virtual_time
async def test_a_question() -> None:
    async with Network("line:2") as net:
        client = await net.connect("b1", name="ann")
        topology = await client.admin.topology()
        assert topology == await client.admin.query("topology")
        assert topology["asked"] == "b1"
        assert topology["brokers"]["b1"]["links"] == ["b2"]
        async with await client.subscribe("x > :low", {"low": 3}) as heard:
            await heard.settled()
            assert (await client.admin.status())["subscriptions"] == 1
            (here,) = (await client.admin.trace({"x": 4}))["hops"]
            assert (here["broker"], here["sessions"]) == ("b1", ["ann"])
            for own in (False, True):
                (entry,) = await client.admin.subscriptions(own=own)
                assert (entry["subscriber"], entry["parameters"]) == ("ann", {"low": 3})
        with pytest.raises(InvalidInput, match="the way"):
            await client.admin.query("the way")


@in_virtual_time
async def test_the_whole_catalogue_is_read_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palio.node.admin_queries.CATALOGUE_ROWS", 3)
    async with Network("line:1") as net:
        client = await net.connect("b1")
        for x in range(10):
            await client.subscribe("x = :x", {"x": x})
        found = await client.admin.subscriptions()
        assert sorted(entry["parameters"]["x"] for entry in found) == list(range(10))


@in_virtual_time
async def test_what_the_broker_refuses_is_gone_here_too() -> None:
    async with Network(settings=Settings(max_subscriptions=1)) as net:
        client = await net.connect("b1")
        await client.subscribe("x < 1")
        with pytest.raises(palio.errors.LimitExceeded, match="MAX_SUBSCRIPTIONS"):
            await client.subscribe("x < 2")
        assert "1 subscriptions" in repr(client)


@in_virtual_time
async def test_a_client_hears_itself() -> None:
    async with Network() as net:
        client = await net.connect("b1")
        heard = await client.subscribe("EXISTS x")
        kept = await client.subscribe("EXISTS x", durable_name="mine")
        await client.publish({"x": 1})
        await client.publish({"x": 2}, durable=True)
        assert plain(await take(heard, 2)) == plain(await take(kept, 2)) == [{"x": 1}, {"x": 2}]
        await quiet()
        assert not await drain(heard)
        assert not await drain(kept)


# --- connecting ---


@pytest.mark.parametrize("url", ["host:7400", "http://host", "palio://", "palio://h:99999"])
def test_a_bad_address_is_refused_before_anything_is_dialled(url: str) -> None:
    with pytest.raises(InvalidConfiguration, match="address"):
        _ = connect(url)


def test_no_address_is_refused() -> None:
    with pytest.raises(InvalidInput, match="URL"):
        _ = connect([])


@in_virtual_time
async def test_the_first_that_answers_is_taken_if_any_does() -> None:
    async with Network("line:2") as net:
        net.kill("b1")
        assert (await net.connect("b1", "b2")).broker == "b2"
        net.kill("b2")
        with pytest.raises(Unreachable, match=r"b1: .*b2: "):
            _ = await net.connect("b1", "b2")


@in_virtual_time
async def test_a_first_connect_that_retries_waits_for_the_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Network() as net:
        net.kill("b1")
        client = net.client("b1", retry=True)
        opening = asyncio.ensure_future(client.open())
        await quiet(60)
        assert not opening.done()
        assert "no broker answers: b1: " in caplog.text
        net.restart("b1")
        await opening
        assert client.is_connected
        await client.close()


@in_virtual_time
async def test_a_first_connect_that_retries_ends_with_its_client() -> None:
    async with Network() as net:
        net.kill("b1")
        client = net.client("b1", retry=True)
        opening = asyncio.ensure_future(client.open())
        await quiet(60)
        await client.close()
        with pytest.raises(Closed):
            await opening


@in_virtual_time
async def test_the_states_of_a_connection_are_told_in_order() -> None:
    async with Network("line:2") as net:
        client = net.client("b1", "b2")
        states = client.states()
        assert await anext(states) == ConnectionState("connecting", "")
        await client.open()
        assert await anext(states) == ConnectionState("connected", "b1")
        assert await anext(client.states()) == ConnectionState("connected", "b1")
        net.kill("b1")
        assert await anext(states) == ConnectionState("disconnected", "b1")
        assert await anext(states) == ConnectionState("connected", "b2")
        net.restart("b1")
        await client.move("b1")
        await client.publish({"x": 1})
        await client.close()
        assert [state async for state in states] == [
            ConnectionState("connected", "b1"),
            ConnectionState("closed", "b1"),
        ]
        assert [state.status async for state in client.states()] == ["closed"]


@pytest.mark.parametrize("breaks", [MAX_PENDING_STATES // 2 - 1, MAX_PENDING_STATES // 2])
@in_virtual_time
async def test_who_does_not_ask_for_states_gets_the_newest(breaks: int) -> None:
    async with Network() as net:
        client = await net.connect("b1")
        states = client.states()
        assert (await anext(states)).status == "connected"
        for _ in range(breaks):
            await client.suspend()
            await client.resume()
        await client.close()
        found = [state.status async for state in states]
        assert found[-2:] == ["connected", "closed"]
        assert len(found) == min(2 * breaks + 1, MAX_PENDING_STATES)


@in_virtual_time
async def test_a_request_gets_the_reply_that_it_asks_for() -> None:
    async with Network("line:2") as net:
        asking, answering = await net.connect("b1"), await net.connect("b2")
        asked = await answering.subscribe("EXISTS ask")
        await asked.settled()

        async def reply() -> None:
            async for event in asked:
                await answering.publish({"answers": "another", "price": 1.0})
                await answering.publish({"answers": event["id"], "price": 9.5})

        replying = asyncio.ensure_future(reply())
        assert (await asking.request({"ask": "IBM", "id": "7"}, "answers = :id"))["price"] == 9.5
        where = "answers = :which"
        found = await asking.request({"ask": "IBM", "id": "8"}, where, {"which": "another"})
        assert found["price"] == 1.0
        assert "with 0 subscriptions" in repr(asking)
        replying.cancel()


@in_virtual_time
async def test_a_request_without_a_reply_ends() -> None:
    async with Network() as net:
        client = await net.connect("b1")
        with pytest.raises(NoAnswer, match=r"'answers = :id' came in 5 s; check that"):
            await client.request({"ask": "IBM", "id": "7"}, "answers = :id", timeout=5)
        assert "with 0 subscriptions" in repr(client)
        with pytest.raises(InvalidBinding, match="id"):
            await client.request({"ask": "IBM"}, "answers = :id")


async def test_a_client_that_was_never_connected_says_so() -> None:
    client = connect("palio://127.0.0.1:1")
    with pytest.raises(Unreachable, match="was never connected; write `async with"):
        await client.publish({"x": 1})
    with pytest.raises(Unreachable, match="never connected"):
        await client.subscribe("x = 1")
    await client.close()


@in_virtual_time
async def test_a_closed_client_is_closed() -> None:
    async with Network() as net:
        client, other = await net.connect("b1"), await net.connect("b1")
        heard = await client.subscribe("x < 10")
        await other.publish({"x": 1})
        await quiet()
        receipt = client.publish_nowait({"x": 2})
        await client.close()
        assert (await receipt).level == "memory"  # it waited for the answer
        with pytest.raises(Closed, match="client"):
            await client.publish({"x": 1})
        with pytest.raises(Closed, match="client"):
            await client.open()
        assert [dict(event) async for event in heard] == [{"x": 1}, {"x": 2}]
        await client.close()


@in_virtual_time
async def test_closing_without_a_connection_ends_what_waits() -> None:
    async with Network() as net:
        client = await net.connect("b1")
        net.kill("b1")
        await quiet(0.1)
        waiting = client.publish_nowait({"x": 1})
        await client.close()
        with pytest.raises(Closed):
            await waiting


# --- breaks ---


@in_virtual_time
async def test_a_broken_connection_is_resumed_without_loss_or_double() -> None:
    async with Network("line:2") as net:
        alice = await net.connect("b1", name="alice")
        bob = await net.connect("b2", name="bob")
        heard = await bob.subscribe("EXISTS x")
        await heard.settled()
        for x in range(1, 200):
            await alice.publish({"x": x})
            if x % 20 == 0:
                net.drop("bob", "b2")
            if x % 33 == 0:
                net.drop("alice", "b1")
        await quiet()
        assert [event["x"] for event in await drain(heard)] == list(range(1, 200))
        assert not heard.gaps


@in_virtual_time
async def test_what_was_asked_while_away_is_answered_when_back() -> None:
    async with Network() as net:
        client = await net.connect("b1", name="alice")
        other = await net.connect("b1")
        overheard = await other.subscribe("EXISTS x")
        net.cut("alice", "b1")
        await quiet(0.1)
        assert not client.is_connected
        subscribing = asyncio.ensure_future(client.subscribe("EXISTS x"))
        publishing = client.publish_nowait({"x": 1})
        await quiet(2)
        assert not subscribing.done()
        net.heal("alice", "b1")
        heard = await subscribing
        assert (await publishing).first_seq == 1
        await other.publish({"x": 2})
        assert plain(await take(heard, 2)) == [{"x": 1}, {"x": 2}]
        assert plain(await take(overheard, 2)) == [{"x": 1}, {"x": 2}]


@in_virtual_time
async def test_a_lost_session_is_said_to_every_subscription_and_made_anew() -> None:
    gaps: list[Gap] = []
    async with Network("line:2") as net:
        alice, bob = await net.connect("b1"), await net.connect("b2")
        heard = await bob.subscribe("x < :limit", {"limit": 1}, on_gap=gaps.append)
        await heard.update(limit=10)
        net.kill("b2")
        await quiet()
        net.restart("b2")
        await net.up()
        await quiet(10)
        assert bob.is_connected
        await heard.settled()
        await alice.publish({"x": 5})
        assert plain(await take(heard, 1)) == [{"x": 5}]
        assert [(gap.publisher, gap.count, gap.is_certain) for gap in gaps] == [("*", 0, False)]
        assert "may have been lost" in str(gaps[0])


@in_virtual_time
async def test_a_gap_is_told_again_once_all_is_in_force_everywhere() -> None:
    """What is published between the two passes by what was subscribed anew."""
    gaps: list[Gap] = []
    async with Network("line:3", settings=Settings(client_grace_s=5)) as net:
        client, other = await net.connect("b1", name="alice"), await net.connect("b3")
        heard = await client.subscribe("EXISTS x", on_gap=gaps.append)
        stored = await client.subscribe("EXISTS x", durable_name="kept", on_gap=gaps.append)
        await heard.settled()
        consuming = [asyncio.ensure_future(take(each, 100)) for each in (heard, stored)]
        net.cut("alice", "b1")
        await quiet(30)
        net.delay("b2", "b3", 1.0)
        net.heal("alice", "b1")
        await quiet(0.9)
        await other.publish({"x": 1})
        assert len(gaps) <= 2
        await quiet(10)
        assert [gap.is_certain for gap in gaps] == [False] * 4
        for each in consuming:
            each.cancel()


@in_virtual_time
async def test_a_broker_on_the_way_that_restarts_is_told_to_all_subscriptions() -> None:
    gaps: list[Gap] = []
    async with Network("line:3") as net:
        client, other = await net.connect("b1"), await net.connect("b3")
        await client.subscribe("EXISTS x", on_gap=gaps.append)
        heard = await client.subscribe("EXISTS x", durable_name="kept", on_gap=gaps.append)
        await heard.settled()
        net.kill("b2")
        await quiet(1)
        await other.publish({"x": 1})
        net.restart("b2")
        await net.up()
        await quiet(10)
        await heard.settled()
        await other.publish({"x": 2}, durable=True)
        assert plain(await take(heard, 1)) == [{"x": 2}]
        assert [gap.publisher for gap in heard.gaps] == ["*"]


@in_virtual_time
async def test_requests_under_way_when_the_session_is_lost_are_asked_again() -> None:
    async with Network(delay_s=0.1, routing="advertised") as net:
        client = await net.connect("b1")
        other = await net.connect("b1")
        await other.advertise("x < 100 OR y < 100 OR z < 100")
        changed, ended = [await client.subscribe("x < :limit", {"limit": 1}) for _ in range(2)]
        others = [
            asyncio.ensure_future(each)
            for each in (
                changed.update(limit=5),
                changed.replace("y < :most", most=3),
                ended.unsubscribe(),
                client.subscribe("z < 1"),
                client.advertise("y < 100"),
                client.settled(),
                client.admin.query("topology"),
            )
        ]
        await quiet(0.01)
        net.kill("b1")
        net.restart("b1")
        await asyncio.gather(*others)
        await other.publish([{"y": 2}, {"y": 4}, {"z": 0}, {"x": 0}])
        assert plain(await take(changed, 1)) == [{"y": 2}]


@in_virtual_time
async def test_nobody_knows_what_became_of_events_published_in_memory() -> None:
    async with Network(delay_s=0.1) as net:
        client = await net.connect("b1")
        under_way = client.publish_nowait({"x": 1})
        await quiet(0.01)
        net.kill("b1")
        net.restart("b1")
        with pytest.raises(Unreachable, match="may or may not"):
            await under_way
        assert (await client.publish({"x": 2})).first_seq == 2


@in_virtual_time
async def test_durable_events_under_way_go_again_under_their_numbers() -> None:
    async with Network(delay_s=0.1, disk_s=0.05) as net:
        alice, bob = await net.connect("b1"), await net.connect("b1", name="bob")
        heard = await bob.subscribe("EXISTS x", durable_name="all")
        for wait in (0.01, 0.12, 0.17, 0.27):
            under_way = alice.publish_nowait({"x": 1}, durable=True)
            await quiet(wait)  # before it arrives, before it is written, and after
            net.kill("b1")
            net.restart("b1")
            assert (await under_way).level == "durable"
        assert seqs(await take(heard, 4)) == [1, 2, 3, 4]
        await quiet(10)
        assert not await drain(heard)


@in_virtual_time
async def test_a_silent_broker_is_given_up() -> None:
    async with Network(settings=Settings(heartbeat_s=5)) as net:
        client = await net.connect("b1", name="alice")
        net.delay("alice", "b1", 1000)
        await quiet(25)
        assert not client.is_connected
        net.delay("alice", "b1", 0.001)
        net.drop("alice", "b1")
        await quiet(30)
        assert client.is_connected


@in_virtual_time
async def test_an_idle_connection_stays() -> None:
    async with Network(settings=Settings(heartbeat_s=5)) as net:
        client = await net.connect("b1", name="alice")
        other = await net.connect("b1")
        heard = await client.subscribe("EXISTS x")
        await quiet(300)
        await other.publish({"x": 1})
        await heard.receive()
        assert not heard.gaps


@in_virtual_time
async def test_when_a_broker_is_gone_the_next_one_is_taken() -> None:
    async with Network("line:2") as net:
        client = await net.connect("b1", "b2")
        other = await net.connect("b2")
        heard = await client.subscribe("EXISTS x")
        net.kill("b1")
        await quiet(10)
        assert client.broker == "b2"
        await other.publish({"x": 1})
        assert plain(await take(heard, 1)) == [{"x": 1}]


# --- suspending and moving ---


@in_virtual_time
async def test_coming_back_at_another_broker() -> None:
    async with Network("line:2") as net:
        alice, bob = await net.connect("b1"), await net.connect("b2")
        heard = await bob.subscribe("EXISTS x")
        await bob.suspend()
        await bob.resume("b1")
        assert bob.broker == "b1"
        await alice.publish({"x": 1})
        assert plain(await take(heard, 1)) == [{"x": 1}]
        assert [gap.publisher for gap in heard.gaps] == ["*"]


@in_virtual_time
async def test_going_elsewhere_while_the_broker_is_away() -> None:
    async with Network("line:2") as net:
        client = await net.connect("b1", name="alice")
        net.cut("alice", "b1")
        await quiet(1)
        await client.resume("b2")
        await quiet(60)
        assert client.broker == "b2"
        assert net.node("b2").status()["connected"] == 1


@in_virtual_time
async def test_moving_misses_nothing_and_hears_nothing_twice() -> None:
    async with Network("line:3") as net:
        alice, bob = await net.connect("b2"), await net.connect("b1")
        heard = await bob.subscribe("EXISTS x")
        stored = await bob.subscribe("EXISTS x", durable_name="all")
        await heard.settled()

        async def publish() -> None:
            for x in range(300):
                await alice.publish({"x": x}, durable=x % 2 == 0)

        publishing = asyncio.ensure_future(publish())
        for place in ("b3", "b2", "b1", "b3"):
            await quiet(0.05)
            await bob.move(place)
            assert bob.broker == place
        await publishing
        await quiet(40)
        assert sorted(event["x"] for event in await drain(heard)) == list(range(300))
        assert not heard.gaps
        durable = [event["x"] for event in await drain(stored)]
        # Those that are kept may change their order on the way.
        assert sorted(durable) == list(range(300))
        assert not stored.gaps


@in_virtual_time
async def test_who_publishes_all_the_time_moves_and_each_publication_is_answered() -> None:
    async with Network("line:2") as net:
        client = await net.connect("b1")
        net.delay("client-1", "b1", 0.05)  # several are always on their way
        receipts = []

        async def publish() -> None:
            for x in range(100):
                receipts.append(client.publish_nowait({"x": x}))
                await quiet(0.01)

        publishing = asyncio.ensure_future(publish())
        await quiet(0.3)
        async with asyncio.timeout(1.0):
            await client.move("b2")
        await publishing
        assert [(await each).level for each in receipts] == ["memory"] * 100
        assert client.broker == "b2"


@in_virtual_time
async def test_a_move_that_fails_changes_nothing() -> None:
    async with Network("line:2") as net:
        client = await net.connect("b1")
        other = await net.connect("b1")
        heard = await client.subscribe("EXISTS x")
        net.kill("b2")
        with pytest.raises(Unreachable):
            await client.move("b2")
        assert client.broker == "b1"
        await other.publish({"x": 1})
        await heard.receive()


@in_virtual_time
async def test_moves_at_once_go_one_after_another_and_leave_no_session_behind() -> None:
    async with Network("line:4") as net:
        client, other = await net.connect("b1"), await net.connect("b1")
        heard = await client.subscribe("EXISTS x")
        await asyncio.gather(client.move("b2"), client.move("b3"), client.suspend())
        assert not client.is_connected
        await asyncio.gather(client.resume(), client.move("b4"))
        assert client.broker == "b4"
        await quiet()
        sessions = [net.node(f"b{n}").status()["sessions"] for n in range(1, 5)]
        assert sessions == [1, 0, 0, 1], "the other's, and its own"
        await heard.settled()
        await other.publish({"x": 1})
        assert plain(await take(heard, 1)) == [{"x": 1}]


@in_virtual_time
async def test_a_client_that_ends_before_it_moves_goes_nowhere() -> None:
    async with Network("line:2") as net:
        client = await net.connect("b1")
        net.delay("client-1", "b1", 1.0)
        receipt = client.publish_nowait({"x": 1})
        moving = asyncio.ensure_future(client.move("b2"))
        await quiet(0.1)
        client._upstream.core.end()
        for each in (receipt, moving):
            with pytest.raises(Closed):
                await each
        await quiet(5)
        assert net.node("b2").status()["sessions"] == 0


@in_virtual_time
async def test_who_unsubscribes_does_not_wait_while_the_client_is_suspended() -> None:
    async with Network() as net:
        client = await net.connect("b1")
        heard = await client.subscribe("x > 0")
        net.delay("client-1", "b1", 20.0)
        leaving = asyncio.ensure_future(heard.unsubscribe())
        await quiet(0.1)
        assert not leaving.done()
        await client.suspend()
        async with asyncio.timeout(1):
            await leaving


# --- falling behind ---


@in_virtual_time
async def test_what_the_broker_drops_for_a_slow_client_is_told() -> None:
    settings = Settings(window_bytes=2_000, queue_bytes=2_000)
    async with Network(settings=settings) as net:
        alice, bob = await net.connect("b1"), await net.connect("b1", name="bob")
        heard = await bob.subscribe("EXISTS x")
        net.delay("bob", "b1", 5)  # so that it says late what it has seen
        for x in range(100):
            await alice.publish({"x": x})
        await quiet(60)
        await alice.publish({"x": 100})
        await quiet(60)
        got = seqs(await drain(heard))
        assert got[-1] == 101
        assert heard.dropped == 101 - len(got) > 0
        assert {gap.publisher for gap in heard.gaps} == {alice.publisher}


@in_virtual_time
async def test_a_cancelled_publication_that_has_not_left_never_leaves() -> None:
    async with Network() as net:
        client = await net.connect("b1")
        other = await net.connect("b1")
        heard = await client.subscribe("EXISTS x")
        first = asyncio.ensure_future(other.publish({"x": 1}))
        second = asyncio.ensure_future(other.publish({"x": 2}))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert plain(await take(heard, 1)) == [{"x": 2}]


@in_virtual_time
async def test_publishing_nothing() -> None:
    async with Network() as net:
        client = await net.connect("b1")
        receipt = await client.publish([])
        assert receipt.last_seq < receipt.first_seq
        with pytest.raises(InvalidEvent, match="int"):
            await client.publish(7)  # type: ignore[arg-type]  # what is tested


# --- events one by one ---

EVERY_TYPE: list[dict[str, Any]] = [
    {"x": 1, "b": True, "f": 0.5, "s": "é", "y": b"\xff"},
    {"x": 2, "t": datetime(2026, 1, 31, 12, tzinfo=UTC)},
    {"x": 3, "s": "x" * (MAX_LONE_BYTES + 1)},
    {"x": 4, "f": math.inf, "missing": None},
    {"x": 5},
]


@in_virtual_time
async def test_events_one_by_one_arrive_as_they_were() -> None:
    async with Network("line:3") as net:
        alice, bob = await net.connect("b1", name="alice"), await net.connect("b3")
        each = await bob.subscribe("x > 0")
        columns = await bob.subscribe("x > :low", {"low": 0})
        both = await bob.subscribe("x = 1 THEN x = 5")
        await each.settled()
        for event in EVERY_TYPE:
            await alice.publish(event)
        events = await take(each, len(EVERY_TYPE))
        present = [
            {name: value for name, value in event.items() if value is not None}
            for event in EVERY_TYPE
        ]
        assert plain(events) == present
        assert seqs(events) == [1, 2, 3, 4, 5]
        assert {event.publisher for event in events} == {alice.publisher}
        batches = columns.batches()
        rows = [row for _ in EVERY_TYPE for row in (await anext(batches)).to_pylist()]
        assert [row["$seq"] for row in rows] == seqs(events)
        assert [row["$time"] for row in rows] == [event.time for event in events]
        sequence = await both.receive()
        assert plain(sequence.parts) == [present[0], present[4]]


@in_virtual_time
async def test_handlers_that_share_a_queue_hear_an_event_by_itself_each() -> None:
    class Both(palio.Subscriber):
        def __init__(self) -> None:
            self.heard: list[tuple[str, int]] = []

        @palio.on("x > 0")
        async def wide(self, x: int) -> None:
            self.heard.append(("wide", x))

        @palio.on("x > 1")
        async def narrow(self, x: int) -> None:
            self.heard.append(("narrow", x))

    async with Network() as net:
        alice, bob = await net.connect("b1"), await net.connect("b1")
        both = await bob.attach(Both())
        for number in (1, 2):
            await alice.publish({"x": number})
        await quiet()
        assert both.heard == [("wide", 1), ("wide", 2), ("narrow", 2)]


# --- what a client imports ---

SMALL_PROGRAM = """
import asyncio, sys
import palio

async def main():
    palio.connect
    async with palio.Bus() as bus:
        heard = await bus.subscribe("price < 10 AND symbol IN ('IBM', 'HAL')")
        await bus.publish({"price": 9.5, "symbol": "IBM"})
        await heard.receive()

asyncio.run(main())
print(*sys.modules)
"""


def test_a_client_of_single_events_imports_neither_kernels_nor_pandas() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SMALL_PROGRAM], capture_output=True, text=True, check=True
    )
    modules = set(done.stdout.split())
    assert {"pyarrow", "palio.matching.index"} <= modules
    assert not modules & {"numba", "pandas", "pyarrow.compute", "pyarrow.parquet", "typer"}


@in_virtual_time
async def test_the_broker_reads_the_text_that_the_application_gave() -> None:
    async with Network() as net:
        client = await net.connect("b1")
        heard = await client.subscribe("  x >\n :low AND name LIKE 'a%'", {"low": 1})
        written = await client.subscribe(palio.parse("x = 5"))
        entries = {each["filter"] for each in await client.admin.subscriptions()}
        assert entries == {str(heard.filter), "x = 5"}
        await (await net.connect("b1")).publish([{"x": 2, "name": "ab"}, {"x": 5}])
        assert plain([await heard.receive()]) == [{"x": 2, "name": "ab"}]
        assert plain([await written.receive()]) == [{"x": 5}]
