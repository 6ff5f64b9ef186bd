"""The measurements of the matching benchmark, each returning figures or bars (issue 3).

Two clocks are read, and each figure says which. *CPU* is the processor time of the one thread that
works: what other programs do meanwhile hardly changes it. *Wall* is the time that passes: it is the
only honest one for latency, for two threads, and for a writer beside a reader.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import palio
from benchmarks.matching_baselines import OTHERS, ByHand
from benchmarks.matching_results import Bar, Other, Throughput
from benchmarks.workloads import Workload, workload
from palio.language.parsing import parse_many
from palio.matching.index import Index
from palio.matching.protocol import Matches
from palio.matching.subscriptions import Table
from palio.model.filters import Filter

BY_HAND: Final = ("podc10", "podc1000", "mixed")
"""Workloads that `ByHand` can do: one conjunction of comparisons."""

SINGLES: Final = 500
"""Events of the latencies, each matched up to three times, for at most..."""

SINGLES_S: Final = 2.0
"""...so many seconds."""

DESTINATIONS: Final = 100
BINDS_A_SECOND: Final = 10_000
BINDS_A_REPLACEMENT: Final = 10
BINDS_TO_COME: Final = 100_000
"""Keys and values that a writer has at hand, so that making them up is not measured."""

COPIES: Final = 1000
"""Filters that are there already, in the hands of whoever adds them again under other keys."""

ON_TIME: Final = 0.99
"""A writer that keeps up may still be a little behind when it is stopped."""


class Spent(NamedTuple):
    """The quickest of some repetitions, in seconds."""

    wall: float
    cpu: float


def spent(work: Callable[[], Any], repeat: int) -> Spent:
    walls, cpus = [], []
    for _ in range(repeat):
        wall, cpu = time.perf_counter(), time.thread_time()
        work()
        cpus.append(time.thread_time() - cpu)
        walls.append(time.perf_counter() - wall)
    return Spent(min(walls), min(cpus))


def index_of(load: Workload, destinations: Any = None) -> Index:
    index = Index()
    index.add_many(np.arange(load.filters), load.skeleton, load.columns, destinations=destinations)
    return index


def throughput(load: Workload, index: Index) -> Throughput:
    """Batches in one thread, paired with numpy by hand, and events one at a time."""
    events = load.events
    found = index.match(events)
    by_hand = ByHand(load) if load.name in BY_HAND else None
    mine, theirs, times = [], [], []
    answers: list[Matches] = []
    for _ in range(3):  # in turns, so that whatever else the machine does hits both
        mine.append(spent(lambda: index.match(events), 3))
        if by_hand is not None:
            theirs.append(spent(lambda: answers.append(by_hand.match(events)), 1).cpu)
            assert np.array_equal(answers.pop().keys, found.keys)
            times.append(theirs[-1] / mine[-1].cpu)
    rows = [events.slice(row, 1) for row in range(SINGLES)]
    dicts = events.slice(0, SINGLES).to_pylist()
    return Throughput(
        workload=load.name,
        filters=load.filters,
        matches_an_event=len(found.keys) / events.num_rows,
        events_per_cpu_s=events.num_rows / min(each.cpu for each in mine),
        events_per_wall_s=events.num_rows / min(each.wall for each in mine),
        single_us=_p50_us(index.match, rows),
        single_dict_us=_p50_us(index.match_event, dicts),
        bytes_a_filter=sum(index.memory().values()) / load.filters,
        by_hand_per_cpu_s=events.num_rows / min(theirs) if theirs else None,
        times=float(np.median(times)) if times else None,
    )


def _p50_us(match: Callable[[Any], Any], events: list[Any]) -> float:
    """The median wall time of one event, from three rounds or as many as there is time for."""
    times: list[float] = []
    begun = time.perf_counter()
    for event in 3 * events:
        start = time.perf_counter()
        match(event)
        times.append(time.perf_counter() - start)
        if start - begun > SINGLES_S:
            break
    return float(np.median(times)) * 1e6


def against_others(load: Workload, left_out: list[str]) -> list[Other]:
    """The other engines on few filters, each with as many events as it answers in seconds."""
    index = index_of(load)
    found = []
    for name, (make, count) in OTHERS.items():
        try:
            engine = make(load)
        except ModuleNotFoundError as error:
            left_out.append(f"{name}: the package {error.name} is not installed")
            continue
        except NotImplementedError as error:
            left_out.append(f"{name} on {load.name}: {error}")
            continue
        events = load.events.slice(0, count)
        assert engine.pairs(events) == len(index.match(events).keys), (load.name, name)
        theirs = spent(lambda: engine.pairs(events), 1).wall  # noqa: B023  # called at once
        mine = spent(lambda: index.match(events), 5).wall  # noqa: B023  # called at once
        found.append(Other(load.name, name, count / theirs, theirs / mine))
    return found


def threads(load: Workload, index: Index) -> Bar:
    """Two batches one after the other, and in two threads."""
    batches = [load.events, load.events]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(index.match, batches))
        ratios = []
        for _ in range(7):
            one = spent(lambda: [index.match(batch) for batch in batches], 1).wall
            two = spent(lambda: list(pool.map(index.match, batches)), 1).wall
            ratios.append(one / two)
    median = float(np.median(ratios))
    return Bar(1, "two threads against one", 1.7, median, "times", "wall", at_least=True)


def route(load: Workload) -> Bar:
    """Rows for each of 100 destinations, as a share of all pairs."""
    index = index_of(load, np.arange(load.filters) % DESTINATIONS)
    index.match(load.events)
    index.route(load.events)
    shares = []
    for _ in range(7):
        whole = spent(lambda: index.match(load.events), 1).cpu
        shares.append(spent(lambda: index.route(load.events), 1).cpu / whole)
    name = f"route to {DESTINATIONS} destinations, share of match"
    return Bar(6, name, 0.3, float(np.median(shares)), "", "CPU")


def churn(load: Workload, seconds: float) -> tuple[list[Bar], dict[str, float | str]]:
    """Matching in this thread while another binds 10,000 and replaces 1,000 filters a second."""
    with ThreadPoolExecutor(1) as pool:
        index = Index(pool.submit)
        index.add_many(np.arange(load.filters), load.skeleton, load.columns)
        index.match(load.events)
        quiet, quiet_cpu = _rate(index, load, seconds)
        writer = _Writer(index, load)
        thread = threading.Thread(target=writer.run)
        thread.start()
        busy, busy_cpu = _rate(index, load, seconds)
        writer.stop.set()
        thread.join()
        visible = _visible(index, load.events)
    wanted = BINDS_A_SECOND / BINDS_A_REPLACEMENT * ON_TIME
    binds, replaced = writer.binds / writer.seconds, writer.replaced / writer.seconds
    bars = [
        Bar(4, "throughput under churn, share", 0.8, busy / quiet, "", "wall", at_least=True),
        Bar(
            4,
            "binds a second meanwhile",
            BINDS_A_SECOND * ON_TIME,
            binds,
            "",
            "wall",
            at_least=True,
        ),
        Bar(4, "added and removed a second", wanted, replaced, "", "wall", at_least=True),
        Bar(4, "updates the next match sees, share", 1.0, visible, "", "", at_least=True),
    ]
    return bars, {
        "churn: events/s quiet (wall)": quiet,
        "churn: events/s meanwhile (wall)": busy,
        "churn: share of the reader's own CPU time": busy_cpu / quiet_cpu,
    }


def _rate(index: Index, load: Workload, seconds: float) -> tuple[float, float]:
    """Events a second that passes, and a second of this thread's own processor time."""
    start, cpu, events = time.perf_counter(), time.thread_time(), 0
    while (passed := time.perf_counter() - start) < seconds:
        index.match(load.events)
        events += load.events.num_rows
    return events / passed, events / (time.thread_time() - cpu)


