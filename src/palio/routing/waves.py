"""`Waves`: finds out when a change is in force wherever a publisher may be, for `settled()`.

A request with a wave is answered once the other neighbours have acknowledged everything this broker
sent them, up to and including what the request led to. Links keep order, so one wave acknowledges
all earlier messages of the link, and a link without unacknowledged messages needs no wave. So a
subscription covered by a settled one settles at once. One covered by a subscription in flight waits
for the wave of that one.

Brokers also send each other facts, over links outside the tree as well. A wave covers these, too,
if it follows them on each link and goes to all neighbours (`Router.unsettle`).

A neighbour that disconnects counts as *unreached*: the requester receives its name, and must not
treat its change as settled by that answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from palio.routing.messages import Batch, Control, Settled
from palio.routing.protocol import IllegalMessage, Peer, Send


def _bare(wave: int) -> Batch:
    return Batch((), wave=wave)


class _PendingWave:
    """A requester's wave, and the number of neighbours that have yet to answer it."""

    __slots__ = ("open", "requester", "unreached", "wave")

    def __init__(self, requester: Peer, wave: int) -> None:
        self.requester = requester
        self.wave = wave
        self.open = 0
        self.unreached: set[str] = set()

    def answer(self) -> Send:
        return Send(self.requester, Settled(self.wave, tuple(sorted(self.unreached))))


class _NeighbourWaves:
    """One neighbour: the numbers of batches sent and acknowledged, and the wave in flight to it."""

    __slots__ = ("acked", "asked", "later", "sent", "wave", "waves")

    def __init__(self) -> None:
        self.sent = 0
        self.acked = 0
        self.wave: int | None = None
        """The number of the wave in flight."""
        self.asked = 0
        """The batches that it asks about."""
        self.waves: list[_PendingWave] = []
        """The requesters' waves that its answer decides."""
        self.later: list[_PendingWave] = []
        """Those that came later, and need the next wave."""

    @property
    def pending(self) -> list[_PendingWave]:
        """All requesters' waves that need an answer of this neighbour."""
        return self.waves + self.later


class Waves:
    """The open waves of one broker.

    One wave at a time is in flight to each neighbour. Waves requested meanwhile go together once it
    is answered, so that a link carries at most one wave a round trip.
    """

    def __init__(self, message: Callable[[int], Control] = _bare) -> None:
        self._message = message  # makes a wave without requests
        self._neighbours: dict[Peer, _NeighbourWaves] = {}
        self._next = 0

    def connect(self, neighbour: Peer) -> None:
        """Add a neighbour that batches will be sent to."""
        self._neighbours[neighbour] = _NeighbourWaves()

    def note_sent(self, neighbour: Peer) -> None:
        """Count a batch that is about to be sent to a neighbour."""
        self._neighbours[neighbour].sent += 1

    def note_sent_to_all(self) -> None:
        """Count a message to all neighbours, or one that they sent each other."""
        for neighbour in self._neighbours:
            self.note_sent(neighbour)

    @property
    def neighbours(self) -> list[Peer]:
        """The connected neighbours, in the order they came."""
        return list(self._neighbours)

    def begin(
        self, requester: Peer, wave: int, neighbours: Iterable[Peer]
    ) -> tuple[dict[Peer, int], list[Send]]:
        """Open a requester's wave; return the waves to send, and its answer if none is needed.

        Call it after `note_sent` for the batches that the request led to.
        """
        pending = _PendingWave(requester, wave)
        numbers: dict[Peer, int] = {}
        for neighbour in neighbours:
            at = self._neighbours[neighbour]
            if neighbour == requester or at.acked == at.sent:
                continue
            pending.open += 1
            if at.wave is None:
                numbers[neighbour] = self._ask(at, [pending])
            else:
                # A wave in flight decides this one, too, if no batch was sent behind it.
                (at.waves if at.asked == at.sent else at.later).append(pending)
        return numbers, [] if pending.open else [pending.answer()]

    def settle(self, sender: Peer, message: Settled) -> list[Send]:
        """Take a neighbour's answer: answer requesters for which it was the last, and send the next
        wave if requests came later.
        """
        at = self._neighbours.get(sender)
        if at is None or message.wave != at.wave:
            raise IllegalMessage(sender, f"wave {message.wave} is not open there")
        if not message.unreached:
            at.acked = at.asked
        waves, at.waves, at.wave = at.waves, [], None
        answers = self._close(waves, message.unreached)
        if at.later:
            later, at.later = at.later, []
            answers.append(Send(sender, self._message(self._ask(at, later))))
        return answers

    def disconnect(self, peer: Peer) -> list[Send]:
        """Remove a peer: drop its own waves, and count it as unreached by the others."""
        gone = self._neighbours.pop(peer, None)
        for at in self._neighbours.values():
            at.waves = [wave for wave in at.waves if wave.requester != peer]
            at.later = [wave for wave in at.later if wave.requester != peer]
        return [] if gone is None else self._close(gone.pending, (peer.name,))

    def _ask(self, at: _NeighbourWaves, waves: list[_PendingWave]) -> int:
        """Number a new wave, which asks about all batches sent so far."""
        at.wave, at.asked, at.waves = self._next, at.sent, waves
        self._next += 1
        return at.wave

    def _close(self, waves: list[_PendingWave], unreached: tuple[str, ...]) -> list[Send]:
        answers = []
        for wave in waves:
            wave.open -= 1
            wave.unreached.update(unreached)
            if not wave.open:
                answers.append(wave.answer())
        return answers
