"""The settings of a broker, where each was given, and what is wrong with it.

Flags win over the environment (`PALIO__LISTEN__PORT=7400`), that over the file (TOML), that over
the defaults below. docs/reference/server.md shows the same table; a test compares them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from palio.errors import InvalidConfiguration, InvalidInput
from palio.node.limits import (
    CLIENT_GRACE_S,
    LEASE_S,
    MAX_SESSIONS,
    MAX_SUBSCRIPTIONS,
    MEMORY_BYTES,
    PEER_GRACE_S,
    PEER_HEARTBEAT_S,
    QUEUE_BYTES,
)
from palio.protocol.addresses import DEFAULT_PORT, parse_address
from palio.protocol.limits import (
    DATAGRAM_MTU,
    GREETING_S,
    HEARTBEAT_S,
    MAX_MTU,
    MAX_SECONDS,
    MAX_URL_CHARS,
    MIN_MTU,
    MIN_SECONDS,
    WINDOW_BYTES,
)
from palio.protocol.names import check_name
from palio.routing.algorithms import ALGORITHMS, GraphKind
from palio.routing.trees import MAX_PRICE
from palio.server.hosts import PUBLIC, Hosts
from palio.server.limits import (
    HTTP_BODY_S,
    HTTP_HEAD_S,
    HTTP_IDLE_S,
    MAX_BYTES,
    MAX_CONNECTIONS,
    MAX_COUNT,
    MAX_REORDER_S,
)
from palio.server.multicast.interfaces import DEFAULT_GROUP_PORT, GroupAddresses

__all__ = [
    "Auth",
    "Broker",
    "Configuration",
    "Gateway",
    "Grant",
    "Limits",
    "Listen",
    "Log",
    "Multicast",
    "Peers",
    "Tls",
    "Webhooks",
    "check",
    "is_any",
    "is_loopback",
]

Port: TypeAlias = Annotated[int, Meta(ge=0, le=65_535)]
Seconds: TypeAlias = Annotated[float, Meta(ge=MIN_SECONDS, le=MAX_SECONDS)]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
Bytes: TypeAlias = Annotated[int, Meta(ge=1_024, le=MAX_BYTES)]


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file; the second argument of each `Meta` is what the documentation says."""


class Broker(_Section, frozen=True, kw_only=True):
    """`[broker]`: who it is."""

    name: Annotated[str, Meta(description="its name, which no other broker of the network has")] = (
        "palio"
    )
    url: Annotated[
        str,
        Meta(
            description="where other brokers can reach it, palio[s]://host:port; if absent, where "
            "it listens, unless that is all addresses of a machine"
        ),
    ] = ""
    data_dir: Annotated[
        str,
        Meta(description="where its journal is kept; without one nothing durable can be published"),
    ] = ""
    routing: Annotated[
        str,
        Meta(
            description="how brokers tell each other what is wanted, the same for all of them: "
            + ", ".join(ALGORITHMS)
        ),
    ] = next(iter(ALGORITHMS))
    reorder_s: Annotated[
        float,
        Meta(
            ge=0.0,
            le=MAX_REORDER_S,
            description="how long it holds events back for patterns that it assembles itself; an "
            "event that comes later may take no part",
        ),
    ] = 1.0
    parent: Annotated[
        str,
        Meta(
            description="with hierarchical routing, the broker above; with proxies, whose brokers "
            "find that out themselves, it only says that this one is not to be the root while "
            "there is one without"
        ),
    ] = ""
    journal_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_BYTES,
            description="the most that the journal may take on the disk; 0 for no limit",
        ),
    ] = 0


class Listen(_Section, frozen=True, kw_only=True):
    """`[listen]`: where it can be reached."""

    host: Annotated[
        str, Meta(description="the address to listen on; others than loopback need tls and auth")
    ] = "127.0.0.1"
    port: Annotated[Port, Meta(description="for clients and brokers; 0 for any free one")] = (
        DEFAULT_PORT
    )
    http_port: Annotated[
        Port | None, Meta(description="for HTTP, metrics and WebSocket; absent for none")
    ] = None
    hosts: Annotated[
        tuple[str, ...],
        Meta(description="more names that HTTP answers to: names, *.name, addresses, networks, *"),
    ] = ()


