from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palio.errors import InvalidConfiguration
from palio.node.settings import Settings as NodeSettings
from palio.protocol.limits import MAX_MTU, MAX_SECONDS, MAX_URL_CHARS, MIN_MTU, MIN_SECONDS
from palio.routing.trees import MAX_USABLE_COST, UNMEASURED
from palio.server.configuring import (
    configure,
    described,
    is_loopback,
    problems,
    refuse,
    worded,
)
from palio.server.limits import MAX_BYTES, MAX_COUNT, MAX_REORDER_S
from palio.server.settings import (
    Broker,
    Configuration,
    Grant,
    Limits,
    Multicast,
    Peers,
)
from tests.tables import code


def configuration(**given: Any) -> Configuration:
    sections: dict[str, dict[str, Any]] = {}
    for name, value in given.items():
        section, _, key = name.partition("_")
        sections.setdefault(section, {})[key] = value
    types = {field.name: field.type for field in msgspec.structs.fields(Configuration)}
    return Configuration(**{name: types[name](**keys) for name, keys in sections.items()})


GRANTED = {"b2": Grant(allow_publish="TRUE", allow_subscribe="TRUE")}

KEYS = {"auth_keys": "keys", "auth_token_file": "token", "auth_broker_key": "key"}

GOOD: list[dict[str, Any]] = [
    {},
    {"listen_host": "::1"},
    {"listen_host": "localhost"},
    {"listen_host": "b_1.example.", "tls_cert": "c", "tls_key": "k", "auth_keys": "keys"},
    {"listen_host": "0.0.0.0", "tls_cert": "c", "tls_key": "k", "auth_keys": "keys"},
    {
        "listen_host": "10.0.0.1",
        "tls_cert": "c",
        "tls_key": "k",
        "tls_ca": "ca",
        "auth_grants": GRANTED,
    },
    {"auth_keys": "keys", "auth_revoked": "revoked"},
    {"auth_keys": "keys", "auth_network": "north"},
    KEYS,
    {"broker_routing": "hierarchical", "broker_parent": "b1"},
    {"gateway_routing": "hierarchical", "gateway_brokers": ("top",), "gateway_parent": "top"},
    {"multicast_groups": "239.195.0.0/16", "broker_routing": "flooded"},
    {"multicast_groups": "ff18::/112", "broker_routing": "source-trees"},
    {"broker_name": "Nördlich-1.example"},
    {"peers_urls": ("palio://127.0.0.1", "palio://localhost:7", "palio://[::1]")},
    {"peers_urls": ("palio://b2", "palios://b3:7"), "tls_ca": "ca", **KEYS},
    {"broker_url": "palios://north.example:7400"},
    {"broker_url": f"palio://{'n' * (MAX_URL_CHARS - 8)}"},
]

