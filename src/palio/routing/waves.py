"""The echo wave behind `settled()`: when is a change in force wherever a publisher may be?

A request with a wave is answered once everything this broker has sent to its other neighbours, up
to and including what the request led to, is answered for. Links keep order, so one wave answers
for all that went before it on the link; and what is known to be answered for needs no wave at all.
So a subscription that is covered by a settled one settles on the spot, and one covered by a
subscription still on its way waits for that one's wave.

Brokers tell each other facts besides, over links that are in no tree as well. A wave answers for
these, too, if it goes behind them on each link and to all neighbours (`Router.unsettle`).

A neighbour that goes away closes its part as *unreached*. The requester is sent its name, and
nothing is taken for settled on that answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from palio.routing.messages import Batch, Control, Settled
from palio.routing.protocol import IllegalMessage, Peer, Send


def _bare(wave: int) -> Batch:
    return Batch((), wave=wave)


class _Waiting:
    """A requester's wave, and how many neighbours have still to answer."""

    __slots__ = ("open", "requester", "unreached", "wave")

    def __init__(self, requester: Peer, wave: int) -> None:
        self.requester = requester
        self.wave = wave
        self.open = 0
        self.unreached: set[str] = set()

    def answer(self) -> Send:
        return Send(self.requester, Settled(self.wave, tuple(sorted(self.unreached))))


class _Line:
    """One neighbour: batches sent to it, how many are answered for, and the wave on its way."""

    __slots__ = ("answered", "asked", "later", "said", "waiting", "wave")

    def __init__(self) -> None:
        self.said = 0
        self.answered = 0
        self.wave: int | None = None
        """The wave on its way..."""
        self.asked = 0
        """...which batches it asks about..."""
        self.waiting: list[_Waiting] = []
        """...who waits for its answer..."""
        self.later: list[_Waiting] = []
        """...and who for that of the next one."""

    @property
    def everybody(self) -> list[_Waiting]:
        """All that wait for something from this neighbour."""
        return self.waiting + self.later


class Waves:
    """The open waves of one broker.

    One at a time is on its way to each neighbour: those that are asked for meanwhile go together
    once it is answered. So where all ask at once, a link has no more of them than round trips.
    """

    def __init__(self, message: Callable[[int], Control] = _bare) -> None:
        self._message = message
        """A wave that goes by itself."""
        self._lines: dict[Peer, _Line] = {}
        self._next = 0

    def connect(self, neighbour: Peer) -> None:
        """A neighbour that batches will be sent to."""
        self._lines[neighbour] = _Line()

    def said(self, neighbour: Peer) -> None:
        """A batch is about to be sent to a neighbour."""
        self._lines[neighbour].said += 1

    def said_to_all(self) -> None:
        """All neighbours are about to be sent something, or have sent it to each other."""
        for neighbour in self._lines:
            self.said(neighbour)

    @property
    def neighbours(self) -> list[Peer]:
        """Those that are connected, in the order they came."""
        return list(self._lines)

    def begin(
        self, requester: Peer, wave: int, neighbours: Iterable[Peer]
    ) -> tuple[dict[Peer, int], list[Send]]:
        """Open a requester's wave: what to send each neighbour, and the answer if none is due.

        Call it after `said`.
        """
        waiting = _Waiting(requester, wave)
        fresh: dict[Peer, int] = {}
        for neighbour in neighbours:
            line = self._lines[neighbour]
            if neighbour == requester or line.answered == line.said:
                continue
            waiting.open += 1
            if line.wave is None:
                fresh[neighbour] = self._ask(line, [waiting])
            else:
                (line.waiting if line.asked == line.said else line.later).append(waiting)
        return fresh, [] if waiting.open else [waiting.answer()]

    def echo(self, sender: Peer, message: Settled) -> list[Send]:
        """A neighbour answers a wave: answer those who waited for it last, and ask it for those who
        came later.
        """
        line = self._lines.get(sender)
        if line is None or message.wave != line.wave:
            raise IllegalMessage(sender, f"wave {message.wave} is not open there")
        if not message.unreached:
            line.answered = line.asked
        waiting, line.waiting, line.wave = line.waiting, [], None
        answers = self._close(waiting, message.unreached)
        if line.later:
            later, line.later = line.later, []
            answers.append(Send(sender, self._message(self._ask(line, later))))
        return answers

    def disconnect(self, peer: Peer) -> list[Send]:
        """A peer is gone: what it waited for is moot, and what waits for it is unreached."""
        line = self._lines.pop(peer, None)
        for other in self._lines.values():
            other.waiting = [each for each in other.waiting if each.requester != peer]
            other.later = [each for each in other.later if each.requester != peer]
        return [] if line is None else self._close(line.everybody, (peer.name,))

    def excuse(self, neighbour: Peer) -> list[Send]:
        """Answer those who wait for a neighbour that need not answer any more."""
        return self._close(self._lines.pop(neighbour).everybody, ())

    def _ask(self, line: _Line, waiting: list[_Waiting]) -> int:
        """The number of a wave that asks about all that was sent."""
        line.wave, line.asked, line.waiting = self._next, line.said, waiting
        self._next += 1
        return line.wave

    def _close(self, waiters: list[_Waiting], unreached: tuple[str, ...]) -> list[Send]:
        answers = []
        for waiting in waiters:
            waiting.open -= 1
            waiting.unreached.update(unreached)
            if not waiting.open:
                answers.append(waiting.answer())
        return answers
