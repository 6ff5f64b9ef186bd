"""The command, at the cluster of Kafka that needs no server; each system has tests of its own."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

import palio
from tests.bridge.servers import kafka
from tests.cli.brokers import PATIENCE_S, broker, process
from tests.cli.helpers import Palio


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with kafka() as address:
        yield address


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_events_leave_and_enter_until_a_signal(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv("PALIO_BRIDGE_URL", f"kafka://{cluster}")
    topic = f"orders-{number.name}"
    with broker("b1", tmp_path) as url, palio.SyncClient(url) as client:
        entering = client.subscribe("kind = 'in'")
        letters = client.subscribe("EXISTS dead_letter")
        with process(
            *("bridge", "kafka", "--broker", url, "--json"),
            *("--name", number.name, "--filter", "kind = :kind", "--param", "kind=out"),
            *("--to", f"{topic}/{{n}}", "--from", topic),
        ) as bridge:
            assert bridge.stderr is not None
            for _ in range(2):
                assert "connected" in bridge.stderr.readline()
            producer = Producer({"bootstrap.servers": cluster})
            producer.produce(topic, b'{"kind": "in", "n": 1}')
            producer.produce(topic, b"no event")
            assert producer.flush(PATIENCE_S) == 0
            assert entering.receive(PATIENCE_S)["n"] == 1
            assert letters.receive(PATIENCE_S)["data"] == "no event"
            client.publish({"kind": "out", "n": 2}, durable=True)
            while client.admin.query("status")["custody_waiting"][f"{number.name}/bridge"]:
                pass
            bridge.send_signal(number)
            said, _ = bridge.communicate(timeout=PATIENCE_S)
    assert bridge.returncode == (0 if number == signal.SIGTERM else 130)
    counts = json.loads(said)
    assert (counts["sent"], counts["received"], counts["dead_letters"]) == (1, 1, 1)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "--filter and --to, or --from"),
        (("--to", "t"), "--filter and --to, or --from"),
        (("--filter", "x = 1"), "--filter and --to, or --from"),
        (("--filter", "x = ", "--to", "t"), "expected"),
        (("--filter", "x = 1 THEN y = 2", "--to", "t"), "pattern"),
        (("--from", "t", "--url", "kafka://"), "expected kafka://HOST:PORT"),
        (("--from", "t", "--url", "amqp://u:secret@h"), "expected kafka://HOST:PORT"),
        (("--from", "t", "--broker", "palio://127.0.0.1:1"), "127.0.0.1:1"),
    ],
)
def test_mistakes_are_told(palio: Palio, arguments: tuple[str, ...], problem: str) -> None:
    outcome = palio("bridge", "kafka", "--name", "b", *arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert problem in outcome.err
    assert "secret" not in outcome.err


def test_a_port_is_a_number(palio: Palio) -> None:
    for url in ("mqtt://h:abc", "mqtt://h:99999"):
        outcome = palio("bridge", "mqtt", "--name", "b", "--from", "t", "--url", url)
        assert (outcome.status, "expected mqtt://HOST:PORT" in outcome.err) == (2, True)
