"""The `palio` command.

This module imports nothing but typer, so that `palio --help` answers at once; each command loads
its room when it runs. A command returns its exit status: 0, 1 where its answer is no, and 2 for bad
input, which is told on stderr and never as a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Final, cast

import typer

from palio import __version__
from palio.cli.reporting import show, show_error
from palio.errors import PalioError

__all__ = ["app", "run"]

DEFAULT_BROKER: Final = "palio://localhost:7400"

INTERRUPTED: Final = 130
"""The status that shells give to what Ctrl-C ended."""

_UsageError: Final = cast(type[typer.BadParameter], typer.BadParameter.__mro__[1])
"""What typer raises for wrong arguments; its interface has no other name for it."""

app: Final = typer.Typer(
    help="Content-based publish/subscribe: filters over typed events.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

token_commands: Final = typer.Typer(no_args_is_help=True, help="Make and read tokens.")
keys_commands: Final = typer.Typer(no_args_is_help=True, help="Make and list the keys of tokens.")
app.add_typer(token_commands, name="token")
app.add_typer(keys_commands, name="keys")
config_commands: Final = typer.Typer(no_args_is_help=True, help="Show and check settings.")
app.add_typer(config_commands, name="config")

FilterText = Annotated[
    str,
    typer.Argument(
        metavar="FILTER", help="A filter, such as \"symbol = 'IBM' AND price < :limit\"."
    ),
]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        "-p",
        metavar="NAME=VALUE",
        help="The value of a parameter: 10, true, 'text' or text, (1, 2). May be repeated.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, errors too.")]


ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", metavar="FILE", help="Settings, as TOML.")
]


class Dialect(StrEnum):
    """The filter languages that `palio convert` reads."""

    CESQL = "cesql"
    CLOUDEVENTS = "cloudevents"
    EVENTBRIDGE = "eventbridge"


class How(StrEnum):
    """What `palio match` writes."""

    PAIRS = "pairs"
    ANY = "any"
    COUNT = "count"


class Benchmark(StrEnum):
    """What `palio bench` measures."""

    MATCHING = "matching"


@app.callback(invoke_without_command=True)
def palio(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    as_json: AsJson = False,
) -> None:
    """Content-based publish/subscribe: filters over typed events."""
    if version:
        show({"version": __version__} if as_json else f"palio {__version__}")
        raise typer.Exit


@app.command()
def test(
    filter: FilterText,
    event: Annotated[
        str,
        typer.Argument(
            metavar="EVENT.json|-|TEXT",
            help="A JSON object or JSON lines: a file, standard input, or the text itself.",
            show_default=False,
        ),
    ] = "-",
    param: Parameters = None,
    as_json: AsJson = False,
) -> int:
    """Say whether events match, and if not why.

    One verdict an event. Nested objects are flattened: {"a": {"b": 1}} has the attribute a.b.
    Ends with 0 if an event matches, 1 if none does, 2 for bad input.
    """
    from palio.cli.verdicts import test

    return test(filter, event, param or [], as_json=as_json)


@app.command()
def explain(
    filter: FilterText,
    event: Annotated[
        str | None,
        typer.Argument(
            metavar="EVENT.json|-|TEXT", help="One JSON object, to explain the verdict on it."
        ),
    ] = None,
    param: Parameters = None,
    as_json: AsJson = False,
) -> int:
    """Show what a filter or a pattern means.

    Its alternatives, and what each lets through; with an event, the verdict on it too.
    """
    from palio.cli.meaning import explain

    return explain(filter, event, param or [], as_json=as_json)


@app.command()
def convert(
    dialect: Annotated[
        Dialect, typer.Option("--from", help="The language that the filter is written in.")
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-|TEXT",
            help="A file, standard input, or the text itself.",
            show_default=False,
        ),
    ] = "-",
    as_json: AsJson = False,
) -> int:
    """Rewrite a filter of another language.

    Prints its canonical text in Palio's own.
    """
    from palio.cli.dialects import convert

    return convert(dialect.value, source, as_json=as_json)


@app.command()
def demo(
    seconds: Annotated[
        float, typer.Option(min=0.1, max=3600, help="How long the market is open.")
    ] = 8.0,
    rate: Annotated[int, typer.Option(min=1, max=20_000, help="Quotes a second.")] = 200,
    seed: Annotated[int, typer.Option(help="Another seed, other prices.")] = 1,
    network: Annotated[
        bool, typer.Option(help="Also run three brokers, of which one is killed.")
    ] = True,
    as_json: AsJson = False,
) -> int:
    """Watch quotes find their subscribers.

    First within one process, where subscribers change what they want to hear while quotes come;
    then through three brokers, one of which is killed and started again. At the end all deliveries
    are recounted: ends with 1 if what was promised and what was seen disagree.
    """
    from palio.cli.demo import demo

    return demo(seconds, rate, seed, network=network, as_json=as_json)


@app.command()
def match(
    events: Annotated[
        str,
        typer.Argument(
            metavar="EVENTS",
            help="A Parquet file, a directory of them, or JSON lines.",
            show_default=False,
        ),
    ],
    subscriptions: Annotated[
        str,
        typer.Option(
            metavar="SUBS",
            help="Parquet or JSON lines: id, filter, and if need be subscriber, parameters, "
            "valid_from, valid_to.",
        ),
    ],
    out: Annotated[str, typer.Option(metavar="DIR", help="Where Parquet is written.")],
    how: Annotated[
        How,
        typer.Option(help="Events with each subscription they match, with any, or counts."),
    ] = How.PAIRS,
    key: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="What to call an event by; else its file and row."),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The events' time: a row counts from valid_from up to valid_to of it.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Match an archive of events with subscriptions, on Spark.

    Subscriptions that cannot be read spoil nothing: they are listed in DIR/_rejects.jsonl. Needs
    palio[spark].
    """
    from palio.cli.matching import match

    return match(events, subscriptions, out, how.value, key, as_of, as_json=as_json)


