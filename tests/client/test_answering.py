from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from palio.client.answering import answers, finish, log_refusal
from palio.errors import NotPermitted, Unreachable
from palio.protocol.failures import failure
from palio.protocol.messages import Done, Failed


def waiting() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


async def test_what_becomes_of_a_request() -> None:
    done, failed, over = waiting(), waiting(), waiting()
    answers(done)(Done(1))
    answers(failed)(Failed(1, failure(NotPermitted("no"))))
    answers(over)(Unreachable("nobody there"))
    assert await done == Done(1)
    with pytest.raises(NotPermitted, match="no"):
        await failed
    with pytest.raises(Unreachable, match="nobody there"):
        await over


async def test_who_waits_no_longer_is_told_nothing() -> None:
    future = waiting()
    future.cancel()
    answers(future)(Done(1))
    finish(future)
    assert future.cancelled()


async def test_a_refusal_that_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    log_refusal(None)
    confirmed, refused, cancelled = waiting(), waiting(), waiting()
    for each in (confirmed, refused, cancelled):
        log_refusal(each)
    confirmed.set_result(Done(1))
    refused.set_exception(NotPermitted("not yours"))
    cancelled.cancel()
    await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.records] == [
        "a change was not confirmed: not yours"
    ]


async def test_what_is_refused_is_taken_back_and_what_nobody_answered_is_not() -> None:
    taken_back: list[str] = []
    confirmed, refused, unanswered = waiting(), waiting(), waiting()
    for name, each in {"a": confirmed, "b": refused, "c": unanswered}.items():
        log_refusal(each, partial(taken_back.append, name))
    confirmed.set_result(Done(1))
    refused.set_exception(NotPermitted("not yours"))
    unanswered.set_exception(Unreachable("who knows"))
    await asyncio.sleep(0)
    assert taken_back == ["b"]
