"""Real brokers, as processes, and the smallest of clients for them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

import numpy as np

from palio.model.events import rows, to_batches
from palio.model.masks import unpack_mask
from palio.protocol.messages import Deliver, Message, Query, Subscribe
from palio.spark.connection import BrokerLogin, Connection
from tests.cli.brokers import PROGRAM

PATIENCE_S: Final = 60.0


def wait_for(true: Callable[[], object]) -> None:
    """Wait for what nothing tells of."""
    until = monotonic() + PATIENCE_S
    while not true():
        assert monotonic() < until
        sleep(0.01)


class Broker:
    """A broker with a disk, which can be killed and started again at the same port."""

    def __init__(self, home: Path, name: str = "b1") -> None:
        self.home = home
        self.name = name
        self.port = 0
        self.process: subprocess.Popen[str] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"palio://127.0.0.1:{self.port}"

    def start(self) -> None:
        listen = f"127.0.0.1:{self.port}"
        options = ["--name", self.name, "--listen", listen, "--data", str(self.home), "--json"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "serve", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        address = json.loads(self.process.stdout.readline())["listening"]["palio"]
        self.port = int(address.rpartition(":")[2])

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def connect(self, name: str = "tests", incarnation: str = "") -> Connection:
        return Connection(BrokerLogin(self.url, name), incarnation, timeout_s=PATIENCE_S)

    def publish(self, *events: Mapping[str, Any], first: int = 1, name: str = "tests") -> None:
        """Publish events durably, numbered on from the first."""
        connection = self.connect(name, "1")
        connection.publish(to_batches(events), first)
        connection.close()

    def subscribe(self, durable: str, filter: str = "TRUE", name: str = "spark") -> None:
        """Make a durable subscription."""
        connection = self.connect(name)
        connection.ask(Subscribe(0, 1, filter, {}, durable))
        connection.close()

    def waiting(self, durable: str, filter: str = "TRUE", name: str = "spark") -> list[Any]:
        """The events that wait for a durable subscription, which stay there."""
        return [event for _, event in self._taken(durable, filter, name, acknowledge=False)]

    def taken(self, durable: str, filter: str = "TRUE", name: str = "spark") -> list[Any]:
        """The events that wait for a durable subscription, by publisher, and no more do so."""
        return self._taken(durable, filter, name, acknowledge=True)

    def _taken(
        self, durable: str, filter: str, name: str, *, acknowledge: bool
    ) -> list[tuple[str, dict[str, Any]]]:
        connection = self.connect(name)
        connection.ask(Subscribe(0, 1, filter, {}, durable))
        found = []
        while given := deliveries(connection):
            for each in given:
                found += [(each.parcel.publisher, event) for event in events_of(each)]
                if acknowledge:
                    connection.acknowledge(1, each.entry)
            if not acknowledge:
                break
        connection.close()
        return found


def deliveries(connection: Connection) -> list[Deliver]:
    """What waits for the durable subscription of key 1, up to the broker's window, and was not
    handed out before.
    """
    waiting = connection.ask(Query(0, "waiting", 1))
    given: list[Deliver] = []
    while waiting["entries"] and (not given or given[-1].entry < waiting["last"]):
        message = connection.receive(PATIENCE_S)
        assert isinstance(message, Deliver)
        given.append(message)
    return given


def events_of(message: Message) -> Iterable[dict[str, Any]]:
    """The attributes of the events that a delivery selects."""
    assert isinstance(message, Deliver)
    mask = unpack_mask(message.rows, len(message.parcel))
    for row in rows(message.parcel.batch.take(np.flatnonzero(mask))):
        yield {name: value for name, value in row.items() if not name.startswith("$")}


@contextmanager
def serving(home: Path, name: str = "b1") -> Iterator[Broker]:
    """A broker that ends with the block, whatever happens there."""
    broker = Broker(home, name)
    try:
        yield broker
    finally:
        broker.kill()
