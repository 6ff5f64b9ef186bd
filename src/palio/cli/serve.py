"""Commands for those who run a broker: `palio serve`, `palio config` and `palio warm`."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from palio.cli.application import AsJson, ConfigFile
from palio.cli.reporting import show
from palio.errors import InvalidConfiguration
from palio.routing.algorithms import ALGORITHMS

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from palio.server.configuring import Configured, Setting
    from palio.server.run import Running
    from palio.server.settings import Configuration

config_commands: Final = typer.Typer(no_args_is_help=True, help="Show and check settings.")


def serve(  # noqa: PLR0913, PLR0917  # typer makes an option of each
    config: ConfigFile = None,
    name: Annotated[str | None, typer.Option(help="The broker's name.")] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Port 0 for any free one.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where durable events are kept.")
    ] = None,
    routing: Annotated[
        str | None, typer.Option(metavar="NAME", help=f"One of {', '.join(ALGORITHMS)}.")
    ] = None,
    parent: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With hierarchical, the broker above; with proxies, it is not the root.",
        ),
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="Another broker: palio://host:port.")
    ] = None,
    http: Annotated[int | None, typer.Option(metavar="PORT", help="Also serve HTTP.")] = None,
    as_json: AsJson = False,
) -> int:
    """Run a broker.

    Prints one line once it can be reached. SIGTERM or Ctrl-C stops it in order: it sends its
    clients to other brokers and closes its sessions. A second one cuts that short: status 1.
    """
    import asyncio

    from palio.server.configuring import Setting
    from palio.server.logs import configure_logs
    from palio.server.run import run

    flags = {
        "--name": ("broker.name", name),
        "--data": ("broker.data_dir", data),
        "--routing": ("broker.routing", routing),
        "--parent": ("broker.parent", parent),
        "--peer": ("peers.urls", peer or None),
        "--http": ("http.port", http),
    }
    given = [] if listen is None else listen_settings(listen)
    given += [
        Setting(setting, value, flag)
        for flag, (setting, value) in flags.items()
        if value is not None
    ]

    def read() -> Configuration:
        return _checked(config, given).configuration

    configuration = read()
    leave_out_pandas()
    configure_logs(configuration.log.level, configuration.log.format)

    def announce(broker: Running) -> None:
        name, addresses = broker.server.node.name, broker.addresses
        line = json.dumps({"broker": name, "listening": addresses})
        typer.echo(line if as_json else f"{name} listens on {', '.join(addresses.values())}")

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        try:
            number = runner.run(run(configuration, announce, read))
        except asyncio.CancelledError:
            return 1
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    return 0


def listen_settings(text: str) -> list[Setting]:
    """The settings of `--listen`.

    >>> listen_settings("127.0.0.1:0")[1]
    Setting(name='listen.port', value=0, origin='--listen')
    """
    from palio.protocol.addresses import DEFAULT_PORT
    from palio.server.configuring import Setting

    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(DEFAULT_PORT)
    if not port.isdecimal() or not host:
        raise InvalidConfiguration(f"--listen {text!r}: it is host:port, such as 127.0.0.1:0")
    return [
        Setting("listen.host", host.strip("[]"), "--listen"),
        Setting("listen.port", int(port), "--listen"),
    ]


def loop_factory() -> Callable[[], AbstractEventLoop] | None:
    """uvloop's loop where it is installed, else the standard one."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class _NoPandas:
    """Finds no pandas, and leaves the rest to others."""

    def find_spec(self, fullname: str, *_: Any) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("not in this process", name=fullname)


def leave_out_pandas() -> None:
    """Have Arrow look for pandas, and find none.

    Arrow looks when it makes its first array. Where pandas is installed that takes a quarter of a
    second, in the middle of some event, and 40 MB. Arrow looks only once.
    """
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([1])
    finally:
        sys.meta_path.remove(finder)


# --- settings ---


@config_commands.command("show")
def config_show(
    config: ConfigFile = None,
    origin: Annotated[bool, typer.Option("--origin", help="Show where each was set.")] = False,
    as_json: AsJson = False,
) -> int:
    """Print every setting as a broker would have it."""
    from palio.server.configuring import configure

    settings = configure(file=config, environment=os.environ).settings
    if as_json:
        show({each.name: _described(each, with_origin=origin) for each in settings})
        return 0
    width = max(len(_assignment(each)) for each in settings)
    for each in settings:
        line = _assignment(each)
        show(f"{line:{width}}  # {each.origin}" if origin else line)
    return 0


@config_commands.command("check")
def config_check(config: ConfigFile = None, as_json: AsJson = False) -> int:
    """Check the settings and the files that they name; ends with 2 and lists all mistakes.

    The broker may be running. Its ports and the content of its data directory are not looked at.
    """
    changed = sum(each.origin != "default" for each in _checked(config).settings)
    text = f"The configuration is good: {changed} settings, the others have their defaults"
    show({"valid": True, "set": changed} if as_json else text)
    return 0


def _checked(config: Path | None, flags: Sequence[Setting] = ()) -> Configured:
    """The settings of a file, of the environment and of flags, with which a broker can start."""
    from palio.server.configuring import configure
    from palio.server.credentials import mistakes

    return configure(file=config, environment=os.environ, flags=flags, find=mistakes)


def _described(setting: Setting, *, with_origin: bool) -> Any:
    return {"value": setting.value, "origin": setting.origin} if with_origin else setting.value


def _assignment(setting: Setting) -> str:
    return f"{setting.name} = {json.dumps(setting.value)}"


# --- kernels ---


def warm(as_json: AsJson = False) -> int:
    """Compile the matching engine's kernels.

    It takes a minute the first time; they are kept on disk. Without it programs start in plain
    Python and compile while they run, one of them for all.
    """
    from palio.matching import warming
    from palio.matching.kernels import registry

    def print_status(done: int, of: int) -> None:
        show(f"{done} of {of} kernels")

    start = perf_counter()
    is_shown = not (as_json or registry.are_on_disk())
    if is_shown:
        show("compiling them takes about a minute, once; until then engines run in plain Python")
    if warming.warm_unless_busy(print_status if is_shown else None) is None and is_shown:
        show("another process compiles them; this one waits for it")
    warming.warm()
    seconds = perf_counter() - start
    text = f"The kernels are compiled and cached: {seconds:.1f} s"
    show({"seconds": round(seconds, 3)} if as_json else text)
    return 0
