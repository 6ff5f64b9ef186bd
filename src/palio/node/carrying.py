"""`Carrying`: durable events that neighbours give into the custody of this broker.

A disk that refuses some of them ends no session, so it costs no live event. The neighbour is told
nothing, and keeps what it carries, until it is known what becomes of that:

- What is only on its way to other brokers goes on from memory. Once all of these have taken it, or
  the disk has after all, it is answered for.
- What is for somebody here waits, and is tried again at each look round. All that the same
  neighbour carries here after it waits behind it, but what was being written already. Of what is
  for others as well, their part goes on.
- Of more than `UNWRITTEN_BYTES` the rest comes again in a new session, once all this is over
  (`palio.node.backlogs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from palio.errors import IllegalMessage
from palio.model.parcels import Parcel
from palio.node.authority import publishable
from palio.node.backlogs import Backlog, Flight, Part
from palio.node.core import Core
from palio.node.limits import MAX_BROKERS, MAX_STRANGERS
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


class Carried(NamedTuple):
    """A neighbour carried a part here (see `Giver`)."""

    carrying: Carrying
    neighbour: Neighbour
    backlog: Backlog
    part: Part

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


class Carrying:
    """What neighbours carry here, until it is on the disk or where it goes."""

    def __init__(self, core: Core, take: Take) -> None:
        self._core = core
        self._take = take
        self._backlogs: dict[Neighbour, Backlog] = {}
        self.ready: dict[Neighbour, Backlog] = {}
        """Those of which the disk takes again what waits: `go_on` does a piece."""
        self._passing: dict[int, Neighbour] = {}
        """Who carried what goes on from memory, by entry."""
        self._is_writing_passing = False
        self._strangers: dict[str, None] = {}
        """Homes for which events are kept here and of which nobody here has heard."""

    def carry(self, neighbour: Neighbour, message: Carry) -> None:
        """A neighbour gives events into our custody; it is told once they are on the disk."""
        check_numbered(neighbour.name, message.parcel)
        backlog = self._backlogs.setdefault(neighbour, Backlog())
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
        flight, number = Flight(message.flight), backlog.next_number()
        part = Part(number, flight, parcel, homes, message.subjects)
        if not len(parcel):  # of what it may not bring nothing is kept, here or there
            self._answer(neighbour, part)
        elif backlog.is_refused or backlog.waiting:
            self._put_behind(neighbour, backlog, part)
        else:
            self._try(Carried(self, neighbour, backlog, part), is_first=True)

    def _put_behind(self, neighbour: Neighbour, backlog: Backlog, part: Part) -> None:
        """Something waits already, which is for this broker: what is for others need not."""
        here = self._core.name
        others = tuple(home for home in part.homes if home != here)
        if others == part.homes:
            self._try(Carried(self, neighbour, backlog, part), is_first=True)
            return
        if others:
            part.flight.parts += 1
            away = part._replace(homes=others)
            part = part._replace(homes=(here,), number=backlog.next_number())
            self._try(Carried(self, neighbour, backlog, away), is_first=True)
        backlog.put(part)

    def took(self, neighbour: Neighbour, message: Took) -> None:
        """A neighbour has them on its disk, or they are where they go."""
        custody = self._core.durability.custody
        entries = custody.took(neighbour.name, message.flights)
        self._core.dismiss(entries)
        self._look_at_passing(entry for entry in entries if entry in self._passing)

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
        return sum(each.bytes for each in self._backlogs.values())

    # --- what is tried again ---

    def again(self) -> None:
        """Try once more what the disk refused, if the last try is over."""
        self._look_at_passing(list(self._passing))
        for neighbour, backlog in list(self._backlogs.items()):
            if not self._is_here(neighbour):  # its custody has them, and looks for another way
                self._backlogs.pop(neighbour)
                self.ready.pop(neighbour, None)
            elif backlog.is_refused and backlog.waiting and not backlog.writing:
                self._try_waiting(neighbour, backlog)
            else:
                self._end(neighbour, backlog)
        self._write_passing()

    def go_on(self) -> None:
        """The disk takes writes again: some of what waits is next."""
        tried = rows = 0
        while self.ready and tried < TRIED_AT_ONCE and rows < ROWS_AT_ONCE:
            neighbour, backlog = next(iter(self.ready.items()))
            if backlog.waiting and self._is_here(neighbour):
                rows += self._try_waiting(neighbour, backlog)
                tried += 1
            else:
                del self.ready[neighbour]
                self._end(neighbour, backlog)

    def _try_waiting(self, neighbour: Neighbour, backlog: Backlog) -> int:
        """Take what has waited longest: how many events it was."""
        part = backlog.next()
        try:
            self._try(Carried(self, neighbour, backlog, part), is_first=False)
        except Exception as error:  # noqa: BLE001  # a fault of ours: it comes again
            self._core.fault("carried events", error)
            neighbour.must_begin_anew = True
        return len(part.parcel)

    def _try(self, carried: Carried, *, is_first: bool) -> None:
        writing, number = carried.backlog.writing, carried.part.number
        writing.add(number)
        try:
            self._take(carried, is_first)
        except Exception:
            writing.discard(number)
            raise

    def _end(self, neighbour: Neighbour, backlog: Backlog) -> None:
        """If nothing of it is left there is nothing to look after."""
        if backlog.is_over:
            self._backlogs.pop(neighbour, None)
            if backlog.has_left_out:
                neighbour.must_begin_anew = True

    # --- what came of it ---

    def kept(self, carried: Carried) -> None:
        """It is on the disk, which takes writes: what waits is next."""
        carried.backlog.is_refused = False
        self._is_safe(carried)

    def _is_safe(self, carried: Carried) -> None:
        _, neighbour, backlog, part = carried
        backlog.writing.discard(part.number)
        if self._is_here(neighbour):
            self._answer(neighbour, part)
            if backlog.waiting and not backlog.is_refused:
                self.ready[neighbour] = backlog
            self._end(neighbour, backlog)

    def refused(self, carried: Carried) -> None:
        """It waits, with all that comes here after it; or it was too much to go on from memory."""
        _, neighbour, backlog, part = carried
        if self._core.name in part.homes:
            self.ready.pop(neighbour, None)
            backlog.put_back(part)
        self._end(neighbour, backlog)

    def pass_on(self, carried: Carried, entry: int) -> bool:
        """The disk refused what is for others alone: whether it goes on from memory."""
        _, neighbour, backlog, part = carried
        if not self._core.durability.custody.is_needed(entry):  # they have it by now
            self._is_safe(carried)
            return True
        if not (self._is_here(neighbour) and backlog.pass_on(entry, part)):
            return False
        self._passing[entry] = neighbour
        return True

    def _look_at_passing(self, entries: Iterable[int]) -> None:
        """Which of these are where they go, and which are nobody's, as who carried them is gone."""
        custody = self._core.durability.custody
        for entry in entries:
            if not custody.is_needed(entry):
                self._passed(entry)
            elif not self._is_here(self._passing[entry]):
                del self._passing[entry]
                custody.abandon(entry, ())

    def _passed(self, entry: int) -> None:
        neighbour = self._passing.pop(entry)
        if self._is_here(neighbour):
            backlog = self._backlogs[neighbour]
            self._answer(neighbour, backlog.passed(entry))
            self._end(neighbour, backlog)

    def _write_passing(self) -> None:
        """Try whether the disk takes by now what goes on from memory: one entry after the other."""
        entry, custody = next(iter(self._passing), None), self._core.durability.custody
        if entry is not None and custody.is_needed(entry) and not self._is_writing_passing:
            part = self._backlogs[self._passing[entry]].passing[entry]
            writes = [custody.put(entry, part.parcel, self._core.at.wall_us)]
            self._is_writing_passing = True
            self._core.append(writes, partial(self._on_disk, entry), self._not_on_disk)

    def _on_disk(self, entry: int) -> None:
        self._is_writing_passing = False
        if entry in self._passing:
            self._core.durability.custody.release(entry, ())
            self._passed(entry)
        else:  # it was over before it was written
            self._core.dismiss([entry])
        self._write_passing()

    def _not_on_disk(self, _reason: str) -> None:
        self._is_writing_passing = False

    def _answer(self, neighbour: Neighbour, part: Part) -> None:
        part.flight.parts -= 1
        if not part.flight.parts:
            neighbour.say(self._core.out, Took((part.flight.number,)))

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
