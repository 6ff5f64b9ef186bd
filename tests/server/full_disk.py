"""A journal on a disk of a few MiB that is full: run as a program in a mount namespace of its own.

unshare -m sh -c 'mount -t tmpfs -o size=6m tmpfs "$0" && python -m tests.server.full_disk "$0"'
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa

from palio.node.operations import (
    Ack,
    Append,
    Discard,
    Operation,
    Place,
    Put,
    PutSubscription,
    Releasing,
    Target,
)
from palio.protocol.messages import Parcel, Share
from palio.server.journal.disk_space import RESERVE_BYTES
from palio.server.journal.journal import Journal

EVENT_BYTES = 100_000
CYCLES = 4


class Filler:
    """A journal that is filled and emptied, as a node does it."""

    def __init__(self, directory: Path) -> None:
        self.journal = Journal(directory / "data", "b1", reserve_bytes=RESERVE_BYTES)
        self.stored: list[int] = []
        self._term = 0
        self._writable = threading.Event()
        self.journal.start(self.stored.extend, self._refused, self._writable.set)
        self._next = self.journal.load().last_offset + 1

    def _refused(self, _ticket: int, _reason: str) -> None:
        self._term += 1

    def write(self, *operations: Operation, released: tuple[Releasing, ...] = ()) -> bool:
        """Write something by itself; whether it is on the disk."""
        self._next += 1
        before = len(self.stored)
        self._writable.clear()
        self.journal.append(Append(self._next, self._term, operations, released))
        self.journal.flush()
        return len(self.stored) > before

    def fill(self) -> list[int]:
        """Put entries until one is refused; those that are on the disk."""
        entries: list[int] = []
        while True:
            entry = self._next
            target = Target("b1", entry, (Share("s", 1, None),))
            if not self.write(Put(entry, _parcel(entry), 0, (target,))):
                return entries
            entries.append(entry)

    def empty(self, entries: list[int]) -> int:
        """Acknowledge entries one by one; how many times that was written."""
        return sum(self.write(released=(Ack("s", each), Discard((each,)))) for each in entries)

    def subscribe(self) -> bool:
        return self.write(PutSubscription("s", "ann", "TRUE", b"\x80", 60.0))

    def waiting(self) -> list[int]:
        return [each.entry for each in self.journal.load().operations if isinstance(each, Place)]

    def is_writable(self) -> bool:
        """Whether the journal says that it takes writes again."""
        return self._writable.wait(20.0)


def _parcel(number: int) -> Parcel:
    times = pa.array([number], pa.timestamp("us", "UTC"))
    columns = {"x": ["x" * EVENT_BYTES], "$seq": pa.array([number], pa.int64()), "$time": times}
    return Parcel.of("ann/1", pa.record_batch(columns))


def run(directory: Path) -> dict[str, Any]:
    """Fill and empty, several times; then let somebody else fill the disk."""
    filler = Filler(directory)
    cycles = []
    for _ in range(CYCLES):
        entries = filler.fill()
        acknowledged = filler.empty(entries)
        cycles.append([len(entries), acknowledged, filler.is_writable(), filler.subscribe()])
    kept = filler.fill()[:3]
    filler.empty([])
    others = directory / "others"
    with others.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            pass
    filler.journal.close()
    again = Filler(directory)  # a broker starts on a disk without a byte
    waiting = again.waiting()
    is_refused = not again.subscribe()
    acknowledged = again.empty(waiting)
    left = len(again.waiting())
    others.unlink()
    is_refused = is_refused and again.is_writable()
    filled = len(again.fill())
    again.journal.close()
    return {
        "cycles": cycles,
        "kept": [each in waiting for each in kept],
        "full": [len(waiting), acknowledged, left, is_refused],
        "filled": filled,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(Path(sys.argv[1]))))
