"""The settings of a broker: what each means, and its default; `configuring` reads and checks them.

Flags win over the environment (`PALIO__LISTEN__PORT=7400`), that over the file (TOML), that over
the defaults below. docs/reference/server.md shows the same table; a test compares them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from palio.language.parsing import parse_filter
from palio.model.filters import FALSE, Filter
from palio.node import authority
from palio.node.authority import Principal
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
from palio.protocol.addresses import DEFAULT_PORT
from palio.protocol.limits import (
    DATAGRAM_MTU,
    GREETING_S,
    HEARTBEAT_S,
    MAX_MTU,
    MAX_SECONDS,
    MIN_MTU,
    MIN_SECONDS,
    WINDOW_BYTES,
)
from palio.routing.algorithms import ALGORITHMS
from palio.routing.trees import MAX_USABLE_COST
from palio.server.hosts import PUBLIC
from palio.server.limits import (
    HTTP_BODY_S,
    HTTP_HEAD_S,
    HTTP_IDLE_S,
    MAX_BYTES,
    MAX_CONNECTIONS,
    MAX_COUNT,
    MAX_REORDER_S,
)
from palio.server.multicast.interfaces import DEFAULT_GROUP_PORT

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
    """`[auth.grants.NAME]`: what the subject of a certificate may do, as tokens say it too. What is
    left out, is not.
    """

    allow_publish: str = ""
    allow_subscribe: str = ""
    deny_publish: str = ""
    deny_subscribe: str = ""
    monitor: bool = False
    operate: bool = False
    identities: tuple[str, ...] = ()
    limits: dict[str, float] = {}

    def granted_to(self, name: str, **known: Any) -> Principal:
        """The principal of that name who has this. Filters that nobody can read are refused."""
        return Principal(
            name,
            _filter(self.allow_publish),
            _filter(self.allow_subscribe),
            _filter(self.deny_publish),
            _filter(self.deny_subscribe),
            limits=authority.Limits.of(self.limits),
            may_monitor=self.monitor,
            may_operate=self.operate,
            identities=frozenset(self.identities),
            **known,
        )


def _filter(text: str) -> Filter:
    return parse_filter(text) if text else FALSE


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
            description="by the name in a client's certificate: allow_publish, allow_subscribe, "
            "deny_..., monitor, operate, identities, limits"
        ),
    ] = {}


class Peers(_Section, frozen=True, kw_only=True):
    """`[peers]`: other brokers."""

    urls: Annotated[
        tuple[str, ...],
        Meta(description="brokers to connect to: palio://host:port, palios:// with TLS"),
    ] = ()
    link_costs: Annotated[
        dict[str, Annotated[int, Meta(ge=1, le=MAX_USABLE_COST)]],
        Meta(
            description="by the name of a neighbour, the cost of its link where there are several "
            "paths; other links cost their round trip, 10 ms as 1"
        ),
    ] = {}
    discovery: Annotated[
        bool,
        Meta(
            description="whether a broker that has lost a neighbour and all beyond it discovers "
            "and dials others; with routing over any graph"
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
    """The whole configuration of a broker."""

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
