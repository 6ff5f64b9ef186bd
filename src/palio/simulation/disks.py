"""`Disk`: a journal that fails as disks do, on the virtual clock.

What is written is only there once it is synced, and what is there is a prefix of what was handed
over (L1): behind a step that is refused all are, until its broker knows that. A crash keeps of what
was not synced some first part, in whole steps, as a journal with checksums does; a torn step is
recognized and dropped. A flipped bit is found when the entry is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from palio.errors import JournalDamaged
from palio.node.effects import Entry, Heading, Stored
from palio.node.memory import MemoryStore
from palio.node.operations import Append, Operation
from palio.protocol.messages import Fact
from palio.simulation.randomness import Randomness


class Disk:
    """The store of one simulated broker. Without randomness, a crash keeps only what was synced."""

    def __init__(self, random: Randomness | None = None) -> None:
        self._random = random
        self.synced = MemoryStore()
        """Synced content."""
        self._unsynced: list[Append] = []
        self._term = 0
        """Number of refusals; a step of an earlier term was made before the last one."""
        self.is_refusing = False
        """True if a step was refused, and none has been tried since."""
        self._flipped: dict[int, None] = {}
        self.is_full = False
        self.fails_to_sync = False
        self.refusals: deque[bool] = deque()
        """For each of the next steps that need space, whether the disk is full."""
        self.written: Callable[[], object] = lambda: None
        """Called when a step was written, before it is synced."""

    def write(self, operations: tuple[Operation, ...]) -> bool:
        """Write a step of the current term."""
        return self.append(Append(0, self._term, operations))

    def append(self, append: Append) -> bool:
        """Write a step; return whether there is space. A full disk takes only releases."""
        if append.term < self._term:
            self.is_refusing = True  # its broker learns once more that this is over
            return False
        if append.operations and not self._has_room():
            self._refuse()
            return False
        self._unsynced.append(append)
        self.written()
        return True

    def _has_room(self) -> bool:
        refuses = bool(self.refusals) and self.refusals.popleft()
        return not (self.is_full or refuses)

    def _refuse(self) -> None:
        self._term += 1
        self.is_refusing = True

    def sync(self) -> bool:
        """Make the oldest step safe; whether it is. A step that could not be synced is gone, and
        all behind it.
        """
        append = self._unsynced.pop(0)
        if self.fails_to_sync:
            self._refuse()
            self._unsynced.clear()
            return False
        self.synced.write((*append.released, *append.operations))
        return True

    def holds(self, append: Append) -> bool:
        """Return whether a written step is not synced yet."""
        return any(unsynced is append for unsynced in self._unsynced)

    def takes_writes(self) -> bool:
        """Check whether a disk that refused a step takes steps again."""
        if self.is_refusing and not self.fails_to_sync and self._has_room():
            self.is_refusing = False
            return True
        return False

    def crash(self) -> None:
        """Lose power; a prefix of the unsynced steps may survive."""
        kept = 0 if self._random is None else self._random.below(len(self._unsynced) + 1)
        for append in self._unsynced[:kept]:
            self.synced.write((*append.released, *append.operations))
        self._unsynced.clear()
        self._term, self.is_refusing = 0, False

    def flip(self, entry: int) -> None:
        """Flip a bit of an entry."""
        self._flipped[entry] = None

    def held(self) -> list[Entry]:
        """List the synced entries, damaged or not."""
        return self.synced.held()

    def facts(self) -> list[Fact]:
        """Return the synced facts of all brokers."""
        return self.synced.facts()

    # --- Store ---

    def load(self) -> Stored:
        """Return all synced operations."""
        return self.synced.load()

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        """Return entries by number."""
        for number in numbers:
            if number in self._flipped:
                raise JournalDamaged(f"entry {number} fails its checksum; restore it from a copy")
        return self.synced.entries(numbers)

    def heading(self, entry: int) -> Heading | None:
        """Return the heading of an entry. Only the events of an entry get damaged."""
        return self.synced.heading(entry)