@app.command()
def bench(
    benchmark: Annotated[
        Benchmark, typer.Argument(metavar="NAME", help="Which benchmark: matching.")
    ],
    full: Annotated[
        bool, typer.Option("--full", help="Up to a million filters; takes much longer.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Measure the matching engine on this machine.

    Its bars, and what it is compared with: numpy by hand and other engines. Needs a checkout of
    Palio, since benchmarks are not part of the installed package. Small sizes take about two
    minutes.
    """
    from palio.cli.benchmarks import bench

    options = ["--full"] if full else []
    return bench(benchmark.value, [*options, "--json"] if as_json else options)


@app.command()
def simulate(
    topology: Annotated[
        str,
        typer.Option(
            metavar="SHAPE:SIZES",
            help="line:5, star:5, ring:12, tree:15x2 (brokers x fanout), grid:4x3, random-tree:20, "
            "random:20x10 (brokers x links beyond a tree), transit-stub:4x3x8 (backbone x stubs "
            "at each of it x brokers of a stub).",
        ),
    ] = "ring:12",
    routing: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="On trees acyclic, advertised, flooded, hierarchical, patterns; on any graph "
            "general, general-advertised, general-patterns, general-sources.",
        ),
    ] = "general",
    clients: Annotated[int, typer.Option(min=1, help="At brokers drawn at random.")] = 20,
    events: Annotated[int, typer.Option(min=0, help="Published one by one.")] = 100,
    patterns: Annotated[
        int, typer.Option(min=0, help="How many of the clients also ask for a sequence.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same run.")] = 0,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write each step to this file, one line a step."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Run brokers on a virtual network and count what it costs.

    Clients subscribe, change a parameter and publish; messages are counted by class, with the
    virtual time from publication to delivery. No time is spent waiting: the clock is virtual.
    """
    from palio.cli.simulation import simulate

    return simulate(
        topology,
        routing,
        seed=seed,
        clients=clients,
        events=events,
        patterns=patterns,
        trace=trace,
        as_json=as_json,
    )


Broker = Annotated[
    list[str] | None,
    typer.Option(
        "--at",
        "--to",
        "--from",
        metavar="URL",
        help="A broker: palio://host:port. May be repeated: the first that answers is taken.",
        show_default="palio://localhost:7400",
    ),
]
Source = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        "--at",
        metavar="URL",
        help="A broker: palio://host:port. May be repeated: the first that answers is taken.",
        show_default="palio://localhost:7400",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file", metavar="FILE", help="Holds a token. Without it, $PALIO_TOKEN may."
    ),
]
Authorities = Annotated[
    Path | None, typer.Option("--ca", metavar="FILE", help="Certificates to trust, for TLS.")
]
ClientName = Annotated[
    str, typer.Option("--name", help="Whom durable subscriptions and publications belong to.")
]


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
    name: ClientName = "",
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: AsJson = False,
) -> int:
    """Publish events."""
    from palio.cli.networking import Door, pub

    door = Door(at or [DEFAULT_BROKER], token_file, ca, name)
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
    count: Annotated[int, typer.Option(min=0, help="End after so many events; 0 for never.")] = 0,
    name: ClientName = "",
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document a line.")] = False,
) -> int:
    """Print events as they come, until Ctrl-C.

    A line such as limit=20 on standard input changes a parameter at once.
    """
    from palio.cli.networking import Door, sub

    door = Door(at or [DEFAULT_BROKER], token_file, ca, name)
    return sub(filter, door, param or [], durable=durable, count=count, as_json=as_json)


