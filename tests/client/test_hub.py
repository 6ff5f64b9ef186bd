from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

import palio
from palio.client.dispatcher import Dispatcher
from palio.client.hub import Hub
from palio.client.upstream import Announced, Told
from palio.errors import NotPermitted
from palio.matching.reference import Reference
from tests.client.recording import Recording


@dataclass
class Watcher(palio.Subscriber):
    """Equal to others of the same name, and without a hash."""

    name: str
    heard: int = 0

    @palio.on("x > 0")
    def rises(self) -> None:
        self.heard += 1

    @palio.on("x < 0")
    def falls(self) -> None:
        self.heard -= 1


class Refusing(Recording):
    """An upstream that refuses each subscription, one turn of the loop after the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[asyncio.Future[None]] = []

    def subscribe(self, wanted: Announced, text: str) -> Told:
        super().subscribe(wanted, text)
        answer = asyncio.get_running_loop().create_future()
        delay = 0.001 * wanted.number
        error = NotPermitted(f"not {wanted.number}")
        asyncio.get_running_loop().call_later(delay, answer.set_exception, error)
        self.answers.append(answer)
        return answer


async def test_subscribers_that_are_equal_or_have_no_hash_are_told_apart() -> None:
    async with palio.Bus() as bus:
        one, other = Watcher("a"), Watcher("a")
        for each in (one, other):
            await bus.attach(each)
        await bus.detach(one)
        await bus.publish({"x": 1})
        await bus.detach(other)
        assert (one.heard, other.heard) == (0, 1)


async def test_the_answers_to_all_handlers_are_waited_for() -> None:
    upstream = Refusing()
    hub = Hub(Dispatcher(upstream, Reference()), upstream, reorder_s=0.0)
    with pytest.raises(NotPermitted, match="not 0") as refused:
        await hub.attach(Watcher("a"))
    assert refused.value.__notes__ == ["and: not 1"]
    assert all(each.done() for each in upstream.answers)