BAD: list[tuple[dict[str, Any], str]] = [
    ({"listen_host": "0.0.0.0"}, r"listen\.host.*set tls\.cert and tls\.key"),
    ({"listen_host": "0.0.0.0", "tls_cert": "c", "tls_key": "k"}, r"set auth\.keys"),
    ({"listen_host": "0.0.0.0", "auth_keys": "keys"}, r"set tls\.cert"),
    ({"listen_host": "b1.example", "auth_keys": "keys"}, "b1.example can be reached"),
    ({"listen_host": "nonsense"}, "'nonsense' is taken as the name of a machine, and nonsense can"),
    *(
        (
            {"listen_host": host},
            r"listen\.host: .* is no address and no name of a machine; write 127",
        )
        for host in (
            "",
            "1.2.3.4.5",
            "256.0.0.1",
            "7400",
            "palio://b1",
            "b 1",
            "-b",
            "b..c",
            "b" * 64,
        )
    ),
    ({"tls_cert": "c"}, r"tls\.cert: set both"),
    ({"tls_key": "k"}, r"tls\.key: set both"),
    ({"auth_grants": GRANTED}, r"auth\.grants: .*set tls\.ca"),
    ({"auth_revoked": "file"}, r"auth\.revoked: .*auth\.keys; set it too"),
    ({"auth_network": "north"}, r"auth\.network: .*auth\.keys; set it too"),
    ({"auth_network": "a/b", "auth_keys": "keys"}, r"auth\.network: a network cannot be called"),
    ({"auth_token_file": "token"}, r"auth\.token_file: .*auth\.broker_key"),
    ({"auth_broker_key": "key"}, r"auth\.broker_key: .*auth\.token_file"),
    (
        {"auth_token_file": "token", "auth_broker_key": "key"},
        r"auth\.token_file: .*set auth\.keys.*palio token create",
    ),
    *(
        ({"peers_urls": (url,), **given}, r"peers\.urls: .* by keys; set auth\.keys.*palio keys")
        for url, given in (
            ("palio://b2", {}),
            ("palio://127.0.0.1", {"auth_keys": "keys"}),
            ("palios://127.0.0.1", {"auth_grants": GRANTED, "tls_ca": "ca"}),
            ("palios://b2", {"tls_ca": "ca", "tls_cert": "c", "tls_key": "k"}),
        )
    ),
    (
        {"broker_name": "b1", "broker_routing": "proxies", "broker_parent": "b1"},
        r"broker\.parent: a broker is not its own parent",
    ),
    ({"broker_parent": "b1"}, r"broker\.parent: general routing knows no parents; .*hierarchical"),
    (
        {"broker_routing": "proxy"},
        r"broker\.routing: 'proxy' is no algorithm; it is one of general",
    ),
    ({"gateway_routing": "proxy"}, r"gateway\.routing: 'proxy' is no algorithm"),
    ({"broker_routing": "centralized", "peers_urls": ("palio://b2",)}, "is for one broker"),
    ({"gateway_brokers": ("b2",)}, r"gateway\.brokers: set gateway\.routing"),
    ({"gateway_routing": "acyclic"}, r"gateway\.brokers: name the brokers"),
    ({"gateway_routing": "acyclic", "gateway_brokers": ("b/2",)}, r"gateway\.brokers"),
    (
        {"gateway_routing": "flooded", "gateway_brokers": ("b2",)},
        r"gateway\.routing: flooded cannot be joined by a gateway; general, .* can",
    ),
    (
        {"gateway_routing": "advertised", "gateway_brokers": ("b2",)},
        "both sides go by advertisements",
    ),
    (
        {
            "broker_routing": "hierarchical",
            "broker_parent": "b1",
            "gateway_routing": "general",
            "gateway_brokers": ("b2",),
        },
        r"broker\.parent: a gateway is at the top",
    ),
    (
        {"gateway_routing": "hierarchical", "gateway_brokers": ("b2",), "gateway_parent": "b3"},
        r"gateway\.parent: name 'b3' among",
    ),
    (
        {"gateway_routing": "acyclic", "gateway_brokers": ("b2",), "gateway_parent": "b2"},
        r"gateway\.parent: acyclic routing knows no parents",
    ),
    (
        {"multicast_groups": "10.0.0.0/8", "broker_routing": "flooded"},
        r"multicast\.groups: .*not multicast",
    ),
    (
        {"multicast_groups": "239.195.0.0/16"},
        r"broker\.routing: general does not name .*; multicast needs source-trees or flooded",
    ),
    (
        {
            "multicast_groups": "239.195.0.0/16",
            "gateway_routing": "acyclic",
            "gateway_brokers": ("b2",),
        },
        r"multicast\.groups: a gateway is in no group",
    ),
    ({"broker_name": ""}, r"broker\.name"),
    ({"broker_name": "../../etc"}, r"broker\.name: .* cannot be called '\.\./\.\./etc'"),
    ({"broker_name": "a\nb"}, r"broker\.name: .*a name has 1 to 200 bytes"),
    ({"broker_name": "n" * 201}, r"broker\.name: .*MAX_NAME_BYTES"),
    ({"broker_routing": "hierarchical", "broker_parent": "b1/"}, r"broker\.parent"),
    ({"auth_grants": {" b2": Grant()}, "tls_ca": "ca"}, r"auth\.grants: a principal cannot"),
    ({"webhooks_allow": ("10.0.0.0/33",)}, r"webhooks\.allow: '10\.0\.0\.0/33'"),
    ({"webhooks_allow": ("http://a",)}, r"webhooks\.allow: 'http://a'"),
    ({"peers_urls": ("b2:7400",)}, "'b2:7400' is no address"),
    ({"broker_url": "north:7400"}, r"broker\.url: 'north:7400' is no address"),
    ({"broker_url": "palio://0.0.0.0:7400"}, r"broker\.url: 0\.0\.0\.0 stands for all"),
    ({"broker_url": f"palio://{'n' * (MAX_URL_CHARS - 7)}"}, "MAX_URL_CHARS"),
    ({"peers_urls": ("palios://b2",)}, r"palios://b2 asks for TLS; set tls\.ca"),
]


