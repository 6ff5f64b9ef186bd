"""Where a URL leads, and what is none."""

from __future__ import annotations

import pytest

from palio.errors import InvalidConfiguration
from palio.protocol.addresses import DEFAULT_PORT, Address, parse_address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("palio://host", Address("host", DEFAULT_PORT, False)),
        ("palios://host:1", Address("host", 1, True)),
        ("palio://[::1]:7401", Address("::1", 7401, False)),
    ],
)
def test_an_address_prints_to_what_it_was_read_from(url: str, address: Address) -> None:
    assert parse_address(url) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("url", ["", "host", "http://host", "palio://", "palio://host:99999"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfiguration, match="address"):
        parse_address(url)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("palio://host:7", Address("host", 7, is_secure=False)),
        ("palio://host", Address("host", 7400, is_secure=False)),
        ("palios://[::1]:7", Address("::1", 7, is_secure=True)),
        ("palio://127.0.0.1:0", Address("127.0.0.1", 0, is_secure=False)),
    ],
)
def test_where_a_url_leads(url: str, address: Address) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize(
    "url",
    ["host:7", "http://host", "palio://", "palio://host:x", "palio://host:70000", "palio://[1"],
)
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(InvalidConfiguration, match="is no address of a broker"):
        parse_address(url)


@pytest.mark.parametrize(
    "url", ["palio://user:secretpw@host", "palios://secretpw@host:7", "palio://a:secretpw@h:x"]
)
def test_a_user_or_a_password_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidConfiguration, match="has a user or a password") as refused:
        parse_address(url)
    assert "secretpw" not in str(refused.value)