class Tls(_Section, frozen=True, kw_only=True):
    """`[tls]`: encryption, and certificates as proof of who someone is."""

    cert: Annotated[str, Meta(description="a file with this broker's certificate, in PEM")] = ""
    key: Annotated[str, Meta(description="a file with the key of the certificate, in PEM")] = ""
    ca: Annotated[
        str,
        Meta(description="a file with the certificates that vouch for brokers and clients, in PEM"),
    ] = ""


class Grant(_Section, frozen=True, kw_only=True):
    """`[auth.grants.NAME]`: what the subject of a certificate may do. What is left out, is not."""

    may_publish: str = ""
    may_hear: str = ""
    deny_publish: str = ""
    deny_hear: str = ""
    monitor: bool = False
    operate: bool = False
    identities: tuple[str, ...] = ()
    limits: dict[str, float] = {}


class Auth(_Section, frozen=True, kw_only=True):
    """`[auth]`: who may do what."""

    keys: Annotated[
        str, Meta(description="a public key that signs tokens, or a directory of them (*.pub)")
    ] = ""
    network: Annotated[
        str, Meta(description="the network's name, which every token must have; empty for none")
    ] = ""
    revoked: Annotated[
        str, Meta(description="a file with the numbers of revoked tokens, one a line")
    ] = ""
    token_file: Annotated[
        str, Meta(description="a file with the token, bound to its key, that this broker shows")
    ] = ""
    broker_key: Annotated[
        str, Meta(description="a file with the private key that this broker's token is bound to")
    ] = ""
    grants: Annotated[
        dict[str, Grant],
        Meta(
            description="by the name in a client's certificate: may_publish, may_hear, deny_..., "
            "monitor, operate, identities, limits"
        ),
    ] = {}


class Peers(_Section, frozen=True, kw_only=True):
    """`[peers]`: other brokers."""

    urls: Annotated[
        tuple[str, ...],
        Meta(description="brokers to connect to: palio://host:port, palios:// with TLS"),
    ] = ()
    prices: Annotated[
        dict[str, Annotated[int, Meta(ge=1, le=MAX_PRICE)]],
        Meta(
            description="by the name of a neighbour, what its link weighs where there are several "
            "ways; of others the round trip counts, 10 ms as 1"
        ),
    ] = {}
    find: Annotated[
        bool,
        Meta(
            description="whether it looks for other brokers when it has lost one and all beyond; "
            "by routing over any graph"
        ),
    ] = True


class Gateway(_Section, frozen=True, kw_only=True):
    """`[gateway]`: another network, of another algorithm, that this broker is a part of as well."""

    routing: Annotated[
        str, Meta(description="how the other network routes; without one there is no gateway")
    ] = ""
    brokers: Annotated[
        tuple[str, ...], Meta(description="the names of the brokers there that are linked to it")
    ] = ()
    parent: Annotated[
        str, Meta(description="if the other network is hierarchical, the one of them above it")
    ] = ""


class Multicast(_Section, frozen=True, kw_only=True):
    """`[multicast]`: groups of brokers, to each of which an event is sent once."""

    groups: Annotated[
        str,
        Meta(
            description="their addresses, a network such as 239.195.0.0/16 or ff18::/112; without "
            "it there is no multicast"
        ),
    ] = ""
    port: Annotated[int, Meta(ge=1, le=65_535, description="of UDP, the same for all brokers")] = (
        DEFAULT_GROUP_PORT
    )
    interface: Annotated[
        str, Meta(description="by name or address; if absent, the one on the way to the groups")
    ] = ""
    ttl: Annotated[int, Meta(ge=1, le=255, description="routers that it may pass, and 1")] = 1
    loop: Annotated[bool, Meta(description="whether other brokers on this machine hear it")] = True
    key: Annotated[
        str, Meta(description="a file with the key that all brokers share; needed off loopback")
    ] = ""
    mtu: Annotated[
        int, Meta(ge=MIN_MTU, le=MAX_MTU, description="bytes of a datagram, headers of UDP aside")
    ] = DATAGRAM_MTU