@pytest.mark.parametrize("given", GOOD, ids=range(len(GOOD)))
def test_what_may_be_together(given: dict[str, Any]) -> None:
    """And what is there several at a time needs each other: without some of it, it is refused."""
    check(configuration(**given))
    assert len(given) < 2 or any(
        is_refused({name: value for name, value in given.items() if name != left_out})
        for left_out in given
    )


def check(given: Configuration, origins: dict[str, str] | None = None) -> None:
    refuse([worded(problem, origins) for problem in problems(given)])


def is_refused(given: dict[str, Any]) -> bool:
    try:
        check(configuration(**given))
    except InvalidConfiguration:
        return True
    return False


@pytest.mark.parametrize(("given", "problem"), BAD, ids=range(len(BAD)))
def test_what_may_not(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidConfiguration, match=problem):
        check(configuration(**given))


def test_a_refusal_names_where_it_was_set() -> None:
    with pytest.raises(InvalidConfiguration, match=r"listen\.host \(palio\.toml:3\): 0\.0\.0\.0"):
        check(configuration(listen_host="0.0.0.0"), {"listen.host": "palio.toml:3"})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_addresses_of_this_machine_only(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "b1.example", "localhost.evil"])
def test_addresses_that_others_reach(host: str) -> None:
    assert not is_loopback(host)


def test_the_documentation_lists_every_setting_with_its_default() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "server.md"
    rows = [
        line.strip("| ").split(" | ")
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.match(r"\| `[a-z]+\.[a-z_]+` \|", line)
    ]
    listed = {code(row[0]): (code(row[1]), row[2]) for row in rows if len(row) == 3}
    defaults = {each.name: each.value for each in configure().settings}
    assert listed == {
        name: ("-" if value is None else json.dumps(value), described(name))
        for name, value in defaults.items()
    }


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("mtu", MIN_MTU, MAX_MTU), ("ttl", 1, 255), ("port", 1, 65_535)],
)
def test_figures_of_multicast_have_limits(name: str, least: int, most: int) -> None:
    for value in (least, most):
        assert getattr(msgspec.convert({name: value}, Multicast), name) == value
    for value in (least - 1, most + 1):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({name: value}, Multicast)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("lease_s", MIN_SECONDS, MAX_SECONDS),
        ("heartbeat_s", MIN_SECONDS, MAX_SECONDS),
        ("peer_heartbeat_s", MIN_SECONDS, MAX_SECONDS),
        ("queue_bytes", 1_024, MAX_BYTES),
        ("max_connections", 1, MAX_COUNT),
    ],
)
def test_limits_have_limits(name: str, least: float, most: float) -> None:
    for value in (least, most):
        assert getattr(msgspec.convert({name: value}, Limits), name) == value
    for value in (0, most + 1, most * 1_000, -1, math.nan, math.inf):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({name: value}, Limits)


@pytest.mark.parametrize("cost", [0, 1, MAX_USABLE_COST - 1, MAX_USABLE_COST, MAX_USABLE_COST + 1])
def test_a_link_cost_is_less_than_that_of_an_unmeasured_link(cost: int) -> None:
    given = {"link_costs": {"b2": cost}}
    if 1 <= cost < UNMEASURED:
        assert msgspec.convert(given, Peers).link_costs == {"b2": cost}
    else:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(given, Peers)


def test_every_limit_of_the_node_can_be_set() -> None:
    all_limits = {field.name for field in msgspec.structs.fields(Limits)}
    own = {
        name for name in all_limits if name != "max_connections" and not name.startswith("http_")
    }
    node = {field.name: field.default for field in msgspec.structs.fields(NodeSettings)}
    assert own == set(node) - {"routing", "parent", "outside", "link_costs", "token"} - {
        "multicast",
        "replan",
        "cast_bytes",
        "discovery",
        "has_disk",
        "peers",
        "latest_by",
    }
    assert {name: getattr(Limits(), name) for name in own} == {name: node[name] for name in own}


def test_brokers_wait_for_patterns_so_long_at_the_most() -> None:
    for value in (0.0, MAX_REORDER_S - 1, MAX_REORDER_S):
        assert msgspec.convert({"reorder_s": value}, Broker).reorder_s == value
    for wrong in (-0.1, MAX_REORDER_S + 1, math.nan):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"reorder_s": wrong}, Broker)
