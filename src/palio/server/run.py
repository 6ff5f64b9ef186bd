"""Puts a broker together from its configuration, and runs it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import signal
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakSet

import msgspec
import pyarrow.compute as pc  # noqa: F401  # Arrow imports it itself, 60 ms that no event shall wait

from palio.errors import InvalidConfiguration
from palio.matching import warming
from palio.matching.index import Index
from palio.matching.kernels import registry
from palio.multicast import kernels as planning_kernels
from palio.node.node import Node
from palio.node.settings import Outside, Settings
from palio.protocol.addresses import Address
from palio.protocol.limits import MAX_BATCH_ROWS
from palio.routing.algorithms import find_algorithm
from palio.routing.protocol import Matching, Router, Selector
from palio.server.configuring import is_any
from palio.server.credentials import Credentials, expiries, load
from palio.server.journal.disk_space import RESERVE_BYTES
from palio.server.journal.journal import Diskless, Journal
from palio.server.limits import (
    COMPILED_PAIRS,
    COUNT_AGAIN_S,
    FEW_ROWS,
    GC_THRESHOLDS,
    PLAIN_PAIRS,
    RESIDUALS,
)
from palio.server.multicast.sockets import GroupSockets, open_groups
from palio.server.reload import Reloader
from palio.server.server import Server
from palio.server.settings import Configuration

if TYPE_CHECKING:
    from palio.server.http.app import HttpFront

logger: Final = logging.getLogger("palio.server")


class Running(NamedTuple):
    """A broker at work."""

    server: Server
    host: str
    port: int
    is_secure: bool
    http: HttpFront | None
    reloader: Reloader

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses at which it can be reached."""
        own = {"palio": str(Address(self.host, self.port, self.is_secure))}
        return own if self.http is None else own | {"http": self.http.address}


@asynccontextmanager
async def running(
    configuration: Configuration, *, is_lost: Callable[[], bool] | None = None
) -> AsyncIterator[Running]:
    """A broker for as long as the block runs; then it is stopped in order.

    Everything that may be wrong with the configuration is found before anyone can connect. For
    measurements `is_lost` says of each datagram that comes whether it counts as lost on the way.
    """
    credentials = load(configuration)
    accepting = credentials.accepting
    broker, listen = configuration.broker, configuration.listen
    settings = _node_settings(configuration)
    journal = new_journal(configuration)
    engines = Engines()
    if settings.replan:
        _in_background(planning_kernels.load)  # no event may wait for it when it is needed
    multicast: GroupSockets | None = None
    try:
        multicast = open_groups(configuration.multicast, broker.name, is_lost)
        node = Node(
            broker.name,
            new_router(configuration, engines),
            journal,
            settings=settings,
            authority=credentials.authority,
            identity=credentials.identity,
            new_id=partial(secrets.token_urlsafe, 16),
            matcher=engines.new_index,
        )
        server = Server(
            node,
            journal,
            multicast=multicast,
            dialling=credentials.dialling,
            max_connections=configuration.limits.max_connections,
            greeting_s=configuration.limits.handshake_timeout_s,
            rows_at_once=engines.rows_at_once,
        )
        server.start()
    except BaseException:
        if multicast is not None:
            multicast.close()
        journal.close()
        raise
    http: HttpFront | None = None
    ends = dict[str, float]()
    try:
        await server.flush()  # a broker that is new takes what is durable once its log has begun
        host, port = await _listening(server, listen.host, listen.port, accepting)
        own = Address(listen.host, port, accepting is not None)
        server.host.reachable_at(broker.url or ("" if is_any(listen.host) else str(own)))
        if configuration.http.port is not None:
            ends = expiries(configuration.tls, credentials.identity)
            http = await _open_http(server, configuration, credentials, ends)
        for url in configuration.peers.urls:
            server.dial(url)
        reloader = Reloader(configuration, credentials, node, server, http, ends)
        yield Running(server, host, port, accepting is not None, http, reloader)
    finally:
        try:
            if http is not None:
                await http.stop()
            await server.close()
        except asyncio.CancelledError:
            await server.stop()
            raise


async def run(
    configuration: Configuration,
    announce: Callable[[Running], None],
    read: Callable[[], Configuration] | None = None,
) -> int:
    """Run a broker until SIGTERM or SIGINT stops it in order, and return the signal's number;
    a second signal cuts that short. SIGHUP reloads what `read` reads then, or the same
    configuration with its files as they are then.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()
    task = asyncio.current_task()
    assert task is not None

    def stop(number: int) -> None:
        if stopped.done():
            task.cancel()
        else:
            stopped.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    hangup = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, hangup.set)  # without a handler it would kill
    async with running(configuration) as found:

        async def reload() -> None:
            while True:
                await hangup.wait()
                hangup.clear()
                notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}")
                await found.reloader.reload(read or (lambda: configuration))
                notify("READY=1")

        reloading = loop.create_task(reload(), name="reload")
        try:
            announce(found)
            notify("READY=1")
            received = await stopped
        finally:
            notify("STOPPING=1")
            reloading.cancel()
        logger.info("broker_stopping", extra={"details": {"connections": found.server.connections}})
    return received


def notify(*states: str) -> None:
    """Report the state of the broker to the service manager, where one listens: systemd
    waits for a broker that is ready before it starts what depends on it.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending, suppress(OSError):
        sending.setblocking(False)  # a manager that does not read must not hold the broker
        sending.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
        sending.send("\n".join(states).encode())


