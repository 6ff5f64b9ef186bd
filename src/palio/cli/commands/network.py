"""Commands that talk to a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palio.cli.application import (
    AsJson,
    Authorities,
    Broker,
    ClientName,
    FilterText,
    Identity,
    Parameters,
    Source,
    TokenFile,
    app,
    door_of,
    event_argument,
)


@app.command()
def pub(  # typer makes an option of each
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-|TEXT",
            help="JSON lines, CSV or Parquet, by the file's ending; standard input is JSON lines.",
            show_default=False,
        ),
    ] = "-",
    at: Broker = None,
    durable: Annotated[
        bool, typer.Option("--durable", help="Return once the events are on the broker's disk.")
    ] = False,
    identity: Identity = "",
    name: ClientName = "",
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: AsJson = False,
) -> int:
    """Publish events."""
    from palio.cli.pub import pub

    door = door_of(at, token_file, ca, name, identity)
    return pub(source, door, durable=durable, as_json=as_json)


@app.command()
def sub(  # noqa: PLR0913, PLR0917  # typer makes an option of each
    filter: FilterText,
    at: Broker = None,
    param: Parameters = None,
    durable: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Keep this subscription at the broker under a name; give --name."
        ),
    ] = "",
    count: Annotated[
        int, typer.Option(min=0, help="End after this number of events; 0 for never.")
    ] = 0,
    lifetime: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="How long it waits for somebody to announce what it wants; for ever unless given.",
        ),
    ] = None,
    reorder: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="How long a pattern waits for events that were overtaken: 1 at first "
            "and then as it finds out, unless given.",
        ),
    ] = None,
    by_brokers: Annotated[
        bool,
        typer.Option("--by-brokers", help="Have brokers assemble a pattern where its events meet."),
    ] = False,
    identity: Identity = "",
    name: ClientName = "",
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document a line.")] = False,
) -> int:
    """Print events as they come, until Ctrl-C.

    A line such as limit=20 on standard input changes a parameter at once.
    """
    from palio.cli.sub import sub

    door = door_of(at, token_file, ca, name, identity)
    return sub(
        filter,
        door,
        param or [],
        durable=durable,
        count=count,
        lifetime_s=lifetime,
        reorder_s=reorder,
        by_brokers=by_brokers,
        as_json=as_json,
    )


@app.command()
def adv(  # noqa: PLR0913, PLR0917  # typer makes an option of each
    filter: FilterText,
    at: Broker = None,
    param: Parameters = None,
    identity: Identity = "",
    withdraw: Annotated[
        bool,
        typer.Option(
            "--withdraw",
            help="Withdraw all that the filter covers, whoever announced it; give --as.",
        ),
    ] = False,
    name: ClientName = "",
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: AsJson = False,
) -> int:
    """Announce what will be published, until Ctrl-C."""
    from palio.cli.adv import adv

    door = door_of(at, token_file, ca, name, identity)
    return adv(filter, door, param or [], withdraw=withdraw, as_json=as_json)


@app.command()
def cancel(  # typer makes an option of each
    filter: FilterText,
    identity: Annotated[
        str, typer.Option("--as", metavar="NAME", help="Whose subscriptions.", show_default=False)
    ],
    at: Broker = None,
    param: Parameters = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="End durable ones for good; else they wait.")
    ] = False,
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: AsJson = False,
) -> int:
    """End what an identity hears, as far as a filter covers it.

    A pattern ends patterns of as many steps, each covered by its own.
    """
    from palio.cli.cancel import cancel

    door = door_of(at, token_file, ca, "", identity)
    return cancel(filter, door, param or [], forget=forget, as_json=as_json)


@app.command()
def topology(
    at: Broker = None,
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: AsJson = False,
) -> int:
    """Show the brokers of a network and their links."""
    from palio.cli.topology import topology

    return topology(door_of(at, token_file, ca), as_json=as_json)


@app.command()
def retire(
    broker: Annotated[str, typer.Argument(help="Its name.", show_default=False)],
    at: Broker = None,
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: AsJson = False,
) -> int:
    """Say of a broker that was stopped that it is gone for good.

    Nothing is kept for its durable subscriptions from then on, and nobody waits for it.
    """
    from palio.cli.retire import retire

    return retire(broker, door_of(at, token_file, ca), as_json=as_json)


@app.command()
def trace(
    event: Annotated[str, event_argument("A JSON object")] = "-",
    at: Broker = None,
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: AsJson = False,
) -> int:
    """Show where an event would go, hop by hop, without sending it.

    Ends with 0 if somebody would hear it, 1 if nobody listens.
    """
    from palio.cli.trace import trace

    return trace(event, door_of(at, token_file, ca), as_json=as_json)


@app.command()
def top(
    at: Broker = None,
    interval: Annotated[
        float, typer.Option(min=0.05, max=3600, metavar="SECONDS", help="Between two looks.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look for one interval, then end.")] = False,
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: AsJson = False,
) -> int:
    """Watch a broker: its rates, sessions, queues, custody and peers.

    A live view on a terminal, a line a look elsewhere, until Ctrl-C. For scripts: --once --json.
    """
    from palio.cli.top import top

    door = door_of(at, token_file, ca)
    return top(door, interval_s=interval, once=once, as_json=as_json)


@app.command()
def archive(  # noqa: PLR0913, PLR0917  # typer makes an option of each
    filter: FilterText,
    to: Annotated[Path, typer.Option(metavar="DIR", help="Where Parquet is written.")],
    source: Source = None,
    param: Parameters = None,
    name: Annotated[
        str, typer.Option("--name", help="Whose durable subscription it is; one for each archive.")
    ] = "archive",
    file_mib: Annotated[
        float, typer.Option(min=0.001, max=1024, help="Write a file when so much has come...")
    ] = 64.0,
    file_s: Annotated[
        float, typer.Option(min=0.1, help="...or when the first of it came so long ago.")
    ] = 900.0,
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: AsJson = False,
) -> int:
    """Write events to Parquet, each exactly once.

    It runs until Ctrl-C or SIGTERM, as a durable subscription: what is published durably while it
    is away waits at the broker, and no event is written twice, whatever is killed. A directory a
    day (UTC), a file a shape, with $publisher, $seq and $time beside the attributes.
    """
    from palio.cli.archive import Rolling, archive

    door = door_of(source, token_file, ca, name)
    rolling = Rolling(int(file_mib * (1 << 20)), file_s)
    return archive(filter, door, to, param or [], rolling, as_json=as_json)


@app.command()
def replay(  # noqa: PLR0913, PLR0917  # typer makes an option of each
    path: Annotated[Path, typer.Argument(metavar="DIR", help="What `palio archive` has written.")],
    filter: Annotated[str, typer.Argument(metavar="[FILTER]")] = "TRUE",
    to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL|-",
            help="A broker: palio://host:port. - prints a JSON document a line.",
            show_default="palio://localhost:7400",
        ),
    ] = None,
    param: Parameters = None,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="From this time on: 2026-01-31, 2026-01-31T09:30Z.")
    ] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help="Before this time.")] = "",
    skip: Annotated[int, typer.Option(metavar="N", help="Leave out the first N of these.")] = 0,
    take: Annotated[
        int | None, typer.Option(metavar="N", help="Replay no more than N, behind those.")
    ] = None,
    speed: Annotated[
        str, typer.Option(metavar="X|max", help="1 keeps their pace, 10 is ten times as fast.")
    ] = "max",
    as_publisher: Annotated[
        str, typer.Option("--as", metavar="NAME", help="Who publishes them now.")
    ] = "",
    durable: Annotated[
        bool, typer.Option("--durable", help="Keep them on the broker's disk.")
    ] = False,
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: AsJson = False,
) -> int:
    """Publish archived events again, in order of time, or print them."""
    from palio.cli.replay import Wanted, replay

    wanted = Wanted.of(filter, param or [], since, until, skip, take)
    door = door_of(to, token_file, ca, as_publisher)
    return replay(path, wanted, door, speed=speed, durable=durable, as_json=as_json)
