from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
import pytest

from palio.errors import InvalidInput, JournalDamaged, LimitExceeded, NotStored, ParseError
from palio.node.authority import ANYONE, Limits, Principal
from palio.node.effects import Answered
from palio.node.operations import PutRecord, Record
from palio.server.http import subscriptions
from palio.server.http.subscriptions import (
    PREFIX,
    Directory,
    HttpSubscription,
    Request,
    parameters,
)
from palio.server.limits import MAX_SINK_CHARS, MAX_SINK_HEADERS, MAX_SINK_HEADERS_BYTES


def subscription(**fields: Any) -> HttpSubscription:
    request = msgspec.convert(fields, Request)
    return HttpSubscription.of("s1", "alice", request, "token")


@pytest.mark.parametrize(
    ("filters", "meaning"),
    [
        ([], "TRUE"),
        ([{"exact": {"type": "t"}}], "type = 't'"),
        ([{"prefix": {"type": "t"}}], "type STARTS WITH 't'"),
        ([{"suffix": {"type": "t"}}], "type ENDS WITH 't'"),
        ([{"all": [{"exact": {"type": "t"}}, {"exact": {"id": "i"}}]}], "id = 'i' AND type = 't'"),
        ([{"any": [{"exact": {"type": "t"}}, {"exact": {"id": "i"}}]}], "id = 'i' OR type = 't'"),
        ([{"sql": "type = 't'"}], "type = 't'"),
        ([{"palio": "price < 5"}], "price < 5"),
        ([{"palio": "price < 5"}, {"exact": {"type": "t"}}], "price < 5 AND type = 't'"),
    ],
)
def test_filters_of_all_dialects(filters: list[Any], meaning: str) -> None:
    assert subscription(filters=filters).filter == meaning


def test_not_is_the_negation_that_cloud_events_mean() -> None:
    made = subscription(filters=[{"not": {"exact": {"type": "t"}}}])
    assert "type != 't'" in made.filter


def test_source_and_types_are_filters_too() -> None:
    made = subscription(source="/s", types=["a", "b"])
    assert made.filter == "source = '/s' AND type IN ('a', 'b')"


def test_parameters_have_values() -> None:
    own = {"filter": "price < :limit", "parameters": {"limit": 5}}
    made = subscription(filters=[{"palio": own}, {"palio": {"filter": "x = 1"}}])
    assert (made.filter, made.values) == ("price < :limit AND x = 1", {"limit": 5})
    assert made.shown()["palio"] == {"filter": made.filter, "parameters": {"limit": 5}}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"filters": [{"palio": "a"}, {"regex": {"type": "t"}}]},
            r"at \$.filters\[1\]: .* is no filter; one of exact, .*, sql, palio is its only key",
        ),
        ({"filters": [{"palio": "a", "sql": "a"}]}, r"at \$.filters\[0\]: .* is no filter"),
        ({"filters": [{"palio": "a"}, {"sql": "a ="}]}, r"at \$.filters\[1\].sql: "),
        ({"filters": [{"palio": "a"}, {"palio": "a ="}]}, r"at \$.filters\[1\].palio: the text"),
        ({"filters": [{"palio": "a THEN b"}]}, r"at \$.filters\[0\].palio: a single filter"),
        ({"filters": [{"palio": {"filter": "a ="}}]}, r"at \$.filters\[0\].palio.filter: the"),
        ({"filters": [{"all": [{"palio": "x = 1"}]}]}, '"palio" is not supported'),
        ({"filters": [{"palio": "price <"}]}, "line 1, column 8"),
        ({"filters": [{"palio": 5}]}, r"at \$.filters\[0\].palio: takes a filter's text"),
        ({"filters": [{"palio": {"filter": "x = 1", "more": 1}}]}, "and nothing else"),
        ({"filters": [{"palio": {"filter": "x = 1", "parameters": []}}]}, "an object of names"),
        ({"filters": [{"palio": {"filter": "x = 1", "parameters": {"y": 1}}}]}, "no parameter :y"),
        ({"filters": [{"palio": "x = :y"}]}, ":y has no value"),
        ({"filters": [{"palio": {"filter": "x = :y", "parameters": {"y": 1}}}] * 2}, "two filters"),
        ({"protocol": "MQTT"}, "'MQTT' is not supported"),
        ({"protocolsettings": {"method": "PUT"}}, "there are headers and secret, and nothing else"),
        (
            {"protocolsettings": {"secret": 5}},
            r"at \$.protocolsettings.secret: a secret is written",
        ),
        ({"protocolsettings": {"secret": "x"}}, r"at \$.protocolsettings.secret: a secret is"),
        ({"protocolsettings": {"headers": {"a": 1}}}, "an object of texts"),
        ({"sink": "ftp://example.com"}, "no address of HTTP"),
        ({"sink": "http://"}, "no address of HTTP"),
        ({"sink": "http://[::1"}, "no address of HTTP"),
        ({"sink": "http://a:99999999/"}, "no address of HTTP"),
        ({"sink": "http://a\nb/"}, "no address of HTTP"),
        ({"sink": "http://\ud800/"}, "no address of HTTP"),
        ({"sink": "//a/"}, "no address of HTTP"),
        ({"config": {"deadletter": "nowhere"}}, r"at \$.config.deadletter: 'nowhere'"),
        ({"config": {"attempts": 0}}, r"at \$.config.attempts: a number from 1 to 100"),
        ({"config": {"batch": 1_001}}, r"at \$.config.batch: a number from 1 to 1000"),
        ({"config": {"since": "2026-01-01T00:00:00Z"}}, r"at \$.config.since: it is for durable"),
        ({"config": {"lease_s": -1}}, "config.lease_s is -1"),
        ({"config": {"lease_s": 1e308}}, "MAX_SECONDS"),
    ],
)
def test_what_nobody_could_carry_out_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        subscription(**fields)


