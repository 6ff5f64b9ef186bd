from __future__ import annotations

from collections.abc import Iterator

import pytest

from palio.cli.feed import READ_AHEAD, LineFeed


async def test_items_come_in_order_and_then_nothing() -> None:
    feed = LineFeed(range(3 * READ_AHEAD))
    taken: list[int] = []
    while some := await feed.take(1_000):
        assert len(some) <= 1_000
        taken += some
    assert taken == list(range(3 * READ_AHEAD))
    assert await feed.take(1) == []


async def test_an_error_comes_after_what_was_read_before_it() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise ZeroDivisionError

    feed = LineFeed(failing())
    assert await feed.take(10) == [1]
    with pytest.raises(ZeroDivisionError):
        await feed.take(10)
