"""`Moving`: what waits for a durable subscription goes after it once it lives at another broker.

```
  move    it lives elsewhere   the rows are put under its new home, and carried there
  follow  it had just moved    the same with what reached the disk after that
  again   the disk was full    what could not be written is tried again; until then it is on the
                               disk for those that were here
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from palio.node.core import Core
from palio.node.effects import DropSubscription, Entry, ForgetNumbers, Operation, PutFacts
from palio.node.homes import NOWHERE
from palio.node.limits import CARRIED_AT_ONCE
from palio.node.sessions import Durable
from palio.protocol.messages import Gap, Gaps, Parcel

__all__ = ["Moving"]

_OF_SUBSCRIPTIONS: Final = (DropSubscription, ForgetNumbers)
"""What is left undone if a durable subscription is back: it has begun anew with that."""


class Moving:
    """Hands over what waits for the durable subscriptions of one broker that have moved."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._waiting: list[Callable[[], None]] = []
        """What could not be written."""

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
        self._part(core.durability.here[subject], is_told=True)
        core.report("info", "durable_ended", subscription=subject)
        core.append(core.durability.end(subject))

    def _move(self, subject: str, home: str) -> None:
        """It lives elsewhere now: hand over what waits for it."""
        core = self._core
        durable, claim = core.durability.here[subject], core.durability.registry.fact(home, subject)
        is_same_client = claim is not None and claim.visit.follows(durable.visit)
        self._part(durable, is_told=not is_same_client)
        core.report("info", "durable_moved", subscription=subject, to=home)
        entries, operations, held = core.durability.hand_over(subject, home, core.at.wall_us)

        def handed_over() -> None:
            core.durability.custody.let_go(held)
            core.dismiss(held)

        self._carry_on(subject, entries, operations, handed_over)

    def _part(self, durable: Durable, *, is_told: bool) -> None:
        """Whoever has it here has it no longer, and is told that it hears no more: another program,
        or an earlier session of the owner.
        """
        core = self._core
        if is_told and durable.session is not None:
            durable.session.say(core.out, Gaps((Gap("*", 0, 0, 0, durable.key),)))
        core.release(durable)

    def follow(
        self, subjects: Iterable[str], entry: Entry, then: Callable[[], None] | None = None
    ) -> None:
        """An entry reached the disk for durable subscriptions that have moved away meanwhile, and
        are perhaps back. It is kept until what carries on for them is there, `then` something is
        done: before that nobody may be told that it is safe.
        """
        part = self._core.durability.part
        parts = {subject: part(subject, entry) for subject in subjects}
        self._follow(parts, entry.entry, then)

    def _follow(
        self, parts: Mapping[str, Parcel], entry: int, then: Callable[[], None] | None
    ) -> None:
        """Take into custody what each of them was to have, where it lives now. What cannot be
        written is taken anew in a while: it may live elsewhere by then.
        """
        core, durability, custody = self._core, self._core.durability, self._core.durability.custody
        entries, operations = list[int](), list[Operation]()
        kept: dict[str, int] = {}
        for subject, part in parts.items():
            home, durable = durability.homes.of(subject), durability.here.get(subject)
            if home != core.name:
                number, puts = durability.pass_on(subject, part, home, core.at.wall_us)
                entries.append(number)
                operations += puts
            elif durable is not None and durable.has_returned:
                kept[subject], puts = durability.keep(subject, part, core.at.wall_us)
                operations += puts

        def followed() -> None:
            self._send(entries)
            gone = self._line_up(kept)
            if gone:  # again: not safe yet
                self._follow({subject: parts[subject] for subject in gone}, entry, then)
                return
            if then is not None:
                then()
            core.dismiss((entry,))

        def wait(_reason: str) -> None:
            for number in entries:
                custody.abandon(number, ())
            for subject, number in kept.items():
                custody.abandon(number, (subject,))
            self._waiting.append(partial(self._follow, parts, entry, then))

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

    def _carry_on(
        self,
        subject: str,
        entries: Sequence[int],
        operations: Iterable[Operation],
        then: Callable[[], None],
    ) -> None:
        """Send entries to where a durable subscription has moved, once they are on the disk. One
        that is back by then stays: only what waited for it goes on.
        """
        durability = self._core.durability
        operations = [each for each in operations if not isinstance(each, PutFacts)]
        if subject in durability.here:
            operations = [each for each in operations if not isinstance(each, _OF_SUBSCRIPTIONS)]
            operations.append(durability.custody.forget_before(subject))
        else:  # it may say something newer of it by now
            operations += durability.said_of(subject)

        def carry() -> None:
            self._send(entries)
            then()

        def wait(_reason: str) -> None:
            self._waiting.append(partial(self._carry_on, subject, entries, operations, then))

        self._core.append(operations, carry, wait)

    def again(self) -> None:
        """Time has passed: try again to write some of what could not be written."""
        tried = self._waiting[:CARRIED_AT_ONCE]
        del self._waiting[:CARRIED_AT_ONCE]
        for carry_on in tried:
            carry_on()
