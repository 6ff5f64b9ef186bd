from __future__ import annotations

import asyncio

import pytest

from palio.bridge.links import BATCH, Inbox, Message, confirms, lost_by
from palio.errors import Unreachable


async def test_an_inbox_gives_what_came_in_batches() -> None:
    inbox = Inbox()
    taking = asyncio.create_task(inbox.take())
    await asyncio.sleep(0)
    assert not taking.done()
    for n in range(BATCH + 1):
        inbox.put(Message("x", b"", str(n)))
    assert [each.id for each in await taking] == [str(n) for n in range(BATCH)]
    assert [each.id for each in await inbox.take()] == [str(BATCH)]


async def test_a_lost_link_gives_nothing_more() -> None:
    inbox = Inbox()
    taking = asyncio.create_task(inbox.take())
    await asyncio.sleep(0)
    inbox.lose("gone")
    for lost in (taking, inbox.take()):
        with pytest.raises(Unreachable, match="gone"):
            await lost


async def result(given: object) -> object:
    if isinstance(given, BaseException):
        raise given
    return given


async def test_a_refusal_has_its_reason_and_a_lost_connection_is_raised() -> None:
    given = [None, KeyError("x"), "", KeyError(), "full"]
    reasons = await confirms(map(result, given), KeyError, OSError)
    assert reasons == ["", "'x'", "", "KeyError", "full"]
    with pytest.raises(Unreachable, match="the connection was lost: gone"):
        await confirms(map(result, [None, KeyError("x"), OSError("gone")]), KeyError, OSError)
    with pytest.raises(ZeroDivisionError):
        await confirms(map(result, [ZeroDivisionError()]), KeyError, OSError)


def test_errors_of_a_client_are_told_apart() -> None:
    with pytest.raises(Unreachable, match="the connection was lost: reset"), lost_by(OSError):
        raise OSError("reset")
    with pytest.raises(Unreachable, match=r"^mine$"), lost_by(OSError):
        raise Unreachable("mine")  # an OSError, too
    with pytest.raises(KeyError), lost_by(OSError):
        raise KeyError