@app.command()
def adv(  # typer makes an option of each
    filter: FilterText,
    at: Broker = None,
    param: Parameters = None,
    name: ClientName = "",
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> int:
    """Announce what will be published, until Ctrl-C."""
    from palio.cli.networking import Door, adv

    return adv(filter, Door(at or [DEFAULT_BROKER], token_file, ca, name), param or [])


@app.command()
def topology(
    at: Broker = None,
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: AsJson = False,
) -> int:
    """Show the brokers of a network and their links."""
    from palio.cli.networking import Door
    from palio.cli.watching import topology

    return topology(Door(at or [DEFAULT_BROKER], token_file, ca), as_json=as_json)


@app.command()
def trace(
    event: Annotated[
        str,
        typer.Argument(
            metavar="EVENT.json|-|TEXT",
            help="A JSON object: a file, standard input, or the text itself.",
            show_default=False,
        ),
    ] = "-",
    at: Broker = None,
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: AsJson = False,
) -> int:
    """Show where an event would go, hop by hop, without sending it.

    Ends with 0 if somebody would hear it, 1 if nobody listens.
    """
    from palio.cli.networking import Door
    from palio.cli.watching import trace

    return trace(event, Door(at or [DEFAULT_BROKER], token_file, ca), as_json=as_json)


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
    from palio.cli.networking import Door
    from palio.cli.watching import top

    door = Door(at or [DEFAULT_BROKER], token_file, ca)
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
    """Write events to Parquet, each exactly once, until Ctrl-C or SIGTERM.

    A durable subscription: what is published durably while this is away waits at the broker, and
    no event is written twice, whatever is killed. A directory a day (UTC), a file a shape, with
    $publisher, $seq and $time beside the attributes.
    """
    from palio.cli.archiving import Rolling, archive
    from palio.cli.networking import Door

    door = Door(source or [DEFAULT_BROKER], token_file, ca, name)
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
    from palio.cli.archiving import Wanted, replay
    from palio.cli.networking import Door

    wanted = Wanted.of(filter, param or [], since, until)
    door = Door(to or [DEFAULT_BROKER], token_file, ca, as_publisher)
    return replay(path, wanted, door, speed=speed, durable=durable, as_json=as_json)


@app.command()
def warm(as_json: AsJson = False) -> int:
    """Compile the matching engine's kernels.

    It takes a minute the first time; they are kept on disk. Without it programs start in plain
    Python and compile while they run.
    """
    from palio.cli.kernels import warm

    return warm(as_json=as_json)


@app.command()
def serve(
    config: ConfigFile = None,
    name: Annotated[str | None, typer.Option(help="The broker's name.")] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Port 0 for any free one.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where durable events are kept.")
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="Another broker: palio://host:port.")
    ] = None,
    http: Annotated[int | None, typer.Option(metavar="PORT", help="Also serve HTTP.")] = None,
    as_json: AsJson = False,
) -> int:
    """Run a broker.

    Prints one line once it can be reached. A signal (Ctrl-C, TERM) drains it: ends with 0. A second
    one cuts that short: ends with 1.
    """
    from palio.cli.serving import flags, serve

    given = flags(name=name, listen=listen, data=data, peers=peer, http=http)
    return serve(config, given, as_json=as_json)


