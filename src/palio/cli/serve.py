"""`palio serve` and `palio config`: run a broker, and see what it would be told."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

from palio.cli.reporting import show
from palio.errors import InvalidConfiguration
from palio.protocol.addresses import DEFAULT_PORT
from palio.server.configuring import Configured, Setting, configure

__all__ = ["check_configuration", "flags", "serve", "show_configuration"]


def serve(config: Path | None, given: list[Setting], *, as_json: bool) -> int:
    """Run a broker until it is told to stop; 0 once it is drained, 1 if that was cut short."""
    from palio.server.logs import configure_logs
    from palio.server.run import Running, run

    configuration = _configured(config, given).configuration
    configure_logs(configuration.log.level, configuration.log.format)

    def announce(broker: Running) -> None:
        name, addresses = broker.server.node.name, broker.addresses
        if as_json:
            line = json.dumps({"broker": name, "listening": addresses})
        else:
            line = f"{name} listens on {', '.join(addresses.values())}"
        typer.echo(line)

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        try:
            runner.run(run(configuration, announce))
        except asyncio.CancelledError:
            return 1
    return 0


def show_configuration(
    config: Path | None, given: list[Setting], *, with_origin: bool, as_json: bool
) -> int:
    """Print every setting, and where it was set."""
    settings = _configured(config, given).settings
    if as_json:
        show({each.name: _described(each, with_origin=with_origin) for each in settings})
        return 0
    width = max(len(_assignment(each)) for each in settings)
    for each in settings:
        line = _assignment(each)
        show(f"{line:{width}}  # {each.origin}" if with_origin else line)
    return 0


def check_configuration(config: Path | None, given: list[Setting], *, as_json: bool) -> int:
    """Say whether a broker would start with this, as far as can be told without starting it."""
    found = _configured(config, given)
    changed = sum(each.origin != "default" for each in found.settings)
    if as_json:
        show({"valid": True, "set": changed})
    else:
        show(f"The configuration is good: {changed} settings, the others have their defaults")
    return 0


def flags(
    *,
    name: str | None = None,
    listen: str | None = None,
    data: str | None = None,
    peers: list[str] | None = None,
    http: int | None = None,
) -> list[Setting]:
    """Flags as settings.

    >>> flags(listen="127.0.0.1:0")[1]
    Setting(name='listen.port', value=0, origin='--listen')
    """
    return list(_flags(name, listen, data, peers, http))


def _flags(
    name: str | None,
    listen: str | None,
    data: str | None,
    peers: list[str] | None,
    http: int | None,
) -> Iterator[Setting]:
    if name is not None:
        yield Setting("broker.name", name, "--name")
    if listen is not None:
        host, colon, port = listen.rpartition(":")
        if not colon:
            host, port = listen, str(DEFAULT_PORT)
        if not port.isdecimal() or not host:
            raise InvalidConfiguration(f"--listen {listen!r}: it is host:port, such as 127.0.0.1:0")
        yield Setting("listen.host", host.strip("[]"), "--listen")
        yield Setting("listen.port", int(port), "--listen")
    if data is not None:
        yield Setting("broker.data_dir", data, "--data")
    if peers:
        yield Setting("peers.urls", peers, "--peer")
    if http is not None:
        yield Setting("listen.http_port", http, "--http")


def _configured(config: Path | None, given: list[Setting]) -> Configured:
    return configure(file=config, environment=os.environ, flags=given)


def _described(setting: Setting, *, with_origin: bool) -> Any:
    return {"value": setting.value, "origin": setting.origin} if with_origin else setting.value


def _assignment(setting: Setting) -> str:
    return f"{setting.name} = {json.dumps(setting.value)}"


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed, else the standard one."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
