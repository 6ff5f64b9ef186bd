"""`palio simulate`: one scenario on a virtual network, and what it cost by class of message."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import typer

from palio.cli.reporting import show
from palio.errors import InvalidInput
from palio.simulation.scenario import Progress
from palio.simulation.scenario import simulate as run

__all__ = ["simulate"]

_CLASSES: Final = {
    "Crossed links": {
        "notifications": "events, and composites of patterns",
        "subscribes": "subscriptions",
        "updates": "changes of parameters",
        "unsubscribes": "ends of subscriptions",
        "advertises": "advertisements",
        "unadvertises": "ends of advertisements",
        "waves": "waves and their echoes",
        "link_states": "link states, joins and leaves",
        "batches": "messages that carried all this but the events",
        "lost": "lost on the way, and sent again",
        "priced": "price of all links crossed",
    },
    "Reached clients": {
        "delivered": "events",
        "composites": "occurrences of patterns",
        "spurious": "dropped, since a parameter had just changed",
    },
    "At brokers": {
        "steps": "messages worked on",
        "stray": "events that came for nobody",
        "filters": "filters that events are held against, at all brokers together",
    },
}
"""The names of the counts, for people."""


def simulate(  # noqa: PLR0913  # each is an option of the command
    topology: str,
    routing: str,
    *,
    seed: int,
    clients: int,
    events: int,
    patterns: int,
    matching: str,
    trace: Path | None,
    as_json: bool,
) -> int:
    """Run the scenario and print its costs."""
    with _written(trace) as note, _progress(events) as progress:
        found = run(
            topology,
            routing,
            seed=seed,
            clients=clients,
            events=events,
            patterns=patterns,
            matching=matching,
            note=note,
            progress=progress,
        )
    show(found if as_json else table(found))
    return 0


def table(found: dict[str, Any]) -> str:
    """The costs of a scenario for people; what did not occur is left out."""
    sizes = [f"{found[name]:,} {name}" for name in ("brokers", "links", "clients")]
    heading = f"{found['topology']}, {found['routing']}, seed {found['seed']}"
    lines = [f"{heading}: {', '.join(sizes)}, {found['published']:,} events published"]
    for title, names in _CLASSES.items():
        counted = {what: found[name] for name, what in names.items() if found[name]}
        lines += ["", title]
        lines += [f"{count:>12,.10g}  {what}" for what, count in counted.items()]
    lines += ["", "Virtual time"]
    for name, what in (("latency_ms", "an event"), ("composite_latency_ms", "an occurrence")):
        spread = found[name]
        if spread is not None:
            lines.append(
                f"{spread['mean']:>12,.1f}  ms from publication to delivery of {what}, the mean; "
                f"p50 {spread['p50']:,.1f}, p99 {spread['p99']:,.1f}"
            )
    lines += [f"{found['time_ms']:>12,.0f}  ms in all", "", f"trace {found['trace']}"]
    return "\n".join(lines)


@contextmanager
def _written(path: Path | None) -> Iterator[Any]:
    """A function that writes lines to a file; None without one."""
    if path is None:
        yield None
        return
    try:
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise InvalidInput(
            f"the trace cannot be written to {path}: {error.strerror}; name another file"
        ) from None
    with file:
        yield lambda line: file.write(line + "\n")


@contextmanager
def _progress(events: int) -> Iterator[Progress | None]:
    """A bar on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with typer.progressbar(
        length=events, label="Publishing", show_eta=False, file=sys.stderr
    ) as bar:
        yield lambda done: bar.update(done - bar.pos)
