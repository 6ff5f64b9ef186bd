"""The echo wave behind `settled()`: when is a change in force wherever a publisher may be?

A request with a wave is answered once everything this broker has said to its other neighbours, up
to and including what the request led to, is answered for. Links keep order, so one wave answers
for all that went before it on the link; and what is known to be answered for needs no wave at all.
So a subscription that is covered by a settled one settles on the spot, and one covered by a
subscription still on its way waits for that one's wave.

A neighbour that goes away closes its part as *unreached*. The requester is told its name, and
nothing is taken for settled on that answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from palio.routing.messages import Settled
from palio.routing.protocol import IllegalMessage, Peer, Send

__all__ = ["Waves"]


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
    """One neighbour: batches said to it, how many are answered for, and the waves on their way."""

    __slots__ = ("answered", "newest", "said", "waves")

    def __init__(self) -> None:
        self.said = 0
        self.answered = 0
        self.newest: int | None = None
        self.waves: dict[int, tuple[int, list[_Waiting]]] = {}


class Waves:
    """The open waves of one broker."""

    def __init__(self) -> None:
        self._lines: dict[Peer, _Line] = {}
        self._next = 0

    def connect(self, neighbour: Peer) -> None:
        """A neighbour that batches will be sent to."""
        self._lines[neighbour] = _Line()

    def said(self, neighbour: Peer) -> None:
        """A batch is about to be sent to a neighbour."""
        line = self._lines[neighbour]
        line.said += 1
        line.newest = None

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
            if line.newest is None:
                line.newest = fresh[neighbour] = self._next
                line.waves[self._next] = (line.said, [])
                self._next += 1
            line.waves[line.newest][1].append(waiting)
            waiting.open += 1
        return fresh, [] if waiting.open else [waiting.answer()]

    def echo(self, sender: Peer, message: Settled) -> list[Send]:
        """A neighbour answers a wave: answer those who waited for it last."""
        line = self._lines.get(sender)
        if line is None or message.wave not in line.waves:
            raise IllegalMessage(sender, f"wave {message.wave} is not open there")
        said, waiters = line.waves.pop(message.wave)
        if line.newest == message.wave:
            line.newest = None
        if not message.unreached:
            line.answered = max(line.answered, said)
        return self._close(waiters, message.unreached)

    def disconnect(self, peer: Peer) -> list[Send]:
        """A peer is gone: what it waited for is moot, and what waits for it is unreached."""
        line = self._lines.pop(peer, None)
        for other in self._lines.values():
            for _, waiters in other.waves.values():
                waiters[:] = [each for each in waiters if each.requester != peer]
        if line is None:
            return []
        answers: list[Send] = []
        for _, waiters in line.waves.values():
            answers += self._close(waiters, (peer.name,))
        return answers

    def excuse(self, neighbour: Peer) -> list[Send]:
        """What was said to a neighbour matters no more: whoever waits for its answer has it."""
        line = self._lines.pop(neighbour)
        return [send for _, waiters in line.waves.values() for send in self._close(waiters, ())]

    def _close(self, waiters: list[_Waiting], unreached: tuple[str, ...]) -> list[Send]:
        answers = []
        for waiting in waiters:
            waiting.open -= 1
            waiting.unreached.update(unreached)
            if not waiting.open:
                answers.append(waiting.answer())
        return answers
