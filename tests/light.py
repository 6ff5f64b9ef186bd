"""What works without `palio[engine]`, against the broker at an address: run as a program.

    python -m tests.light palio://127.0.0.1:7401

The packages of the engine are blocked as if they were not installed, before Palio is imported.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

if __name__ == "__main__":
    blocked: Any = dict.fromkeys(("llvmlite", "numba", "numpy", "pandas", "pyarrow"))
    sys.modules.update(blocked)  # None stands for a module that is not there

import palio  # after the block
from palio.errors import InvalidConfiguration, LimitExceeded
from palio.model.limits import MAX_EVENT_TEXT_BYTES, MAX_LONE_BYTES

QUOTE = {"symbol": "IBM", "price": 9.5}
COUNT = 20


class Table:
    """Something that gives itself as an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        raise NotImplementedError


@contextmanager
def refused(error: type[Exception], reason: str) -> Iterator[None]:
    """The block raises an error of this type, whose message has the reason."""
    message = ""
    try:
        yield
    except error as refusal:
        message = str(refusal)
    assert reason in message, message or "nothing was refused"


def filters() -> None:
    """Filters match, explain themselves and are compared."""
    parsed = palio.parse_filter("symbol = 'IBM' AND price < :limit")
    assert parsed.matches(QUOTE, {"limit": 10})
    assert "price is 9.5" in str(parsed.explain(QUOTE, {"limit": 10}))
    assert palio.covers(palio.parse_filter("price < 20"), palio.parse_filter("price < 10"))


async def bus() -> None:
    """A bus matches by evaluating its filters, however many there are."""
    async with palio.Bus() as place:
        heard = [await place.subscribe("price < :limit", {"limit": at}) for at in range(COUNT)]
        receipt = await place.publish([QUOTE, {**QUOTE, "more": {"nested": [1]}}], ttl=60.0)
        assert receipt.deliveries == 2 * (COUNT - 10)
        assert [await heard[-1].receive(5) for _ in range(2)] == [QUOTE, QUOTE]
        sequence = await place.subscribe("a = 1 THEN b = 2")
        await place.publish([{"a": 1}, {"b": 2}])
        assert len((await sequence.receive(5)).parts) == 2
        for use in (heard[0].receive_batch(), heard[0].to_arrow(), place.publish(Table())):
            with refused(InvalidConfiguration, "palio[engine]"):
                await use
        assert await place.cancel("price < 100") == COUNT


async def network(url: str) -> None:
    """A client publishes, subscribes with parameters, updates, and acknowledges."""
    async with palio.connect(url, name="light") as client, palio.connect(url) as other:
        live = await client.subscribe("price < :limit", {"limit": 10.0})
        assert (await other.publish(QUOTE)).level == "memory"
        assert await live.receive(5) == QUOTE
        await live.update(limit=1.0)
        await other.publish([QUOTE, {**QUOTE, "price": 0.5}])
        assert (await live.receive(5))["price"] == 0.5
        await live.unsubscribe()
        kept = await client.subscribe("n >= 0", durable_name="kept", ack="manual")
        events = [{"n": number, "s": "é" * number} for number in range(COUNT)]
        receipts = [other.publish_nowait(event, durable=True) for event in events]
        assert [(await each).level for each in receipts] == ["durable"] * COUNT
        received = [await kept.receive(5) for _ in events]
        assert received == events
        received[0].ack()
        kept.ack()
        await kept.unsubscribe()
        large: dict[str, Any] = {"n": -1, "s": "x" * (MAX_LONE_BYTES + 1)}
        whole = await client.subscribe("n = -1")
        await other.publish(large)
        assert await whole.receive(5) == large
        with refused(LimitExceeded, "MAX_EVENT_TEXT_BYTES"):
            await other.publish({"s": "x" * (MAX_EVENT_TEXT_BYTES + 1)})


async def batches(url: str) -> None:
    """Batches of who has Arrow come as plain events: all, some, and those of a durable one."""
    async with palio.connect(url, name="plain") as client:
        every = await client.subscribe("batch >= 0")
        some = await client.subscribe("batch >= :least", {"least": COUNT - 5})
        kept = await client.subscribe("batch >= 0 AND batch < 15", durable_name="some")
        print("ready", flush=True)
        for heard, expected in ((every, range(COUNT)), (some, range(15, COUNT)), (kept, range(15))):
            for number in expected:
                event = await heard.receive(20)
                assert event == {"batch": number, **({} if number % 2 else {"even": True})}
        for use in (every.receive_batch(), every.to_pandas()):
            with refused(InvalidConfiguration, "palio[engine]"):
                await use


def main(url: str) -> None:
    """Try everything."""
    filters()
    asyncio.run(bus())
    asyncio.run(network(url))
    asyncio.run(batches(url))
    loaded = {name.partition(".")[0] for name, module in sys.modules.items() if module is not None}
    assert loaded.isdisjoint({"numba", "numpy", "pyarrow"})
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
