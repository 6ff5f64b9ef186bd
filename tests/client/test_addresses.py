from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from palio.client.addresses import DEFAULT_PORT, Address, parse_address, tls_context
from palio.errors import InvalidConfiguration


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


def test_tls_is_by_scheme_or_by_argument() -> None:
    given = ssl.create_default_context()
    assert tls_context(None, is_secure=False) is None
    assert tls_context(False, is_secure=False) is None
    assert tls_context(given, is_secure=False) is given
    for tls in (None, True):
        context = tls_context(tls, is_secure=True)
        assert context is not None
        assert context.verify_mode == ssl.CERT_REQUIRED


def test_what_cannot_be_secured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="tls=False"):
        tls_context(False, is_secure=True)
    with pytest.raises(InvalidConfiguration, match="authorities"):
        tls_context(tmp_path / "missing.pem", is_secure=True)