HOP_BY_HOP = (
    *("Host", "content-length", "Transfer-Encoding", "connection", "TE", "Trailer", "Upgrade"),
    *("Proxy-Authorization", "proxy-connection", "Keep-Alive", "Expect", "HTTP2-Settings"),
    *("Content-Type", "Content-Encoding", "Accept-Encoding", "WebHook-Request-Origin"),
    *("Webhook-Signature", "webhook-id", "Idempotency-Key"),
)


@pytest.mark.parametrize("name", HOP_BY_HOP)
def test_headers_about_the_connection_are_the_brokers(name: str) -> None:
    with pytest.raises(InvalidInput, match=f'"{name}".: this header is the broker'):
        subscription(protocolsettings={"headers": {name: "5"}})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("", "a"), ("a b", "a"), ("a:", "a"), ("\u017fet", "a"), ("a\r\nb", "a"), (" host", "a")),
        *(
            ("a", "b\r\nHost: c"),
            ("a", "b\n"),
            ("a", "\x00"),
            ("a", "\xe9"),
            ("a", " b"),
            ("a", "b "),
        ),
    ],
)
def test_headers_are_lines_of_ascii(name: str, value: str) -> None:
    with pytest.raises(InvalidInput, match="a line of printable ASCII"):
        subscription(protocolsettings={"headers": {name: value}})


def test_good_headers_are_taken_and_each_once() -> None:
    subscription(
        protocolsettings={"headers": {"Authorization": "Bearer a.b", "x-tags": "a, b", "x": ""}}
    )
    with pytest.raises(InvalidInput, match="given twice"):
        subscription(protocolsettings={"headers": {"X-Key": "a", "x-key": "b"}})


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_headers_and_addresses_are_limited(beyond: int) -> None:
    path = "x" * (MAX_SINK_CHARS - len("http://a/") + beyond)
    many = {f"x-{number}": "" for number in range(MAX_SINK_HEADERS + beyond)}
    long = {"x": "y" * (MAX_SINK_HEADERS_BYTES - 1 + beyond)}
    asked: list[tuple[dict[str, Any], str]] = [
        ({"sink": "http://a/" + path}, "no address of HTTP"),
        ({"protocolsettings": {"headers": many}}, "MAX_SINK_HEADERS"),
        ({"protocolsettings": {"headers": long}}, "MAX_SINK_HEADERS_BYTES"),
    ]
    for fields, problem in asked:
        if beyond > 0:
            with pytest.raises(InvalidInput, match=problem):
                subscription(**fields)
        else:
            subscription(**fields)


# --- the directory ---


class Disk:
    """Records that are written when the test says so, and in the order in which they came."""

    def __init__(self) -> None:
        self.records: dict[str, bytes] = {}
        self.problem = ""
        self.waits = False
        self._waiting: list[tuple[Record, Answered]] = []

    def keep(self, record: Record, answered: Answered) -> None:
        self._waiting.append((record, answered))
        if not self.waits:
            self.write()

    def write(self) -> None:
        waiting, self._waiting = self._waiting, []
        for record, answered in waiting:
            if self.problem:
                pass
            elif isinstance(record, PutRecord):
                self.records[record.key] = record.value
            else:
                del self.records[record.key]
            answered(self.problem or None)


ALICE: Final = Principal("alice")


def another(id: str, owner: str = "alice") -> HttpSubscription:
    return msgspec.structs.replace(subscription(), id=id, owner=owner)


async def test_a_directory_survives() -> None:
    disk = Disk()
    directory = Directory(disk.keep, {})
    one = subscription(sink="https://example.com/hook")
    await directory.put(one)
    disk.records["another front's"] = b"anything"
    again = Directory(disk.keep, disk.records)
    assert again.find("s1", "alice") == one
    assert again.with_sinks() == again.of("alice") == [one]
    await again.drop(one)
    assert again.of("alice") == Directory(disk.keep, disk.records).of("alice") == []


