"""`palio serve`: run a broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

from palio.cli.config import configured
from palio.errors import InvalidConfiguration
from palio.protocol.addresses import DEFAULT_PORT
from palio.server.configuring import Setting

__all__ = ["flags", "loop_factory", "serve"]


def serve(config: Path | None, given: list[Setting], *, as_json: bool) -> int:
    """Run a broker until it is told to stop; 0 if it ended in order, 1 if that was cut short."""
    from palio.cli.without_pandas import leave_out_pandas
    from palio.server.logs import configure_logs
    from palio.server.run import Running, run

    configuration = configured(config, given).configuration
    leave_out_pandas()
    configure_logs(configuration.log.level, configuration.log.format)

    def announce(broker: Running) -> None:
        name, addresses = broker.server.node.name, broker.addresses
        if as_json:
            line = json.dumps({"broker": name, "listening": addresses})
        else:
            line = f"{name} listens on {', '.join(addresses.values())}"
        typer.echo(line)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        try:
            runner.run(run(configuration, announce))
        except asyncio.CancelledError:
            return 1
    return 0


def flags(
    *,
    name: str | None = None,
    listen: str | None = None,
    data: str | None = None,
    routing: str | None = None,
    parent: str | None = None,
    peers: list[str] | None = None,
    http: int | None = None,
) -> list[Setting]:
    """Flags as settings.

    >>> flags(listen="127.0.0.1:0")[1]
    Setting(name='listen.port', value=0, origin='--listen')
    """
    named = {
        "--name": ("broker.name", name),
        "--data": ("broker.data_dir", data),
        "--routing": ("broker.routing", routing),
        "--parent": ("broker.parent", parent),
        "--peer": ("peers.urls", peers or None),
        "--http": ("listen.http_port", http),
    }
    plain = [
        Setting(setting, value, flag)
        for flag, (setting, value) in named.items()
        if value is not None
    ]
    return [*_address(listen), *plain]


def _address(listen: str | None) -> Iterator[Setting]:
    if listen is not None:
        host, colon, port = listen.rpartition(":")
        if not colon:
            host, port = listen, str(DEFAULT_PORT)
        if not port.isdecimal() or not host:
            raise InvalidConfiguration(f"--listen {listen!r}: it is host:port, such as 127.0.0.1:0")
        yield Setting("listen.host", host.strip("[]"), "--listen")
        yield Setting("listen.port", int(port), "--listen")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed, else the standard one."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
