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
    """A table of the file; the second argument of each `Meta` is its documentation."""


class Broker(_Section, frozen=True, kw_only=True):
    """`[broker]`: name, journal and routing of this broker."""

    name: Annotated[str, Meta(description="Name of this broker, unique in its network.")] = "palio"
    url: Annotated[
        str,
        Meta(
            description="Address at which other brokers reach this one, palio[s]://host:port. "
            "Unset: the address it listens on, unless that is a wildcard."
        ),
    ] = ""
    data_dir: Annotated[
        str,
        Meta(description="Directory of the journal. Unset: nothing durable is accepted."),
    ] = ""
    routing: Annotated[
        str,
        Meta(
            description="Routing algorithm, the same for all brokers: "
            + ", ".join(ALGORITHMS)
            + "."
        ),
    ] = next(iter(ALGORITHMS))
    reorder_s: Annotated[
        float,
        Meta(
            ge=0.0,
            le=MAX_REORDER_S,
            description="Seconds that events are held back for patterns that this broker "
            "assembles; a later event may not match.",
        ),
    ] = 1.0
    parent: Annotated[
        str,
        Meta(
            description="Name of the parent broker, with hierarchical routing. With proxies any"
            " name only keeps this broker from being the root while another has no "
            "parent."
        ),
    ] = ""
    journal_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_BYTES,
            description="Maximum size of the journal on the disk; 0 for no limit.",
        ),
    ] = 0

    latest_by: Annotated[
        tuple[str, ...],
        Meta(
            description="Attributes of whose values this broker keeps the last event, 8 MiB in "
            "all, for subscriptions with latest_by=."
        ),
    ] = ()


class Listen(_Section, frozen=True, kw_only=True):
    """`[listen]`: the address of the native protocol."""

    host: Annotated[
        str, Meta(description="Address to listen on; any but loopback needs tls and auth.")
    ] = "127.0.0.1"
    port: Annotated[Port, Meta(description="Port for clients and brokers; 0 for any free one.")] = (
        DEFAULT_PORT
    )


class Http(_Section, frozen=True, kw_only=True):
    """`[http]`: the HTTP interface, at the address `listen.host`."""

    port: Annotated[
        Port | None,
        Meta(description="Port for HTTP, WebSocket and metrics; 0 for any free one. Unset: none."),
    ] = None
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Further values of the header Host that are accepted: names, *.name, "
            "addresses, networks, *."
        ),
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        Meta(
            description="Origins of web pages that may use this broker: https://app.example, "
            "https://*.example, http://localhost:*, *."
        ),
    ] = ()


class Tls(_Section, frozen=True, kw_only=True):
    """`[tls]`: certificates, for encryption and authentication."""

    cert: Annotated[str, Meta(description="File with the certificate of this broker, in PEM.")] = ""
    key: Annotated[
        str, Meta(description="File with the private key of the certificate, in PEM.")
    ] = ""
    ca: Annotated[
        str,
        Meta(description="File with the CA certificates for brokers and clients, in PEM."),
    ] = ""


