from __future__ import annotations

import asyncio

import pytest

from palio.model.filters import TRUE
from palio.node.authority import Principal
from palio.server import http_publishing
from tests.server.fronts import EVENT, asked, broker, publish, publish_one
from tests.server.test_http import Tokens, bearer


def many() -> Tokens:
    return Tokens({name: Principal(name, TRUE, TRUE) for name in "abcd"})


async def test_requests_of_a_token_share_a_session() -> None:
    async with broker() as server, asked(server) as client:
        answers = await asyncio.gather(*(publish(client, EVENT) for _ in range(5)))
        assert len({each["publisher"] for each in answers}) == 1
        assert sorted(each["first_seq"] for each in answers) == [1, 2, 3, 4, 5]
        assert server.node.status()["sessions"] == 1


async def test_sessions_are_limited_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_publishing, "MAX_PUBLISHERS", 2)
    async with broker(authority=many()) as server, asked(server, many()) as client:
        numbers = []
        for name in "abacab":
            client.headers.update(bearer(name))
            answer = (await publish(client, EVENT))["publisher"], server.node.status()["sessions"]
            numbers.append(answer)
        assert [sessions for _, sessions in numbers] == [1, 2, 2, 2, 2, 2]
        assert numbers[0][0] == numbers[2][0] == numbers[4][0]
        assert numbers[1][0] != numbers[5][0]


async def test_a_session_that_ended_is_opened_again() -> None:
    async with broker() as server, asked(server) as client:
        first = (await publish(client, EVENT))["publisher"]
        for link in list(server.links.values()):
            server._close(link, None, "the node ends it")
        assert (await publish_one(client, EVENT)).status_code in (202, 503)
        assert (await publish(client, EVENT))["publisher"] != first
