"""`Carrying`: durable events that neighbours give into the custody of this broker.

A disk that refuses some of them ends no session, so it costs no live event. The neighbour is told
nothing, and keeps what it carries, until it is known what becomes of that:

- What is only on its way to other brokers goes on from memory. Once all of these have taken it, it
  is answered for as if it were on the disk.
- What is for somebody here waits, and is tried again at each look round. All that the same
  neighbour carries here after it waits behind it, but what was being written already. Of what is
  for others as well, their part goes on.
- Of more than `UNWRITTEN_BYTES` the rest comes again in a new session, once the disk has taken what
  waits.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from math import inf
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from palio.errors import IllegalMessage
from palio.model.parcels import Parcel
from palio.node.authority import publishable
from palio.node.core import Core
from palio.node.limits import MAX_BROKERS, MAX_STRANGERS, UNWRITTEN_BYTES
from palio.node.notices import Notice
from palio.node.sessions import Neighbour
from palio.protocol.legal_parcels import check_numbered
from palio.protocol.limits import MAX_NAME_BYTES
from palio.protocol.messages import Carry, Took

__all__ = ["Carried", "Carrying", "Take"]

TRIED_AT_ONCE: Final = 16
"""Of what waited so many are taken in one step, other inputs between them..."""

ROWS_AT_ONCE: Final = 1_000
"""...or fewer, if they have more events than that."""

OVERHEAD_BYTES: Final = 500
"""About what a message takes in memory beside its events and names."""


class Carrying:
    """What neighbours carry here, until it is on the disk or where it goes."""

    def __init__(self, core: Core, take: Take) -> None:
        self._core = core
        self._take = take
        self._backlogs: dict[Neighbour, _Backlog] = {}
        self.ready: dict[Neighbour, _Backlog] = {}
        """Those of which the disk takes again what waits: `go_on` does a piece."""
        self._passing: dict[int, Carried] = {}
        """By entry, what goes on from memory."""
        self._passing_bytes = 0
        self._strangers: dict[str, None] = {}
        """Homes for which events are kept here and of which nobody here has heard."""

    def carry(self, neighbour: Neighbour, message: Carry) -> None:
        """A neighbour gives events into our custody; it is told once they are on the disk."""
        check_numbered(neighbour.name, message.parcel)
        backlog = self._backlogs.setdefault(neighbour, _Backlog(self._core.name))
        if neighbour.must_begin_anew or backlog.has_left_out:
            return  # not before that which was left out
        notice = self._notice(neighbour, message)
        parcel = notice.parcel if notice is not None else self.admitted(neighbour, message.parcel)
        if len(message.homes) > MAX_BROKERS:
            reason = f"Carry to more than {MAX_BROKERS} homes (MAX_BROKERS)"
            raise IllegalMessage(neighbour.name, reason)
        homes = tuple(dict.fromkeys(message.homes))
        if not self._know(homes, neighbour):
            return  # the neighbour keeps it: there is no Took
        number = backlog.next_number()
        carried = Carried(self, neighbour, number, message, parcel, homes, _Parts())
        if not len(parcel):  # of what it may not bring nothing is kept, here or there
            self._answer(carried)
        elif backlog.is_refused or backlog.waiting:
            self._put_behind(carried, backlog)
        else:
            self._try(carried, backlog, is_first=True)

    def _put_behind(self, carried: Carried, backlog: _Backlog) -> None:
        """Something waits already. What is for other brokers need not, unless such waits, too."""
        here = self._core.name
        others = tuple(home for home in carried.homes if home != here)
        if others:
            away = carried
            if len(others) < len(carried.homes):
                carried.parts.left += 1
                away = carried._replace(homes=others)
                carried = carried._replace(homes=(here,), number=backlog.next_number())
            if backlog.others:
                backlog.put(away)
            else:
                self._try(away, backlog, is_first=True)
        if here in carried.homes:
            backlog.put(carried)

    def took(self, neighbour: Neighbour, message: Took) -> None:
        """A neighbour has them on its disk, or they are where they go."""
        custody = self._core.durability.custody
        entries = custody.took(neighbour.name, message.flights)
        self._core.dismiss(entries)
        for entry in entries:
            if entry in self._passing and not custody.is_needed(entry):
                self._answer(self._passed(entry))

    def admitted(self, neighbour: Neighbour, parcel: Parcel) -> Parcel:
        """What the neighbour may bring here."""
        principal = neighbour.principal
        if principal.publishes_all:
            return parcel
        mask = publishable(principal, parcel)
        if not mask.all():
            denied = int((~mask).sum())
            self._core.complain("beyond_grant", neighbour.name, denied, publisher=parcel.publisher)
        return parcel.select(mask)

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of all that a disk refused and that is held here all the same."""
        return self._passing_bytes + sum(each.bytes for each in self._backlogs.values())

    # --- what is tried again ---

    def again(self) -> None:
        """Try once more what the disk refused, if the last try is over."""
        for neighbour, backlog in list(self._backlogs.items()):
            if not self._is_here(neighbour):  # its custody has them, and looks for another way
                del self._backlogs[neighbour]
                self.ready.pop(neighbour, None)
            elif backlog.is_refused and backlog.waiting and not backlog.writing:
                self._try_waiting(neighbour, backlog)
            else:
                self._end(neighbour, backlog)
        custody = self._core.durability.custody
        for entry, carried in list(self._passing.items()):
            if not custody.is_needed(entry):  # a home was given up
                self._answer(self._passed(entry))
            elif not self._is_here(carried.neighbour):
                self._passed(entry)
                custody.abandon(entry, ())

    def go_on(self) -> None:
        """The disk takes writes again: some of what waits is next."""
        tried = rows = 0
        while self.ready and tried < TRIED_AT_ONCE and rows < ROWS_AT_ONCE:
            neighbour, backlog = next(iter(self.ready.items()))
            if backlog.waiting:
                rows += self._try_waiting(neighbour, backlog)
                tried += 1
            else:
                del self.ready[neighbour]
                self._end(neighbour, backlog)

    def _try_waiting(self, neighbour: Neighbour, backlog: _Backlog) -> int:
        """Take what has waited longest: how many events it was."""
        carried = backlog.next()
        try:
            self._try(carried, backlog, is_first=False)
        except Exception as error:  # noqa: BLE001  # a fault of ours: it comes again
            self._core.fault("carried events", error)
            neighbour.must_begin_anew = True
        return len(carried.parcel)

    def _try(self, carried: Carried, backlog: _Backlog, *, is_first: bool) -> None:
        backlog.writing.add(carried.number)
        try:
            self._take(carried, is_first)
        except Exception:
            backlog.writing.discard(carried.number)
            raise

    def _end(self, neighbour: Neighbour, backlog: _Backlog) -> None:
        """If nothing waits and nothing is being written, nothing is left to look after."""
        if not (backlog.waiting or backlog.writing):
            self._backlogs.pop(neighbour, None)
            if backlog.has_left_out:
                neighbour.must_begin_anew = True

    # --- what came of it ---

    def kept(self, carried: Carried) -> None:
        """It is on the disk, which takes writes: what waits is next."""
        backlog = self._backlogs.get(carried.neighbour)
        if backlog is None or not self._is_here(carried.neighbour):
            return
        self._answer(carried)
        backlog.writing.discard(carried.number)
        backlog.is_refused = False
        if backlog.waiting:
            self.ready[carried.neighbour] = backlog
        else:
            self._end(carried.neighbour, backlog)

    def refused(self, carried: Carried) -> None:
        """It waits, with all that comes after it."""
        backlog = self._backlogs.get(carried.neighbour)
        if backlog is not None:
            self.ready.pop(carried.neighbour, None)
            backlog.put_back(carried)

    def pass_on(self, carried: Carried, entry: int) -> bool:
        """The disk refused what is for others alone: whether it goes on from memory."""
        if not self._core.durability.custody.is_needed(entry):  # they have it by now
            self.kept(carried)
            return True
        backlog = self._backlogs.get(carried.neighbour)
        if backlog is None or self._passing_bytes + carried.size > UNWRITTEN_BYTES:
            return False
        self._passing[entry] = carried
        self._passing_bytes += carried.size
        backlog.writing.discard(carried.number)
        self._end(carried.neighbour, backlog)
        return True

    def _passed(self, entry: int) -> Carried:
        carried = self._passing.pop(entry)
        self._passing_bytes -= carried.size
        return carried

    def _answer(self, carried: Carried) -> None:
        carried.parts.left -= 1
        if not carried.parts.left and self._is_here(carried.neighbour):
            carried.neighbour.say(self._core.out, Took((carried.message.flight,)))

    def _is_here(self, neighbour: Neighbour) -> bool:
        return self._core.neighbours.get(neighbour.name) is neighbour

    # --- what is told of lost events, and for whom ---

    def _notice(self, neighbour: Neighbour, message: Carry) -> Notice | None:
        """What is told of lost events, if that is what is carried. Whoever may not bring all events
        does not say whose they were; whoever may bring none says nothing.
        """
        try:
            notice = Notice.of(message.parcel)
        except ValueError as error:
            raise IllegalMessage(neighbour.name, str(error)) from None
        principal = neighbour.principal
        if notice is None or not principal.publishes_something:
            return None
        self._core.complain("loss_told", neighbour.name, 1, homes=list(message.homes[:3]))
        return notice if principal.publishes_all else notice.anonymous

    def _know(self, homes: tuple[str, ...], neighbour: Neighbour) -> bool:
        """Whether events may be kept for these homes, of some of which word may come late."""
        registry, strangers = self._core.durability.registry, self._strangers
        unknown = [home for home in homes if not registry.has_heard_of(home)]
        if not unknown:
            return True
        for home in [each for each in strangers if registry.has_heard_of(each)]:
            del strangers[home]
        is_bearable = len(strangers.keys() | set(unknown)) <= MAX_STRANGERS
        if is_bearable:
            strangers.update(dict.fromkeys(unknown))
        named = [home[:MAX_NAME_BYTES] for home in unknown[:3]]
        self._core.complain(
            "home_unknown", neighbour.name, len(unknown), homes=named, kept=is_bearable
        )
        return is_bearable


