from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from palio import __version__
from palio.protocol.messages import Accepted, Ping, Pong
from palio.server.journal.journal import Journal
from palio.server.metrics import METRICS, exposition
from palio.server.run import running
from palio.server.server import Server
from palio.server.settings import Broker, Configuration, Listen, Peers
from tests.server.helpers import Peer, publish
from tests.tables import code, table


async def test_what_happened_is_shown(tmp_path: Path) -> None:
    configuration = Configuration(
        broker=Broker(name="b1", data_dir=str(tmp_path)), listen=Listen(port=0)
    )
    async with running(configuration) as found:
        alice = await Peer.client((found.host, found.port))
        await alice.subscribe("x > 1", durable="all")
        alice.send(publish(1, 1, 2, 3, durable=True))
        await alice.next(Accepted)
        alice.send(Ping())
        await alice.next(Pong)
        assert isinstance(found.server.journal, Journal)
        text = exposition(found.server, found.server.journal.counters)().decode()
        alice.close()
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["palio_events_published_total",] == 3
    assert samples["palio_events_in_total",] == 3
    assert samples["palio_sessions",] == 1
    assert samples["palio_connections",] == 1
    assert samples["palio_durable_subscriptions",] == 1
    assert samples["palio_durable_backlog_batches", "alice/all"] == 1
    assert samples["palio_journal_appends_total",] >= 2
    assert samples["palio_journal_failures_total",] == 0
    assert samples["palio_broker_busy_seconds_total",] > 0
    assert samples["palio_delivery_latency_seconds_count", "durable"] == 1
    assert samples["palio_delivery_latency_seconds_bucket", "durable", "+Inf"] == 1
    assert samples["palio_delivery_latency_seconds_count", "live"] == 0
    assert (
        "palio_loop_delay_seconds_count",
    ) in samples  # how soon the first comes is a matter of load
    assert samples["palio_build_info", __version__] == 1
    assert samples["palio_journal_disk_free_bytes",] > 0
    assert samples["process_resident_memory_bytes",] > 0


def _samples(server: Server) -> dict[tuple[str, ...], float]:
    text = exposition(server, server.journal.counters, {"token": 60.0})().decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_configured_peer_that_never_answered_is_shown_as_down() -> None:
    silent = "palio://127.0.0.1:1"
    configuration = Configuration(listen=Listen(port=0), peers=Peers(urls=(silent,)))
    async with running(configuration) as found:
        samples = _samples(found.server)
    assert samples["palio_peer_up", silent] == 0
    assert samples["palio_credential_expiry_timestamp_seconds", "token"] == 60
    assert ("palio_journal_disk_free_bytes",) not in samples


def test_the_documentation_lists_every_metric() -> None:
    listed = {
        code(row["metric"]): (row["type"], code(row["label"]), row["meaning"])
        for row in table("Metrics", "server.md")
    }
    assert listed == {
        measure.name + "_total" * (measure.kind == "counter"): (
            measure.kind,
            measure.label,
            measure.help,
        )
        for measure in METRICS
    }
