from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Final

import pytest

from palio.language.http_events import BATCH_TYPE
from palio.model.events import SPARSE_CELLS, SPARSE_SHARE
from palio.model.filters import TRUE
from palio.node.authority import Principal
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Advertise, Hello, Message, Publish
from palio.routing.advertised import Advertised
from palio.server.http import publishing
from palio.server.local_link import LocalLink
from palio.server.server import Server
from tests.server.fronts import EVENT, asked, broker, event, publish, publish_one
from tests.server.http.test_app import Tokens, bearer

ENVELOPE: Final = " AND ".join(f"EXISTS {name}" for name in EVENT if name != "data")
"""What every CloudEvent has."""


def many() -> Tokens:
    return Tokens({name: Principal(name, TRUE, TRUE) for name in "abcd"})


async def test_requests_of_a_token_share_a_session() -> None:
    async with broker() as server, asked(server) as client:
        answers = await asyncio.gather(*(publish(client, EVENT) for _ in range(5)))
        assert len({each["publisher"] for each in answers}) == 1
        assert sorted(each["first_seq"] for each in answers) == [1, 2, 3, 4, 5]
        assert server.node.status()["sessions"] == 1


async def test_sessions_are_limited_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "MAX_PUBLISHERS", 2)
    async with broker(authority=many()) as server, asked(server, many()) as client:
        numbers = []
        for name in "abacab":
            client.headers.update(bearer(name))
            answer = (await publish(client, EVENT))["publisher"], server.node.status()["sessions"]
            numbers.append(answer)
        assert [sessions for _, sessions in numbers] == [1, 2, 2, 2, 2, 2]
        assert numbers[0][0] == numbers[2][0] == numbers[4][0]
        assert numbers[1][0] != numbers[5][0]


async def test_what_an_identity_advertises_is_published_under_it() -> None:
    async with (
        broker(router=Advertised) as server,
        asked(server) as client,
    ):
        planner = server.connect_local(lambda _message: None, lambda _reason: None)
        planner.send(Hello("client", "planner", PROTOCOL_VERSION, identity="ann"))
        planner.send(Advertise(1, 1, f"{ENVELOPE} AND x > 0"))
        assert (await publish(client, event(1), query="?as=ann"))["accepted"] == 1
        some = await client.post(
            "/events?as=ann",
            content=json.dumps([event(2), event(-2)]),
            headers={"content-type": BATCH_TYPE},
        )
        assert some.status_code == 207
        assert some.json()["refused"][0]["error"]["type"] == "NotAdvertised"
        refused = await publish_one(client, EVENT)
        assert refused.status_code == 409
        assert refused.json()["error"]["count"] == 1
        assert (await publish_one(client, EVENT, "?as=a/b")).status_code == 400
        planner.close()


async def test_who_shows_a_token_publishes_under_its_own_name() -> None:
    async with broker(authority=many()) as server, asked(server, many()) as client:
        client.headers.update(bearer("a"))
        assert (await publish(client, EVENT, query="?as=a"))["accepted"] == 1
        refused = await publish_one(client, EVENT, "?as=b")
        assert refused.status_code == 403
        assert "'a' may not act as 'b'" in refused.json()["error"]["message"]
        assert server.node.status()["sessions"] == 1


async def test_a_session_that_ended_is_opened_again() -> None:
    async with broker() as server, asked(server) as client:
        first = (await publish(client, EVENT))["publisher"]
        for number in list(server.links):
            server.links.pop(number).close("the node ends it")
        assert (await publish_one(client, EVENT)).status_code in (202, 503)
        assert (await publish(client, EVENT))["publisher"] != first