@config_commands.command("show")
def config_show(
    config: ConfigFile = None,
    origin: Annotated[bool, typer.Option("--origin", help="Say where each was set.")] = False,
    as_json: AsJson = False,
) -> int:
    """Print every setting as a broker would have it."""
    from palio.cli.serving import show_configuration

    return show_configuration(config, [], with_origin=origin, as_json=as_json)


@config_commands.command("check")
def config_check(config: ConfigFile = None, as_json: AsJson = False) -> int:
    """Say whether the settings are good; ends with 2 if not."""
    from palio.cli.serving import check_configuration

    return check_configuration(config, [], as_json=as_json)


@keys_commands.command("create")
def keys_create(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Where the private key goes.")],
    as_json: AsJson = False,
) -> int:
    """Make a pair of keys: FILE signs tokens, FILE.pub verifies them."""
    from palio.cli.authority import create_key

    return create_key(path, as_json=as_json)


@keys_commands.command("list")
def keys_list(
    path: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="A public key, or many.")],
    as_json: AsJson = False,
) -> int:
    """List the public keys that a broker would accept."""
    from palio.cli.authority import list_keys

    return list_keys(path, as_json=as_json)


@token_commands.command("create")
def token_create(  # noqa: PLR0913, PLR0917  # typer makes an option of each
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose token it is.")],
    key: Annotated[Path, typer.Option(metavar="FILE", help="The private key that signs it.")],
    may_publish: Annotated[str, typer.Option(metavar="FILTER", help="Default: nothing.")] = "",
    may_hear: Annotated[str, typer.Option(metavar="FILTER", help="Default: nothing.")] = "",
    deny_publish: Annotated[str, typer.Option(metavar="FILTER", help="Never this.")] = "",
    deny_hear: Annotated[str, typer.Option(metavar="FILTER", help="Never this.")] = "",
    expires: Annotated[str, typer.Option(metavar="TIME", help="In 90s, 15m, 12h, 30d.")] = "30d",
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="subscriptions, events_per_s or bytes_per_s."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Sign a token: who someone is, and the filters of what they may publish and hear."""
    from palio.cli.authority import create_token

    grants = {
        "may_publish": may_publish,
        "may_hear": may_hear,
        "deny_publish": deny_publish,
        "deny_hear": deny_hear,
    }
    return create_token(key, name, grants, expires=expires, limits=limit or [], as_json=as_json)


@token_commands.command("inspect")
def token_inspect(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The token's text.")],
    keys: Annotated[
        Path | None, typer.Option(metavar="FILE|DIR", help="Verify its signature with these.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show what a token grants. Ends with 1 if it has expired or its signature is not good."""
    from palio.cli.authority import inspect_token

    return inspect_token(token, keys, as_json=as_json)


@token_commands.command("revoke")
def token_revoke(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The token, or its number.")],
    file: Annotated[Path, typer.Option(metavar="FILE", help="The brokers' file of revocations.")],
    as_json: AsJson = False,
) -> int:
    """Add a token to the file of revocations; brokers read it again within a second."""
    from palio.cli.authority import revoke_token

    return revoke_token(token, file, as_json=as_json)


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command and leave with its exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # whatever the terminal can show
    sys.exit(_status(given))


def _status(arguments: Sequence[str]) -> int:
    as_json = "--json" in takewhile(lambda each: each != "--", arguments)
    try:
        status = app(arguments, prog_name="palio", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has gone; the rest goes nowhere, and nobody is told twice.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except PalioError as error:
        show_error(error, as_json=as_json)
        return 2
    except _UsageError as error:
        if as_json:
            show_error(error, as_json=True)
        else:
            error.show()
        return 2
    return int(status or 0)
