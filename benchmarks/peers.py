"""Palio beside the systems that people use today, and beside a raw echo, in one run on loopback.

    python -m benchmarks.peers [--json] [--seconds 0.5] [--only palio,nats] [--rows quiet,fanout]
    python -m benchmarks.peers --docs docs/measured    and renew the page peers.md with it

Each broker is a process of its own with its data in a temporary directory; publisher and
subscribers of a system, up to 101 connections, are one more process on one uvloop
(`benchmarks/peer_systems`). Every figure is the median of three rounds, after a round that does not
count. Which events are delivered to which client is compared with the truth, found by hand.

Linux only. A system that is not installed is left out, with the reason (`pip install
'palio[peers]'` brings the clients). No system is tuned: brokers run as their packages configure
them, but for addresses, directories, and what the notes below the table say.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from benchmarks.matching_results import replace
from benchmarks.peer_systems.bench import Figures, Job, cpu_s, resident_mb
from benchmarks.peer_systems.registry import SYSTEMS
from benchmarks.peer_systems.system import Running, System
from benchmarks.peer_systems.table import Report, markdown, text

BEGIN: Final = "<!-- measured: python -m benchmarks.peers --docs docs/measured -->"

ROUNDS: Final = 3

LONGEST_S: Final = 900.0
"""More than the rows of any system take."""

ROWS: Final[dict[str, tuple[str, ...]]] = {
    "quiet": ("quiet",),
    "turn": ("turn",),
    "burst": ("burst",),
    "fanout": ("fanout",),
    "filters": ("filters",),
    "moved": ("alone", "beside"),
    "durable": ("durable", "durable-64"),
    "groups": ("groups",),
    "ready": ("ready",),
}
"""What can be asked for, and what the process of the clients calls it."""

PLAIN: Final = ("quiet", "turn", "burst", "alone")
MANY: Final = ("fanout", "filters", "beside")
ON_DISK: Final = ("durable", "durable-64")
GROUPS: Final = ("groups",)


class Options(msgspec.Struct):
    """How much is measured."""

    seconds: float = 0.5
    warm_s: float = 2.5
    filters: int = 10_000
    clients: int = 100
    rows: tuple[str, ...] = tuple(ROWS)


def row_of(part: str) -> str:
    """What a system names that cannot do a part."""
    return "moved" if part in ROWS["moved"] else part


def measure(name: str, options: Options) -> dict[str, Figures]:
    """All rows of one system; each group of them with a broker of its own."""
    system = SYSTEMS[name]()
    system.prepare()
    wanted = {part for row in options.rows for part in ROWS[row]}
    wanted -= {part for part in wanted if row_of(part) in system.cannot}
    found: dict[str, Figures] = {}
    ready: list[Figures] = []
    for group in (PLAIN, MANY, ON_DISK, GROUPS):
        rows = [each for each in group if each in wanted]
        if rows:
            durable = group in (ON_DISK, GROUPS)
            with _broker(system, durable=durable) as (directory, running):
                if not durable:
                    ready.append(_ready(running))
                found |= _clients(name, running, directory, rows, options)
    if "ready" in wanted:
        while len(ready) < ROUNDS:
            with _broker(system, durable=False) as (_, running):
                ready.append(_ready(running))
        found["ready"] = {each: median(one[each] for one in ready) for each in ready[0]}
    return found


@contextmanager
def _broker(system: System, *, durable: bool) -> Iterator[tuple[Path, Running]]:
    with tempfile.TemporaryDirectory(prefix="peers-") as name:
        directory = Path(name)
        with system.start(directory, durable=durable) as running:
            yield directory, running


def _ready(running: Running) -> Figures:
    """What a broker has taken by the time that it accepts connections."""
    processes = running.processes
    return {"cpu_s": sum(map(cpu_s, processes)), "mb": sum(map(resident_mb, processes))}


def _clients(
    name: str, running: Running, directory: Path, rows: Sequence[str], options: Options
) -> dict[str, Figures]:
    """What the process of the clients finds."""
    job = Job(
        system=name,
        address=running.address,
        process=running.process,
        directory=str(directory),
        rows=list(rows),
        seconds=options.seconds,
        warm_s=options.warm_s,
        rounds=ROUNDS,
        filters=options.filters,
        clients=options.clients,
    )
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.peer_systems.worker"],
        input=msgspec.json.encode(job),
        timeout=LONGEST_S,
        capture_output=True,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(f"{name}: {ended.stderr.decode(errors='replace').strip()[-2_000:]}")
    return msgspec.json.decode(ended.stdout, type=dict[str, Figures])


def compare(only: Sequence[str], options: Options) -> Report:
    """Measure one system after the other."""
    report = Report(
        machine=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        load_average=os.getloadavg()[0],
        seconds=options.seconds,
        filters=options.filters,
        clients=options.clients,
    )
    for name in only:
        system = SYSTEMS[name]
        report.names[name] = system.name
        if reason := system.missing():
            report.left_out[name] = reason
            continue
        try:
            report.figures[name] = measure(name, options)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            report.problems[name] = str(error)
            continue
        report.versions[name] = system.versions()
        report.cannot[name] = dict(system.cannot)
        report.notes[name] = system.notes
    return report


def _names(known: Sequence[str], text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    if unknown := [each for each in chosen if each not in known]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--full", action="store_true", help="rounds of two seconds")
    parser.add_argument("--docs", type=Path, help="renew peers.md and peers.json in a folder")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each round")
    parser.add_argument("--warm", type=float, default=2.5, help="seconds that do not count")
    parser.add_argument("--filters", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=100)
    systems, rows = list(SYSTEMS), list(ROWS)
    parser.add_argument(
        "--only", type=lambda text: _names(systems, text), default=systems, help=",".join(systems)
    )
    parser.add_argument(
        "--rows", type=lambda text: _names(rows, text), default=tuple(rows), help=",".join(rows)
    )
    given = parser.parse_args()
    seconds = 2.0 if given.full else given.seconds
    options = Options(seconds, given.warm, given.filters, given.clients, given.rows)
    report = compare(given.only, options)
    document = msgspec.json.encode(report)
    if given.docs:
        replace(markdown(report), given.docs / "peers.md", BEGIN)
        (given.docs / "peers.json").write_bytes(msgspec.json.format(document, indent=1) + b"\n")
    print(document.decode() if given.json else text(report))
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
