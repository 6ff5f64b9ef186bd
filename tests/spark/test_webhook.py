"""The sink against a real server on this machine: what it is sent, and what it may answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

pytest.importorskip("pyspark")

from palio.errors import InvalidConfiguration, PalioError, Unreachable
from palio.language.http_events import from_binary, from_json
from palio.model.events import PAYLOAD
from palio.spark.pipeline import run_pipeline
from palio.spark.plan import read_plan
from palio.spark.tasks import TaskPlace
from palio.spark.webhook import Called, Hook, calls, hook_of, post_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACE: Final = TaskPlace("q", 7, 1)
CLOUD: Final = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Post(NamedTuple):
    """A call as a server has it."""

    path: str
    headers: dict[str, str]
    body: bytes


class Server:
    """Answers what it is told to, in order, and 204 after that; 0 is to hang up."""

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.answers: list[int] = []
        self.said: dict[str, str] = {}
        """Headers of its answers."""
        self.connections = 0
        self.lock = Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                server.connections += 1

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                with server.lock:
                    server.posts.append(Post(self.path, headers, body))
                    status = server.answers.pop(0) if server.answers else 204
                if status == 0:
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in server.said.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        return Handler

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def keys(self) -> list[str]:
        return [post.headers["idempotency-key"] for post in self.posts]


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


def hook(server: Server, **options: str) -> Hook:
    return hook_of({"url": f"{server.url}/in?x=1", **options})


def post(server: Server, *events: dict[str, Any], **options: str) -> tuple[Called, list[float]]:
    waited: list[float] = []
    return post_all(hook(server, **options), PLACE, events, wait=waited.append), waited


def seen(event: dict[str, Any]) -> dict[str, Any]:
    """What filters see of an event."""
    return {name: value for name, value in event.items() if name != PAYLOAD}


def test_an_event_is_posted_in_json(server: Server) -> None:
    event = {**CLOUD, "x": 1, "subscription": "a", "time": NOON}
    called, _ = post(server, event, **{"header.X-From": "me", "token": "secret"})
    assert called == Called(1, 0, 0)
    (got,) = server.posts
    assert got.path == "/in?x=1"
    assert got.headers["content-type"] == "application/cloudevents+json"
    assert got.headers["idempotency-key"] == "q/7/1.0"
    assert (got.headers["x-from"], got.headers["authorization"]) == ("me", "Bearer secret")
    assert seen(from_json(json.loads(got.body))) == event


def test_an_event_that_is_no_cloudevent_is_one_of_palios(server: Server) -> None:
    post(server, {"price": 1.5, "subscription": 4}, source="quotes")
    document = json.loads(server.posts[0].body)
    assert document["data"] == {"price": 1.5, "subscription": 4}
    assert [document[name] for name in ("type", "source", "id")] == [
        "palio.event",
        "/quotes",
        "q/7/1.0",
    ]


def test_an_event_in_headers_and_a_body(server: Server) -> None:
    event = {**CLOUD, "x": "ä", "subject": "a b"}
    post(server, event, mode="binary")
    (got,) = server.posts
    assert got.headers["ce-subject"] == "a%20b"
    event["datacontenttype"] = "application/json"
    assert seen(from_binary(got.headers, got.body)) == event


def test_batches_have_the_key_of_their_first_event(server: Server) -> None:
    called, _ = post(server, *({"n": n} for n in range(5)), mode="batch", batchSize="2")
    assert called.taken == 5
    assert server.keys == ["q/7/1.0", "q/7/1.2", "q/7/1.4"]
    bodies = [json.loads(each.body) for each in server.posts]
    assert [[event["data"]["n"] for event in body] for body in bodies] == [[0, 1], [2, 3], [4]]
    assert server.posts[0].headers["content-type"] == "application/cloudevents-batch+json"
    assert server.connections == 1


def test_what_fails_is_tried_again_under_the_same_key(server: Server) -> None:
    server.answers = [503, 429, 0]
    called, waited = post(server, {"n": 1}, {"n": 2})
    assert called == Called(2, 0, 3)
    assert waited == [0.5, 1.0, 2.0]
    assert server.keys == ["q/7/1.0"] * 4 + ["q/7/1.1"]


def test_a_sink_says_when_to_come_back(server: Server) -> None:
    server.answers, server.said = [503], {"Retry-After": "7"}
    assert post(server, {"n": 1})[1] == [7.0]


def test_a_sink_that_is_not_there_is_tried_again(server: Server) -> None:
    server.close()
    with pytest.raises(Unreachable, match=r"did not take events .*option\('deadLetter'"):
        post(server, {"n": 1}, attempts="2")


def letters(directory: Path) -> list[dict[str, Any]]:
    (file,) = directory.iterdir()
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_what_is_not_taken_is_put_aside(server: Server, tmp_path: Path) -> None:
    server.answers = [400, 204, 500, 500]
    options = {"deadLetter": str(tmp_path / "dead"), "attempts": "2"}
    called, _ = post(server, *({"n": n} for n in range(3)), **options)
    assert called == Called(1, 2, 1)
    found = letters(tmp_path / "dead")
    assert [(each["key"], each["reason"], each["event"]["data"]) for each in found] == [
        ("q/7/1.0", "status 400", {"n": 0}),
        ("q/7/1.2", "status 500", {"n": 2}),
    ]
    assert [each.name for each in (tmp_path / "dead").iterdir()] == ["q-7-1.jsonl"]
    post(server, *({"n": n} for n in range(3)), **options)  # tried again, and all is taken
    assert list((tmp_path / "dead").iterdir()) == []


def test_a_sink_that_is_gone_is_not_asked_again(server: Server, tmp_path: Path) -> None:
    server.answers = [410]
    with pytest.raises(PalioError, match="is gone"):
        post(server, {"n": 1}, {"n": 2}, deadLetter=str(tmp_path / "dead"))
    assert len(server.posts) == 1
    assert not (tmp_path / "dead").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": ""}, "'url' is ''"),
        ({"url": "ftp://host"}, "'url' is 'ftp://host'; it takes http"),
        ({"url": "http://me:pw@host/"}, "a token goes into 'tokenFile'"),
        ({"mode": "xml"}, "'mode' is 'xml': .* it is one of structured, binary, batch"),
        ({"batchSize": "2"}, "'batchSize' is for the mode 'batch', not 'structured'"),
        ({"attempts": "0"}, "'attempts' is '0'"),
        ({"deadletters": "x"}, "'deadletters' .* did you mean deadLetter"),
        ({"tokenFile": "/none"}, "'tokenFile'"),
    ],
)
def test_options_are_checked(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidConfiguration, match=told):
        hook_of({"url": "http://localhost/x", **options})


def limits() -> list[tuple[dict[str, str], str, int]]:
    return [({"mode": "batch"}, "batchSize", 1_000), ({}, "attempts", 100)]


@pytest.mark.parametrize(("options", "name", "most"), limits(), ids=["batchSize", "attempts"])
def test_limits(options: dict[str, str], name: str, most: int) -> None:
    def taken(number: int) -> Hook:
        return hook_of({"url": "http://localhost/x", **options, name: str(number)})

    made = [taken(number) for number in (most - 1, most)]
    assert [each.batch if "mode" in options else each.attempts for each in made] == [most - 1, most]
    with pytest.raises(InvalidConfiguration, match=f"<= {most}"):
        taken(most + 1)


def test_the_calls_of_a_task_are_the_same_each_time() -> None:
    made = hook_of({"url": "http://localhost/x", "mode": "batch", "batchSize": "3"})
    events = [{"n": n, "at": NOON} for n in range(10)]
    assert list(calls(made, PLACE, events)) == list(calls(made, PLACE, iter(events)))


PIPELINE: Final = """name = "alerts"
checkpoint = "c"
trigger = "available now"