def _visible(index: Index, events: pa.RecordBatch) -> float:
    """The share of updates that the very next match saw."""
    everything = palio.parse(f"{events.schema.names[0]} >= :low")
    assert isinstance(everything, Filter)
    key, seen = 10**9, 0
    index.add(key, everything, {"low": 10**6})
    trials = 20
    for trial in range(trials):
        wanted = trial % 2 == 0
        index.bind(key, {"low": -1 if wanted else 10**6})
        seen += (key in index.match(events).keys) == wanted
    return seen / trials


class _Writer:
    """Changes at the wanted rates, or as fast as it gets to run."""

    def __init__(self, index: Index, load: Workload) -> None:
        self.index = index
        self.filters = load.filters
        self.stop = threading.Event()
        self.binds = 0
        self.replaced = 0
        self.seconds = 0.0
        self.names = [""] * load.filters
        for name, column in load.columns.items():
            for row in np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).tolist():
                self.names[row] = name
        index.bind(0, {self.names[0]: 1})  # what is worked out once
        kept = (index.subscription(key) for key in range(COPIES))
        self.copies = [(each.filter, each.values) for each in kept]
        rng = np.random.default_rng(2)
        self.binds_to_come: list[tuple[int, dict[str, int]]] = [
            (key, {self.names[key]: value})
            for key, value in zip(
                rng.integers(self.filters, size=BINDS_TO_COME).tolist(),
                rng.integers(1000, size=BINDS_TO_COME).tolist(),
                strict=True,
            )
        ]

    def run(self) -> None:
        start = time.perf_counter()
        while not self.stop.is_set():
            if self.binds >= (time.perf_counter() - start) * BINDS_A_SECOND:
                time.sleep(0.001)
                continue
            self.index.bind(*self.binds_to_come[self.binds % BINDS_TO_COME])
            self.binds += 1
            if self.binds % BINDS_A_REPLACEMENT == 0:
                self._replace()
        self.seconds = time.perf_counter() - start

    def _replace(self) -> None:
        """Add a copy of a filter, and remove the copy made a hundred copies ago."""
        new = self.filters + self.replaced
        self.index.add(new, *self.copies[self.replaced % COPIES])
        if self.replaced >= 100:
            self.index.remove(new - 100)
        self.replaced += 1