class Grant(_Section, frozen=True, kw_only=True):
    """`[auth.grants.NAME]`: what the subject of a certificate may do, as in tokens. What is
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

    def granted_to(self, name: str, **details: Any) -> Principal:
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
            **details,
        )


def _filter(text: str) -> Filter:
    return parse_filter(text) if text else FALSE


class Auth(_Section, frozen=True, kw_only=True):
    """`[auth]`: authentication and authorization."""

    keys: Annotated[
        str, Meta(description="Public key that verifies tokens, or a directory of them (*.pub).")
    ] = ""
    network: Annotated[
        str,
        Meta(description="Name of the network, required in every token (aud). Unset: not checked."),
    ] = ""
    revoked: Annotated[
        str, Meta(description="File with the ids of revoked tokens, one a line.")
    ] = ""
    token_file: Annotated[
        str, Meta(description="File with the token that this broker authenticates with.")
    ] = ""
    broker_key: Annotated[
        str, Meta(description="File with the private key that the token is bound to.")
    ] = ""
    grants: Annotated[
        dict[str, Grant],
        Meta(
            description="By the common name of a client certificate: allow_publish, "
            "allow_subscribe, deny_publish, deny_subscribe, monitor, operate, "
            "identities, limits."
        ),
    ] = {}


class Peers(_Section, frozen=True, kw_only=True):
    """`[peers]`: other brokers."""

    urls: Annotated[
        tuple[str, ...],
        Meta(description="Brokers to connect to: palio://host:port, palios:// with TLS."),
    ] = ()
    link_costs: Annotated[
        dict[str, Annotated[int, Meta(ge=1, le=MAX_USABLE_COST)]],
        Meta(
            description="By the name of a peer, the cost of its link. Other links cost their "
            "round trip, 1 for 10 ms."
        ),
    ] = {}
    discovery: Annotated[
        bool,
        Meta(
            description="Whether a broker that lost a peer and all brokers beyond it discovers "
            "and dials others; only with routing over any graph."
        ),
    ] = True


class Gateway(_Section, frozen=True, kw_only=True):
    """`[gateway]`: a second network, of another algorithm, that this broker belongs to."""

    routing: Annotated[
        str, Meta(description="Routing algorithm of the other network. Unset: no gateway.")
    ] = ""
    brokers: Annotated[
        tuple[str, ...],
        Meta(description="Names of the brokers of the other network that link to this one."),
    ] = ()
    parent: Annotated[
        str, Meta(description="Name of the parent there, if the other network is hierarchical.")
    ] = ""


class Multicast(_Section, frozen=True, kw_only=True):
    """`[multicast]`: groups of brokers, to each of which an event is sent once."""

    groups: Annotated[
        str,
        Meta(
            description="Network of the group addresses, such as 239.195.0.0/16 or ff18::/112. "
            "Unset: no multicast."
        ),
    ] = ""
    port: Annotated[
        int, Meta(ge=1, le=65_535, description="UDP port, the same for all brokers.")
    ] = DEFAULT_GROUP_PORT
    interface: Annotated[
        str,
        Meta(
            description="Interface, by name or address. Unset: the one that routes to the groups."
        ),
    ] = ""
    ttl: Annotated[
        int,
        Meta(
            ge=1, le=255, description="Time to live of a datagram: the routers it may pass, plus 1."
        ),
    ] = 1
    loop: Annotated[
        bool, Meta(description="Whether other brokers on this machine receive the datagrams.")
    ] = True
    key: Annotated[
        str, Meta(description="File with the key that all brokers share; required off loopback.")
    ] = ""
    mtu: Annotated[
        int, Meta(ge=MIN_MTU, le=MAX_MTU, description="Maximum payload bytes of a datagram.")
    ] = DATAGRAM_MTU
    replan: Annotated[
        bool,
        Meta(
            description="Whether brokers change an approximated plan in use as traffic drifts, if "
            "all of them have this set."
        ),
    ] = False


class Webhooks(_Section, frozen=True, kw_only=True):
    """`[webhooks]`: the sinks that subscribers may register."""

    allow: Annotated[
        tuple[str, ...],
        Meta(
            description="Sinks that may be called: public (any public address), names, *.name, "
            "addresses, networks, *."
        ),
    ] = (PUBLIC,)


class Limits(_Section, frozen=True, kw_only=True):
    """`[limits]`: maximum sizes, numbers and durations."""

    max_connections: Annotated[Count, Meta(description="Open connections, all ports together.")] = (
        MAX_CONNECTIONS
    )
    max_sessions: Annotated[Count, Meta(description="Sessions, connected or disconnected.")] = (
        MAX_SESSIONS
    )
    max_subscriptions: Annotated[Count, Meta(description="Subscriptions of one principal.")] = (
        MAX_SUBSCRIPTIONS
    )
    window_bytes: Annotated[
        Bytes, Meta(description="Bytes in flight to one receiver, not yet acked.")
    ] = WINDOW_BYTES
    queue_bytes: Annotated[Bytes, Meta(description="Bytes queued for one slow receiver.")] = (
        QUEUE_BYTES
    )
    memory_bytes: Annotated[
        Bytes, Meta(description="Bytes queued for or in flight to all receivers.")
    ] = MEMORY_BYTES
    handshake_timeout_s: Annotated[
        Seconds, Meta(description="Seconds until a new connection must have authenticated.")
    ] = GREETING_S
    http_head_s: Annotated[
        Seconds, Meta(description="Seconds to receive the head of an HTTP request.")
    ] = HTTP_HEAD_S
    http_body_s: Annotated[
        Seconds,
        Meta(description="Seconds to receive the body of a request, and to send its response."),
    ] = HTTP_BODY_S
    http_idle_s: Annotated[
        Seconds, Meta(description="Seconds that an idle HTTP connection is kept.")
    ] = HTTP_IDLE_S
    heartbeat_s: Annotated[
        Seconds,
        Meta(
            description="Idle seconds before a heartbeat is sent to a client; it times out after 3."
        ),
    ] = HEARTBEAT_S
    peer_heartbeat_s: Annotated[
        Seconds,
        Meta(
            description="Idle seconds before a heartbeat is sent to a peer; it times out after 3."
        ),
    ] = PEER_HEARTBEAT_S
    client_grace_s: Annotated[
        Seconds, Meta(description="Seconds that the session of a disconnected client is kept.")
    ] = CLIENT_GRACE_S
    peer_grace_s: Annotated[
        Seconds, Meta(description="Seconds that the session of a disconnected peer is kept.")
    ] = PEER_GRACE_S
    lease_s: Annotated[
        Seconds,
        Meta(description="Seconds that a durable subscription without a subscriber keeps events."),
    ] = LEASE_S
    history_s: Annotated[
        float,
        Meta(
            ge=0.0,
            le=MAX_SECONDS,
            description="Seconds that this broker keeps all durable events of its network, the "
            "last 20,000 publications, for subscriptions with since=; 0 for none.",
        ),
    ] = 0.0


class Log(_Section, frozen=True, kw_only=True):
    """`[log]`: level and format of the log."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Lowest level that is logged."),
    ] = "info"
    format: Annotated[
        Literal["text", "json"], Meta(description="Lines of text, or a JSON object a line.")
    ] = "text"


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration of a broker."""

    broker: Broker = Broker()
    listen: Listen = Listen()
    http: Http = Http()
    tls: Tls = Tls()
    auth: Auth = Auth()
    peers: Peers = Peers()
    gateway: Gateway = Gateway()
    multicast: Multicast = Multicast()
    webhooks: Webhooks = Webhooks()
    limits: Limits = Limits()
    log: Log = Log()
