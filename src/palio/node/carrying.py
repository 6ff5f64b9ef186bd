"""`Carrying`: durable events that neighbours give into the custody of this broker.

What a disk refuses waits here and is tried again at each look round. All that the same neighbour
carries after it waits behind it, but what was being written already. The neighbour is told nothing
meanwhile: it keeps what is carried, and its session goes on, so a disk that is full costs no live
event. Of more than `UNWRITTEN_BYTES` the rest comes again in a new session, once the disk has taken
what waits.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
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

TRIED_AT_ONCE: Final = 64
"""Of what waited, so much is written together once the disk takes writes again."""

OVERHEAD_BYTES: Final = 500
"""About what a message takes in memory beside its events and names."""


class Carrying:
    """What neighbours carry here, until it is on the disk."""

    def __init__(self, core: Core, take: Take) -> None:
        self._core = core
        self._take = take
        self._backlogs: dict[Neighbour, _Backlog] = {}
        self._strangers: dict[str, None] = {}
        """Homes for which events are kept here and of which nobody here has heard."""

    def carry(self, neighbour: Neighbour, message: Carry) -> None:
        """A neighbour gives events into our custody; it is told once they are on the disk."""
        check_numbered(neighbour.name, message.parcel)
        if neighbour.must_begin_anew:
            return  # not before that which was left out
        notice = self._notice(neighbour, message)
        parcel = notice.parcel if notice is not None else self.admitted(neighbour, message.parcel)
        if len(message.homes) > MAX_BROKERS:
            reason = f"Carry to more than {MAX_BROKERS} homes (MAX_BROKERS)"
            raise IllegalMessage(neighbour.name, reason)
        homes = tuple(dict.fromkeys(message.homes))
        if not self._know(homes, neighbour):
            return  # the neighbour keeps it: there is no Took
        if not len(parcel):  # of what it may not bring nothing is kept, here or there
            neighbour.say(self._core.out, Took((message.flight,)))
            return
        backlog = self._backlogs.setdefault(neighbour, _Backlog())
        backlog.carried += 1
        carried = Carried(self, neighbour, backlog.carried, message, parcel, homes)
        if backlog.is_refused:
            backlog.put(carried)
        else:
            self._try([carried], backlog)
            self._go_on(neighbour, backlog)

    def took(self, neighbour: Neighbour, message: Took) -> None:
        """A neighbour has them on its disk."""
        custody = self._core.durability.custody
        self._core.dismiss(custody.took(neighbour.name, message.flights))

    def again(self) -> None:
        """Try once more what the disk refused, if the last try is over."""
        for neighbour, backlog in list(self._backlogs.items()):
            if not self._is_here(neighbour):
                del self._backlogs[neighbour]  # its custody has them, and looks for another way
            elif backlog.waiting and not backlog.under_way:
                self._try(backlog.next(1), backlog)
                self._go_on(neighbour, backlog)

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

    # --- what came of a write ---

    def kept(self, carried: Carried) -> None:
        """The disk takes writes: all that waits is next."""
        neighbour = carried.neighbour
        backlog = self._backlogs.get(neighbour)
        if backlog is None or not self._is_here(neighbour):
            return
        neighbour.say(self._core.out, Took((carried.message.flight,)))
        backlog.under_way -= 1
        if not backlog.is_trying:
            self._go_on(neighbour, backlog)

    def refused(self, carried: Carried) -> None:
        """They wait, with all that comes after them."""
        backlog = self._backlogs.get(carried.neighbour)
        if backlog is not None:
            backlog.put_back(carried)

    def _go_on(self, neighbour: Neighbour, backlog: _Backlog) -> None:
        """What waits is next, if nothing is being written; then the neighbour's session may end."""
        while backlog.waiting and not backlog.under_way:
            self._try(backlog.next(TRIED_AT_ONCE), backlog)
        if not backlog.under_way:
            del self._backlogs[neighbour]
            neighbour.must_begin_anew = backlog.has_left_out

    def _try(self, all_carried: list[Carried], backlog: _Backlog) -> None:
        backlog.under_way += len(all_carried)
        backlog.is_trying = True
        for each in all_carried:
            self._take(each)
        backlog.is_trying = False

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


Take: TypeAlias = Callable[[Carried], None]
"""Takes into custody, and tells what was carried what came of it."""


class _Backlog:
    """What one neighbour carries, while any of it is being written or waits to be."""

    def __init__(self) -> None:
        self.carried = 0
        self.under_way = 0
        """How many are being written."""
        self.is_trying = False
        """More of them are to be written in this moment."""
        self.is_refused = False
        """Some was refused, and is not on the disk yet: what comes later waits."""
        self.has_left_out = False
        """More came than may wait, and is to come again."""
        self.waiting: list[tuple[int, Carried]] = []
        """What the disk refused, and what came after that: a heap, by their order."""
        self._bytes = 0

    def put(self, carried: Carried) -> None:
        """It waits, unless that is too much, or something before it was too much."""
        is_too_much = bool(self.waiting) and self._bytes + carried.size > UNWRITTEN_BYTES
        self.has_left_out = self.has_left_out or is_too_much
        if not self.has_left_out:
            self._push(carried)

    def put_back(self, carried: Carried) -> None:
        """It was being written, and was refused."""
        self.under_way -= 1
        self.is_refused = True
        self._push(carried)

    def _push(self, carried: Carried) -> None:
        heappush(self.waiting, (carried.number, carried))
        self._bytes += carried.size

    def next(self, count: int) -> list[Carried]:
        """Those that came first; they wait no longer."""
        taken = [heappop(self.waiting)[1] for _ in range(min(count, len(self.waiting)))]
        self._bytes -= sum(each.size for each in taken)
        return taken