def test_a_record_that_is_no_subscription_is_told_with_its_place() -> None:
    with pytest.raises(JournalDamaged, match=r"records, 'http subscription s1' is no subscr"):
        Directory(Disk().keep, {f"{PREFIX}s1": b"[{"})


async def test_others_subscriptions_do_not_exist() -> None:
    directory = Directory(Disk().keep, {})
    await directory.put(subscription())
    assert directory.find("s1", "bob") is None
    assert directory.of("bob") == []


async def test_what_cannot_be_written_changes_nothing() -> None:
    disk = Disk()
    directory = Directory(disk.keep, {})
    disk.problem = "the disk is full"
    with pytest.raises(NotStored, match="the disk is full"):
        await directory.put(subscription())
    assert directory.of("alice") == []
    disk.problem = ""
    await directory.put(subscription())
    disk.problem = "the disk is full"
    with pytest.raises(NotStored):
        await directory.put(subscription(source="/changed"))
    with pytest.raises(NotStored):
        await directory.drop(subscription())
    assert directory.of("alice") == [subscription()]


@pytest.mark.parametrize("problem", ["", "the disk is full"])
async def test_what_is_written_counts_though_nobody_waits_any_longer(problem: str) -> None:
    disk = Disk()
    disk.waits = True
    directory = Directory(disk.keep, {})
    putting = asyncio.create_task(directory.put(subscription()))
    await asyncio.sleep(0)
    putting.cancel()
    await asyncio.gather(putting, return_exceptions=True)
    disk.problem = problem
    disk.write()
    again = Directory(disk.keep, disk.records)
    assert directory.of("alice") == again.of("alice") == ([] if problem else [subscription()])


def limit_of(directory: Directory, owner: Principal) -> str:
    """The limit for which another one is refused, if it is."""
    try:
        directory.check_room(owner)
    except LimitExceeded as error:
        return error.limit
    return ""


async def test_an_owner_has_its_grant_or_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIPTIONS_OF_ONE", 2)
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIPTIONS", 5)
    directory, bob = Directory(Disk().keep, {}), Principal("bob", limits=Limits(subscriptions=1))
    wide = Principal("alice", limits=Limits(subscriptions=9))
    await directory.put(another("1"))
    assert limit_of(directory, ALICE) == limit_of(directory, bob) == ""
    await directory.put(another("2"))
    await directory.put(another("3", "bob"))
    assert limit_of(directory, ALICE) == limit_of(directory, wide) == "MAX_SUBSCRIPTIONS_OF_ONE"
    assert limit_of(directory, bob) == "limits.subscriptions"
    assert limit_of(directory, Principal("carol")) == ""
    await directory.drop(another("2"))
    assert limit_of(directory, ALICE) == ""
    for number in range(3):
        assert limit_of(directory, Principal(ANYONE)) == ""
        await directory.put(another(f"a{number}", ANYONE))
    for name in ("alice", "carol", ANYONE):
        assert limit_of(directory, Principal(name)) == "MAX_SUBSCRIPTIONS"


async def test_one_that_is_being_written_has_its_place() -> None:
    disk = Disk()
    disk.waits = True
    directory, bob = Directory(disk.keep, {}), Principal("bob", limits=Limits(subscriptions=1))
    putting = asyncio.create_task(directory.put(another("1", "bob")))
    await asyncio.sleep(0)
    assert limit_of(directory, bob) == "limits.subscriptions"
    disk.problem = "the disk is full"
    disk.write()
    with pytest.raises(NotStored):
        await putting
    assert limit_of(directory, bob) == ""


def test_parameters_of_a_query_are_typed_as_json() -> None:
    given = {"param.a": "10", "param.b": "1.5", "param.c": "true", "param.d": "IBM", "other": "1"}
    assert parameters(given) == {"a": 10, "b": 1.5, "c": True, "d": "IBM"}
    assert parameters({"param.e": "[1]", "param.f": "{}"}) == {"e": [1], "f": "{}"}
    assert parameters({"param.g": "'10'", "param.h": "'it''s'"}) == {"g": "10", "h": "it's"}
    assert parameters({"param.i": "'", "param.j": "''"}) == {"i": "'", "j": ""}


def test_an_unreadable_filter_is_told_with_its_place_in_the_document_and_in_the_text() -> None:
    with pytest.raises(ParseError) as caught:
        subscription(filters=[{"palio": "a = 1"}, {"palio": "a = 1 && b = 2"}])
    assert (caught.value.line, caught.value.column) == (1, 7)
    assert "at $.filters[1].palio: " in str(caught.value)
    assert "write AND" in str(caught.value)
