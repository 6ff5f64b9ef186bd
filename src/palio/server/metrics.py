"""The metrics that a broker shows to Prometheus, read when a request asks for them.

`METRICS` is the whole list; docs/reference/server.md shows it, and a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from palio import __version__
from palio.server.counters import Datagrams, Histogram, JournalCounters
from palio.server.journal.journal import Journal
from palio.server.server import Server

Labelled = Mapping[str, float]
Reading = float | Histogram


class _Sources(NamedTuple):
    server: Server
    status: dict[str, Any]
    journal: JournalCounters
    expiries: Labelled


class Measure(NamedTuple):
    """One metric: how it is called, what it counts, and where it is read."""

    name: str
    kind: str
    """`counter`, `gauge` or `histogram`."""
    help: str
    read: Callable[[_Sources], Reading | Mapping[str, Reading]]
    label: str = ""


def _measures(
    kind: str,
    place: Callable[[_Sources], Any],
    *rows: tuple[str, str, str],
    label: str = "",
) -> list[Measure]:
    """Metrics of one place: the field there, the name, what it counts."""
    return [
        Measure(f"palio_{name}", kind, text, partial(_field, place, field, label), label)
        for field, name, text in rows
    ]


def _field(
    place: Callable[[_Sources], Any], field: str, label: str, sources: _Sources
) -> float | Labelled:
    """A field of an object, or of a mapping; nothing where there is no such place."""
    found = place(sources)
    if found is None:
        return {} if label else 0.0
    value = found[field] if isinstance(found, Mapping) else getattr(found, field)
    return value if label else float(value)


def _peers(sources: _Sources) -> dict[str, dict[str, float]]:
    peers = sources.status["peers"].items()
    fields = ("up", "queued_bytes", "unseen_bytes")
    shown = {field: {name: float(peer[field]) for name, peer in peers} for field in fields}
    # A peer that was never up has no session, and one that was down for long has lost it. An alert
    # needs a 0 there, not a missing sample.
    for link in sources.status["links"]:
        shown["up"].setdefault(link["peer"] or link["url"], float(link["up"]))
    return shown


def _datagrams(sources: _Sources) -> Datagrams | None:
    multicast = sources.server.multicast
    return None if multicast is None else multicast.counters


def _free_bytes(sources: _Sources) -> float | Labelled:
    journal = sources.server.journal
    return float(journal.free_bytes) if isinstance(journal, Journal) else {}


_STATUS: Final = attrgetter("status")
_JOURNAL: Final = attrgetter("journal")
_MULTICAST: Final = attrgetter("server.multicast")


METRICS: Final = (
    *_measures(
        "counter",
        _STATUS,
        ("published", "events_published", "Events published by clients of this broker"),
        ("routed", "events_routed", "Events that were routed, from clients and brokers"),
        ("delivered", "events_delivered", "Events delivered to subscribers' sessions"),
        ("dropped", "events_dropped", "Events dropped for slow subscribers"),
        ("late_events", "events_late", "Events too late for the patterns assembled here"),
        ("redelivered", "durable_redeliveries", "Durable batches that consumers were sent again"),
        ("dead_letters", "dead_letters", "Events that became dead letters after the last attempt"),
    ),
    *_measures(
        "gauge",
        _STATUS,
        ("sessions", "sessions", "Sessions, connected or disconnected"),
        ("connected", "sessions_connected", "Sessions with a connection"),
        ("subscriptions", "subscriptions", "Subscriptions of all sessions"),
        (
            "durable_subscriptions",
            "durable_subscriptions",
            "Durable subscriptions whose home is this broker",
        ),
        (
            "blocked",
            "durable_subscriptions_blocked",
            "Durable subscriptions with a backlog that has waited for acks for 10 s",
        ),
        ("patterns", "patterns", "Patterns that clients and peers have asked of this broker"),
        ("queued_bytes", "queued_bytes", "Bytes queued for slow receivers"),
        (
            "custody_entries",
            "durable_batches",
            "Durable batches in the journal, for subscriptions at any broker",
        ),
    ),
    *_measures(
        "gauge",
        _STATUS,
        (
            "custody_waiting",
            "durable_backlog_batches",
            "Batches not yet acked by a durable subscription",
        ),
        label="subscription",
    ),
    *_measures(
        "counter",
        _STATUS,
        ("rejections", "rejections", "Rejected and withheld items; the kind is a log event"),
        label="kind",
    ),
    *_measures(
        "gauge",
        _peers,
        ("up", "peer_up", "1 while the link to a peer is up, else 0; configured peers always show"),
        ("queued_bytes", "peer_queued_bytes", "Bytes queued for a peer"),
        ("unseen_bytes", "peer_unacked_bytes", "Bytes in flight to a peer, not yet acked"),
        label="peer",
    ),
    *_measures(
        "counter",
        attrgetter("server.traffic"),
        ("events_in", "events_in", "Events read from connections and fronts"),
        ("events_out", "events_out", "Events written to connections"),
        ("bytes_in", "bytes_in", "Bytes read from connections"),
        ("bytes_out", "bytes_out", "Bytes written to connections"),
        ("messages_in", "messages_in", "Messages read from connections and fronts"),
        ("messages_out", "messages_out", "Messages written to connections"),
        (
            "node_s",
            "broker_busy_seconds",
            "Seconds spent on messages: matching, routing, durability",
        ),
        ("accepted", "connections_accepted", "Connections that were accepted"),
        ("refused", "connections_refused", "Connections beyond a limit, or closed to make room"),
        ("illegal", "connections_illegal", "Connections closed for invalid messages"),
        ("late", "connections_late", "Connections without a handshake or request in time"),
        ("dialled", "dials", "Connections made to other brokers"),
        ("dial_failures", "dial_failures", "Attempts to reach another broker that failed"),
    ),
    Measure(
        "palio_delivery_latency_seconds",
        "histogram",
        "From an event's $time to its hand-over to a subscriber; live or durable delivery",
        lambda sources: {
            "live": sources.server.traffic.latency.live,
            "durable": sources.server.traffic.latency.durable,
        },
        label="delivery",
    ),
    Measure(
        "palio_loop_delay_seconds",
        "histogram",
        "Lateness of a timer of the event loop",
        attrgetter("server.loop_lag.delays"),
    ),
    Measure("palio_build_info", "gauge", "Always 1", lambda _: {__version__: 1.0}, label="version"),
    Measure(
        "palio_credential_expiry_timestamp_seconds",
        "gauge",
        "When the certificate or the token of this broker expires, since 1970",
        attrgetter("expiries"),
        label="credential",
    ),
    Measure(
        "palio_journal_disk_free_bytes",
        "gauge",
        "Free bytes of the disk of the journal; absent without broker.data_dir",
        _free_bytes,
    ),
    *_measures(
        "counter",
        _datagrams,
        ("sent", "multicast_datagrams_sent", "Datagrams sent to groups"),
        ("sent_bytes", "multicast_bytes_sent", "Bytes in them"),
        ("received", "multicast_datagrams_received", "Datagrams received from other brokers"),
        ("received_bytes", "multicast_bytes_received", "Bytes in them"),
    ),
    *_measures(
        "counter",
        _MULTICAST,
        ("dropped", "multicast_dropped", "Datagrams lost at this broker, out or in"),
        label="reason",
    ),
    *_measures(
        "gauge",
        _MULTICAST,
        ("joined", "multicast_joined", "Group addresses that are joined"),
        ("unjoined", "multicast_unjoined", "Group addresses that could not be joined"),
        ("buffer_bytes", "multicast_buffer_bytes", "Size of the receive buffer"),
    ),
    *_measures("gauge", attrgetter("server"), ("connections", "connections", "Open sockets")),
    *_measures(
        "counter",
        _JOURNAL,
        ("commits", "journal_commits", "Transactions written"),
        ("appends", "journal_appends", "Appends written in them"),
        ("failures", "journal_failures", "Appends that were refused"),
        ("commit_s", "journal_seconds", "Seconds spent writing"),
        ("damaged", "journal_damaged", "Entries that failed their checksum"),
    ),
    *_measures(
        "gauge",
        _JOURNAL,
        ("waiting", "journal_waiting", "Appends not yet on the disk"),
        ("missing", "journal_missing", "Entries missing when the journal was opened"),
    ),
)


class _BrokerCollector(Collector):
    def __init__(self, server: Server, journal: JournalCounters, expiries: Labelled) -> None:
        self._server = server
        self._journal = journal
        self._expiries = expiries

    def collect(self) -> Iterable[Metric]:
        """Read all metrics now (`prometheus_client.registry.Collector`)."""
        status = self._server.node.status()
        sources = _Sources(self._server, status, self._journal, self._expiries)
        for measure in METRICS:
            found = measure.read(sources)
            labels = [measure.label] if measure.label else []
            metric = _FAMILIES[measure.kind](measure.name, measure.help, labels=labels)
            for name, value in (found if isinstance(found, Mapping) else {"": found}).items():
                shown = _buckets(value) if isinstance(value, Histogram) else (value,)
                metric.add_metric([name] if labels else [], *shown)
            yield metric


_FAMILIES: Final[dict[str, Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


def _buckets(histogram: Histogram) -> tuple[list[tuple[str, int]], float]:
    """Cumulated counts by bound, as Prometheus wants them, and the sum."""
    bounds = [*map(str, histogram.bounds_s), "+Inf"]
    return list(zip(bounds, accumulate(histogram.counts), strict=True)), histogram.sum_s


def exposition(
    server: Server, journal: JournalCounters, expiries: Labelled | None = None
) -> Callable[[], bytes]:
    """Make the function that renders `/metrics`, to be called on the server's loop.

    `expiries` has the time, in seconds since 1970, at which each credential in use expires.
    """
    registry = CollectorRegistry()
    registry.register(_BrokerCollector(server, journal, expiries or {}))
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)