# --- parts ---


def new_router(configuration: Configuration, engines: Engines) -> Router:
    """The routing algorithm that a configuration names, over the engines of this broker."""
    name = configuration.broker.name
    gateway = configuration.gateway
    inside = find_algorithm(configuration.broker.routing)
    if not gateway.routing:
        window = timedelta(seconds=configuration.broker.reorder_s)
        return inside.new_assembling(
            name,
            engines.new_selector,
            incarnation=time.time_ns() // 1_000,
            has_parent=bool(configuration.broker.parent),
            window=window,
        )
    outside = find_algorithm(gateway.routing)
    return inside.new_gateway(name, outside, frozenset(gateway.brokers), engines.new_selector)


def new_journal(configuration: Configuration) -> Journal | Diskless:
    """Open the journal of durable events; without a data directory there is none."""
    broker = configuration.broker
    if not broker.data_dir:
        return Diskless()
    return Journal(
        Path(broker.data_dir),
        broker.name,
        max_bytes=broker.journal_bytes,
        reserve_bytes=RESERVE_BYTES,
    )


def _node_settings(configuration: Configuration) -> Settings:
    limits, gateway = msgspec.structs.asdict(configuration.limits), configuration.gateway
    algorithm = find_algorithm(configuration.broker.routing)
    outside = None
    if gateway.routing:
        outside = Outside(gateway.routing, frozenset(gateway.brokers), gateway.parent)
    known = {field.name for field in msgspec.structs.fields(Settings)}
    return Settings(
        routing=configuration.broker.routing,
        parent=configuration.broker.parent if algorithm.has_parents else "",
        outside=outside,
        link_costs=configuration.peers.link_costs,
        discovery=configuration.peers.discovery,
        peers=configuration.peers.urls,
        has_disk=bool(configuration.broker.data_dir),
        latest_by=configuration.broker.latest_by,
        multicast=bool(configuration.multicast.groups),
        replan=bool(configuration.multicast.groups) and configuration.multicast.replan,
        **{name: value for name, value in limits.items() if name in known},
    )


async def _listening(
    server: Server, host: str, port: int, tls: ssl.SSLContext | None
) -> tuple[str, int]:
    try:
        return await server.listen(host, port, tls)
    except OSError as error:
        raise InvalidConfiguration(
            f"listen.host, listen.port: {host}:{port}: {error.strerror or error}"
        ) from None


async def _open_http(
    server: Server,
    configuration: Configuration,
    credentials: Credentials,
    ends: dict[str, float],
) -> HttpFront:
    from palio.server import metrics
    from palio.server.http import app

    exposition = metrics.exposition(server, server.journal.counters, ends)
    return await app.serve(
        server, configuration, credentials.authority, exposition, credentials.serving
    )


# --- engines ---
#
# The compiled engine is plain Python until it has had some work: a broker without its kernels is a
# third the size of one with them. They are loaded beside the loop in some seconds, the first time
# on a machine in a minute. Until then a pair of event and filter takes ten times as long and more,
# so that a large message is matched in many small steps.


class Engines:
    """Makes the engines of one broker and the selectors of its router.

    >>> engines = Engines()
    >>> engines.new_index().match_event({"x": 1}).tolist(), len(engines.new_selector())
    ([], 0)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._made: WeakSet[Index] = WeakSet()
        self._clock = clock
        self._filters = self._cost = 0
        self._counted_at = float("-inf")

    def new_selector(self) -> Selector:
        """One for a router."""
        return Matching(self.new_index())

    def new_index(self) -> Index:
        """A compiled engine: it merges beside the loop, and loads its kernels there once it has had
        some work.
        """
        index = Index(_in_background, load_kernels)
        self._made.add(index)
        return index

    def rows_at_once(self) -> int:
        """Choose how many events are matched in one step: the fewer, the more filters there are,
        and while it is done in plain Python. There may be thousands of engines: they are not
        counted each time.
        """
        now = self._clock()
        if now - self._counted_at >= COUNT_AGAIN_S:
            self._filters, self._counted_at = sum(map(len, self._made)), now
            self._cost = sum(each.residual_cost for each in self._made)
        pairs = PLAIN_PAIRS if registry.ready() is None else COMPILED_PAIRS
        rows = max(FEW_ROWS, min(MAX_BATCH_ROWS, pairs // max(1, self._filters)))
        return min(rows, max(1, RESIDUALS // self._cost)) if self._cost else rows


def load_kernels() -> None:
    """Load the compiled code of matching and of routing; until then both are plain Python."""
    if not registry.are_on_disk():
        details = {"effect": "matching in plain Python until then, about a minute"}
        logger.info("kernels_compiling", extra={"details": details})
    warming.warm()


def _in_background(job: Callable[[], Any]) -> None:
    """Do something beside the loop, such as compiling; a broker may end before it has."""
    threading.Thread(target=job, name="palio-engine", daemon=True).start()