class _Parts:
    """Of how many parts of what was carried it is yet to be known what became of them."""

    def __init__(self) -> None:
        self.left = 1


class Carried(NamedTuple):
    """A neighbour carried these here (see `Giver`)."""

    carrying: Carrying
    neighbour: Neighbour
    number: int
    """In the order in which they came."""
    message: Carry
    parcel: Parcel
    """Those that the neighbour may bring."""
    homes: tuple[str, ...]
    parts: _Parts

    @property
    def size(self) -> int:
        """About what it takes in memory while it waits."""
        names = sum(map(len, self.homes)) + sum(map(len, self.message.subjects))
        return self.message.parcel.held_bytes + names + OVERHEAD_BYTES

    def kept(self) -> None:
        """See `Giver`."""
        self.carrying.kept(self)

    def refused(self, _reason: str, /) -> None:
        """See `Giver`."""
        self.carrying.refused(self)

    def passes_on(self, entry: int, /) -> bool:
        """See `Giver`."""
        return self.carrying.pass_on(self, entry)


Take: TypeAlias = Callable[[Carried, bool], None]
"""Takes into custody, for the first time or again, and tells what was carried what came of it."""


class _Backlog:
    """What one neighbour carries, while any of it is being written or waits to be."""

    def __init__(self, here: str) -> None:
        self._here = here
        self._last_number = 0
        self.writing: set[int] = set()
        """The numbers of those that are being written."""
        self.is_refused = False
        """The disk refuses writes, as far as is known: what comes waits."""
        self.waiting: list[Carried] = []
        """What the disk refused, and what came after that, in order."""
        self.others = 0
        """How many of these are for other brokers alone."""
        self.bytes = 0
        self._left_out = inf
        """The first that was more than may wait: it and all after it are to come again."""

    @property
    def has_left_out(self) -> bool:
        """Whether some is to come again."""
        return self._left_out < inf

    def next_number(self) -> int:
        """The number of what comes now."""
        self._last_number += 1
        return self._last_number

    def put(self, carried: Carried) -> None:
        """It waits behind others. Of what is too much the last is left out, but never the first."""
        if carried.number >= self._left_out:
            return
        insort(self.waiting, carried, key=_number)
        self._count(carried, 1)
        while self.bytes > UNWRITTEN_BYTES and len(self.waiting) > 1:
            last = self.waiting.pop()
            self._count(last, -1)
            self._left_out = last.number

    def put_back(self, carried: Carried) -> None:
        """It was being written, and was refused."""
        self.writing.discard(carried.number)
        self.is_refused = True
        self.put(carried)

    def next(self) -> Carried:
        """What has waited longest; it waits no longer."""
        carried = self.waiting.pop(0)
        self._count(carried, -1)
        return carried

    def _count(self, carried: Carried, sign: int) -> None:
        self.bytes += sign * carried.size
        if self._here not in carried.homes:
            self.others += sign


_number: Final = attrgetter("number")