def files(load: Workload) -> tuple[list[Bar], dict[str, float | str]]:
    """From Parquet columns to a ready index, saving, mapping, memory."""
    millions = load.filters / 1_000_000
    facts: dict[str, float | str] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "filters.parquet")
        pq.write_table(pa.table(load.columns), path)

        def build() -> Index:
            table = pq.read_table(path)
            columns = {name: table[name] for name in table.column_names}
            index = Index()
            index.add_many(np.arange(load.filters), load.skeleton, columns)
            return index

        built: list[Index] = []
        building = spent(lambda: built.append(build()), 1)
        index = built[0]
        memory = index.memory()
        facts["from Parquet columns, CPU s"] = building.cpu
        facts["save, wall s"] = spent(lambda: index.save(Path(folder, "saved")), 1).wall
        loading = spent(lambda: Index.load(Path(folder, "saved")), 5)
        again = Index.load(Path(folder, "saved")).match(load.events)
        assert np.array_equal(again.keys, index.match(load.events).keys)
    for name, part in memory.items():
        facts[f"bytes a filter: {name}"] = part / load.filters
    how_many = f"{load.filters:,} {load.name}"
    size = sum(memory.values()) / load.filters
    return [
        Bar(3, f"{how_many} from Parquet columns", 8.0 * millions, building.wall, "s", "wall"),
        Bar(3, f"{how_many}, load(mmap=True)", 0.2, loading.wall, "s", "wall"),
        Bar(3, f"{how_many}, bytes a filter", 400.0, size, "", ""),
    ], facts


def from_text(load: Workload) -> tuple[Bar, dict[str, float | str]]:
    """JSON lines to a ready index."""
    encode, decode = msgspec.json.Encoder(), msgspec.json.Decoder(_Line)
    lines = encode.encode_lines([_Line(at, each) for at, each in enumerate(load.texts())])
    start, cpu = time.perf_counter(), time.thread_time()
    read = decode.decode_lines(lines)
    bulk = parse_many(line.filter for line in read)
    parsed = time.perf_counter()
    keys = np.array([line.id for line in read])
    index = Index()
    index.add_tables(
        Table.of(
            keys[group.places],
            group.template.skeleton,
            {str(slot): column for slot, column in enumerate(group.columns)},
        )
        for group in bulk.groups
    )
    for place, filter in bulk.singles:
        index.add(int(keys[place]), filter)
    ready, cpu = time.perf_counter(), time.thread_time() - cpu
    assert len(index) == load.filters
    assert np.array_equal(index.match(load.events).keys, index_of(load).match(load.events).keys)
    name = f"{load.filters:,} {load.name} from JSON lines"
    return Bar(3, name, 40.0 * load.filters / 1_000_000, ready - start, "s", "wall"), {
        f"{name}: shapes": float(len(bulk.groups)),
        f"{name}: parsing, wall s": parsed - start,
        f"{name}: all, CPU s": cpu,
    }


class _Line(msgspec.Struct):
    """A filter as it comes in JSON lines."""

    id: int
    filter: str


def shapes_cost(filters: int) -> dict[str, float | str]:
    """What texts cost when nearly every one has a shape of its own."""
    bar, facts = from_text(workload("mixed", filters))
    shapes = facts[f"{bar.name}: shapes"]
    assert isinstance(shapes, float)
    return {"from text, many shapes: wall ms a shape": bar.measured / shapes * 1000}
