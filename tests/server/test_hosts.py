from __future__ import annotations

import pytest

from palio.errors import InvalidConfiguration
from palio.server.hosts import Hosts, address_of, is_public

NEARBY = (
    *("127.0.0.1", "127.8.9.10", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1"),
    *("169.254.169.254", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.0.0.9"),
    *("168.63.129.16", "::ffff:168.63.129.16", "64:ff9b::a83f:8110", "2002:a83f:8110::"),
    *("192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
    *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "fec0::1", "ff02::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "::7f00:1", "::10.0.0.1"),
    *("64:ff9b::7f00:1", "64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1"),
    *("2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1", "100::1", "4000::1"),
)
FAR = (
    *("93.184.216.34", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e"),
    *("::ffff:93.184.216.34", "64:ff9b::93.184.216.34"),
)


@pytest.mark.parametrize("address", NEARBY)
def test_what_is_nearby_is_not_public(address: str) -> None:
    assert not is_public(address_of(address))
    assert not Hosts(["public"]).allow("any.example", address)
    assert not Hosts([]).allow(address, address)


@pytest.mark.parametrize("address", FAR)
def test_what_is_far_is_public(address: str) -> None:
    assert is_public(address_of(address))
    assert Hosts(["public"]).allow("any.example", address)
    assert not Hosts([]).allow("any.example", address)


@pytest.mark.parametrize(
    ("entry", "host", "address", "is_meant"),
    [
        ("hooks.example", "hooks.example", "10.0.0.1", True),
        ("hooks.example", "HOOKS.Example.", "10.0.0.1", True),
        ("Hooks.Example.", "hooks.example", "10.0.0.1", True),
        ("hooks.example", "a.hooks.example", "10.0.0.1", False),
        ("hooks.example", "xhooks.example", "10.0.0.1", False),
        ("*.example", "a.b.example", "10.0.0.1", True),
        ("*.example", "example", "10.0.0.1", False),
        ("*.example", "aexample", "10.0.0.1", False),
        ("10.0.0.0/8", "any.example", "10.200.0.1", True),
        ("10.0.0.0/8", "any.example", "11.0.0.1", False),
        ("10.0.0.0/8", "any.example", "::ffff:10.0.0.1", True),
        ("10.0.0.1", "any.example", "10.0.0.1", True),
        ("::1", "any.example", "::1", True),
        ("[::1]", "[::1]", "::1", True),
        ("fd00::/8", "any.example", "fd12::1", True),
        ("fd00::/8", "any.example", "no address", False),
        ("*", "any.example", "127.0.0.1", True),
    ],
)
def test_an_entry_means(entry: str, host: str, address: str, is_meant: bool) -> None:
    assert Hosts([entry]).allow(host, address) == is_meant


@pytest.mark.parametrize(
    "entry",
    ["", "a b", "10.0.0.0/33", "10.0.0.1/8", "300.1.1.1", "a*.example", "-x", "http://a", "a/b"],
)
def test_what_is_no_entry_is_told(entry: str) -> None:
    with pytest.raises(InvalidConfiguration):
        Hosts([entry])


def test_a_name_is_never_taken_for_an_address() -> None:
    assert address_of("127.1") is None
    assert address_of("0x7f.1") is None
    assert not Hosts(["127.0.0.0/8"]).name("localhost")
    assert Hosts(["127.0.0.0/8"]).name("127.0.0.2")
