from __future__ import annotations

from collections.abc import Iterator

import pytest

from palio.cli.threaded_reader import READ_AHEAD, ThreadedReader


async def test_items_come_in_order_and_then_nothing() -> None:
    reader = ThreadedReader(range(3 * READ_AHEAD))
    taken: list[int] = []
    while some := await reader.take(1_000):
        assert len(some) <= 1_000
        taken += some
    assert taken == list(range(3 * READ_AHEAD))
    assert await reader.take(1) == []


async def test_an_error_comes_after_what_was_read_before_it() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise ZeroDivisionError

    reader = ThreadedReader(failing())
    assert await reader.take(10) == [1]
    with pytest.raises(ZeroDivisionError):
        await reader.take(10)
