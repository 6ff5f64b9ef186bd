"""`Disk`: a journal that fails as disks do, on the virtual clock.

What is written is only there once it is synced. A crash keeps of what was not synced some first
part, in whole steps, as a journal with checksums does; a torn step is recognized and dropped. A
flipped bit is found when the entry is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from palio.errors import JournalDamaged
from palio.node.effects import RELEASING, Append, Entry, Heading, Operation, Stored
from palio.node.memory import MemoryStore
from palio.node.prerequisites import Prerequisites
from palio.protocol.messages import Fact
from palio.simulation.randomness import Randomness

__all__ = ["Disk"]


class Disk:
    """The store of one simulated broker. Without randomness, a crash keeps only what was synced."""

    def __init__(self, random: Randomness | None = None) -> None:
        self._random = random
        self.synced = MemoryStore()
        """What is safe."""
        self._unsynced: list[Append] = []
        self._prerequisites = Prerequisites()
        self._owed: list[Operation] = []
        self._flipped: dict[int, None] = {}
        self.is_full = False
        self.fails_to_sync = False
        self.refusals: deque[bool] = deque()
        """Of the next steps that need room, which find none."""
        self.written: Callable[[], object] = lambda: None
        """Called when a step was handed over, before it is safe."""

    def write(self, operations: tuple[Operation, ...]) -> bool:
        """Hand a step over that needs no other."""
        return self.append(Append(0, operations))

    def append(self, append: Append) -> bool:
        """Hand a step over, with what is over; whether there is room for it. A full disk has room
        for what is over, and for steps that make room.
        """
        needs_room = not all(isinstance(each, RELEASING) for each in append.operations)
        has_room = not (needs_room and (self.is_full or self._refuses()))
        if not (has_room and self._prerequisites.are_met(append)):
            self.synced.write(append.released)
            self._prerequisites.refused(append.ticket)
            return False
        self._unsynced.append(append)
        self.written()
        return True

    def _refuses(self) -> bool:
        return bool(self.refusals) and self.refusals.popleft()

    def sync(self) -> bool:
        """Make the oldest step safe; whether it is. A step that could not be synced is gone, and
        what is over is owed.
        """
        append = self._unsynced.pop(0)
        self._owed += append.released
        if self.fails_to_sync or not self._prerequisites.are_met(append):
            self._prerequisites.refused(append.ticket)
            return False
        self.synced.write((*append.operations, *self._owed))
        self._owed.clear()
        return True

    def crash(self) -> None:
        """Power is gone: a first part of what was not synced is there all the same."""
        kept = 0 if self._random is None else self._random.below(len(self._unsynced) + 1)
        for append in self._unsynced[:kept]:
            if self._prerequisites.are_met(append):
                self.synced.write(append.operations)
        self._unsynced.clear()
        self._owed.clear()
        self._prerequisites = Prerequisites()

    def flip(self, entry: int) -> None:
        """A bit of an entry turns round."""
        self._flipped[entry] = None

    def held(self) -> list[Entry]:
        """The entries that are safe, damaged or not."""
        return self.synced.held()

    def facts(self) -> list[Fact]:
        """What is known of all brokers, and safe."""
        return self.synced.facts()

    # --- Store ---

    def load(self) -> Stored:
        """See `Store`."""
        return self.synced.load()

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        """See `Store`."""
        for number in numbers:
            if number in self._flipped:
                raise JournalDamaged(f"entry {number} fails its checksum; restore it from a copy")
        return self.synced.entries(numbers)

    def assigned(self, subscription: str, numbers: Sequence[int]) -> list[bytes | None]:
        """See `Store`."""
        return self.synced.assigned(subscription, numbers)

    def heading(self, entry: int) -> Heading | None:
        """See `Store`: of an entry only its events turn."""
        return self.synced.heading(entry)
