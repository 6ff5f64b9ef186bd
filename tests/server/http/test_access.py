from __future__ import annotations

import pytest
from starlette.requests import HTTPConnection

from palio.errors import InvalidInput, NotAuthenticated, NotPermitted
from palio.model.filters import TRUE
from palio.node.authority import OpenAuthority, Principal
from palio.node.effects import Moment
from palio.server.http.access import Access, json_of, read
from tests.server.http.test_app import Tokens

ACCESS = Access(Tokens({"alice": Principal("alice", TRUE, TRUE)}), lambda: Moment(0.0, 0))


def connection(
    header: str = "", query: str = "", scheme: str = "http", **more: str
) -> HTTPConnection:
    headers = [(b"authorization", header.encode())] if header else []
    headers += [(name.replace("_", "-").encode(), value.encode()) for name, value in more.items()]
    return HTTPConnection(
        {"type": "http", "scheme": scheme, "headers": headers, "query_string": query.encode()}
    )


@pytest.mark.parametrize(
    ("header", "query"),
    [
        ("Bearer alice", ""),
        ("bearer  alice ", ""),
        ("", "access_token=alice"),
        ("Bearer alice", "access_token=eve"),
    ],
)
def test_a_token_is_shown_by_header_or_query(header: str, query: str) -> None:
    caller = ACCESS.caller(connection(header, query))
    assert (caller.name, caller.token) == ("alice", "alice")


@pytest.mark.parametrize(
    ("header", "query"),
    [
        *(("", ""), ("Bearer", ""), ("Bearer ", ""), ("Basic alice", ""), ("Bearer eve", "")),
        ("Basic x", "access_token=alice"),
    ],
)
def test_whoever_shows_nothing_good_is_nobody(header: str, query: str) -> None:
    with pytest.raises(NotAuthenticated):
        ACCESS.caller(connection(header, query))


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 50_000])
def test_a_body_that_is_no_json_is_told(body: bytes) -> None:
    with pytest.raises(InvalidInput, match="the body is not JSON"):
        json_of(body)
    with pytest.raises(InvalidInput, match="the body is not as it should be"):
        read(body, dict[str, str])


def test_a_body_of_another_shape_is_told_with_the_place() -> None:
    with pytest.raises(InvalidInput, match=r"Expected `str`, got `int` - at `\$\[...\]`"):
        read(b'{"a": 1}', dict[str, str])


PAGES = (
    *("http://evil.example", "http://127.0.0.1:8000", "null", "http://127.0.0.1:7480.evil"),
    *("https://127.0.0.1:7480", "ws://127.0.0.1:7480", "127.0.0.1:7480"),
)


@pytest.mark.parametrize("origin", PAGES)
def test_a_page_of_another_site_may_do_nothing_where_nobody_shows_a_token(origin: str) -> None:
    anyone = Access(OpenAuthority(), lambda: Moment(0.0, 0))
    host = "127.0.0.1:7480"
    for query in ("", "access_token=any"):
        with pytest.raises(NotPermitted, match="asks for no token"):
            anyone.caller(connection(query=query, host=host, origin=origin))
    assert anyone.caller(connection(host=host, origin=f"http://{host}"))
    assert anyone.caller(connection(host=host))
    assert ACCESS.caller(connection("Bearer alice", host=host, origin=origin)).name == "alice"


@pytest.mark.parametrize(
    ("site", "is_own"),
    [
        ("same-origin", True),
        ("none", True),
        ("cross-site", False),
        ("same-site", False),
        ("", False),
    ],
)
def test_a_page_that_only_links_here_is_known_by_its_site(site: str, is_own: bool) -> None:
    """`same-site` is another port of this machine, too."""
    anyone = Access(OpenAuthority(), lambda: Moment(0.0, 0))
    host = "127.0.0.1:7480"
    for origin in ({}, {"origin": f"http://{host}"}):
        linked = connection(host=host, sec_fetch_site=site, **origin)
        if is_own:
            assert anyone.caller(linked)
        else:
            with pytest.raises(NotPermitted, match="asks for no token"):
                anyone.caller(linked)
        shown = connection("Bearer alice", host=host, sec_fetch_site=site, **origin)
        assert ACCESS.caller(shown).name == "alice"


@pytest.mark.parametrize("scheme", ["http", "https", "ws", "wss"])
def test_a_page_of_the_broker_is_of_its_scheme(scheme: str) -> None:
    anyone = Access(OpenAuthority(), lambda: Moment(0.0, 0))
    is_secure = scheme.endswith("s") and scheme != "ws"
    own, other = ("https", "http") if is_secure else ("http", "https")
    assert anyone.caller(connection(scheme=scheme, host="b", origin=f"{own}://b"))
    with pytest.raises(NotPermitted, match="another site"):
        anyone.caller(connection(scheme=scheme, host="b", origin=f"{other}://b"))