class Webhooks(_Section, frozen=True, kw_only=True):
    """`[webhooks]`: whom subscribers may have this broker call."""

    allow: Annotated[
        tuple[str, ...],
        Meta(
            description="sinks it may call: public addresses, names, *.name, addresses, networks, *"
        ),
    ] = (PUBLIC,)


class Limits(_Section, frozen=True, kw_only=True):
    """`[limits]`: how much, how many, how long."""

    connections: Annotated[
        Count, Meta(description="connections at once, at all ports together")
    ] = MAX_CONNECTIONS
    max_sessions: Annotated[Count, Meta(description="sessions, connected or away")] = MAX_SESSIONS
    max_subscriptions: Annotated[Count, Meta(description="subscriptions of one principal")] = (
        MAX_SUBSCRIPTIONS
    )
    window_bytes: Annotated[Bytes, Meta(description="on the way to one receiver, not yet seen")] = (
        WINDOW_BYTES
    )
    queue_bytes: Annotated[Bytes, Meta(description="waiting for one slow receiver")] = QUEUE_BYTES
    memory_bytes: Annotated[Bytes, Meta(description="waiting for all receivers or on the way")] = (
        MEMORY_BYTES
    )
    greeting_s: Annotated[Seconds, Meta(description="to show who one is")] = GREETING_S
    http_head_s: Annotated[Seconds, Meta(description="for the head of a request of HTTP")] = (
        HTTP_HEAD_S
    )
    http_body_s: Annotated[Seconds, Meta(description="for its body, and to take its answer")] = (
        HTTP_BODY_S
    )
    http_idle_s: Annotated[Seconds, Meta(description="that HTTP waits for another request")] = (
        HTTP_IDLE_S
    )
    heartbeat_s: Annotated[Seconds, Meta(description="of silence before a client is asked")] = (
        HEARTBEAT_S
    )
    peer_heartbeat_s: Annotated[
        Seconds, Meta(description="of silence before a broker is asked")
    ] = PEER_HEARTBEAT_S
    client_grace_s: Annotated[Seconds, Meta(description="that a client may be away")] = (
        CLIENT_GRACE_S
    )
    peer_grace_s: Annotated[Seconds, Meta(description="that a broker may be away")] = PEER_GRACE_S
    lease_s: Annotated[
        Seconds, Meta(description="that a durable subscription keeps events nobody takes")
    ] = LEASE_S


class Log(_Section, frozen=True, kw_only=True):
    """`[log]`: what it tells people."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="the least to be told")
    ] = "info"
    format: Annotated[
        Literal["text", "json"], Meta(description="lines for people, or a JSON object a line")
    ] = "text"


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """All that a broker is told."""

    broker: Broker = Broker()
    listen: Listen = Listen()
    tls: Tls = Tls()
    auth: Auth = Auth()
    peers: Peers = Peers()
    gateway: Gateway = Gateway()
    multicast: Multicast = Multicast()
    webhooks: Webhooks = Webhooks()
    limits: Limits = Limits()
    log: Log = Log()


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("")
    (True, True, False, False)
    """
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def is_any(host: str) -> bool:
    """Whether it stands for all addresses of a machine, so that nobody can dial it.

    >>> is_any("0.0.0.0"), is_any("::"), is_any("127.0.0.1"), is_any("localhost")
    (True, True, False, False)
    """
    address = _address(host)
    return address is not None and address.is_unspecified


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_name(host: str) -> bool:
    return bool(_HOST_NAME.fullmatch(host)) and not _NUMBERS.fullmatch(host)


_HOST_NAME: Final = re.compile(r"(?=.{1,253}\.?$)\w([\w-]{0,61}\w)?(\.\w([\w-]{0,61}\w)?)*\.?")
_NUMBERS: Final = re.compile(r"[0-9.]+")
"""What looks like an address of IPv4 is nothing else."""

