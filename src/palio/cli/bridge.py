"""`palio bridge`: events to and from NATS, AMQP, MQTT and Kafka, each at least once."""

from __future__ import annotations

import signal
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import typer

from palio.cli import inputs
from palio.cli.application import AsJson, Identity, Parameters, with_broker
from palio.cli.connecting import BrokerAccess, ProgressLine
from palio.cli.reporting import print_status, show
from palio.errors import InvalidInput

if TYPE_CHECKING:
    from palio.bridge.bridge import BridgeSettings

System: TypeAlias = Literal["nats", "amqp", "mqtt", "kafka"]
"""The systems at the other end; each has a module of `palio.bridge`."""

PORTS: Final = {"nats": 4222, "amqp": 5672, "mqtt": 1883, "kafka": 9092}


@with_broker
def bridge(  # noqa: PLR0913, PLR0917  # typer makes an option of each
    access: BrokerAccess,
    system: Annotated[System, typer.Argument(help="The other message system.")],
    name: Annotated[
        str,
        typer.Option(
            help="The name under which both systems keep its place; one for each bridge.",
            show_default=False,
        ),
    ],
    url: Annotated[
        str,
        typer.Option(
            metavar="URL",
            envvar="PALIO_BRIDGE_URL",
            help="Its address; one with a password is safer in the variable.",
            show_default="its port on localhost",
        ),
    ] = "",
    filter: Annotated[
        str, typer.Option("--filter", metavar="FILTER", help="Which events leave.")
    ] = "",
    to: Annotated[
        str,
        typer.Option(metavar="TEMPLATE", help="Where to: quotes.{symbol}, with their attributes."),
    ] = "",
    source: Annotated[
        str,
        typer.Option("--from", metavar="ADDRESS", help="What enters: a subject, queue or topic."),
    ] = "",
    cloudevents: Annotated[
        bool,
        typer.Option("--cloudevents", help="Messages are CloudEvents, not the plain attributes."),
    ] = False,
    param: Parameters = None,
    identity: Identity = "",
    as_json: AsJson = False,
) -> int:
    """Carry events to another message system, back, or both.

    It runs until Ctrl-C or SIGTERM. Each durable event arrives at least once, whatever is killed.
    """
    import asyncio

    from palio.bridge.bridge import BridgeSettings
    from palio.language.parsing import parse_filter

    if bool(filter) != bool(to) or not (to or source):
        raise InvalidInput("a bridge takes --filter and --to, or --from, or all three")
    if filter:
        parse_filter(filter)
    settings = BridgeSettings(name, filter, inputs.bindings(param), to, source, cloudevents)
    access = access._replace(name=name, identity=identity)
    url = url or f"{system}://localhost:{PORTS[system]}"
    if not _is_url(url, system):  # it may contain a password, so the error does not
        raise InvalidInput(f"--url or $PALIO_BRIDGE_URL is invalid; expected {system}://HOST:PORT")
    counts, number = asyncio.run(_run(access, system, url, settings))
    show(counts if as_json else ", ".join(f"{key} {count:,}" for key, count in counts.items()))
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    return 0


def _is_url(url: str, system: System) -> bool:
    try:
        parts = urlsplit(url)
        has_port = system == "kafka" or parts.port != 0
    except ValueError:
        return False
    return has_port and parts.netloc != "" and parts.scheme in (system, f"{system}s", "tls")


async def _run(
    access: BrokerAccess, system: System, url: str, settings: BridgeSettings
) -> tuple[dict[str, int], int]:
    """Run a bridge until a signal comes; return its counts, and the number of the signal."""
    import asyncio

    from palio.bridge.bridge import Bridge

    connect = import_module(f"palio.bridge.{system}").connect
    loop, signals, progress = asyncio.get_running_loop(), list[int](), ProgressLine()
    async with access.connect() as client:
        bridge = Bridge(
            client,
            lambda source: connect(url, settings.name, source),
            settings,
            print_status,
            progress.show,
        )

        def stop(number: int) -> None:
            signals.append(number)
            bridge.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        try:
            await bridge.run()
        finally:
            progress.end()
    return dict(bridge.counts), signals[-1] if signals else 0
