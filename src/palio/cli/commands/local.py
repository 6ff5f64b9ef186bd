"""Commands that need no broker."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from palio.cli import bench as bench_module
from palio.cli.application import AsJson, FilterText, Parameters, app, event_argument
from palio.routing.algorithms import ALGORITHMS
from palio.simulation.matchings import MATCHINGS

__all__ = ["Benchmark", "Dialect", "How"]


class Dialect(StrEnum):
    """The filter languages that `palio convert` reads."""

    CESQL = "cesql"
    CLOUDEVENTS = "cloudevents"
    EVENTBRIDGE = "eventbridge"


class How(StrEnum):
    """The kinds of result that `palio match` writes."""

    PAIRS = "pairs"
    ANY = "any"
    COUNT = "count"


class Benchmark(StrEnum):
    """The subjects that `palio bench` measures."""

    MATCHING = "matching"
    NETWORK = "network"
    PEERS = "peers"
    ROUTING = "routing"
    STRESS = "stress"


@app.command()
def test(
    filter: FilterText,
    event: Annotated[str, event_argument("A JSON object or JSON lines")] = "-",
    param: Parameters = None,
    as_json: AsJson = False,
) -> int:
    """Say whether events match, and if not why.

    One verdict an event. Nested objects are flattened: {"a": {"b": 1}} has the attribute a.b.
    Ends with 0 if an event matches, 1 if none does, 2 for bad input.
    """
    from palio.cli.test import test

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
    from palio.cli.explain import explain

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
    from palio.cli.convert import convert

    return convert(dialect.value, source, as_json=as_json)


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
    from palio.cli.match import match

    return match(events, subscriptions, out, how.value, key, as_of, as_json=as_json)


@app.command(hidden=not bench_module.is_available())
def bench(
    benchmark: Annotated[
        Benchmark, typer.Argument(metavar="NAME", help=f"Which: {', '.join(Benchmark)}.")
    ],
    full: Annotated[
        bool, typer.Option("--full", help="Up to a million filters, or longer runs.")
    ] = False,
    seconds: Annotated[
        float | None, typer.Option(help="Of each measurement (network, peers).")
    ] = None,
    only: Annotated[
        str,
        typer.Option(metavar="NAME,...", help="These systems (peers), or parts (routing, stress)."),
    ] = "",
    rows: Annotated[
        str, typer.Option(metavar="NAME,...", help="These rows of the table (peers).")
    ] = "",
    docs: Annotated[
        str, typer.Option(metavar="FOLDER", help="Renew the page of figures there (not stress).")
    ] = "",
    as_json: AsJson = False,
) -> int:
    """Measure the matching engine, routing, or brokers on loopback.

    Their bars, and what they are compared with: numpy by hand and other engines, or a raw echo.
    Peers is Palio beside NATS and other brokers, those of them that are installed (the extra
    `peers` brings their clients). Routing is every algorithm and every matching in one scenario on
    the virtual network. Stress is what a broker withstands: journals, breaks, idle clients and such
    as stop reading. Needs a checkout of Palio, since benchmarks are not part of the installed
    package. Each takes a few minutes.
    """
    options = ["--full"] if full else []
    options += ["--seconds", f"{seconds:g}"] if seconds is not None else []
    for option, value in (("--only", only), ("--rows", rows), ("--docs", docs)):
        options += [option, value] if value else []
    return bench_module.bench(benchmark.value, [*options, "--json"] if as_json else options)


@app.command()
def warm(as_json: AsJson = False) -> int:
    """Compile the matching engine's kernels.

    It takes a minute the first time; they are kept on disk. Without it programs start in plain
    Python and compile while they run, one of them for all.
    """
    from palio.cli.warm import warm

    return warm(as_json=as_json)


@app.command()
def simulate(  # noqa: PLR0913, PLR0917  # typer makes an option of each
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
            help=f"One of {', '.join(ALGORITHMS)}.",
        ),
    ] = "general",
    clients: Annotated[int, typer.Option(min=1, help="At brokers drawn at random.")] = 20,
    events: Annotated[int, typer.Option(min=0, help="Published one by one.")] = 100,
    patterns: Annotated[
        int,
        typer.Option(
            min=0, help="How many clients also ask for a sequence, which brokers assemble."
        ),
    ] = 0,
    matching: Annotated[
        str, typer.Option(metavar="NAME", help=f"One of {', '.join(MATCHINGS)}.")
    ] = "reference",
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
    Every matching gives the same counts: the index is what brokers use, the poset a walk through
    filters from wider to narrower ones, the reference tries them one by one.
    """
    from palio.cli.simulate import simulate

    return simulate(
        topology,
        routing,
        seed=seed,
        clients=clients,
        events=events,
        patterns=patterns,
        matching=matching,
        trace=trace,
        as_json=as_json,
    )


@app.command()
def demo(
    seconds: Annotated[
        float, typer.Option(min=0.1, max=600, help="How long the market is open.")
    ] = 6.0,
    rate: Annotated[int, typer.Option(min=1, max=2_000, help="Quotes a second.")] = 200,
    seed: Annotated[int, typer.Option(help="Another seed, other prices.")] = 1,
    spark: Annotated[
        bool, typer.Option(help="Also match the quotes again, on Spark, if it is installed.")
    ] = True,
    as_json: AsJson = False,
) -> int:
    """Watch quotes find their subscribers.

    Three brokers run on this machine; the limit of one subscription follows the market, and one
    broker is killed and started again. Each delivery is checked: ends with 1 if what was promised
    and what was received disagree.
    """  # at most 1.2 million quotes: the audit keeps the number of each
    from palio.cli.demo.demo import demo

    return demo(seconds, rate, seed, spark=spark, as_json=as_json)