_KEYS: Final = (
    "set auth.keys, auth.token_file and auth.broker_key (palio keys create NAME; palio token "
    "create NAME --broker NAME.pub --key signing --out NAME.token)"
)
"""What a broker of a network with keys needs, and how it is made."""


def check(configuration: Configuration, origins: Mapping[str, str] | None = None) -> None:
    """Refuse what no single setting shows to be wrong; `origins` says where each was set."""
    for name, problem in _problems(configuration):
        place = (origins or {}).get(name, "")
        raise InvalidConfiguration(f"{name}{f' ({place})' if place else ''}: {problem}")


def _problems(configuration: Configuration) -> Iterator[tuple[str, str]]:
    tls, auth = configuration.tls, configuration.auth
    yield from _wrong_names(configuration)
    yield from _misrouted(configuration)
    if bool(tls.cert) != bool(tls.key):
        given = "tls.cert" if tls.cert else "tls.key"
        yield given, "set both tls.cert and tls.key, or neither"
    yield from _unproven(auth, tls)
    yield from _ungrouped(configuration)
    for name, entries in (
        ("webhooks.allow", configuration.webhooks.allow),
        ("listen.hosts", configuration.listen.hosts),
    ):
        try:
            Hosts(entries)
        except InvalidConfiguration as error:
            yield name, str(error)
    host = configuration.listen.host
    if _address(host) is None and not _is_name(host):
        wanted = "127.0.0.1 to be reached from this machine alone, 0.0.0.0 from others too"
        yield "listen.host", f"{host!r:.80} is no address and no name of a machine; write {wanted}"
    elif not is_loopback(host):
        yield from _exposed(configuration)
    for url in configuration.peers.urls:
        try:
            address = parse_address(url)
        except InvalidConfiguration as error:
            yield "peers.urls", str(error)
            continue
        if address.is_secure and not tls.ca:
            yield "peers.urls", f"{url} asks for TLS; set tls.ca to what vouches for it"
        is_open = not (auth.keys or auth.grants) and is_loopback(address.host)
        if not (is_open or auth.token_file):
            yield "peers.urls", f"{url}: brokers know each other by keys; {_KEYS}"
    yield from _unreachable(configuration.broker.url)


def _unreachable(url: str) -> Iterator[tuple[str, str]]:
    """An address at which no other broker could find this one."""
    if len(url) > MAX_URL_CHARS:
        yield "broker.url", f"it has more than {MAX_URL_CHARS} characters (MAX_URL_CHARS)"
    elif url:
        try:
            host = parse_address(url).host
        except InvalidConfiguration as error:
            yield "broker.url", str(error)
        else:
            if is_any(host):
                yield "broker.url", f"{host} stands for all addresses of a machine; write one"


def _misrouted(configuration: Configuration) -> Iterator[tuple[str, str]]:
    """Algorithms that do not exist, or not for such a network."""
    broker, gateway = configuration.broker, configuration.gateway
    for section, name, parent in (
        ("broker", broker.routing, broker.parent),
        ("gateway", gateway.routing, gateway.parent),
    ):
        if section == "gateway" and not name:
            continue
        algorithm = ALGORITHMS.get(name)
        if algorithm is None:
            known = ", ".join(ALGORITHMS)
            yield f"{section}.routing", f"{name!r:.80} is no algorithm; it is one of {known}"
            return
        if parent and not (algorithm.has_parents or algorithm.finds_parents):
            knowing = ", ".join(
                each.name for each in ALGORITHMS.values() if each.has_parents or each.finds_parents
            )
            yield (
                f"{section}.parent",
                f"{name} routing knows no parents; set {section}.routing ({knowing})",
            )
        if algorithm.graph is GraphKind.ALONE and (configuration.peers.urls or gateway.routing):
            yield f"{section}.routing", f"{name} is for one broker; leave out peers and gateway"
    yield from _misplaced_gateway(broker, gateway)


