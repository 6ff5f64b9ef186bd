from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palio.errors import InvalidInput, LimitExceeded, NotPermitted, NotStored, ParseError
from palio.server.http import subscriptions
from palio.server.http.subscriptions import Directory, HttpSubscription, Request, parameters
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


def test_a_directory_survives(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.json"
    directory = Directory(path)
    one = subscription(sink="https://example.com/hook")
    directory.put(one)
    assert path.stat().st_mode & 0o777 == 0o600
    again = Directory(path)
    assert again.get("s1", "alice") == one
    assert again.with_sinks() == [one]
    again.drop("s1")
    assert "s1" not in Directory(path)


def test_a_damaged_directory_is_told(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.json"
    path.write_text("[{")
    with pytest.raises(InvalidInput, match=r"cannot read '.*subscriptions.json'"):
        Directory(path)


def test_a_directory_is_not_written_through_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    path = tmp_path / "subscriptions.json"
    for name in (path.name, f"{path.name}.new", f".{path.name}.unfinished"):
        (tmp_path / name).symlink_to(precious)
    path.unlink()
    directory = Directory(path)
    path.symlink_to(precious)
    directory.put(subscription())
    assert precious.read_text() == "precious"
    assert not path.is_symlink()


def test_others_subscriptions_do_not_exist() -> None:
    directory = Directory()
    directory.put(subscription())
    with pytest.raises(NotPermitted, match="no subscription 's1' of 'bob'"):
        directory.get("s1", "bob")
    assert directory.of("bob") == []


def test_what_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "data"
    directory = Directory(home / "subscriptions.json")
    with pytest.raises(NotStored, match="could not write to its disk: No such file"):
        directory.put(subscription())
    assert directory.of("alice") == []
    home.mkdir()
    directory.put(subscription())
    shutil.rmtree(home)
    with pytest.raises(NotStored):
        directory.drop("s1")
    assert "s1" in directory


def test_a_directory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIPTIONS", 2)
    directory = Directory()
    for number in range(2):
        directory.put(msgspec.structs.replace(subscription(), id=str(number)))
    directory.put(msgspec.structs.replace(subscription(), id="1"))
    with pytest.raises(LimitExceeded, match="MAX_SUBSCRIPTIONS"):
        directory.put(msgspec.structs.replace(subscription(), id="2"))


def test_parameters_of_a_query_are_typed_as_json() -> None:
    given = {"param.a": "10", "param.b": "1.5", "param.c": "true", "param.d": "IBM", "other": "1"}
    assert parameters(given) == {"a": 10, "b": 1.5, "c": True, "d": "IBM"}
    assert parameters({"param.e": "[1]"}) == {"e": "[1]"}


def test_an_unreadable_filter_is_told_with_its_place_in_the_document_and_in_the_text() -> None:
    with pytest.raises(ParseError) as caught:
        subscription(filters=[{"palio": "a = 1"}, {"palio": "a = 1 && b = 2"}])
    assert (caught.value.line, caught.value.column) == (1, 7)
    assert "at $.filters[1].palio: " in str(caught.value)
    assert "write AND" in str(caught.value)