async def test_a_batch_of_many_kinds_is_published_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With thousands of names the product of events and names was 40 million cells."""
    events, kinds, own = 1_000, 400, 3
    documents = [
        EVENT | {f"n{(at * own + part) % kinds}": at for part in range(own)} for at in range(events)
    ]
    published: list[Publish] = []
    hand_on = Server.from_front

    def noted(
        server: Server, link: LocalLink, message: Message, *, up_to: int | None = None
    ) -> None:
        if isinstance(message, Publish) and up_to is None:
            published.append(message)
        hand_on(server, link, message, up_to=up_to)

    monkeypatch.setattr(Server, "from_front", noted)
    async with broker() as server, asked(server) as client:
        answer = await client.post(
            "/events", content=json.dumps(documents), headers={"content-type": BATCH_TYPE}
        )
        assert answer.status_code == 202
        assert (answer.json()["first_seq"], answer.json()["last_seq"]) == (1, events)
        assert server.node.status()["published"] == events
    sizes = [(each.parcel.batch.num_rows, each.parcel.batch.num_columns) for each in published]
    values = events * (own + len(EVENT))
    assert sum(rows for rows, _ in sizes) == events
    cells = sum(rows * columns for rows, columns in sizes)
    assert cells <= SPARSE_SHARE * values + SPARSE_CELLS * len(sizes) < events * kinds * 4 // 5
    assert max(rows * columns for rows, columns in sizes) <= 4 * publishing.PIECE_VALUES * 2


async def test_numbers_of_one_request_follow_each_other_whoever_publishes_meanwhile() -> None:
    documents = json.dumps([EVENT | {f"n{at % 40}": at} for at in range(2_000)])
    headers = {"content-type": BATCH_TYPE}
    async with broker() as server, asked(server) as client:
        answers = await asyncio.gather(
            *(client.post("/events", content=documents, headers=headers) for _ in range(3))
        )
        found = sorted((each.json()["first_seq"], each.json()["last_seq"]) for each in answers)
        assert found == [(1, 2_000), (2_001, 4_000), (4_001, 6_000)]


@pytest.mark.parametrize("body", ["{}", "1", "[", "[1", '["\\x"]', ""])
async def test_a_batch_that_is_no_array_is_refused(body: str) -> None:
    async with broker() as server, asked(server) as client:
        answer = await client.post("/events", content=body, headers={"content-type": BATCH_TYPE})
        assert answer.status_code == 400
        assert server.node.status()["published"] == 0


async def test_json_objects_are_events_as_a_program_publishes_them(tmp_path: Path) -> None:
    async with broker(tmp_path) as server, asked(server) as client:
        wanted = {"filters": [{"palio": "size.lots > 1"}], "config": {"durable": True}}
        subscribed = await client.post("/subscriptions", json=wanted)
        path = f"/subscriptions/{subscribed.json()['id']}/batch?wait_s=5"
        one = await client.post("/events?durable=true", json={"symbol": "IBM", "size": {"lots": 2}})
        assert (one.status_code, one.json()["accepted"]) == (202, 1)
        more = await client.post("/events?durable=true", json=[{"x": 1}, {"size": {"lots": 3}}])
        assert more.json()["accepted"] == 2
        events = (await client.get(path)).json()
        assert [each["type"] for each in events] == ["palio.event"] * len(events)
        assert events[0]["data"] == {"symbol": "IBM", "size": {"lots": 2}}


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("7", "an event is a JSON object of attributes, not 7"),
        ("null", "an event is a JSON object of attributes, not None"),
        ('[{"x": 1}, 7]', "event 1 of the batch: an event is a JSON object"),
        ('{"specversion": "1.0"}', "send it with content-type application/cloudevents+json"),
        ('{"$seq": 1}', "$seq"),
        ('{"x": ', "the body is not JSON"),
        (json.dumps([{}] * (publishing.MAX_BATCH_EVENTS + 1)), "MAX_BATCH_EVENTS"),
    ],
)
async def test_other_json_is_no_event(body: str, problem: str) -> None:
    async with broker() as server, asked(server) as client:
        answer = await client.post(
            "/events", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code in (400, 413)
        assert problem in answer.text
