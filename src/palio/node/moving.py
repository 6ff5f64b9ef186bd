"""`Moving`: what waits for a durable subscription goes after it once it lives at another broker.

```
  move    it lives elsewhere   the rows are put under its new home, and carried there
  follow  it had just moved    the same with what reached the disk after that
  first   it is to be back     what is handed over is written first, or it is not back
  again   the disk was full    what could not be written is tried again, also if it has moved once
                               more; until then it is on the disk for those that were here
```

Until what follows is on the disk, nobody is told that those events are safe (`when_followed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from palio.node.core import Core
from palio.node.effects import DropSubscription, Entry, ForgetNumbers, Operation, PutFacts
from palio.node.homes import NOWHERE
from palio.node.limits import CARRIED_AT_ONCE
from palio.protocol.messages import Parcel

__all__ = ["Moving"]

_OF_SUBSCRIPTIONS: Final = (DropSubscription, ForgetNumbers)
"""What is left undone if a durable subscription is back: it has begun anew with that."""


class _Following(NamedTuple):
    """What follows for an entry that reached the disk after its durable subscriptions had moved."""

    number: int
    parts: Mapping[str, Parcel]
    """By durable subscription, what it held for it."""
    entry: int
    then: Callable[[], None]
    """What may be done once it is safe."""


@dataclass
class _Handing:
    """What is handed over for a durable subscription that has moved."""

    entries: list[int]
    operations: list[Operation]
    """What to write for it."""
    held: list[int]
    """The entries that it waited in, held until that is on the disk."""
    ticket: int = 0
    """Of the append, or 0 if that was refused."""
    is_written: bool = False
    before: _Handing | None = None
    """What was about to be written as it moved once more: this needs that, as its end takes away
    what that was made from."""

    def join(self, before: _Handing) -> None:
        """Write with it what was refused before it."""
        self.entries = [*before.entries, *self.entries]
        self.operations = [*before.operations, *self.operations]
        self.held = [*before.held, *self.held]


class Moving:
    """Hands over what waits for the durable subscriptions of one broker that have moved."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._refused: list[_Following] = []
        """What could not be written of that which follows."""
        self._handing: dict[str, _Handing] = {}
        """What is handed over for durable subscriptions that have moved, and is not on the disk."""
        self._last = 0
        self._following: set[int] = set()
        """Entries of which something follows that is not on the disk, numbered."""
        self._waiting: list[tuple[set[int], Callable[[], None]]] = []
        """What is to be done once these are over."""

    def move(self, moved: Iterable[tuple[str, str]]) -> None:
        """Durable subscriptions of this broker live elsewhere now, or nowhere any longer."""
        for subject, home in moved:
            if home == NOWHERE:
                self._end(subject)
            else:
                self._move(subject, home)

    def _end(self, subject: str) -> None:
        """Its owner has ended it at another broker."""
        core = self._core
        core.take_away(core.durability.here[subject])
        core.report("info", "durable_ended", subscription=subject)
        core.append(core.durability.end(subject))

    def _move(self, subject: str, home: str) -> None:
        """It lives elsewhere now: hand over what waits for it."""
        core = self._core
        core.take_away(core.durability.here[subject])
        core.report("info", "durable_moved", subscription=subject, to=home)
        handing = _Handing(*core.durability.hand_over(subject, home, core.at.wall_us))
        before = self._handing.get(subject)
        if before is not None and before.ticket:
            handing.before = before
        elif before is not None:
            handing.join(before)
        self._handing[subject] = handing
        self._hand_over(subject, handing)

    def write_first(self, subject: str) -> tuple[int, ...]:
        """It is about to be back. What is handed over for it is to be on the disk before that, as
        its owner may deal with newer events: the appends that are needed.
        """
        handing = self._handing.get(subject)
        if handing is None:
            return ()
        if not handing.ticket:
            self._hand_over(subject, handing)
        return (handing.ticket,)

    def follow(self, subjects: Iterable[str], entry: Entry, then: Callable[[], None]) -> None:
        """An entry reached the disk for durable subscriptions that have moved away meanwhile, and
        are perhaps back. What it held for them is kept in memory until what carries on for them is
        on the disk, `then` something is done: before that nobody may be told that it is safe.
        """
        part = self._core.durability.part
        parts = {subject: part(subject, entry) for subject in subjects}
        self._last += 1
        self._following.add(self._last)
        self._follow(_Following(self._last, parts, entry.entry, then))

    def when_followed(self, then: Callable[[], None]) -> None:
        """Do something once all that follows now is on the disk."""
        if self._following:
            self._waiting.append((set(self._following), then))
        else:
            then()

    def _has_followed(self, number: int) -> None:
        waiting, self._waiting = self._waiting, []
        for others, then in waiting:
            others.discard(number)
            if others:
                self._waiting.append((others, then))
            else:
                self._core.keep(then)

    def _follow(self, what: _Following) -> None:
        """Take into custody what each of them was to have, where it lives now. What cannot be
        written is taken anew in a while: it may live elsewhere by then.
        """
        core, durability = self._core, self._core.durability
        failures = core.failures
        entries, operations = list[int](), list[Operation]()
        kept: dict[str, int] = {}
        come_again: list[str] = []
        for subject, part in what.parts.items():
            home, durable = durability.homes.of(subject), durability.here.get(subject)
            if home != core.name:
                number, puts = durability.pass_on(subject, part, home, core.at.wall_us)
                entries.append(number)
                operations += puts
            elif durable is not None and durable.has_returned:
                number, puts, has_known = durability.keep(subject, part, core.at.wall_us)
                if number:
                    kept[subject] = number
                if has_known:
                    come_again.append(subject)
                operations += puts

        def followed() -> None:
            self._send(entries)
            left = self._line_up(kept)
            if core.failures > failures:  # perhaps to write what had come again
                left = list(dict.fromkeys([*left, *come_again]))
            if left:  # not safe yet
                parts = {subject: what.parts[subject] for subject in left}
                self._follow(what._replace(parts=parts))
                return
            self._following.discard(what.number)
            self.when_followed(what.then)  # others may be about to write what had come again
            core.dismiss((what.entry,))
            self._has_followed(what.number)

        def wait(_reason: str) -> None:
            for number in entries:
                durability.custody.abandon(number, ())
            durability.abandon_kept(kept, operations)
            self._refused.append(what)

        core.append(operations, followed, wait, needs=durability.needs(kept))

    def _line_up(self, kept: Mapping[str, int]) -> list[str]:
        """What was kept for durable subscriptions that were back is on the disk. Those that have
        gone again meanwhile.
        """
        core, custody = self._core, self._core.durability.custody
        gone = []
        for subject, number in kept.items():
            is_here = custody.lines_up(subject, number)
            custody.release(number, (subject,))
            if is_here:
                core.pump(core.durability.here[subject])
            else:
                gone.append(subject)
                core.dismiss((number,))
        return gone

    def _send(self, entries: Iterable[int]) -> None:
        """Entries are on the disk: they go on."""
        durability = self._core.durability
        for entry in entries:
            durability.custody.release(entry, ())
            durability.custody.dispatch(entry, durability.registry.next_hop)

    def _hand_over(self, subject: str, handing: _Handing) -> None:
        """Send entries to where a durable subscription has moved, once they are on the disk. One
        that is back by then stays: only what waited for it goes on.
        """
        core, durability = self._core, self._core.durability
        operations: list[Operation] = [
            each for each in handing.operations if not isinstance(each, PutFacts)
        ]
        if subject in durability.here:
            operations = [each for each in operations if not isinstance(each, _OF_SUBSCRIPTIONS)]
            operations.append(durability.custody.forget_before(subject))
        else:  # it may say something newer of it by now
            operations += durability.said_of(subject)

        def written() -> None:
            handing.is_written = True
            if self._handing.get(subject) is handing:
                del self._handing[subject]
            self._send(handing.entries)
            durability.custody.let_go(handing.held)
            core.dismiss(handing.held)

        def wait(_reason: str) -> None:
            handing.ticket = 0
            if handing.before is not None and not handing.before.is_written:
                handing.join(handing.before)
            handing.before = None

        needs = () if handing.before is None else (handing.before.ticket,)
        handing.ticket = core.append(operations, written, wait, needs=needs)

    def again(self) -> None:
        """Time has passed: try again to write some of what could not be written."""
        tried = self._refused[:CARRIED_AT_ONCE]
        del self._refused[:CARRIED_AT_ONCE]
        for what in tried:
            self._core.keep(partial(self._follow, what))
        refused = [each for each in self._handing.items() if not each[1].ticket]
        for subject, handing in refused[:CARRIED_AT_ONCE]:
            self._hand_over(subject, handing)