[source]
format = "json"
stream = true
path = "in"
schema = "n BIGINT, xs ARRAY<BIGINT>"

[normalize]
flatten = false

[match]
subscriptions = "wanted.jsonl"
columns = ["n", "xs"]

[[sinks]]
of = "matches"
format = "webhook"
options = {{ url = "{url}", deadLetter = "dead", attempts = 2 }}
"""


def test_a_pipeline_posts_what_matches(spark: SparkSession, server: Server, tmp_path: Path) -> None:
    (tmp_path / "wanted.jsonl").write_text('{"id": "s", "subscriber": "ann", "filter": "n > 1"}\n')
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"n": n, "xs": [n]}) + "\n" for n in range(5)]
    (tmp_path / "in" / "1.json").write_text("".join(lines))
    (tmp_path / "p.toml").write_text(PIPELINE.format(url=f"{server.url}/hook"))
    server.answers = [503, 204, 400]
    report = run_pipeline(read_plan(tmp_path / "p.toml"), spark)
    assert report.events == 5
    sent = [json.loads(each.body)["data"] for each in server.posts]
    assert sent == [
        {"n": n, "xs": f"[{n}]", "subscription": "s", "subscriber": "ann"} for n in (2, 2, 3, 4)
    ]
    query, batch, row = server.keys[0].split("/")
    assert len(query) == 36
    assert (batch, row) == ("0", "0.0")
    assert [each["event"]["data"]["n"] for each in letters(tmp_path / "dead")] == [3]


def test_a_batch_that_failed_is_posted_again_under_its_keys(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "wanted.jsonl").write_text('{"id": "s", "filter": "n > 1"}\n')
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"n": n, "xs": []}) + "\n" for n in range(5)]
    (tmp_path / "in" / "1.json").write_text("".join(lines))
    text = PIPELINE.format(url=server.url).replace(
        'deadLetter = "dead", attempts = 2', "attempts = 1"
    )
    (tmp_path / "p.toml").write_text(text)
    server.answers = [204, 500]
    with pytest.raises(PalioError, match=r"did not take events \(status 500\)"):
        run_pipeline(read_plan(tmp_path / "p.toml"), spark)
    first = [(post.headers["idempotency-key"], post.body) for post in server.posts]
    server.posts.clear()
    run_pipeline(read_plan(tmp_path / "p.toml"), spark)
    again = [(post.headers["idempotency-key"], post.body) for post in server.posts]
    assert len(again) == 3
    assert again[:2] == first


def test_a_hook_is_checked_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "wanted.jsonl").write_text("")
    (tmp_path / "in").mkdir()
    (tmp_path / "p.toml").write_text(PIPELINE.format(url="nowhere"))
    with pytest.raises(InvalidConfiguration, match=r":21: sinks\[0\].options: option 'url' is"):
        read_plan(tmp_path / "p.toml")