def _misplaced_gateway(broker: Broker, gateway: Gateway) -> Iterator[tuple[str, str]]:
    if not gateway.routing:
        for key in ("brokers", "parent"):
            if getattr(gateway, key):
                yield f"gateway.{key}", "set gateway.routing: how the network there routes"
        return
    inside, outside = ALGORITHMS[broker.routing], ALGORITHMS[gateway.routing]
    for setting, side in (("broker.routing", inside), ("gateway.routing", outside)):
        if not side.joins:
            able = ", ".join(each.name for each in ALGORITHMS.values() if each.joins)
            yield setting, f"{side.name} cannot be joined by a gateway; {able} can"
    if inside.is_advertised != outside.is_advertised:
        yield "gateway.routing", "both sides go by advertisements, or neither does"
    if broker.parent:
        yield "broker.parent", "a gateway is at the top of its own network"
    if gateway.parent and gateway.parent not in gateway.brokers:
        yield "gateway.parent", f"name {gateway.parent!r} among gateway.brokers too"
    if not gateway.brokers:
        yield "gateway.brokers", "name the brokers of the other network that are linked to it"


def _ungrouped(configuration: Configuration) -> Iterator[tuple[str, str]]:
    """What keeps a broker from sending to groups."""
    if not configuration.multicast.groups:
        return
    try:
        GroupAddresses(configuration.multicast.groups)
    except InvalidConfiguration as error:
        yield "multicast.groups", str(error)
    if configuration.gateway.routing:
        yield "multicast.groups", "a gateway is in no group; leave out multicast.groups, or gateway"
    routing = configuration.broker.routing
    if not ALGORITHMS[routing].is_destined:
        able = " or ".join(each.name for each in ALGORITHMS.values() if each.is_destined)
        problem = f"{routing} does not tell which brokers an event is for; multicast needs {able}"
        yield "broker.routing", problem


def _unproven(auth: Auth, tls: Tls) -> Iterator[tuple[str, str]]:
    """What nobody could show, or verify."""
    if auth.grants and not tls.ca:
        yield "auth.grants", "names come from certificates: set tls.ca to what vouches for them"
    for key in ("network", "revoked"):
        if getattr(auth, key) and not auth.keys:
            yield f"auth.{key}", "there are no tokens without auth.keys; set it too"
    own = auth.token_file, auth.broker_key
    if any(own) and not all((*own, auth.keys)):
        given = "auth.token_file" if auth.token_file else "auth.broker_key"
        yield given, f"a broker shows its key, and asks others for theirs; {_KEYS}"


def _wrong_names(configuration: Configuration) -> Iterator[tuple[str, str]]:
    broker = configuration.broker
    named = [("broker.name", "a broker", broker.name)]
    gateway = configuration.gateway
    for setting, parent in (("broker.parent", broker.parent), ("gateway.parent", gateway.parent)):
        if parent:
            named.append((setting, "a broker", parent))
    named += [("gateway.brokers", "a broker", name) for name in gateway.brokers]
    grants, network = configuration.auth.grants, configuration.auth.network
    if network:
        named.append(("auth.network", "a network", network))
    named += [("auth.grants", "a principal", name) for name in grants]
    named += [
        (f"auth.grants.{name}", "an identity", identity)
        for name, grant in grants.items()
        for identity in grant.identities
    ]
    for setting, what, name in named:
        try:
            check_name(name, what)
        except InvalidInput as error:
            yield setting, str(error)


def _exposed(configuration: Configuration) -> Iterator[tuple[str, str]]:
    """What is missing before other machines may reach a broker."""
    host = configuration.listen.host
    reached = f"{host} can be reached from other machines; set"
    if _address(host) is None:
        reached = f"{host!r} is taken as the name of a machine, and {reached}"
    if not configuration.tls.cert:
        yield "listen.host", f"{reached} tls.cert and tls.key, or listen on 127.0.0.1"
    if not configuration.auth.keys and not configuration.auth.grants:
        ways = "auth.keys (tokens), or tls.ca and auth.grants (certificates)"
        yield "listen.host", f"{reached} {ways}, or listen on 127.0.0.1"
