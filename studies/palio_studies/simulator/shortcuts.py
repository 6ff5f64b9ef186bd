"""The parts of shortcuts between branches of a hierarchy: what one is worth, and when it is true.

A shortcut brings *copies*: the tree carries every event all the same. Both ways are complete and
in order, but for what was under way on the tree when the copies began. So copies of a publisher are
refused until the tree has brought all that were refused before; the next one is then news or known,
and in either case nothing is missing before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias, cast

import msgspec

from palio.matching.protocol import RowMask
from palio.model.parcels import Parcel
from palio.routing.messages import Batch, Control, Settled
from palio.routing.peer_requests import Ledger
from palio.routing.protocol import IllegalMessage, Peer, Selector, Send

MOST_WATCHED: Final = 10_000
"""Publishers of one shortcut that are told apart; of one that was forgotten a copy is refused."""

MOST_WISHES: Final = 10_000
"""What one shortcut may take of the state of the broker that serves it."""

_ACCEPTED: Final = -1
"""In the place of the number of a refused copy: none is refused any more."""


class AskShortcut(msgspec.Struct, frozen=True, tag=True):
    """Outside the tree, the sender wants copies on this link of what the receiver hears from below.

    Which of these it wants it says next, in batches, of which the first is `fresh`.
    """


class EndShortcut(msgspec.Struct, frozen=True, tag=True):
    """A shortcut on this link is over at the sender's end: no copy follows it, and no batch.

    `asked`: the sender is the one that had asked for it. The other end answers with the same.
    """

    asked: bool


ShortcutControl: TypeAlias = AskShortcut | EndShortcut
"""What only simulated links carry: brokers have no frame for it."""

ASK: Final = cast("Control", AskShortcut())
END_TAKEN: Final = cast("Control", EndShortcut(asked=True))
END_SERVED: Final = cast("Control", EndShortcut(asked=False))


class Price(NamedTuple):
    """What a shortcut has to be worth: links that events skip by it in a second, for each wish that
    the other end keeps.
    """

    open_at: float = 1.0
    close_at: float = 0.25
    window_s: float = 5.0
    """Rates are of so long a time, and then all is looked at again."""


class Copies:
    """What one shortcut brings here.

    >>> from palio.model.row_parcels import RowParcel
    >>> copies, first, second = Copies(), RowParcel("p", [{}]), RowParcel("p", [{}], first_seq=1)
    >>> copies.accepts(first, (0, -1)), copies.accepts(second, (0, 0))
    (False, True)
    """

    def __init__(self) -> None:
        self.is_open = False
        """Whether the other end has all that is wanted, and sends them."""
        self.is_ending = False
        self._refused: dict[str, tuple[int, int]] = {}
        """By publisher, the epoch and number of the last copy that was refused."""

    def accepts(self, parcel: Parcel, last: tuple[int, int]) -> bool:
        """Whether to go by a copy, given what `LastNumbers` has of its publisher."""
        epoch, number = self._refused.pop(parcel.publisher, (-1, _ACCEPTED))
        is_accepted = epoch == parcel.epoch == last[0] and number <= last[1]
        number = _ACCEPTED if is_accepted else max(parcel.seqs, default=_ACCEPTED)
        self._refused[parcel.publisher] = parcel.epoch, number
        if len(self._refused) > MOST_WATCHED:
            del self._refused[next(iter(self._refused))]
        return is_accepted


class Served:
    """Those whom this broker sends copies."""

    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        self.ledger = Ledger(selector)
        """What each of them wants."""
        self._ending: dict[Peer, bool] = {}
        self._whole: dict[Peer, None] = {}
        """Those that have said all they want."""

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._ending

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._ending)

    def __len__(self) -> int:
        return len(self._ending)

    def is_ending(self, peer: Peer) -> bool:
        """Whether it was told that there are no copies, and has not answered yet."""
        return self._ending[peer]

    def begin(self, peer: Peer) -> None:
        """It asks for copies."""
        self._ending[peer] = False
        self.ledger.add_peer(peer)

    def refuse(self, peer: Peer) -> None:
        """It asks for copies, and gets none."""
        self._ending[peer] = True

    def end(self, peer: Peer) -> None:
        """It gets no more of them, and is told so."""
        self._forget(peer)
        self._ending[peer] = True

    def drop(self, peer: Peer) -> None:
        """It has no shortcut."""
        if not self._ending.pop(peer):
            self._forget(peer)

    def _forget(self, peer: Peer) -> None:
        self._whole.pop(peer, None)
        self.ledger.remove_peer(peer)
        self.ledger.outgoing()  # nobody is told, but the table lets go of what ended

    def hear(self, peer: Peer, batch: Batch) -> list[Send]:
        """What it wants. Copies begin when all of it was said: with the first wave."""
        if self._ending[peer]:
            return []  # said before it knew
        if not all(map(self.ledger.handles, batch.requests)):
            raise IllegalMessage(peer, "only subscriptions go by a shortcut")
        self.ledger.apply_requests(peer, batch.requests, fresh=batch.fresh)
        self.ledger.outgoing()
        if batch.wave is None:
            return []
        self._whole[peer] = None
        return [Send(peer, Settled(batch.wave))]

    def wants_too_much(self, peer: Peer) -> bool:
        """Whether it takes more state than one may."""
        return not self._ending[peer] and len(self.ledger.entries[peer]) > MOST_WISHES

    def route(self, parcel: Parcel) -> dict[Peer, RowMask]:
        """Who gets copies of which events."""
        if not self._whole:
            return {}
        found = {
            self.ledger.peer_of(destination): mask
            for destination, mask in self._selector.route(parcel).items()
        }
        return {peer: mask for peer, mask in found.items() if peer in self._whole}


class Rates:
    """How many events a second come from each broker.

    >>> rates = Rates()
    >>> rates.take(0.0, 5.0), rates.note("b1", 20), rates.take(4.0, 5.0), rates.take(5.0, 5.0)
    (None, None, None, {'b1': 4.0})
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._since: float | None = None

    def note(self, source: str | None, count: int) -> None:
        """So many events have come from a broker."""
        if source:
            self._counts[source] += count

    def take(self, now: float, window_s: float) -> Mapping[str, float] | None:
        """The rates of a window that is over; None while it is not."""
        if self._since is None:
            self._since = now
            self._counts.clear()
        passed = now - self._since
        if passed < window_s or not passed:
            return None
        rates = {source: count / passed for source, count in self._counts.items()}
        self._since = now
        self._counts.clear()
        return rates


def ways_between(
    name: str, sources: Mapping[str, float], parents: Mapping[str, str]
) -> Iterator[tuple[str, float, list[str]]]:
    """For each source in another branch than a broker's: the source, its rate, and the brokers of
    the way from it on the tree, both ends among them.

    >>> list(ways_between("b3", {"b4": 2.0, "b1": 9.0}, {"b2": "b1", "b3": "b1", "b4": "b2"}))
    [('b4', 2.0, ['b4', 'b2', 'b1', 'b3'])]
    """
    mine = _upwards(name, parents)
    for source, rate in sources.items():
        chain = _upwards(source, parents)
        way = [each for each in chain if each not in mine]
        meeting = next((each for each in chain if each in mine), None)
        if way and meeting is not None and meeting != name:
            down = mine[: mine.index(meeting) + 1]
            yield source, rate, [*way, *reversed(down)]


def _upwards(name: str, parents: Mapping[str, str]) -> list[str]:
    chain = [name]
    while chain[-1] in parents and len(chain) <= len(parents):
        chain.append(parents[chain[-1]])
    return chain
